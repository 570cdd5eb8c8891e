package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// keptUnfolded is how many blobs of a folded log are kept in memory, of maxFold bytes
// at most. Every core reads a block of its own.
const keptUnfolded = 16

// unfolded reads a folded log as it was before. It is safe for concurrent use.
type unfolded struct {
	*folds
	stream source
	blobs  blobs

	mu   sync.Mutex // guards kept
	kept []loadedFold
}

// loadedFold is a blob, and what was found wrong with it.
type loadedFold struct {
	blob uint32
	data []byte
	err  error // matches errLostFold
}

// errLostFold says that a stretch of a compressed log cannot be had any more.
var errLostFold = errors.New("a stretch that was folded is lost")

// unfold reads what stream is with the folded stretches in their places.
func unfold(stream source, t *folds, b blobs) (source, error) {
	log, end := t.end()
	if end > stream.size {
		return source{}, errFolds
	}
	return source{&unfolded{folds: t, stream: stream, blobs: b}, log + stream.size - end}, nil
}

// ReadAt reads the log. A stretch of which the blob is missing or damaged is read as
// its mark and as many more bytes that JSON cannot have: its line is damaged, and all
// others are what they were.
func (u *unfolded) ReadAt(p []byte, off int64) (int, error) {
	return u.readAt(p, off, func(x loadedFold) error { return nil })
}

// whole is the same log for whoever writes it anew: a lost stretch is an error.
func (u *unfolded) whole() io.ReaderAt { return wholeLog{u} }

type wholeLog struct{ u *unfolded }

func (w wholeLog) ReadAt(p []byte, off int64) (int, error) {
	return w.u.readAt(p, off, func(x loadedFold) error { return x.err })
}

func (u *unfolded) readAt(p []byte, off int64, accept func(loadedFold) error) (n int, err error) {
	i := sort.Search(len(u.list), func(i int) bool { return u.list[i].off+u.folds.blobs[u.list[i].blob].size > off })
	for n < len(p) {
		at := off + int64(n)
		if i == len(u.list) || at < u.list[i].off {
			want := p[n:]
			log, stream := int64(0), int64(0)
			if i > 0 {
				x := u.list[i-1]
				log, stream = x.off+u.folds.blobs[x.blob].size, x.stream+u.folds.blobs[x.blob].markLen()
			}
			if i < len(u.list) {
				want = want[:min(int64(len(want)), u.list[i].off-at)]
			}
			got, err := u.stream.ReadAt(want, stream+at-log)
			n += got
			if got < len(want) && (err != nil || got == 0) {
				if err == nil {
					err = io.ErrNoProgress
				}
				return n, err
			}
			continue
		}
		x, err := u.load(u.list[i].blob)
		if err == nil {
			err = accept(x)
		}
		if err != nil {
			return n, fmt.Errorf("the stretch at %d: %w", u.list[i].off, err)
		}
		n += copy(p[n:], x.data[at-u.list[i].off:])
		i++
	}
	return n, nil
}

// load returns a blob, or what stands in for one that is lost. Whatever else keeps it
// from being read is an error.
func (u *unfolded) load(number uint32) (loadedFold, error) {
	u.mu.Lock()
	for i, x := range u.kept {
		if x.blob == number {
			copy(u.kept[1:i+1], u.kept[:i]) // the one used last comes first
			u.kept[0] = x
			u.mu.Unlock()
			return x, nil
		}
	}
	u.mu.Unlock()
	b := u.folds.blobs[number]
	x := loadedFold{blob: number}
	var err error
	x.data, err = u.blobs.folded(b.ref)
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
		x.err = fmt.Errorf("%w: %s is missing; bring it back, or leave it out with `agentrun doctor --repair`", errLostFold, b.ref)
	case errors.Is(err, blobstore.ErrCorrupt) || err == nil && int64(len(x.data)) != b.size:
		x.err = fmt.Errorf("%w: %s is damaged; bring it back, or leave it out with `agentrun doctor --repair`", errLostFold, b.ref)
	case err != nil:
		return x, err
	}
	if x.err != nil {
		x.data = append(b.mark(), bytes.Repeat([]byte{foldMark}, int(b.size))...)[:b.size]
		return x, nil // looked for again the next time: it may be brought back
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.kept) < keptUnfolded {
		u.kept = append(u.kept, loadedFold{})
	}
	copy(u.kept[1:], u.kept)
	u.kept[0] = x
	return x, nil
}

// folded reads a blob that was folded out of a compressed log. It is in kept, or where
// an import or a person put it.
func (b blobs) folded(ref blobref.Ref) ([]byte, error) {
	data, err := b.kept.Get(context.Background(), ref)
	if err != nil {
		if other, serr := b.store.Get(context.Background(), ref); serr == nil || errors.Is(err, blobstore.ErrNotFound) {
			return other, serr
		}
	}
	return data, err
}

// foldsOf are the folded stretches of a log, nil when it has none.
func foldsOf(src source) *folds {
	if u, ok := src.ReaderAt.(*unfolded); ok {
		return u.folds
	}
	return nil
}

// wholeSource is src, of which no lost stretch is read as anything else.
func wholeSource(src source) source {
	if u, ok := src.ReaderAt.(*unfolded); ok {
		return source{u.whole(), src.size}
	}
	return src
}
