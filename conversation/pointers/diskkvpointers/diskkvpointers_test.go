package diskkvpointers_test

import (
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/conversation/pointers"
	"github.com/agentrun/agentrun/conversation/pointers/diskkvpointers"
	"github.com/agentrun/agentrun/conversation/pointers/pointerstest"
)

func TestPointersInAFileOfSQLite(t *testing.T) {
	pointerstest.Run(t, func(t *testing.T) pointers.Pointers {
		file, damage, err := diskkv.Open(t.Context(), filepath.Join(t.TempDir(), "state.vscdb"), diskkv.Options{})
		if err != nil || damage != nil {
			t.Fatal(damage, err)
		}
		t.Cleanup(func() { _ = file.Close() })
		return diskkvpointers.New(file)
	})
}
