package pointers_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/conversation/pointers/pointerstest"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"golang.org/x/sys/unix"
)

func TestPointersInMemory(t *testing.T) {
	pointerstest.Run(t, func(*testing.T) pointers.Pointers { return &pointers.Memory{} })
}

func TestPointersInADirectory(t *testing.T) {
	pointerstest.Run(t, func(t *testing.T) pointers.Pointers {
		return pointers.OpenDir(filepath.Join(t.TempDir(), "checkpoints"), pointers.DirOptions{})
	})
}

func ref(n int) blobref.Ref { return blobref.Of(fmt.Append(nil, n)) }

func TestALineThatWasCutShortIsAsIfItWasNeverWritten(t *testing.T) {
	dir := t.TempDir()
	p := pointers.OpenDir(dir, pointers.DirOptions{})
	for i := range 2 {
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: before(i), New: ref(i)}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "c.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	for n := first; n < len(whole); n++ {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Get(t.Context(), "c", ""); err != nil || got.Ref != ref(0) {
			t.Fatalf("cut at byte %d: Get = %v, %v", n, got, err)
		}
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: ref(0), New: ref(7)}); err != nil {
			t.Fatalf("cut at byte %d: %v", n, err)
		}
		if got, err := p.Get(t.Context(), "c", ""); err != nil || got.Ref != ref(7) {
			t.Fatalf("cut at byte %d, and set anew: Get = %v, %v", n, got, err)
		}
	}
}

func before(i int) blobref.Ref {
	if i == 0 {
		return blobref.Ref{}
	}
	return ref(i - 1)
}

// known is what a pointer is as far as its store can tell, and whether it can.
func known(t *testing.T, p pointers.Pointers, bubble string) (blobref.Ref, bool) {
	t.Helper()
	got, err := p.Get(t.Context(), "c", bubble)
	var damaged *pointers.DamagedError
	switch {
	case errors.As(err, &damaged):
		if !errors.Is(err, pointers.ErrDamaged) || !strings.Contains(err.Error(), "c.jsonl: line ") {
			t.Errorf("Get says %v", err)
		}
		return damaged.Last.Ref, false
	case err != nil:
		t.Fatal(err)
	}
	return got.Ref, true
}

// damagedOf is how often a list names damage of the conversation.
func damagedOf(t *testing.T, p pointers.Pointers) (n int) {
	t.Helper()
	for one, err := range p.List(t.Context()) {
		if err != nil {
			n++
			if one.Conversation != "c" || !errors.Is(err, pointers.ErrDamaged) || !strings.Contains(err.Error(), "agentrun state forget ") {
				t.Errorf("List yields %v, %v", one, err)
			}
		}
	}
	return n
}

func TestAFlippedBitIsFoundOrHarmlessAndHidesOneLineAtMost(t *testing.T) {
	dir := t.TempDir()
	p := pointers.OpenDir(dir, pointers.DirOptions{})
	for i := range 3 {
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: before(i), New: ref(i)}, pointers.Change{Bubble: fmt.Sprint(i), New: ref(i)}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "c.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(whole) {
		damaged := bytes.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		line := bytes.Count(whole[:bit/8], []byte("\n")) // in which it is
		end := whole[bit/8] == '\n'
		for i := range 3 {
			got, sure := known(t, p, fmt.Sprint(i))
			want := ref(i)
			if i == line && !end {
				want = blobref.Ref{}
			}
			if unsure := i <= line && !end; sure == unsure || got != want {
				t.Fatalf("bit %d of byte %d, line %d: message %d is %v, %t", bit%8, bit/8, line, i, got, sure)
			}
		}
		latest, sure := known(t, p, "")
		if want := line == 2 && !end; sure == want || latest != ref(2) && (sure || latest != ref(1)) {
			t.Fatalf("bit %d of byte %d, line %d: the latest is %v, %t", bit%8, bit/8, line, latest, sure)
		}
		if n := damagedOf(t, p); (n == 1) == end {
			t.Fatalf("bit %d of byte %d: the list names damage %d times", bit%8, bit/8, n)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, damaged) {
			t.Fatalf("a damaged file was changed by a reader")
		}
		if bit%29 != 0 && !end {
			continue // each of the others would be synced, too
		}
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: latest, New: ref(9)}); err != nil {
			t.Fatalf("bit %d of byte %d: CompareAndSet = %v", bit%8, bit/8, err)
		}
		if got, sure := known(t, p, ""); !sure || got != ref(9) {
			t.Fatalf("bit %d of byte %d: set anew, the latest is %v, %t", bit%8, bit/8, got, sure)
		}
		if now, _ := os.ReadFile(path); !bytes.HasPrefix(now, damaged) {
			t.Fatalf("bit %d of byte %d: a writer changed what is damaged", bit%8, bit/8)
		}
	}
}

func TestDamagedLinesAreGivenUpAndTheOthersStay(t *testing.T) {
	dir := t.TempDir()
	p := pointers.OpenDir(dir, pointers.DirOptions{})
	if err := p.Repair(t.Context(), "c"); !errors.Is(err, pointers.ErrNotFound) {
		t.Errorf("Repair of nothing = %v", err)
	}
	for i := range 4 {
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: before(i), New: ref(i)}, pointers.Change{Bubble: fmt.Sprint(i), New: ref(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Repair(t.Context(), "c"); !errors.Is(err, pointers.ErrNotFound) || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("Repair of what is whole = %v", err)
	}
	path := filepath.Join(dir, "c.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	lines[1], lines[3] = []byte("nonsense\n"), bytes.Replace(lines[3], []byte(`"set"`), []byte(`"sex"`), 1)
	damaged := bytes.Join(lines, nil)
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	for one, err := range p.History(t.Context(), "c") {
		if n++; (err != nil) != (n == 5) || err != nil && !(strings.Contains(err.Error(), "line 2: ") && strings.Contains(err.Error(), "line 4: ")) {
			t.Errorf("History yields %v, %v", one, err)
		}
	}
	if n != 5 {
		t.Errorf("History yields %d times, want 4 settings and what is damaged", n)
	}
	if err := p.Repair(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if n := damagedOf(t, p); n != 0 {
		t.Error("it is damaged")
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, slices.Concat(lines[0], lines[2])) {
		t.Errorf("the file is\n%s, %v", now, err)
	}
	if got, err := p.Get(t.Context(), "c", ""); err != nil || got.Ref != ref(2) {
		t.Errorf("Get = %v, %v", got, err)
	}
	aside, err := filepath.Glob(path + ".damaged-*")
	if err != nil || len(aside) != 1 {
		t.Fatalf("kept aside: %v, %v", aside, err)
	}
	if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, damaged) {
		t.Errorf("kept aside: %q, %v", kept, err)
	}
}

// TestADiskThatFailsWhileDamageIsGivenUpLosesNothing fails each operation of giving up damage in turn.
func TestADiskThatFailsWhileDamageIsGivenUpLosesNothing(t *testing.T) {
	for _, fault := range []error{unix.EIO, unix.ENOSPC, faultfs.ErrCrashed} {
		for at, fired := 0, true; fired; at++ {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			p := pointers.OpenDir(dir, pointers.DirOptions{})
			if err := p.CompareAndSet(t.Context(), "c", pointers.Change{New: ref(0)}); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "c.jsonl")
			healthy, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append([]byte("nonsense\n"), healthy...), 0o600); err != nil {
				t.Fatal(err)
			}
			disk := faultfs.New(durable.OS)
			if errors.Is(fault, faultfs.ErrCrashed) {
				disk.CrashAt(at)
			} else {
				disk.FailAt(at, fault)
			}
			err = pointers.OpenDir(dir, pointers.DirOptions{FS: disk}).Repair(t.Context(), "c")
			fired = disk.Fired()
			if got, sure := known(t, p, ""); !sure || got != ref(0) {
				t.Errorf("%v at operation %d: the latest is %v, %t", fault, at, got, sure)
			}
			if err == nil && damagedOf(t, p) != 0 {
				t.Errorf("%v at operation %d: damaged all the same", fault, at)
			}
		}
	}
}

func TestDamageOfOneConversationHidesNoOther(t *testing.T) {
	dir := t.TempDir()
	p := pointers.OpenDir(dir, pointers.DirOptions{})
	for _, c := range []string{"a", "b", "c"} {
		if err := p.CompareAndSet(t.Context(), c, pointers.Change{New: ref(1)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"b.jsonl": "{}\n", ".lock": "x", "no conversation.jsonl": "x", "notes.txt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var list []string
	for got, err := range p.List(t.Context()) {
		list = append(list, fmt.Sprint(got.Conversation, errors.Is(err, pointers.ErrDamaged)))
	}
	if want := []string{"afalse", "btrue", "cfalse"}; !slices.Equal(list, want) {
		t.Errorf("List yields %v, want %v", list, want)
	}
}

func TestDamagedPointersAreGivenUpAndKeptAside(t *testing.T) {
	for name, text := range map[string]string{"a line of another checksum": "{}\n", "nothing": "", "no whole line": `{"set":`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := pointers.OpenDir(dir, pointers.DirOptions{})
			if err := os.WriteFile(filepath.Join(dir, "c.jsonl"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := p.Remove(t.Context(), "c"); err != nil {
				t.Fatal(err)
			}
			aside, err := filepath.Glob(filepath.Join(dir, "c.jsonl.damaged-*"))
			if err != nil || len(aside) != 1 {
				t.Fatalf("kept aside: %v, %v", aside, err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || string(kept) != text {
				t.Errorf("kept aside: %q, %v", kept, err)
			}
			for got, err := range p.List(t.Context()) {
				t.Errorf("List yields %v, %v", got, err)
			}
			if err := p.CompareAndSet(t.Context(), "c", pointers.Change{New: ref(1)}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGivingUpNothingMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	if err := pointers.OpenDir(dir, pointers.DirOptions{}).Remove(t.Context(), "c"); !errors.Is(err, pointers.ErrNotFound) {
		t.Errorf("Remove = %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
}

func TestAFileInWhichNothingIsSetIsListedAsDamaged(t *testing.T) {
	dir := t.TempDir()
	p := pointers.OpenDir(dir, pointers.DirOptions{})
	for _, text := range []string{"", `{"set":[{"blob":"`} {
		if err := os.WriteFile(filepath.Join(dir, "c.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		n := 0
		for got, err := range p.List(t.Context()) {
			if n++; got.Conversation != "c" || !errors.Is(err, pointers.ErrDamaged) || !strings.Contains(err.Error(), "agentrun state forget c") {
				t.Errorf("List yields %v, %v", got, err)
			}
		}
		if n != 1 {
			t.Errorf("List yields %d times", n)
		}
		if got, err := p.Get(t.Context(), "c", ""); !errors.Is(err, pointers.ErrNotFound) {
			t.Errorf("Get = %v, %v", got, err)
		}
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{New: ref(1)}); err != nil {
			t.Error(err)
		}
		for got, err := range p.List(t.Context()) {
			if err != nil || got.Ref != ref(1) {
				t.Errorf("once set anew, List yields %v, %v", got, err)
			}
		}
	}
}

func TestAConflictLeavesNoFile(t *testing.T) {
	p := pointers.OpenDir(t.TempDir(), pointers.DirOptions{})
	if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: ref(1), New: ref(2)}); !errors.Is(err, pointers.ErrConflict) {
		t.Fatal(err)
	}
	for got, err := range p.List(t.Context()) {
		t.Errorf("List yields %v, %v", got, err)
	}
}

// TestTheFirstPointerIsThereWholeOrNotAtAll fails each operation of setting the first pointer of a conversation in turn.
func TestTheFirstPointerIsThereWholeOrNotAtAll(t *testing.T) {
	for _, fault := range []error{unix.EIO, unix.ENOSPC, faultfs.ErrCrashed} {
		for at, fired := 0, true; fired; at++ {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			disk := faultfs.New(durable.OS)
			if errors.Is(fault, faultfs.ErrCrashed) {
				disk.CrashAt(at)
			} else {
				disk.FailAt(at, fault)
			}
			err := pointers.OpenDir(dir, pointers.DirOptions{FS: disk}).CompareAndSet(t.Context(), "c", pointers.Change{New: ref(1)})
			fired = disk.Fired()
			there := 0
			for got, listErr := range pointers.OpenDir(dir, pointers.DirOptions{}).List(t.Context()) {
				if there++; listErr != nil || got.Ref != ref(1) {
					t.Errorf("%v at operation %d: List yields %v, %v", fault, at, got, listErr)
				}
			}
			if err == nil && there != 1 || err != nil && !errors.Is(fault, faultfs.ErrCrashed) && there != 0 {
				t.Errorf("%v at operation %d: set (%v), and %d are there", fault, at, err, there)
			}
		}
	}
}

// TestADiskThatFailsLosesNothing fails each operation of setting a pointer in turn.
func TestADiskThatFailsLosesNothing(t *testing.T) {
	for _, fault := range []error{unix.EIO, unix.ENOSPC, faultfs.ErrCrashed} {
		for at, fired := 0, true; fired; at++ {
			dir := filepath.Join(t.TempDir(), "checkpoints")
			plain := pointers.OpenDir(dir, pointers.DirOptions{})
			if err := plain.CompareAndSet(t.Context(), "c", pointers.Change{New: ref(0)}); err != nil {
				t.Fatal(err)
			}
			disk := faultfs.New(durable.OS)
			if errors.Is(fault, faultfs.ErrCrashed) {
				disk.CrashAt(at)
			} else {
				disk.FailAt(at, fault)
			}
			p := pointers.OpenDir(dir, pointers.DirOptions{FS: disk})
			err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: ref(0), New: ref(1)}, pointers.Change{Bubble: "b", New: ref(1)})
			fired = disk.Fired()
			got, readErr := plain.Get(t.Context(), "c", "")
			if readErr != nil {
				t.Fatalf("%v at operation %d: %v", fault, at, readErr)
			}
			if err == nil && got.Ref != ref(1) {
				t.Fatalf("%v at operation %d: acknowledged, and the checkpoint is %v", fault, at, got.Ref)
			}
			if err != nil && !errors.Is(fault, faultfs.ErrCrashed) && got.Ref != ref(0) {
				t.Fatalf("%v at operation %d: refused (%v), and the checkpoint is %v", fault, at, err, got.Ref)
			}
			if err := plain.CompareAndSet(t.Context(), "c", pointers.Change{Old: got.Ref, New: ref(2)}); err != nil {
				t.Fatalf("%v at operation %d: the next one: %v", fault, at, err)
			}
		}
	}
}

func FuzzJournal(f *testing.F) {
	dir := f.TempDir()
	p := pointers.OpenDir(dir, pointers.DirOptions{})
	if err := p.CompareAndSet(f.Context(), "c", pointers.Change{New: ref(1)}, pointers.Change{Bubble: "b", New: ref(2)}); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, "c.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(append(whole, whole...))
	f.Add(append(whole, "{\"set\":"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := p.Get(t.Context(), "c", "")
		var damaged *pointers.DamagedError
		switch {
		case errors.As(err, &damaged):
			got = damaged.Last
		case err == nil && got.Ref.IsZero():
			t.Error("a pointer to nothing")
		case err != nil && !errors.Is(err, pointers.ErrNotFound):
			t.Errorf("%v", err)
		}
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: got.Ref, New: ref(3)}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if now, err := p.Get(t.Context(), "c", ""); err != nil || got.Ref != ref(3) && now.Ref != ref(3) {
				t.Errorf("%v, %v", now, err)
			}
			if err := p.Repair(t.Context(), "c"); err != nil && !errors.Is(err, pointers.ErrNotFound) {
				t.Error(err)
			}
		}
	})
}
