package blobstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

func TestWhatAStoreCannotDoIsSaidWithoutAGoType(t *testing.T) {
	s := bare{}
	ctx, ref := t.Context(), blobref.Of(nil)
	errs := map[string]error{"delete": blobstore.Delete(ctx, s, ref), "heal": blobstore.Heal(ctx, s, ref)}
	_, errs["stat"] = blobstore.Stat(ctx, s, ref)
	_, errs["open"] = blobstore.Open(ctx, s, ref)
	_, errs["range"] = blobstore.GetRange(ctx, s, ref, 0, 1)
	_, _, errs["stream"] = blobstore.PutStream(ctx, s, strings.NewReader(""))
	errs["set stream"] = blobstore.SetStream(ctx, s, ref, strings.NewReader(""), 0)
	_, errs["exclusive"] = blobstore.SetIfAbsent(ctx, s, ref, nil)
	for _, err := range blobstore.Walk(ctx, s) {
		errs["walk"] = err
	}
	if len(errs) != 9 {
		t.Errorf("%d errors, want one of each", len(errs))
	}
	for name, err := range errs {
		if !errors.Is(err, blobstore.ErrUnsupported) || !strings.Contains(err.Error(), "a store of this kind") || strings.Contains(err.Error(), "bare") {
			t.Errorf("%s = %v, want ErrUnsupported and why, without the name of a type", name, err)
		}
	}
}

// bare is a store and nothing else; nothing of it is called.
type bare struct{ blobstore.Store }
