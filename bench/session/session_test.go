// Package session benchmarks the log: appends beside the bare system calls, opens
// and scans beside their limits. See BENCHMARKS.md.
package session

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	spaces "github.com/agentrun/agentrun/usage"
)

// words is the text that fills messages, as the benchmark of oh-my-pi uses it.
var words = strings.Repeat("the quick brown fox jumps over the lazy dog and reads the session file again ", 8)

const usage = `"usage":{"input":100,"output":20,"cacheRead":0,"cacheWrite":0,"totalTokens":120,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}}`

// message returns message i of a conversation, about 700 bytes as a line.
func message(i int) json.RawMessage {
	if i%2 == 0 {
		return json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%d %s","timestamp":%d}`, i, words[:500], 1_760_000_000_000+i))
	}
	return json.RawMessage(fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"%d %s"}],"api":"anthropic-messages","provider":"anthropic","model":"m",%s,"stopReason":"stop","timestamp":%d}`, i, words[:250], usage, 1_760_000_000_000+i))
}

func open(b testing.TB, d session.Durability) (*session.Manager, *session.Session) {
	b.Helper()
	return openIn(b, filepath.Join(b.TempDir(), "home"), session.Options{Durability: d})
}

func openIn(b testing.TB, home string, o session.Options) (*session.Manager, *session.Session) {
	b.Helper()
	m, err := session.OpenManager(home, o)
	if err != nil {
		b.Fatal(err)
	}
	s, err := m.Create(context.Background(), b.TempDir(), session.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if _, err := s.Append(context.Background(), entry.MessageBody{Message: message(0)}); err != nil {
		b.Fatal(err)
	}
	return m, s
}

func user(i int) entry.Body { return entry.MessageBody{Message: message(i)} }

// BenchmarkAppendFlush appends entries of 700 bytes, of a user and of an assistant
// in turn, that survive the death of the process.
func BenchmarkAppendFlush(b *testing.B) {
	ctx := context.Background()
	bodies := []entry.Body{user(0), user(1)}
	b.Run("agentrun", func(b *testing.B) {
		_, s := open(b, session.Flush)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, err := s.Append(ctx, bodies[i&1]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	b.Run("agentrun with quotas", func(b *testing.B) {
		home := b.TempDir()
		settings := `{"quota":{"session":{"log":"1TB","blobs":"1TB"},"home":{"log":"1TB","blobs":"1TB"}}}`
		if err := os.WriteFile(config.Path(home), []byte(settings), 0o600); err != nil {
			b.Fatal(err)
		}
		guard := spaces.Open(home, spaces.Options{})
		defer guard.Close()
		_, s := openIn(b, home, session.Options{Durability: session.Flush, Quota: guard})
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			if _, err := s.Append(ctx, bodies[i&1]); err != nil {
				b.Fatal(err)
			}
			i++
		}
	})
	line := line(1)
	b.Run("lock+fstat+stat+write", func(b *testing.B) {
		// Where a session would be, and called like one: a path costs by its length.
		_, s := open(b, session.Flush)
		path := s.Path() + ".bare"
		f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			b.Fatal(err)
		}
		lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			b.Fatal(err)
		}
		var st unix.Stat_t
		for b.Loop() {
			if unix.Flock(int(lock.Fd()), unix.LOCK_EX) != nil || unix.Fstat(int(f.Fd()), &st) != nil || unix.Stat(path, &st) != nil {
				b.Fatal("system call failed")
			}
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
			if unix.Flock(int(lock.Fd()), unix.LOCK_UN) != nil {
				b.Fatal("unlock failed")
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		f := create(b)
		for b.Loop() {
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// line is what entry i costs on disk.
func line(i int) []byte {
	return seal(nil, "message", id(i), id(i-1), append([]byte(`,"message":`), message(i)...))
}

func id(i int) string { return fmt.Sprintf("%024x", i) }

// seal appends one line of the format with its checksum.
func seal(dst []byte, typ, id, parent string, fields []byte) []byte {
	start := len(dst)
	dst = append(dst, `{"type":"`+typ+`","id":"`+id+`","parentId":`...)
	if parent == "" {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, `"`+parent+`"`...)
	}
	dst = append(append(dst, `,"timestamp":"2026-11-20T20:17:07.977Z"`...), fields...)
	return fmt.Appendf(dst, ",\"crc\":\"%08x\"}\n", crc32.Checksum(dst[start:], castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func create(b testing.TB) *os.File {
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "log"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// BenchmarkAppendSync appends an entry that survives power loss: one appender,
// and 64 that share fsyncs.
func BenchmarkAppendSync(b *testing.B) {
	ctx := context.Background()
	body := entry.MessageBody{Message: message(1)}
	b.Run("agentrun", func(b *testing.B) {
		_, s := open(b, session.Sync)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Append(ctx, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write+fsync", func(b *testing.B) {
		f, line := create(b), line(1)
		for b.Loop() {
			if _, err := f.Write(line); err != nil {
				b.Fatal(err)
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("agentrun-64", func(b *testing.B) {
		_, s := open(b, session.Sync)
		var wg sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(b.N))
		b.ResetTimer()
		for range 64 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for left.Add(-1) >= 0 {
					if _, err := s.Append(ctx, body); err != nil {
						b.Error(err)
						return
					}
				}
			}()
		}
		wg.Wait()
	})
}

// write makes a session of n entries by writing its lines directly, with a
// compaction keep entries before its end when keep > 0.
func write(b testing.TB, path string, n, keep int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	w.WriteString(`{"type":"session","version":3,"id":"01a1fa9b-0000-7000-8000-000000000000","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/"}` + "\n")
	parent, kept := "", ""
	var buf []byte
	for i := range n {
		at := id(i)
		buf = seal(buf[:0], "message", at, parent, append([]byte(`,"message":`), message(i)...))
		w.Write(buf)
		parent = at
		switch i {
		case n - 2*keep:
			kept = at
		case n - keep:
			fields, err := entry.AppendFields(nil, entry.Compaction{Summary: "before", FirstKeptEntryID: kept, TokensBefore: 1, Checkpoint: &entry.Checkpoint{}})
			if err != nil {
				b.Fatal(err)
			}
			parent = "c" + at
			w.Write(seal(nil, "compaction", parent, at, fields))
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

func manager(b testing.TB) *session.Manager {
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkOpenContext opens a session and builds its context: roles, ids and
// tool-call ids of every message.
func BenchmarkOpenContext(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s.jsonl")
	write(b, path, 10_000, 0)
	m := manager(b)
	b.ReportAllocs()
	for b.Loop() {
		s, err := m.View(context.Background(), path)
		if err != nil {
			b.Fatal(err)
		}
		c, err := s.Context(context.Background())
		if err != nil || len(c.Messages) != 10_000 {
			b.Fatal(len(c.Messages), err)
		}
		s.Close()
	}
}

// BenchmarkLarge opens a session of 1 GB with a compaction near its end, and scans
// its whole tree.
func BenchmarkLarge(b *testing.B) {
	if testing.Short() {
		b.Skip("writes a session of 1 GB; run without -short")
	}
	path := filepath.Join(b.TempDir(), "s.jsonl")
	write(b, path, 1_450_000, 100)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	m := manager(b)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s, err := m.View(context.Background(), path)
			if err != nil {
				b.Fatal(err)
			}
			c, err := s.Context(context.Background())
			if err != nil || len(c.Messages) < 200 {
				b.Fatal(len(c.Messages), err)
			}
			s.Close()
		}
		b.ReportMetric(residentMiB(b, path), "MiB-resident")
		b.ReportMetric(residentMiB(b, "idle"), "MiB-idle")
	})
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(info.Size())
		for b.Loop() {
			s, err := m.View(context.Background(), path)
			if err != nil {
				b.Fatal(err)
			}
			t, err := s.Tree(context.Background())
			if err != nil || t.Len() < 1_450_000 {
				b.Fatal(err)
			}
			s.Close()
		}
	})
}
