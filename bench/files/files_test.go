// Package files measures edits of files and searches in them, each beside its limit or
// peer.
package files

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/grep"
	"github.com/agentrun/agentrun/tool/workspace"
)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// source is text like that of a program.
func source(r *rand.Rand, size int) []byte {
	words := []string{"func", "return", "err", "if", "nil", "range", "ctx", "file", "error", "string", "(", ")", "{", "}", ":=", "timeout", "0x1f", "index", "for", "struct"}
	var b bytes.Buffer
	for b.Len() < size {
		for range 1 + r.IntN(10) {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(' ')
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// BenchmarkEdit10MB exchanges a word in the middle of a file of 10 MB; limit 50 ms. Beside it
// are a plain replace of such a file, synced, and the edit with what makes it undone.
func BenchmarkEdit10MB(b *testing.B) {
	text := source(rand.New(rand.NewPCG(1, 1)), 10<<20)
	middle := len(text) / 2
	text = append(append(append([]byte{}, text[:middle]...), []byte("\nneedle 0\n")...), text[middle:]...)
	edits := func(b *testing.B, o workspace.Options) {
		b.Helper()
		check(b, os.WriteFile(filepath.Join(o.Dir, "f"), text, 0o600))
		w, err := workspace.Open(o)
		check(b, err)
		defer w.Close()
		b.ResetTimer()
		for i := range b.N {
			_, err := edit.Do(b.Context(), w, edit.Request{Path: "f", Edits: []edit.Edit{{Old: fmt.Sprintf("needle %d\n", i), New: fmt.Sprintf("needle %d\n", i+1)}}}, edit.Output{})
			check(b, err)
		}
	}
	b.Run("edit", func(b *testing.B) { edits(b, workspace.Options{Dir: b.TempDir(), Sync: true}) })
	b.Run("unsynced", func(b *testing.B) { edits(b, workspace.Options{Dir: b.TempDir()}) })
	b.Run("recorded", func(b *testing.B) {
		dir := b.TempDir()
		m, err := session.OpenManager(b.TempDir(), session.Options{})
		check(b, err)
		s, err := m.Create(context.Background(), dir, session.CreateOptions{})
		check(b, err)
		defer s.Close()
		edits(b, workspace.Options{Dir: dir, Sync: true, Recorder: checkpoint.New(m, s, checkpoint.Options{})})
	})
	b.Run("replace", func(b *testing.B) {
		dir := b.TempDir()
		for range b.N {
			f, err := os.CreateTemp(dir, "f")
			check(b, err)
			_, err = f.Write(text)
			check(b, err)
			check(b, f.Sync())
			check(b, f.Close())
			check(b, os.Rename(f.Name(), filepath.Join(dir, "f")))
		}
	})
}

// tree is a directory of 2,000 files, 64 MiB.
func tree(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		name := filepath.Join(dir, fmt.Sprintf("d%02d", i%40), fmt.Sprintf("f%04d.go", i))
		check(b, os.MkdirAll(filepath.Dir(name), 0o700))
		text := source(r, r.IntN(64<<10))
		if i%50 == 0 {
			text = append(text, "ErrorCode file_42.rs RareWord error of the timeout\n"...)
		}
		check(b, os.WriteFile(name, text, 0o600))
	}
	return dir
}

// BenchmarkGrep searches a tree; the peer is ripgrep with the same expression: at least 0.8 of
// its speed where it is there, 0.25 without it for expressions with a literal.
func BenchmarkGrep(b *testing.B) {
	dir := tree(b)
	w, err := workspace.Open(workspace.Options{Dir: dir})
	check(b, err)
	defer w.Close()
	rg, err := exec.LookPath("rg")
	if err != nil {
		b.Log("ripgrep is not installed: it is not measured")
	}
	for _, c := range []struct{ name, expr string }{
		{"literal", "RareWord"},
		{"literal-often", "timeout"},
		{"expression", `file_[0-9]+\.rs`},
		{"fold", `(?i)errorcode`},
		{"no-literal", `[A-Z][a-z]+[A-Z][a-z]+`},
		{"alternation", `RareWord|ErrorCode`},
	} {
		for _, with := range []string{"ours", "auto", "rg"} {
			b.Run(c.name+"/"+with, func(b *testing.B) {
				for range b.N {
					switch with {
					case "rg":
						if rg == "" {
							b.Skip("ripgrep is not installed")
						}
						cmd := exec.Command(rg, "--no-config", "-n", "--no-heading", "-H", c.expr, ".")
						cmd.Dir = dir
						out, err := cmd.Output()
						check(b, err)
						if len(out) == 0 {
							b.Fatal("nothing was found")
						}
					default:
						o := grep.Options{Pattern: c.expr}
						if with == "ours" {
							o.Ripgrep = grep.None
						}
						res, err := grep.Search(b.Context(), w, nil, o, io.Discard)
						check(b, err)
						if res.Matches == 0 || strings.Contains(strings.Join(res.Problems, ""), "x") {
							b.Fatalf("%+v", res)
						}
					}
				}
			})
		}
	}
}
