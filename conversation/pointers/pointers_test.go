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

func TestEveryFlippedBitIsFound(t *testing.T) {
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
		if got, err := p.Get(t.Context(), "c", ""); !errors.Is(err, pointers.ErrDamaged) {
			t.Fatalf("bit %d of byte %d: Get = %v, %v", bit%8, bit/8, got, err)
		}
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: ref(2), New: ref(9)}); !errors.Is(err, pointers.ErrDamaged) {
			t.Fatalf("bit %d of byte %d: CompareAndSet = %v", bit%8, bit/8, err)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, damaged) {
			t.Fatalf("a damaged file was changed")
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
		switch {
		case err == nil:
			if got.Ref.IsZero() {
				t.Error("a pointer to nothing")
			}
		case !errors.Is(err, pointers.ErrDamaged) && !errors.Is(err, pointers.ErrNotFound):
			t.Errorf("%v", err)
		default:
			return
		}
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: got.Ref, New: ref(3)}); err != nil {
			t.Fatal(err)
		}
		if now, err := p.Get(t.Context(), "c", ""); err != nil || now.Ref != ref(3) {
			t.Errorf("%v, %v", now, err)
		}
	})
}
