package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// sessionFile writes a log under the name of a session of /p in a new home.
func sessionFile(t *testing.T, m *session.Manager, content string) string {
	t.Helper()
	dir := filepath.Join(m.Home(), "sessions", "--p--")
	path := filepath.Join(dir, "2026-11-20T20-17-07-977Z_0198f2d3-1111-7222-8333-444455556666.jsonl")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func kindsOf(c *session.Checkup) (kinds []session.Kind) {
	for _, d := range c.Damage {
		kinds = append(kinds, d.Kind)
	}
	return kinds
}

func TestRepairMendsEveryKindOfDamageAndASecondRunFindsNothing(t *testing.T) {
	a, b, c := say("a", "null"), say("b", "a"), say("c", "b")
	for _, tt := range []struct {
		name    string
		content string
		kinds   []session.Kind
		want    []string // ids; "+" is one that repair made
		context int
	}{
		{"an undamaged file", headerLine + a + "\n" + b + "\n", nil, []string{"a", "b"}, 2},
		{"an empty file", "", nil, nil, 0},
		{"a torn last line", headerLine + a + "\n" + b + "\n" + c[:60], []session.Kind{"torn"}, []string{"a", "b"}, 2},
		{"a torn line in the middle", headerLine + a + "\n" + b[:70] + "\n" + c + "\n", []session.Kind{"torn", "orphan"}, []string{"a", "b", "c"}, 2},
		{"two torn lines and a branch", headerLine + a + "\n" + b[:70] + "\n" + c[:70] + "\n" + say("d", "c") + "\n" + say("e", "b") + "\n", []session.Kind{"torn", "torn", "orphan", "orphan"}, []string{"a", "c", "d", "b", "e"}, 2},
		{"a torn record with a whole one behind it", headerLine + a + "\n" + b[:70] + b + "\n" + c + "\n", []session.Kind{"torn"}, []string{"a", "b", "c"}, 3},
		{"a run of NULs at the end", headerLine + a + "\n" + b + "\n" + strings.Repeat("\x00", 5000), []session.Kind{"nul"}, []string{"a", "b"}, 2},
		{"a run of NULs before a record", headerLine + a + "\n" + strings.Repeat("\x00", 500) + b + "\n", []session.Kind{"nul"}, []string{"a", "b"}, 2},
		{"NULs before the header", "\x00\x00\x00\n" + headerLine + a + "\n", []session.Kind{"nul"}, []string{"a"}, 1},
		{"NULs and nothing else", strings.Repeat("\x00", 5000), []session.Kind{"header"}, nil, 0},
		{"two records on one line", headerLine + a + b + "\n" + c + "\n", []session.Kind{"joined"}, []string{"a", "b", "c"}, 3},
		{"a line of garbage", headerLine + a + "\nwhat is this?\n" + b + "\n", []session.Kind{"garbage"}, []string{"a", "b"}, 2},
		{"a number, a string and a list", headerLine + a + "\n42\n\"x\"\n[]\n" + b + "\n", []session.Kind{"scalar", "scalar", "scalar"}, []string{"a", "b"}, 2},
		{"a repeated id", headerLine + a + "\n" + b + "\n" + say("b", "a") + "\n" + c + "\n", []session.Kind{session.KindDuplicate}, []string{"a", "b", "+", "c"}, 3},
		{"a repeated id that closes a circle", headerLine + a + "\n" + b + "\n" + say("a", "b") + "\n" + say("c", "a") + "\n", []session.Kind{session.KindDuplicate}, []string{"a", "b", "+", "c"}, 4},
		{"a parent that was never written", headerLine + a + "\n" + say("b", "lost") + "\n", []session.Kind{"orphan"}, []string{"a", "lost", "b"}, 2},
		{"a first entry with a parent elsewhere", headerLine + say("a", "elsewhere") + "\n" + b + "\n", []session.Kind{"orphan"}, []string{"elsewhere", "a", "b"}, 2},
		{"an entry that is its own parent", headerLine + a + "\n" + say("b", "b") + "\n", []session.Kind{"cycle"}, []string{"a", "b"}, 2},
		{"a circle of two", headerLine + say("a", "b") + "\n" + say("b", "a") + "\n", []session.Kind{"cycle"}, []string{"a", "b"}, 2},
		{"a child before its parent", headerLine + a + "\n" + c + "\n" + b + "\n" + say("d", "c") + "\n", []session.Kind{"orphan"}, []string{"a", "b", "c", "d"}, 4},
		{"a child before its parent, the leaf", headerLine + a + "\n" + c + "\n" + b + "\n", []session.Kind{"orphan"}, []string{"a", "b", "c", "+"}, 2},
		{"a wrong checksum", headerLine + strings.TrimSuffix(a, "}") + `,"crc":"00000000"}` + "\n" + b + "\n", []session.Kind{"checksum"}, []string{"a", "b"}, 2},
		{"no header", a + "\n" + b + "\n", []session.Kind{"header"}, []string{"a", "b"}, 2},
		{"a torn header", headerLine[:60] + "\n" + a + "\n" + b + "\n", []session.Kind{"header"}, []string{"a", "b"}, 2},
		{"a header behind garbage", "garbage\n" + headerLine + a + "\n" + b + "\n", []session.Kind{"header"}, []string{"a", "b"}, 2},
		{"a header on the line of an entry", headerLine[:len(headerLine)-1] + a + "\n" + b + "\n", []session.Kind{"header"}, []string{"a", "b"}, 2},
		{"nothing but a torn header", headerLine[:30], []session.Kind{"header"}, nil, 0},
		{"version 1 without a header", strings.ReplaceAll(strings.ReplaceAll(a+"\n"+b+"\n", `"id":"a","parentId":null,`, ""), `"id":"b","parentId":"a",`, ""), []session.Kind{"header"}, []string{"+", "+"}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newManager(t, session.Options{})
			path := sessionFile(t, m, tt.content)
			found := must(m.Check(t.Context(), path))
			if !slices.Equal(kindsOf(found), tt.kinds) {
				t.Errorf("found %v, want %v", kindsOf(found), tt.kinds)
			}
			if got := string(must(os.ReadFile(path))); got != tt.content {
				t.Fatal("a check changed the file")
			}
			mended := must(m.Repair(t.Context(), path))
			if !slices.Equal(kindsOf(mended), tt.kinds) {
				t.Errorf("mended %v, want %v", kindsOf(mended), tt.kinds)
			}
			after := must(os.ReadFile(path))
			if len(tt.kinds) == 0 && string(after) != tt.content {
				t.Fatal("a file without damage was changed")
			}
			again := must(m.Repair(t.Context(), path))
			if len(again.Damage) > 0 {
				t.Errorf("a second run finds %+v", again.Damage)
			}
			if got := must(os.ReadFile(path)); !bytes.Equal(got, after) {
				t.Error("a second run changed the file")
			}
			s := reopen(t, m, path)
			got := ids(t, s)
			for i := range got {
				if i < len(tt.want) && tt.want[i] == "+" {
					got[i] = "+"
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("entries %v, want %v", got, tt.want)
			}
			if c := must(s.Context(t.Context())); len(c.Messages) != tt.context {
				t.Errorf("context of %d messages, want %d", len(c.Messages), tt.context)
			}
			if len(tt.kinds) > 0 && s.CWD() != "/p" {
				t.Errorf("working directory %q", s.CWD())
			}
			// Every byte that is not in the log any more is beside it.
			aside, _ := os.ReadFile(path + ".damaged")
			for line := range strings.Lines(tt.content) {
				line = strings.TrimRight(line, "\n")
				if !bytes.Contains(after, []byte(line)) && !bytes.Contains(aside, []byte(line)) && !slices.Contains(tt.kinds, "joined") &&
					!slices.Contains(tt.kinds, "header") && !strings.Contains(line, "\x00{") && !strings.Contains(line, b[:70]+b) {
					t.Errorf("%q is nowhere", line)
				}
			}
		})
	}
}

func TestRepairRefusesWhatItMustNotChange(t *testing.T) {
	m := newManager(t, session.Options{})
	newer := strings.Replace(headerLine, `"version":3`, `"version":4`, 1) + say("a", "null") + "\ngarbage\n"
	path := sessionFile(t, m, newer)
	if _, err := m.Repair(t.Context(), path); !errors.Is(err, session.ErrReadOnly) {
		t.Fatalf("a newer version: %v", err)
	}
	if got := string(must(os.ReadFile(path))); got != newer {
		t.Fatal("a newer version was changed")
	}
	text := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(text, []byte("hello\nworld\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Check(t.Context(), text); !errors.Is(err, session.ErrNotSession) {
		t.Fatalf("a text: %v", err)
	}
	if _, err := m.Repair(t.Context(), text); !errors.Is(err, session.ErrNotSession) {
		t.Fatalf("a text: %v", err)
	}
	if got := string(must(os.ReadFile(text))); got != "hello\nworld\n" {
		t.Fatal("a text was changed")
	}
}

// flips is how many single bits are flipped in turn: AGENTRUN_TEST_FLIPS, which the
// checks of the project set to 1,000, else few enough for everyday runs.
func flips(t *testing.T) int {
	if n := os.Getenv("AGENTRUN_TEST_FLIPS"); n != "" {
		return must(strconv.Atoi(n))
	}
	if testing.Short() {
		return 50
	}
	return 200
}

func TestASingleFlippedBitOfASealedLogIsFoundAndTurnedBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	for i := range 12 {
		appendOK(t, s, user(fmt.Sprint("message ", i, strings.Repeat(" of words", i*i))))
	}
	first := ids(t, s)[3]
	must(s.AppendUnder(t.Context(), first, user("a branch")))
	appendOK(t, s, entry.Label{TargetID: first, Label: "here"})
	if err := s.Rename(t.Context(), "a title", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	s.Close()
	good := must(os.ReadFile(s.Path()))
	for range flips(t) {
		at, bit := r.IntN(len(good)), r.IntN(8)
		hurt := bytes.Clone(good)
		hurt[at] ^= 1 << bit
		if err := os.WriteFile(s.Path(), hurt, 0o600); err != nil {
			t.Fatal(err)
		}
		found := must(m.Check(t.Context(), s.Path()))
		if len(found.Damage) != 1 || found.Damage[0].Flip == nil || found.Damage[0].Flip.Offset != int64(at) {
			t.Fatalf("bit %d of byte %d (%q): found %+v", bit, at, hurt[max(0, at-20):min(at+20, len(hurt))], found.Damage)
		}
		must(m.Repair(t.Context(), s.Path()))
		if got := must(os.ReadFile(s.Path())); !bytes.Equal(got, good) {
			t.Fatalf("bit %d of byte %d: the log is not what it was", bit, at)
		}
		if again := must(m.Check(t.Context(), s.Path())); len(again.Damage) > 0 {
			t.Fatalf("bit %d of byte %d: a second run finds %+v", bit, at, again.Damage)
		}
	}
}

func TestACompressedLogWithADamagedFrameKeepsTheOthers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	for i := range 300 {
		words := make([]byte, 4000) // that do not compress away
		for i := range words {
			words[i] = 'a' + byte(r.IntN(26))
		}
		appendOK(t, s, user(fmt.Sprint(i, " ", string(words))))
	}
	all := ids(t, s)
	s.Close()
	plain := must(os.ReadFile(s.Path()))
	if err := m.Compress(t.Context(), s.Path()); err != nil {
		t.Fatal(err)
	}
	cold := s.Path() + ".zst"
	good := must(os.ReadFile(cold))
	type hurt struct {
		name string
		data []byte
	}
	hurts := []hurt{
		{"cut in the middle", good[:len(good)/2]},
		{"without its table", good[:len(good)-200]},
		{"zeros in the middle", append(append(bytes.Clone(good[:len(good)/2]), make([]byte, 4096)...), good[len(good)/2+4096:]...)},
		{"zeros at the beginning", append(make([]byte, 4096), good[4096:]...)},
	}
	for range max(10, flips(t)/10) {
		at, bit := r.IntN(len(good)), r.IntN(8)
		data := bytes.Clone(good)
		data[at] ^= 1 << bit
		hurts = append(hurts, hurt{fmt.Sprintf("bit %d of byte %d of %d", bit, at, len(good)), data})
	}
	for _, h := range hurts {
		os.Remove(s.Path())
		if err := os.WriteFile(cold, h.data, 0o600); err != nil {
			t.Fatal(err)
		}
		found := must(m.Check(t.Context(), s.Path()))
		if len(found.Damage) == 0 {
			v, err := m.View(t.Context(), s.Path())
			if err != nil {
				t.Fatalf("%s: nothing found, and %v", h.name, err)
			}
			if got := ids(t, v); !slices.Equal(got, all) {
				t.Fatalf("%s: nothing found, and %d entries", h.name, len(got))
			}
			v.Close()
			continue // a bit without a meaning
		}
		if now := must(os.ReadFile(cold)); !bytes.Equal(now, h.data) {
			t.Fatalf("%s: a check changed the file", h.name)
		}
		mended := must(m.Repair(t.Context(), s.Path()))
		if again := must(m.Repair(t.Context(), s.Path())); len(again.Damage) > 0 {
			t.Fatalf("%s: a second run finds %+v", h.name, again.Damage)
		}
		after := must(os.ReadFile(s.Path()))
		if mended.Damage[0].Kind == session.KindSeek && !bytes.Equal(after, plain) {
			t.Fatalf("%s: the log is not what it was", h.name)
		}
		kept := 0
		for line := range bytes.Lines(after) {
			if bytes.Contains(plain, line) {
				kept++
			}
		}
		// A frame holds about 64 entries, and two more are cut by its ends.
		if least := len(all) - 70; kept < least && len(h.data) == len(good) {
			t.Fatalf("%s: %d of %d entries are left", h.name, kept, len(all))
		}
		if _, err := os.Stat(cold); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: the compressed form is still there: %v", h.name, err)
		}
	}
}
