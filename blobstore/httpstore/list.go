package httpstore

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

const (
	// pageSize is how many blobs a client asks for at once, and the most that a
	// server lists at once: each page costs it a walk, and each entry memory.
	pageSize = 50_000

	maxLine = 1 << 10        // bytes of a line of the list
	maxPage = pageSize * 512 // bytes of a page; a line of ours has less than 200
)

// line is one line of a list: a blob, what is wrong with one, or the last line.
type line struct {
	Ref   string `json:"ref,omitempty"`
	Size  int64  `json:"size"`
	Time  string `json:"time,omitempty"`
	Error string `json:"error,omitempty"` // what is wrong with this blob
}

// last is the last line of a page. A page without one was cut off.
type last struct {
	Next string `json:"next,omitempty"`
	End  bool   `json:"end,omitempty"`
}

// Walk yields the blobs by rising reference, a page at a time: the body of the loop
// may take as long as it likes.
func (s *Store) Walk(ctx context.Context) iter.Seq2[blobstore.Info, error] {
	return func(yield func(blobstore.Info, error) bool) {
		var after blobref.Ref
		for {
			page, more, err := s.nextPage(ctx, after)
			if err != nil {
				yield(blobstore.Info{}, fmt.Errorf("listing blobs: %w", err))
				return
			}
			for _, e := range page {
				if err := ctx.Err(); err != nil {
					yield(blobstore.Info{}, fmt.Errorf("listing blobs: %w", err))
					return
				}
				if !yield(e.info, e.err) {
					return
				}
				after = e.info.Ref
			}
			if !more {
				return
			}
		}
	}
}

// found is what a list says of one blob.
type found struct {
	info blobstore.Info
	err  error
}

// nextPage asks for the blobs behind after, and tells whether there are more.
func (s *Store) nextPage(ctx context.Context, after blobref.Ref) (_ []found, more bool, err error) {
	q := request{method: http.MethodGet, path: "?limit=" + strconv.Itoa(s.page)}
	if !after.IsZero() {
		q.path += "&after=" + after.Hex()
	}
	resp, err := s.do(ctx, q)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	page, more, err := parsePage(http.MaxBytesReader(nil, resp.Body, maxPage), after)
	var cut *http.MaxBytesError
	if err != nil && !errors.As(err, &cut) && !errors.Is(err, errList) {
		err = unanswered(ctx, err)
	}
	return page, more, err
}

// errList is the error of a list that is none.
var errList = errors.New("the server's list is not as it should be")

// parsePage is the one reader of lists. The blobs have to rise, from after on, so that
// no server can send a client round in circles.
func parsePage(r interface{ Read([]byte) (int, error) }, after blobref.Ref) (page []found, more bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	for lines.Scan() {
		var l struct {
			line
			last
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, false, fmt.Errorf("%w: %w", errList, err)
		}
		switch {
		case l.End:
			return page, false, nil
		case l.Next != "":
			if len(page) == 0 || l.Next != page[len(page)-1].info.Ref.Hex() {
				return nil, false, fmt.Errorf("%w: it goes on behind a blob that is not its last", errList)
			}
			return page, true, nil
		}
		ref, err := blobref.ParseHex(l.Ref)
		if err != nil || l.Size < 0 {
			return nil, false, fmt.Errorf("%w: a line names no blob", errList)
		}
		if len(page) >= pageSize || compare(ref, after) <= 0 {
			return nil, false, fmt.Errorf("%w: %s comes where it cannot be", errList, ref)
		}
		after = ref
		f := found{info: blobstore.Info{Ref: ref, Size: l.Size, ModTime: parseTime(l.Time)}}
		if l.Error != "" {
			f = found{info: blobstore.Info{Ref: ref}, err: fmt.Errorf("listing %s: the server says: %s", ref, printable(l.Error))}
		}
		page = append(page, f)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("%w: a line has more than %d bytes", errList, maxLine)
		}
		return nil, false, err
	}
	return nil, false, errors.New("the list is cut off")
}

func compare(a, b blobref.Ref) int {
	x, y := a.Sum(), b.Sum()
	return bytes.Compare(x[:], y[:])
}

// smallest is a heap of the blobs that come first, the last of them on top.
type smallest []found

func (h smallest) Len() int           { return len(h) }
func (h smallest) Less(i, j int) bool { return compare(h[i].info.Ref, h[j].info.Ref) > 0 }
func (h smallest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *smallest) Push(x any)        { *h = append(*h, x.(found)) }
func (h *smallest) Pop() any {
	old := *h
	top := old[len(old)-1]
	*h = old[:len(old)-1]
	return top
}

// firstOf walks a store, in whatever order it has, for the n blobs behind after that
// come first, and tells whether there are more. It holds n of them at a time.
func firstOf(ctx context.Context, store blobstore.Store, after blobref.Ref, n int) (page []found, more bool, err error) {
	var h smallest
	for info, err := range blobstore.Walk(ctx, store) {
		if info.Ref.IsZero() {
			if err == nil {
				continue
			}
			return nil, false, err
		}
		if compare(info.Ref, after) <= 0 {
			continue
		}
		if len(h) == n {
			more = true
			if compare(info.Ref, h[0].info.Ref) >= 0 {
				continue
			}
			heap.Pop(&h)
		}
		heap.Push(&h, found{info, err})
	}
	page = make([]found, len(h))
	for i := len(h) - 1; i >= 0; i-- {
		page[i] = heap.Pop(&h).(found)
	}
	return page, more, nil
}

// list answers a request for a page.
func (h *Handler) list(w http.ResponseWriter, r *http.Request) error {
	limit, after := pageSize, blobref.Ref{}
	query := r.URL.Query()
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("%w: limit is a number from 1 to %d", blobref.ErrInvalid, pageSize)
		}
		limit = min(n, pageSize)
	}
	if text := query.Get("after"); text != "" {
		var err error
		if after, err = blobref.ParseHex(text); err != nil {
			return err
		}
	}
	page, more, err := firstOf(r.Context(), h.store, after, limit)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	for _, f := range page {
		l := line{Ref: f.info.Ref.Hex(), Size: f.info.Size}
		if !f.info.ModTime.IsZero() {
			l.Time = f.info.ModTime.UTC().Format(time.RFC3339Nano)
		}
		if f.err != nil {
			h.report(f.err)
			l = line{Ref: l.Ref, Error: "it cannot be looked at"}
		}
		if err := lines.Encode(l); err != nil {
			return errGone
		}
	}
	end := last{End: true}
	if more {
		end = last{Next: page[len(page)-1].info.Ref.Hex()}
	}
	if lines.Encode(end) != nil || out.Flush() != nil {
		return errGone
	}
	return nil
}
