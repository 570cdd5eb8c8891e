package diskkv_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/blobstore/storetest"
)

func open(t testing.TB, path string, opts diskkv.Options) *diskkv.Store {
	t.Helper()
	s, damage, err := diskkv.Open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	if damage != nil {
		t.Fatal(damage)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStorePassesTheSuite(t *testing.T) {
	for name, opts := range map[string]diskkv.Options{
		"verified":            {},
		"verified and synced": {Sync: true},
		"opaque":              {Mode: blobstore.Opaque},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := []storetest.Option{
				storetest.Reopen(func(s blobstore.Store) blobstore.Store {
					old := s.(*diskkv.Store)
					if err := old.Close(); err != nil {
						t.Fatal(err)
					}
					return open(t, old.Path(), opts)
				}),
				storetest.Corrupt(func(s blobstore.Store, ref blobref.Ref, data []byte) error {
					return execute(t, s.(*diskkv.Store).Path(), "UPDATE cursorDiskKV SET value = ? WHERE key = ?", data, "agentKv:blob:"+ref.Hex())
				}),
			}
			if opts.Mode == blobstore.Opaque {
				options = append(options, storetest.Opaque())
			}
			storetest.Run(t, func() blobstore.Store { return open(t, filepath.Join(t.TempDir(), "state.vscdb"), opts) }, options...)
		})
	}
}

// execute runs a statement as another program does.
func execute(t testing.TB, path, text string, args ...any) error {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(context.Background(), text, args...)
	return err
}
