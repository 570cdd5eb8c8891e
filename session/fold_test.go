package session_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
)

// prose is text of n bytes that compresses about as text does.
func prose(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%x %d, ", r.Uint64(), r.IntN(1000))
	}
	return b.String()[:n]
}

// rawEntry is a line of a program that writes members of its own.
func rawEntry(i int, members string) string {
	parent := "null"
	if i > 0 {
		parent = fmt.Sprintf(`"e%05d"`, i-1)
	}
	return fmt.Sprintf(`{"type":"custom","customType":"x","id":"e%05d","parentId":%s,"timestamp":"2026-11-20T20:17:08.000Z",%s}`, i, parent, members) + "\n"
}

// compactions is a log in which each of n entries embeds a history of size bytes that
// grows by a message each time, as messages and once more as one string.
func compactions(r *rand.Rand, n, size int) string {
	var b strings.Builder
	b.WriteString(headerLine)
	var history []string
	for at := 0; at < size; at += 3000 {
		history = append(history, fmt.Sprintf(`{"role":"user","content":%q}`, prose(r, 3000)))
	}
	image := prose(r, 40_000)
	for i := range n {
		b.WriteString(rawEntry(2*i, fmt.Sprintf(`"data":{"history":[%s],"image":%q}`, strings.Join(history, ","), image)))
		b.WriteString(rawEntry(2*i+1, fmt.Sprintf(`"data":%q`, prose(r, 500))))
		history = append(history, fmt.Sprintf(`{"role":"user","content":%q}`, prose(r, 3000)))
	}
	for i := range 40 { // what is at the end of a log is not folded
		b.WriteString(rawEntry(2*n+i, fmt.Sprintf(`"data":%q`, prose(r, 2000))))
	}
	return b.String()
}

// repeating is a small log that is folded when it is compressed.
var repeating = compactions(rand.New(rand.NewPCG(7, 8)), 7, 80_000)

func kept(m *session.Manager) []string {
	return must(filepath.Glob(filepath.Join(m.Home(), "kept-blobs", "*")))
}

// folded is a compressed session with that text, which must have been folded.
func folded(t *testing.T, m *session.Manager, text string) (path string) {
	t.Helper()
	path = writeLog(t, m, "s.jsonl", text)
	if err := m.Compress(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if len(kept(m)) == 0 {
		t.Fatal("nothing was folded")
	}
	return path
}

func readLog(t *testing.T, m *session.Manager, path string) string {
	t.Helper()
	l := must(m.OpenLog(path))
	defer l.Close()
	return string(must(io.ReadAll(io.NewSectionReader(l, 0, l.Size()))))
}

func TestWhatALogRepeatsIsStoredOnceAndReadAsItWas(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := compactions(r, 20, 300_000)
	m := newManager(t, session.Options{Durability: session.Flush})
	path := folded(t, m, text)
	size := must(os.Stat(path + ".zst")).Size()
	for _, b := range kept(m) {
		size += must(os.Stat(b)).Size()
	}
	t.Logf("%d bytes are %d in the file and %d blobs", len(text), size, len(kept(m)))
	if size > int64(len(text))/8 {
		t.Errorf("%d of %d bytes are left", size, len(text))
	}
	if got := readLog(t, m, path); got != text {
		t.Error("it is read otherwise")
	}
	s := reopen(t, m, path)
	noDamage(t, s)
	if got := ids(t, s); len(got) != 80 {
		t.Errorf("%d entries", len(got))
	}
	appendOK(t, s, user("next"))
	if got := must(os.ReadFile(path)); !bytes.HasPrefix(got, []byte(text)) {
		t.Error("the restored log is not what it was")
	}
}

func TestAnOrdinaryLogIsNotFolded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	long := prose(r, 50_000)
	for name, text := range map[string]string{
		"without repeats":           headerLine + rawEntry(0, fmt.Sprintf(`"data":%q`, prose(r, 1_000_000))),
		"with a repeat in a frame":  headerLine + rawEntry(0, fmt.Sprintf(`"data":[%q,%q]`, long, long)),
		"that saves too little":     headerLine + rawEntry(0, fmt.Sprintf(`"data":[%q,%q,%q]`, long, prose(r, 400_000), long)),
		"with the mark in its text": strings.Replace(compactions(r, 10, 200_000), "custom", "cus\x1atom", 1),
		"that is empty":             "",
	} {
		t.Run(name, func(t *testing.T) {
			m := newManager(t, session.Options{Durability: session.Flush})
			path := writeLog(t, m, "s.jsonl", text)
			if err := m.Compress(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			if got := kept(m); len(got) > 0 {
				t.Errorf("%d blobs", len(got))
			}
			if got := readLog(t, m, path); got != text {
				t.Error("it is read otherwise")
			}
		})
	}
}

// randomLog repeats texts of all sizes at random, within strings and across them,
// with damage here and there.
func randomLog(r *rand.Rand) string {
	var texts []string
	for range 3 + r.IntN(8) {
		size := 1 << (6 + r.IntN(13))
		text := prose(r, size+r.IntN(size))
		if r.IntN(3) == 0 {
			text = strings.Repeat(`a \"quoted\" part\\`, 1+size/64) + text
		}
		texts = append(texts, text)
	}
	var b strings.Builder
	b.WriteString(headerLine)
	for i := 0; b.Len() < 2_000_000; i++ {
		var parts []string
		for range 1 + r.IntN(6) {
			text := texts[r.IntN(len(texts))]
			from := r.IntN(2) * r.IntN(len(text))
			for from > 0 && text[from-1] == '\\' {
				from++ // not in the middle of an escape
				if from >= len(text) {
					from = 0
				}
			}
			parts = append(parts, `"`+text[from:]+`"`)
		}
		line := rawEntry(i, fmt.Sprintf(`"data":[%s]`, strings.Join(parts, ",")))
		switch r.IntN(30) {
		case 0:
			line = line[:r.IntN(len(line))] // torn
		case 1:
			line = strings.Repeat("\x00", r.IntN(9000)) + line
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestEveryByteOfAnyLogComesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses megabytes; run without -short")
	}
	for range max(4, flips(t)/100) {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		m := newManager(t, session.Options{Durability: session.Flush})
		text := randomLog(r)
		path := writeLog(t, m, "s.jsonl", text)
		plain := reopen(t, m, path)
		before := must(plain.Tree(t.Context()))
		plain.Close()
		if err := m.Compress(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		if got := readLog(t, m, path); got != text {
			t.Fatalf("seed %d: it is read otherwise", seed)
		}
		l := must(m.OpenLog(path))
		for range 200 {
			off := r.Int64N(int64(len(text)))
			p := make([]byte, r.IntN(300_000))
			n, err := l.ReadAt(p, off)
			want := text[off:min(int(off)+len(p), len(text))]
			if err != nil && (err != io.EOF || int(off)+len(p) <= len(text)) {
				t.Fatalf("seed %d: %d bytes at %d: %v", seed, len(p), off, err)
			}
			if string(p[:n]) != want[:n] || n == 0 && len(want) > 0 {
				t.Fatalf("seed %d: %d bytes at %d are others", seed, len(p), off)
			}
		}
		l.Close()
		s := reopen(t, m, path)
		after := must(s.Tree(t.Context()))
		if before.Len() != after.Len() || fmt.Sprint(before.Damage()) != fmt.Sprint(after.Damage()) {
			t.Fatalf("seed %d: the tree is another one", seed)
		}
		folded := len(kept(m))
		appendOK(t, s, user("next"))
		if got := must(os.ReadFile(path)); !bytes.HasPrefix(got, []byte(text)) {
			t.Fatalf("seed %d: the restored log is not what it was", seed)
		}
		t.Logf("seed %d: %d blobs", seed, folded)
	}
}

func TestALostBlobDamagesTheLinesItStoodInAndNoOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses megabytes; run without -short")
	}
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"damaged": func(path string) error {
			data := must(os.ReadFile(path))
			data[len(data)/2] ^= 4
			return os.WriteFile(path, data, 0o600)
		},
		"of another length": func(path string) error { return os.Truncate(path, 5000) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 6))
			text := compactions(r, 10, 200_000)
			m := newManager(t, session.Options{Durability: session.Flush})
			path := folded(t, m, text)
			saved := map[string][]byte{}
			for _, b := range kept(m) {
				saved[b] = must(os.ReadFile(b))
				if err := lose(b); err != nil {
					t.Fatal(err)
				}
			}
			s := reopen(t, m, path)
			tree := must(s.Tree(t.Context()))
			damaged := map[int]bool{}
			for _, d := range tree.Damage() {
				if d.Kind != session.KindOrphan {
					damaged[d.Line] = true
				}
			}
			// The first line is within what is never folded, and counts as 2.
			for i := range 60 {
				if whole := tree.Find(fmt.Sprintf("e%05d", i)) >= 0; whole == damaged[i+2] {
					t.Errorf("entry %d: whole %v, damaged %v", i, whole, damaged[i+2])
				}
			}
			if len(damaged) < 5 || len(damaged) > 10 {
				t.Errorf("%d lines are damaged: %v", len(damaged), tree.Damage())
			}
			if _, err := s.Append(t.Context(), user("next")); err == nil || !strings.Contains(err.Error(), "blob:sha256:") {
				t.Errorf("an append wrote the log without it: %v", err)
			}
			found := must(m.Check(t.Context(), path))
			if len(found.Blobs) != len(saved) || !found.Blobs[0].Folded || found.Blobs[0].First.Line != 4 {
				t.Errorf("a check finds %+v", found.Blobs)
			}
			if err := s.Close(); err == nil {
				t.Error("closing says nothing of the entry that was not written")
			}
			for b, data := range saved {
				if err := os.WriteFile(b, data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := readLog(t, m, path); got != text {
				t.Error("with its blobs back it is read otherwise")
			}
		})
	}
}

func TestABlobIsOnTheDiskBeforeThePlainLogGoes(t *testing.T) {
	fsys := faultfs.New(durable.OS)
	m := newManager(t, session.Options{Durability: session.Flush, FS: fsys})
	path := folded(t, m, repeating)
	dir := filepath.Join(m.Home(), "kept-blobs")
	before, published := "", 0
	for _, op := range fsys.Ops() {
		verb, name, _ := strings.Cut(op, " ")
		switch {
		case verb == "rename" && filepath.Dir(name) == dir:
			if !strings.HasPrefix(before, "sync "+dir) {
				t.Errorf("%s after %s", op, before)
			}
		case verb == "syncdir" && name == dir:
			published++
		case verb == "remove" && name == path:
			if published != len(kept(m)) {
				t.Errorf("%d of %d blobs were there when the plain log went", published, len(kept(m)))
			}
			return
		}
		before = op
	}
	t.Errorf("the plain log was not removed: %q", fsys.Ops())
}

func TestAForkOfAFoldedSessionHasItsText(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := folded(t, m, repeating)
	made := must(m.Fork(t.Context(), path, session.ForkOptions{}))
	for _, b := range kept(m) {
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
	}
	fork := reopen(t, m, made.Path)
	noDamage(t, fork)
	if got, want := ids(t, fork), 54; len(got) != want {
		t.Errorf("%d entries of %d", len(got), want)
	}
	_, entries, _ := strings.Cut(repeating, "\n")
	if got := string(must(os.ReadFile(made.Path))); !strings.Contains(got, entries) {
		t.Error("its text is another one")
	}
}

func TestAFoldedSessionIsMovedWithoutItsBlobs(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := folded(t, m, repeating)
	s := reopen(t, m, path)
	s.Close()
	blobs := map[string][]byte{}
	for _, b := range kept(m) {
		blobs[b] = must(os.ReadFile(b))
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
	}
	to := must(m.Move(t.Context(), path, t.TempDir(), session.MoveOptions{}))
	for b, data := range blobs {
		if err := os.WriteFile(b, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, want, _ := strings.Cut(repeating, "\n")
	if _, got, _ := strings.Cut(readLog(t, m, to.Path), "\n"); got != want {
		t.Error("its text is another one")
	}
	if size := must(os.Stat(to.Path)).Size(); size > 300_000 {
		t.Errorf("it is not folded any more: %d bytes", size)
	}
}

func TestADamagedFrameOfAFoldedLogCostsItsLinesAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses megabytes; run without -short")
	}
	text := compactions(rand.New(rand.NewPCG(9, 10)), 20, 200_000)
	m := newManager(t, session.Options{Durability: session.Flush})
	path := folded(t, m, text)
	good := must(os.ReadFile(path + ".zst"))
	for name, hurt := range map[string]struct {
		data  []byte
		least int
	}{
		"without its tables": {good[:len(good)-300], 80},
		"zeros in a frame":   {append(append(bytes.Clone(good[:len(good)/2]), make([]byte, 4096)...), good[len(good)/2+4096:]...), 30},
		"cut":                {good[:len(good)*2/3], 3},
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(path)
			if err := os.WriteFile(path+".zst", hurt.data, 0o600); err != nil {
				t.Fatal(err)
			}
			found := must(m.Check(t.Context(), path))
			if len(found.Damage) == 0 {
				t.Fatal("nothing is found")
			}
			must(m.Repair(t.Context(), path))
			got := string(must(os.ReadFile(path)))
			whole := 0
			for line := range strings.Lines(got) {
				if strings.Contains(text, line) {
					whole++
				}
			}
			t.Logf("%d lines of %d, %d entries, %v", whole, strings.Count(text, "\n"), found.Entries, found.Damage[0])
			if whole < hurt.least || strings.Contains(got, "blob:sha256:") {
				t.Errorf("%d lines are left", whole)
			}
			if hurt.least == 80 && got != text {
				t.Error("it is not what it was")
			}
		})
	}
}
