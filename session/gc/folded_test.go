package gc_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session/gc"
)

func TestWhatCompressedLogsRepeatIsKeptAsLongAsTheyAreCompressed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	words := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			fmt.Fprintf(&b, "%x ", r.Uint64())
		}
		return b.String()
	}
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprint("in a home that is shared: ", foreign), func(t *testing.T) {
			m := manager(t, filepath.Join(t.TempDir(), "home"))
			if foreign {
				write(t, filepath.Join(m.Home(), "history.db"), "")
			}
			path := newSession(t, m, text("hello"))
			plain := must(os.ReadFile(path))
			history := words(200_000)
			for i := range 8 {
				plain = fmt.Appendf(plain, `{"type":"custom","customType":"x","id":"e%d","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z","data":[%q,%q]}`+"\n", i, words(60_000), history)
			}
			ok(t, os.WriteFile(path, plain, 0o600), m.Compress(t.Context(), path))
			blobs := filepath.Join(m.Home(), "kept-blobs", "[0-9a-f]*")
			before := must(filepath.Glob(blobs))
			if len(before) == 0 {
				t.Fatal("nothing was folded")
			}
			read := func() []byte {
				l := must(m.OpenLog(path))
				defer l.Close()
				return must(io.ReadAll(io.NewSectionReader(l, 0, l.Size())))
			}
			collect := func() int {
				old(t, filepath.Join(m.Home(), "blobs"))
				old(t, filepath.Join(m.Home(), "kept-blobs"))
				must(gc.Run(t.Context(), m, gc.Options{Apply: true}))
				return len(must(filepath.Glob(blobs)))
			}
			if n := collect(); n != len(before) {
				t.Fatalf("%d of %d blobs are left", n, len(before))
			}
			if !bytes.Equal(read(), plain) {
				t.Fatal("the log is another one")
			}
			// In the trash, and back.
			gone := must(m.Trash(t.Context(), path))
			if n := collect(); n != len(before) {
				t.Fatalf("of a session in the trash %d of %d blobs are left", n, len(before))
			}
			must(m.RestoreTrashed(t.Context(), gone))
			if !bytes.Equal(read(), plain) {
				t.Fatal("from the trash the log is another one")
			}
			s := must(m.Open(t.Context(), path))
			must(s.Append(t.Context(), text("next")))
			ok(t, s.Close())
			if n := collect(); n != 0 {
				t.Errorf("%d blobs are left of a log that is plain again", n)
			}
			if !bytes.HasPrefix(read(), plain) {
				t.Error("the restored log is another one")
			}
		})
	}
}
