package diskkv_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

// contents are what is in the file of the flip test.
type contents struct {
	blobs      map[blobref.Ref][]byte
	pointers   map[string]blobref.Ref
	unverified map[blobref.Ref][]byte
	metadata   map[string][]byte
	states     map[string][]byte
}

// fill makes a file with something of each kind.
func fill(t *testing.T, path string) contents {
	t.Helper()
	ctx, s := t.Context(), open(t, path, diskkv.Options{})
	c := contents{map[blobref.Ref][]byte{}, map[string]blobref.Ref{}, map[blobref.Ref][]byte{}, map[string][]byte{}, map[string][]byte{}}
	random := rand.NewChaCha8([32]byte{1})
	for i := range 40 {
		data := make([]byte, []int{0, 1, 30, 300, 3000, 9000}[i%6]+i/6)
		_, _ = random.Read(data)
		ref, err := s.PutBytes(ctx, data)
		if err != nil {
			t.Fatal(err)
		}
		c.blobs[ref] = data
		if i%4 != 0 {
			continue
		}
		id := fmt.Sprintf("conversation-%d", i)
		other := blobref.Of([]byte(id))
		if err := errors.Join(s.SetCheckpoint(ctx, id, noRef, ref), s.SetUnverified(ctx, other, data), s.SetMetadata(ctx, id, data[:min(len(data), 40)]),
			s.SetComposerState(ctx, id, data[:min(len(data), 50)])); err != nil {
			t.Fatal(err)
		}
		c.pointers[id], c.unverified[other], c.metadata[id], c.states[id] = ref, data, data[:min(len(data), 40)], data[:min(len(data), 50)]
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

// missing reads everything and returns what it does not get; wrong bytes end the test.
func (c contents) missing(t *testing.T, s *diskkv.Store) (list []string) {
	t.Helper()
	ctx := t.Context()
	same := func(what string, got, want []byte, err error) {
		t.Helper()
		switch {
		case err == nil && !bytes.Equal(got, want):
			t.Fatalf("%s is wrong", what)
		case err != nil:
			list = append(list, fmt.Sprintf("%s: %v", what, err))
		}
	}
	for ref, want := range c.blobs {
		got, err := s.Get(ctx, ref)
		same("blob "+ref.Hex(), got, want, err)
		part, err := s.GetRange(ctx, ref, 0, 1)
		if err == nil && !bytes.HasPrefix(want, part) {
			t.Fatalf("a range of %s is wrong", ref)
		}
	}
	for id, want := range c.pointers {
		p, err := s.Checkpoint(ctx, id)
		if err == nil && p.Ref != want {
			t.Fatalf("the pointer of %s is wrong", id)
		}
		if err != nil {
			list = append(list, err.Error())
		}
	}
	for p, err := range s.Checkpoints(ctx) {
		if want, ok := c.pointers[p.Conversation]; err == nil && (!ok || p.Ref != want) {
			t.Fatalf("a listed pointer is wrong: %+v", p)
		}
	}
	for ref, want := range c.unverified {
		got, err := s.GetUnverified(ctx, ref)
		same("unverified "+ref.Hex(), got, want, err)
	}
	for id, want := range c.metadata {
		got, err := s.Metadata(ctx, id)
		same("metadata "+id, got, want, err)
	}
	for id, want := range c.states {
		got, err := s.ComposerState(ctx, id)
		same("state "+id, got, want, err)
	}
	listed := 0
	for info, err := range s.Walk(ctx) {
		if _, ok := c.blobs[info.Ref]; err == nil && ok {
			listed++
		}
	}
	if listed < len(c.blobs) {
		list = append(list, fmt.Sprintf("%d blobs are not listed", len(c.blobs)-listed))
	}
	return list
}

func TestEveryFlippedBitIsFoundOrHarmless(t *testing.T) {
	t.Parallel()
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	path := temp(t)
	want := fill(t, path)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var refused, moved, found, harmless int
	for round := range rounds {
		bit := rand.IntN(8 * len(sound))
		if round < 800 && round%8 == 0 {
			bit = round // the header, for which chance has no eye
		}
		flipped := bytes.Clone(sound)
		flipped[bit/8] ^= 1 << (bit % 8)
		file := filepath.Join(dir, fmt.Sprintf("%d.vscdb", round))
		if err := os.WriteFile(file, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		s, damage, err := diskkv.Open(t.Context(), file, diskkv.Options{})
		switch {
		case err != nil:
			if !errors.Is(err, blobstore.ErrCorrupt) && !errors.Is(err, diskkv.ErrFormat) && !errors.Is(err, blobstore.ErrMode) {
				t.Fatalf("bit %d: Open = %v", bit, err)
			}
			refused++
			continue
		case damage != nil:
			if kept, err := os.ReadFile(damage.Moved); err != nil || !bytes.Equal(kept, flipped) {
				t.Fatalf("bit %d: what was moved aside has changed (%v)", bit, err)
			}
			moved++
		default:
			missing, findings := want.missing(t, s), 0
			for f, err := range s.Verify(t.Context()) {
				if findings++; err != nil {
					t.Fatalf("bit %d: Verify: %v", bit, err)
				}
				_ = f
			}
			switch {
			case findings > 0:
				found++
			case len(missing) > 0:
				t.Fatalf("bit %d: Verify found nothing, and this is not there: %q", bit, missing)
			default:
				harmless++
			}
		}
		if err := s.Close(); err != nil {
			t.Fatalf("bit %d: Close: %v", bit, err)
		}
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d flips: Open refused %d, moved %d aside, Verify found %d, %d were harmless", rounds, refused, moved, found, harmless)
	if found == 0 || harmless == 0 {
		t.Error("the flips were not of all kinds")
	}
}

func TestEveryFlippedBitOfTheLogBeforeItsLastTransactionIsFoundOrHarmless(t *testing.T) {
	t.Parallel()
	rounds := 100
	if os.Getenv("AGENTRUN_TEST_ROUNDS") != "" {
		rounds = 1000
	}
	ctx, path := t.Context(), temp(t)
	s := open(t, path, diskkv.Options{})
	var blobs [][]byte
	for i := range 60 {
		blobs = append(blobs, bytes.Repeat([]byte{byte(i)}, 1+i*40))
		if _, err := s.PutBytes(ctx, blobs[i]); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sound, err := os.ReadFile(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	reported, lastOnly := 0, 0
	for round := range rounds {
		bit := rand.IntN(8 * len(sound))
		if round%4 == 0 {
			bit = rand.IntN(8 * 32) // the header
		}
		log := bytes.Clone(sound)
		if round > 0 {
			log[bit/8] ^= 1 << (bit % 8)
		}
		name := filepath.Join(dir, fmt.Sprintf("%d.vscdb", round))
		if err := errors.Join(os.WriteFile(name, file, 0o600), os.WriteFile(name+"-wal", log, 0o600)); err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"first", "again"} {
			s, damage, err := diskkv.Open(ctx, name, diskkv.Options{})
			if err != nil {
				t.Fatalf("bit %d: Open = %v", bit, err)
			}
			missing := 0
			for i, want := range blobs {
				got, err := s.Get(ctx, blobref.Of(want))
				if err == nil && !bytes.Equal(got, want) {
					t.Fatalf("bit %d: blob %d is wrong", bit, i)
				}
				if err != nil {
					missing++
				}
			}
			switch {
			case damage != nil && when == "again":
				t.Fatalf("bit %d: the damage is found again: %v", bit, damage)
			case damage != nil && missing == 0:
				t.Errorf("bit %d: nothing is missing, and %v", bit, damage)
			case damage != nil:
				if kept, err := os.ReadFile(damage.Log); err != nil || !bytes.Equal(kept, log) || !errors.Is(damage, blobstore.ErrCorrupt) {
					t.Fatalf("bit %d: the log was not kept (%v)", bit, err)
				}
				reported++
			case missing > 1 && when == "first":
				t.Fatalf("bit %d: %d blobs are gone without a word", bit, missing)
			case missing == 1 && when == "first":
				lastOnly++
			}
			wantSound(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d flips: %d reported, %d of the last transaction", rounds, reported, lastOnly)
	if reported == 0 {
		t.Error("no damage was met")
	}
}
