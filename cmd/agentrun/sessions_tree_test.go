package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// BenchmarkTree draws 10,000 entries that follow each other, all of them and folded as at a
// terminal.
func BenchmarkTree(b *testing.B) {
	var log strings.Builder
	log.WriteString(`{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p"}` + "\n")
	parent := "null"
	for i := range 10_000 {
		fmt.Fprintf(&log, `{"type":"message","id":"%024x","parentId":%s,"timestamp":"2026-11-20T20:17:07.977Z","message":{"role":"user","content":"%d %s","timestamp":%d}}`+"\n",
			i, parent, i, strings.Repeat("the quick brown 狐 ", 20), i)
		parent = fmt.Sprintf(`"%024x"`, i)
	}
	path := filepath.Join(b.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		b.Fatal(err)
	}
	m, err := session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, columns := range map[string]int{"whole": 0, "folded": 80} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s, err := m.View(b.Context(), path)
				if err != nil {
					b.Fatal(err)
				}
				tree, err := s.Tree(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				d := newDrawing(tree, nil, bufio.NewWriter(io.Discard))
				d.columns, d.folding = columns, columns > 0
				if err := d.lines(b.Context()); err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}
