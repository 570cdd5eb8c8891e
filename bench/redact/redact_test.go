// Package redact benchmarks the replacement of secrets beside the sink that it stands before. See BENCHMARKS.md.
package redact

import (
	"bytes"
	"io"
	"testing"

	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/redact/gitleaks"
)

const chunk = 64 << 10

// log is 16 MiB of lines as servers write them, with a token in one of 1,000.
func log() []byte {
	line := "2026-11-21T19:20:42Z INFO server/http.go:42 GET https://example.com:8080/api/v1/items?id=42 200 13ms skipped=3 gopher\n"
	secret := "2026-11-21T19:20:42Z WARN cloning https://x-access-token:gh" + "p_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8@github.com/a/b\n"
	var b bytes.Buffer
	for i := 0; b.Len() < 16<<20; i++ {
		if i%1000 == 999 {
			b.WriteString(secret)
		} else {
			b.WriteString(line)
		}
	}
	return b.Bytes()
}

func write(b *testing.B, in []byte, w io.Writer) {
	for i := 0; i < len(in); i += chunk {
		if _, err := w.Write(in[i:min(i+chunk, len(in))]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRedact is the limit of 200 MB/s: rules, and 20 values of variables.
func BenchmarkRedact(b *testing.B) {
	in := log()
	var values []string
	for i := range 20 {
		values = append(values, string(rune('a'+i))+"-value-of-a-variable")
	}
	for name, o := range map[string]redact.Options{"rules": {}, "values": {Values: values}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			r := redact.New(o)
			for b.Loop() {
				w := r.Writer(io.Discard)
				write(b, in, w)
				if w.Close() != nil || w.Replaced() == 0 {
					b.Fatal("nothing was replaced")
				}
			}
		})
	}
}

// BenchmarkSink is the sink by itself, which is what a run without redaction writes to, and behind redaction.
func BenchmarkSink(b *testing.B) {
	in := log()
	b.Run("off", func(b *testing.B) {
		b.SetBytes(int64(len(in)))
		for b.Loop() {
			s := outputsink.New(outputsink.DefaultOptions())
			write(b, in, s.Stdout())
			_, _ = s.Close()
		}
	})
	b.Run("on", func(b *testing.B) {
		b.SetBytes(int64(len(in)))
		r := redact.New(redact.Options{})
		for b.Loop() {
			s := outputsink.New(outputsink.DefaultOptions())
			w := r.Writer(s.Stdout())
			write(b, in, w)
			_ = w.Close()
			_, _ = s.Close()
		}
	})
}

// BenchmarkGitleaks is where nobody waits.
func BenchmarkGitleaks(b *testing.B) {
	in := log()[:1<<20]
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		w := gitleaks.NewWriter(io.Discard, nil)
		write(b, in, w)
		_ = w.Close()
	}
}
