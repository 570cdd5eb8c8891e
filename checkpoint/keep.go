package checkpoint

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"

	"github.com/agentrun/agentrun/blobref"
)

// keep is content that is in memory and in the blob store.
type keep struct {
	ref     blobref.Ref
	content []byte
}

// keeps are those that files are compared with.
type keeps struct {
	mu   sync.Mutex // guards list
	list []*keep
}

// Keep stores content that a file has, or is about to have, and that nobody changes meanwhile.
// Until forget is called, looking at a file that holds it costs a comparison: it is neither
// hashed nor stored again. What cannot be stored is not kept; who records the file tries
// again, and reports it. Keep may be called from several goroutines at once, and while files are recorded.
func (r *Recorder) Keep(ctx context.Context, content []byte) (forget func()) {
	ref, err := r.s.PutBytes(ctx, content)
	if err != nil {
		return func() {}
	}
	k := &keep{ref, content}
	r.kept.mu.Lock()
	defer r.kept.mu.Unlock()
	r.kept.list = append(r.kept.list, k)
	return func() {
		r.kept.mu.Lock()
		defer r.kept.mu.Unlock()
		r.kept.list = slices.DeleteFunc(r.kept.list, func(other *keep) bool { return other == k })
	}
}

// find returns the blob that holds what f yields; ok is false when none of those that are kept does.
func (k *keeps) find(ctx context.Context, f io.Reader) (ref blobref.Ref, size int64, ok bool, err error) {
	k.mu.Lock()
	left := slices.Clone(k.list)
	k.mu.Unlock()
	if len(left) == 0 {
		return blobref.Ref{}, 0, false, nil
	}
	block := make([]byte, 256<<10)
	for {
		n, err := io.ReadFull(reader{ctx, f}, block)
		left = slices.DeleteFunc(left, func(k *keep) bool {
			rest := k.content[size:]
			return len(rest) < n || !bytes.Equal(rest[:n], block[:n])
		})
		size += int64(n)
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			left = slices.DeleteFunc(left, func(k *keep) bool { return int64(len(k.content)) != size })
			if len(left) == 0 {
				return blobref.Ref{}, 0, false, nil
			}
			return left[0].ref, size, true, nil
		case err != nil:
			return blobref.Ref{}, 0, false, err
		case len(left) == 0:
			return blobref.Ref{}, 0, false, nil
		}
	}
}
