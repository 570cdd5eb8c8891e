package artifacts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// many is a directory with n artifacts, one of which ends early.
func many(t testing.TB, n int) *Dir {
	t.Helper()
	d, _ := tempDir(t)
	for i := range n {
		f := create(t, d, fmt.Sprint("run ", i), fmt.Sprintln("artifact", i))
		if i != 3 {
			if err := f.Finish(indexOf(t, fmt.Sprintln("artifact", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func packsIn(t testing.TB, d *Dir) []string {
	t.Helper()
	packs, err := filepath.Glob(d.join(packPrefix + "*"))
	if err != nil {
		t.Fatal(err)
	}
	return packs
}

func TestTheProvenanceOfManyArtifactsIsOneFileThatForksShare(t *testing.T) {
	d := many(t, packFrom+5)
	fork, done := clone(t, d, linking)
	if done.Linked != packFrom+5 {
		t.Errorf("got %+v", done)
	}
	packs := packsIn(t, fork)
	if len(packs) != 1 || len(packsIn(t, d)) != 1 || inode(t, packs[0]) != inode(t, d.join(filepath.Base(packs[0]))) {
		t.Fatalf("there are %q and %q", packs, packsIn(t, d))
	}
	if sides, _ := filepath.Glob(fork.join(artifactSidecar + "*")); len(sides) > 0 {
		t.Errorf("there are %d files of provenance", len(sides))
	}
	same := func(fork *Dir) {
		t.Helper()
		for id := range int64(packFrom + 5) {
			got, want := stateOf(t, fork, id), stateOf(t, d, id)
			got.Path, want.Path = "", ""
			if got != want || got.Run == "" || id == 3 && got.State != Interrupted {
				t.Fatalf("artifact %d is %+v, want %+v", id, got, want)
			}
		}
		if info, ok, err := fork.ByRun(t.Context(), "run 7"); err != nil || !ok || info.ID != 7 {
			t.Errorf("run 7 has artifact %d, %t, %v", info.ID, ok, err)
		}
	}
	same(fork)

	// Both sides go on, and so do forks of both.
	for _, side := range []*Dir{d, fork} {
		if f := write(t, side, "bash", "new"); f.ID() != packFrom+5 {
			t.Errorf("the next number is %d", f.ID())
		}
		again, done := clone(t, side, linking)
		if done.Linked != packFrom+6 || len(packsIn(t, side)) != 1 || len(packsIn(t, again)) != 1 {
			t.Errorf("got %+v and %q", done, packsIn(t, again))
		}
		same(again)
		if info := stateOf(t, again, packFrom+5); info.State != Complete || info.Run != "run-bash" {
			t.Errorf("the new artifact is %+v", info)
		}
	}
	// A number stays used when its file is removed.
	if err := os.Remove(fork.join(fmt.Sprintf("%d.bash.log", packFrom+4))); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(fork.join(indexDir)); err != nil {
		t.Fatal(err)
	}
	if f := write(t, fork, "bash", "new"); f.ID() != packFrom+6 {
		t.Errorf("the next number is %d", f.ID())
	}
}

func TestAForkOfADirectoryThatCannotBeWrittenHasAPackOfItsOwn(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root writes everywhere")
	}
	d := many(t, packFrom)
	if err := os.Chmod(d.Path(), 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(d.Path(), 0o700)
	fork, _ := clone(t, d, linking)
	if len(packsIn(t, d)) != 0 || len(packsIn(t, fork)) != 1 {
		t.Errorf("there are %q and %q", packsIn(t, d), packsIn(t, fork))
	}
}

func TestADamagedPackIsToldAndNotBelieved(t *testing.T) {
	fork, _ := clone(t, many(t, packFrom), linking)
	pack := packsIn(t, fork)[0]
	content := get(t, pack)
	for name, damaged := range map[string]string{
		"a bit":   strings.Replace(content, `"bytes":1`, `"bytes":2`, 1),
		"the end": content[:len(content)/2],
		"nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.Remove(pack); err != nil { // others share it
				t.Fatal(err)
			}
			put(t, pack, damaged)
			d := Open(fork.Path(), Options{})
			if info := stateOf(t, d, 5); info.State != Interrupted || info.Note != "its provenance cannot be read" {
				t.Errorf("artifact 5 is %+v", info)
			}
		})
	}
}

func FuzzPackNames(f *testing.F) {
	f.Add(".artifacts-999-0123abcd.json")
	f.Add(".artifacts--1-00000000.json")
	f.Add(".artifacts-01-00000000.json")
	f.Add(".artifacts-1-0123ABCD.json")
	f.Add(".artifact-1.json")
	f.Fuzz(func(t *testing.T, name string) {
		top, ok := parsePack(name)
		if !ok {
			return
		}
		if want := fmt.Sprintf("%s%d-%s", packPrefix, top, name[len(name)-len("00000000.json"):]); top < 0 || name != want {
			t.Errorf("%q is a pack up to %d", name, top)
		}
	})
}
