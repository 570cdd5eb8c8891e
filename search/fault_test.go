package search_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/search"
)

// Whatever operation of making an index fails, answers are those of the files, and
// the next one who may write mends it.
func TestAnswersAreRightWhereverMakingAnIndexFails(t *testing.T) {
	for _, how := range []struct {
		name string
		arm  func(f *faultfs.FS, n int)
	}{
		{"an error", func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) }},
		{"a full disk", func(f *faultfs.FS, n int) { f.FullAt(n) }},
		{"a crash", func(f *faultfs.FS, n int) { f.CrashAt(n) }},
	} {
		t.Run(how.name, func(t *testing.T) {
			h := newHome(t)
			s := h.session("needle one")
			h.output(s, "a needle\n")
			want, _ := h.find(search.Query{Words: []string{"needle"}, NoIndex: true})
			right := func(when string) {
				t.Helper()
				got, _ := h.find(search.Query{Words: []string{"needle"}})
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: wanted (-) and found (+):\n%s", when, diff)
				}
			}
			for n := 0; ; n++ {
				when := fmt.Sprintf("operation %d", n)
				fsys := faultfs.New(durable.OS)
				how.arm(fsys, n)
				x := search.New(h.Manager, search.Options{FS: fsys})
				err := x.Rebuild(context.Background())
				if !fsys.Fired() {
					if must(t, err); n < 5 {
						t.Errorf("only %d operations were made to fail", n)
					}
					break
				}
				right(when)
				h.index()
				right(when + ", made again")
			}
		})
	}
}
