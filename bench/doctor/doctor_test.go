// Package doctor benchmarks the reading of logs and blobs for damage beside their
// limits: a copy out of the page cache, and SHA-256. See BENCHMARKS.md.
package doctor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
	"github.com/agentrun/agentrun/session/entry"
)

// logSize is how large the log is, and blobCount blobs of blobSize are: enough that
// what is done once does not show.
const (
	logSize   = 256 << 20
	blobSize  = 256 << 10
	blobCount = 512
)

var words = strings.Repeat("the quick brown fox jumps over the lazy dog and reads the session file again ", 8)

func home(b *testing.B) *session.Manager {
	b.Helper()
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: session.Flush})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// examine runs the doctor, which must find nothing.
func examine(b *testing.B, m *session.Manager, do func(context.Context, *doctor.Doctor) error) {
	b.Helper()
	d, err := doctor.New(context.Background(), m, doctor.Options{Report: func(f doctor.Finding) { b.Fatalf("%+v", f) }})
	if err != nil {
		b.Fatal(err)
	}
	if err := do(context.Background(), d); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLog examines a log of sealed messages of 700 bytes.
func BenchmarkLog(b *testing.B) {
	m := home(b)
	ctx := context.Background()
	s, err := m.Create(ctx, b.TempDir(), session.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	var batch []entry.Body
	for i := range 1000 {
		batch = append(batch, entry.MessageBody{Message: json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%d %s","timestamp":%d}`, i, words[:500], 1_760_000_000_000+i))})
	}
	for written := 0; written < logSize; {
		if _, err := s.AppendAll(ctx, batch...); err != nil {
			b.Fatal(err)
		}
		info, err := os.Stat(s.Path())
		if err != nil {
			b.Fatal(err)
		}
		written = int(info.Size())
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("agentrun", func(b *testing.B) {
		b.SetBytes(logSize)
		for b.Loop() {
			examine(b, m, func(ctx context.Context, d *doctor.Doctor) error { return d.Sessions(ctx, s.Path()) })
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(logSize)
		buf := make([]byte, 1<<20)
		for b.Loop() {
			f, err := os.Open(s.Path())
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, buf); err != nil {
				b.Fatal(err)
			}
			f.Close()
		}
	})
}

// BenchmarkBlobs examines blobs of the size of screenshots, beside SHA-256 over as
// many bytes in memory, on one core and on all, and beside bare system calls and
// SHA-256 over the same files: what bytes in files can cost at least.
func BenchmarkBlobs(b *testing.B) {
	m := home(b)
	ctx := context.Background()
	r := rand.NewChaCha8([32]byte{1})
	data := make([]byte, blobSize)
	store := m.Blobs()
	for range blobCount {
		r.Read(data)
		if _, err := blobstore.Put(ctx, store, data); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("agentrun", func(b *testing.B) {
		b.SetBytes(blobSize * blobCount)
		for b.Loop() {
			examine(b, m, func(ctx context.Context, d *doctor.Doctor) error { return d.Home(ctx) })
		}
	})
	sum := func(b *testing.B, workers int) {
		b.SetBytes(blobSize * blobCount)
		for b.Loop() {
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range blobCount / workers {
						sha256.Sum256(data)
					}
				})
			}
			wg.Wait()
		}
	}
	b.Run("sha256/one core", func(b *testing.B) { sum(b, 1) })
	b.Run("sha256/all cores", func(b *testing.B) { sum(b, runtime.GOMAXPROCS(0)) })
	b.Run("open+read+sha256/all cores", func(b *testing.B) {
		names, err := filepath.Glob(filepath.Join(m.Home(), "blobs", "*"))
		if err != nil || len(names) != blobCount {
			b.Fatalf("%d blobs, %v", len(names), err)
		}
		b.SetBytes(blobSize * blobCount)
		for b.Loop() {
			var wg sync.WaitGroup
			var next atomic.Int64
			for range runtime.GOMAXPROCS(0) {
				wg.Go(func() {
					buf := make([]byte, blobSize)
					for {
						i := int(next.Add(1)) - 1
						if i >= len(names) {
							return
						}
						if err := readAll(names[i], buf); err != nil {
							b.Error(err)
							return
						}
						sha256.Sum256(buf)
					}
				})
			}
			wg.Wait()
		}
	})
}

// readAll fills buf with the beginning of a file.
func readAll(name string, buf []byte) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if n, err := unix.Pread(fd, buf, 0); err != nil || n < len(buf) {
		return fmt.Errorf("reading %s: %d bytes, %v", name, n, err)
	}
	return nil
}
