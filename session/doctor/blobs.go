package doctor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

// verdict is what reading a blob found.
type verdict struct {
	store *localdir.Store
	ref   blobref.Ref
	size  int64
	err   error
}

// verify reads blobs on all cores and hands the verdicts to each, one at a time and in
// no order. The workers call it themselves: handing verdicts to another goroutine
// would cost as much as opening a blob.
func verify(ctx context.Context, blobs []verdict, each func(verdict)) error {
	var (
		next    atomic.Int64
		mu      sync.Mutex // around each
		workers sync.WaitGroup
	)
	for range min(runtime.GOMAXPROCS(0), len(blobs)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(blobs) {
					return
				}
				v := blobs[i]
				v.size, v.err = v.store.Check(ctx, v.ref)
				mu.Lock()
				each(v)
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return ctx.Err()
}

// allBlobs verifies every blob of the home.
func (d *Doctor) allBlobs(ctx context.Context) error {
	var blobs []verdict
	for _, store := range d.stores {
		for ref, err := range store.Refs(ctx) {
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				d.report(unreadable(store.Dir(), err))
				break
			}
			blobs = append(blobs, verdict{store: store, ref: ref})
		}
	}
	return d.judge(ctx, blobs)
}

// citedBlobs verifies the blobs that the sessions cite, where they are.
func (d *Doctor) citedBlobs(ctx context.Context) error {
	var blobs []verdict
	for _, ref := range d.order {
		for _, store := range d.stores {
			if _, err := store.Stat(ctx, ref); err == nil {
				blobs = append(blobs, verdict{store: store, ref: ref})
			}
		}
	}
	return d.judge(ctx, blobs)
}

// judge verifies blobs and reports the corrupt ones.
func (d *Doctor) judge(ctx context.Context, blobs []verdict) error {
	var bad []verdict
	err := verify(ctx, blobs, func(v verdict) {
		if errors.Is(v.err, blobstore.ErrNotFound) {
			return // deleted meanwhile
		}
		d.sum.Blobs++
		d.read(v.size)
		if v.err != nil {
			bad = append(bad, v)
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(bad, func(a, b verdict) int {
		return strings.Compare(a.store.Dir()+a.ref.Hex(), b.store.Dir()+b.ref.Hex())
	})
	for _, v := range bad {
		path := filepath.Join(v.store.Dir(), v.ref.Hex())
		if !errors.Is(v.err, blobstore.ErrCorrupt) {
			d.report(unreadable(path, v.err))
			continue
		}
		if err := d.corrupt(ctx, v, path); err != nil {
			return err
		}
	}
	return nil
}

// corrupt reports a blob with wrong bytes, moves it aside and brings it back from
// elsewhere.
func (d *Doctor) corrupt(ctx context.Context, v verdict, path string) error {
	f := Finding{Kind: KindBlobCorrupt, File: path}.at(0, 0, v.size)
	f.What = "the bytes of this blob are not those that its name stands for; what they should be is lost here"
	c := d.cited[v.ref]
	elsewhere := d.heldElsewhere(ctx, v)
	if c != nil {
		f.What += "; " + c.sentence()
	} else {
		f.What += "; no session that was looked at cites it"
	}
	if !d.opt.Repair {
		place := d.find(ctx, v.ref)
		switch {
		case place != "":
			f = f.remedy("moves it to .corrupt and takes the blob from "+place, "")
		case elsewhere || c == nil:
			f = f.remedy("moves it to .corrupt", "")
		default:
			f.Unmendable = true
			f = f.remedy("repair moves it to .corrupt; name a home or directory that has the blob with --from", "")
		}
		d.report(f)
		return ctx.Err()
	}
	// Reading moves it aside.
	if b, err := v.store.Open(ctx, v.ref); err == nil {
		b.Close() // somebody healed it meanwhile
		f.Repaired = true
		f = f.remedy("", "it is whole again")
	} else if from, err := d.fetch(ctx, v.store, v.ref); err != nil {
		f.Unmendable = true
		f.What += fmt.Sprintf("; bringing it back failed: %v", err)
	} else if from != "" {
		f.Repaired = true
		f = f.remedy("", "it is moved to .corrupt, and the blob is back from "+from)
	} else if elsewhere || c == nil {
		f.Repaired = true
		f = f.remedy("", "it is moved to .corrupt")
	} else {
		f.Unmendable = true
		f = f.remedy("it is moved to .corrupt, and none of the places of --from has the blob", "")
	}
	if c != nil && !f.Repaired {
		c.told = true
	}
	d.report(f)
	return ctx.Err()
}

// heldElsewhere reports whether another store of the home has the blob.
func (d *Doctor) heldElsewhere(ctx context.Context, v verdict) bool {
	for _, s := range d.stores {
		if s != v.store {
			if _, err := s.Check(ctx, v.ref); err == nil {
				return true
			}
		}
	}
	return false
}

// missing reports the blobs that sessions cite and that are nowhere, and brings
// them back from elsewhere.
func (d *Doctor) missing(ctx context.Context) error {
	for _, ref := range d.order {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := d.cited[ref]
		if c.told || d.there(ctx, ref) {
			continue
		}
		f := Finding{Kind: KindBlobMissing, File: c.file}.at(c.place.Line, c.place.Offset, c.place.Bytes)
		f.What = fmt.Sprintf("%s is not in the home: an image or a long string of entry %s stays a reference; %s", ref, c.place.Entry, c.sentence())
		if c.folded {
			f.What = fmt.Sprintf("%s is not in the home: what the compressed log repeats there cannot be read; %s", ref, c.sentence())
		}
		switch place := d.find(ctx, ref); {
		case place == "":
			f.Unmendable = true
			f = f.remedy("name a home or directory that has it with --from", "")
		case !d.opt.Repair:
			f = f.remedy("takes it from "+place, "")
		default:
			if _, err := d.fetch(ctx, d.stores[0], ref); err != nil {
				f.Unmendable = true
				f.What += fmt.Sprintf("; taking it from %s failed: %v", place, err)
				break
			}
			f.Repaired = true
			f = f.remedy("", "it is back from "+place)
		}
		d.report(f)
	}
	return nil
}

// there reports whether the home has anything under the name of a blob.
func (d *Doctor) there(ctx context.Context, ref blobref.Ref) bool {
	for _, s := range d.stores {
		if _, err := s.Stat(ctx, ref); err == nil || !errors.Is(err, blobstore.ErrNotFound) {
			return true // a wrong one was reported
		}
	}
	return false
}

// sentence names the sessions that need a blob.
func (c *citation) sentence() string {
	text := "cited by session " + strings.Join(c.logs, ", ")
	if c.more > 0 {
		text += fmt.Sprintf(" and %d more", c.more)
	}
	return text
}
