package entry

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// benchPath makes a path of n entries of about 700 bytes: users, turns of which
// most call a tool, results.
func benchPath(n int) []Entry {
	filler := strings.Repeat("Some words of ordinary text, with \\\"quotes\\\" and\\nlines. ", 8)
	lines := make([]string, 0, n)
	for i := 0; len(lines) < n; i++ {
		id := fmt.Sprintf("toolu_%020d", i)
		switch i % 8 {
		case 0:
			lines = append(lines, fmt.Sprintf(`message "message":{"role":"user","content":[{"type":"text","text":"%s"}],"timestamp":1}`, filler))
		default:
			lines = append(lines, fmt.Sprintf(`message "message":{"role":"assistant","content":[{"type":"text","text":"%s"},{"type":"toolCall","id":"%s","name":"bash","arguments":{"command":"ls"}}],"api":"anthropic-messages","provider":"anthropic","model":"claude","usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"totalTokens":10,"cost":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"total":10}},"stopReason":"toolUse","timestamp":1763681630791}`, filler[:240], id),
				fmt.Sprintf(`message "message":{"role":"toolResult","toolCallId":"%s","toolName":"bash","content":[{"type":"text","text":"%s"}],"isError":false,"timestamp":1763681630791}`, id, filler))
		}
	}
	return chain(lines[:n]...)
}

func BenchmarkBuildContext(b *testing.B) {
	path := benchPath(10_000)
	size := 0
	for _, e := range path {
		size += len(e.raw)
	}
	b.ReportMetric(float64(size)/float64(len(path)), "B/entry")
	b.ReportAllocs()
	for b.Loop() {
		if ctx := BuildContext(path, ContextOptions{}); len(ctx.Messages) < 9_000 {
			b.Fatal(len(ctx.Messages))
		}
	}
}

func BenchmarkRole(b *testing.B) {
	path := benchPath(1_000)
	for b.Loop() {
		for _, e := range path {
			if e.Role() == "" {
				b.Fatal("no role")
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(path)), "ns/entry")
}

func BenchmarkToolCallIDs(b *testing.B) {
	path := benchPath(1_000)
	var ids []string
	for b.Loop() {
		ids = ids[:0]
		for _, e := range path {
			if e.Role() == RoleAssistant {
				ids, _ = scanTurn(e.raw, messageAt(e.raw), ids)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(path)), "ns/entry")
}

func BenchmarkAppendFields(b *testing.B) {
	message := []byte(benchPath(2)[1].message().Raw)
	b.Run("MessageBody", func(b *testing.B) {
		body := Body(MessageBody{Message: message})
		b.SetBytes(int64(len(message)))
		b.ReportAllocs()
		dst := make([]byte, 0, 4096)
		for b.Loop() {
			if _, err := AppendFields(dst, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("UserMessage", func(b *testing.B) {
		body := Body(UserText(strings.Repeat("words ", 100)))
		b.ReportAllocs()
		dst := make([]byte, 0, 4096)
		for b.Loop() {
			if _, err := AppendFields(dst, body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReadPath is the least that anything costs which touches every byte.
func BenchmarkReadPath(b *testing.B) {
	path := benchPath(10_000)
	for b.Loop() {
		for i := range path {
			if bytes.IndexByte(path[i].raw, 0) >= 0 {
				b.Fatal("a NUL")
			}
		}
	}
}
