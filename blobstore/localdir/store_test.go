package localdir_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

func TestStore(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts localdir.Options
	}{
		{"verified", localdir.Options{}},
		{"verified and synced", localdir.Options{Sync: true}},
		{"opaque", localdir.Options{Mode: blobstore.Opaque}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.opts.Sync && testing.Short() {
				t.Skip("fsyncs of a whole suite take seconds")
			}
			t.Parallel()
			base, n := t.TempDir(), 0
			options := []storetest.Option{
				storetest.Reopen(func(s blobstore.Store) blobstore.Store {
					return open(t, s.(*localdir.Store).Dir(), tt.opts)
				}),
				storetest.Corrupt(func(s blobstore.Store, ref blobref.Ref, data []byte) error {
					return os.WriteFile(filepath.Join(s.(*localdir.Store).Dir(), ref.Hex()), data, 0o600)
				}),
			}
			if tt.opts.Sync {
				options = append(options, storetest.Largest(1<<20))
			}
			if tt.opts.Mode == blobstore.Opaque {
				options = append(options, storetest.Opaque())
			}
			storetest.Run(t, func() blobstore.Store {
				n++
				return open(t, filepath.Join(base, strconv.Itoa(n), "store"), tt.opts)
			}, options...)
			noTemporaries(t, base)
		})
	}
}

// noTemporaries fails when anything is left below dir that only a crash may leave.
func noTemporaries(t *testing.T, dir string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*", "store", ".tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporaries were left: %v %v", left, err)
	}
}
