package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/session"
	spaces "github.com/agentrun/agentrun/usage"
)

// vocabulary has 4,000 words, of which sentence makes text that zstd compresses to
// about a third, as it does logs.
var vocabulary = func() (list []string) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		list = append(list, fmt.Sprintf("%x", r.Uint64N(1<<(12+4*r.UintN(8)))))
	}
	return list
}()

func sentence(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(vocabulary[int(float64(len(vocabulary))*r.Float64()*r.Float64())])
		b.WriteByte(' ')
	}
	return b.String()[:n]
}

// compacted is a log of 50 compactions, each of which embeds a history of 1 MB that
// has grown by 20 KB since the one before.
func compacted() []byte {
	r := rand.New(rand.NewPCG(3, 4))
	var log bytes.Buffer
	log.WriteString(`{"type":"session","version":3,"id":"s","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p"}` + "\n")
	var history []string
	message := func() string { return fmt.Sprintf(`{"role":"user","content":%q}`, sentence(r, 2000)) }
	for range 500 {
		history = append(history, message())
	}
	line := func(id int, kind, member string) {
		fmt.Fprintf(&log, `{"type":%q,"id":"e%d","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z",%s}`+"\n", kind, id, member)
	}
	for i := range 50 {
		for k := range 10 {
			m := message()
			line(100*i+k, "message", `"message":`+m)
			history = append(history, m)
		}
		line(100*i+99, "compaction", `"summary":"s","firstKeptEntryId":"e0","tokensBefore":1,"details":{"history":[`+strings.Join(history[len(history)-500:], ",")+`]}`)
	}
	return log.Bytes()
}

// writeCompacted puts the log into a home.
func writeCompacted(b *testing.B, log []byte) (m *session.Manager, path string) {
	b.Helper()
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	path = filepath.Join(m.Home(), "sessions", "-p", "s.jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, log, 0o600); err != nil {
		b.Fatal(err)
	}
	return m, path
}

// BenchmarkCompressCompactions compresses such a log and tells what `sessions du`
// says of the home afterwards.
func BenchmarkCompressCompactions(b *testing.B) {
	log := compacted()
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		b.StopTimer()
		m, path := writeCompacted(b, log)
		b.StartTimer()
		if err := m.Compress(context.Background(), path); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		r, err := spaces.Measure(context.Background(), m.Home(), spaces.MeasureOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(r.Bytes), "du-bytes")
		b.StartTimer()
	}
}

// BenchmarkCompressCompactionsLimit compresses it in frames of the same size, and
// folds nothing.
func BenchmarkCompressCompactionsLimit(b *testing.B) {
	log := compacted()
	b.SetBytes(int64(len(log)))
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	defer enc.Close()
	var packed []byte
	size := 0
	for b.Loop() {
		size = 0
		for at := 0; at < len(log); at += 256 << 10 {
			packed = enc.EncodeAll(log[at:min(at+256<<10, len(log))], packed[:0])
			size += len(packed)
		}
	}
	b.ReportMetric(float64(size), "du-bytes")
}

// BenchmarkReadFolded reads such a log from beginning to end.
func BenchmarkReadFolded(b *testing.B) {
	log := compacted()
	m, path := writeCompacted(b, log)
	if err := m.Compress(context.Background(), path); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		l, err := m.OpenLog(path)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(l, 0, l.Size()), make([]byte, 1<<20)); err != nil || n != int64(len(log)) {
			b.Fatal(n, err)
		}
		l.Close()
	}
}
