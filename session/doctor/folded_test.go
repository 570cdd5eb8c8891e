package doctor_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session/doctor"
)

// fold makes the log of h one that is folded when it is compressed, compresses it,
// and returns its text and the blobs.
func fold(t *testing.T, h *home) (text string, blobs []string) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	words := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%x ", r.Uint64())
		}
		return b.String()
	}
	plain := must(os.ReadFile(h.log))
	history := words(200_000)
	for i := range 8 {
		plain = fmt.Appendf(plain, `{"type":"custom","customType":"x","id":"e%d","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z","data":[%s,%s]}`+"\n",
			i, must(json.Marshal(words(60_000))), must(json.Marshal(history)))
	}
	if err := os.WriteFile(h.log, plain, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.m.Compress(t.Context(), h.log); err != nil {
		t.Fatal(err)
	}
	if blobs = must(filepath.Glob(filepath.Join(h.m.Home(), "kept-blobs", "[0-9a-f]*"))); len(blobs) == 0 {
		t.Fatal("nothing was folded")
	}
	return string(plain), blobs
}

func TestWhatACompressedLogRepeatsIsLookedFor(t *testing.T) {
	h := newHome(t)
	_, _ = fold(t, h)
	if found, _ := examine(t, h.m, doctor.Options{}); len(found) > 0 {
		t.Errorf("of a whole log %+v", found)
	}
}

func TestALostRepeatIsBroughtBackBeforeAnythingIsLeftOut(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses megabytes; run without -short")
	}
	for name, lose := range map[string]func(name string) error{
		"missing": os.Remove,
		"damaged": func(name string) error { return os.WriteFile(name, []byte("something else"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			_, blobs := fold(t, h)
			backup := t.TempDir()
			for _, b := range blobs {
				data := must(os.ReadFile(b))
				if err := os.WriteFile(filepath.Join(backup, filepath.Base(b)), data, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := lose(b); err != nil {
					t.Fatal(err)
				}
			}
			cold := must(os.ReadFile(h.log + ".zst"))
			found, _ := examine(t, h.m, doctor.Options{})
			if !slices.ContainsFunc(found, func(f doctor.Finding) bool {
				return f.File == h.log+".zst" && (f.Kind == doctor.KindBlobMissing || f.Kind == doctor.KindBlobCorrupt) || strings.Contains(f.File, "kept-blobs")
			}) {
				t.Errorf("found %+v", found)
			}
			examine(t, h.m, doctor.Options{Repair: true, From: []string{backup}})
			if now := must(os.ReadFile(h.log + ".zst")); string(now) != string(cold) {
				t.Error("the compressed log was written anew")
			}
			if found, _ := examine(t, h.m, doctor.Options{}); slices.ContainsFunc(found, func(f doctor.Finding) bool { return strings.HasPrefix(f.File, h.log) }) {
				t.Errorf("after the repair %+v", found)
			}
		})
	}
}

func TestALostRepeatThatIsNowhereIsLeftOutAndTheRestStays(t *testing.T) {
	if testing.Short() {
		t.Skip("compresses megabytes; run without -short")
	}
	h := newHome(t)
	text, blobs := fold(t, h)
	for _, b := range blobs {
		if err := os.Remove(b); err != nil {
			t.Fatal(err)
		}
	}
	examine(t, h.m, doctor.Options{Repair: true})
	left := string(must(os.ReadFile(h.log)))
	whole := 0
	for line := range strings.Lines(text) {
		if strings.Contains(left, line) {
			whole++
		}
	}
	if lines := strings.Count(text, "\n"); whole < lines-8 || whole == lines {
		t.Errorf("%d lines of %d are left", whole, lines)
	}
	if aside := string(must(os.ReadFile(h.log + ".damaged"))); !strings.Contains(aside, "blob:sha256:") {
		t.Error("what is left out does not say which blob it lacks")
	}
}
