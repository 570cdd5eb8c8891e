package httpstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/spool"
)

// Get fetches the blob. One larger than Options.MaxBytes is blobstore.ErrTooLarge.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.get(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", ref, err)
	}
	return data, nil
}

func (s *Store) get(ctx context.Context, ref blobref.Ref) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	resp, err := s.do(ctx, request{method: http.MethodGet, path: ref.Hex()})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := s.whole(resp, s.opts.MaxBytes); err != nil {
		return nil, err
	}
	data, err := readAll(resp, s.opts.MaxBytes)
	if err != nil {
		return nil, s.unread(ctx, err)
	}
	sum := sha256.Sum256(data)
	if err := s.verify(resp, ref, sum); err != nil {
		return nil, err
	}
	return data, nil
}

// whole refuses an answer that is a part, or longer than a limit.
func (s *Store) whole(resp *http.Response, limit int64) error {
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answered %d to a request for all of it", resp.StatusCode)
	}
	if resp.ContentLength > limit {
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", blobstore.ErrTooLarge, resp.ContentLength, limit)
	}
	return nil
}

// verify holds what arrived against what it is, and what the server says it is.
func (s *Store) verify(resp *http.Response, ref blobref.Ref, sum [sha256.Size]byte) error {
	if !agrees(resp.Header.Get(digestHeader), sum) {
		// It changed on the way, and may arrive unchanged the next time.
		return &blobstore.UnavailableError{Err: fmt.Errorf("%w: it arrived as %s, which is not what the server says it sent", blobstore.ErrCorrupt, blobref.FromSum(sum))}
	}
	if s.opts.Mode == blobstore.Verified && blobref.FromSum(sum) != ref {
		return fmt.Errorf("%w: the server sent %s", blobstore.ErrCorrupt, blobref.FromSum(sum))
	}
	return nil
}

// unread is the error of a body that ended before its end.
func (s *Store) unread(ctx context.Context, err error) error {
	if errors.Is(err, blobstore.ErrTooLarge) {
		return err
	}
	return unanswered(ctx, err)
}

// readAll reads a body of at most limit bytes. Memory grows with what arrives, not
// with what was claimed.
func readAll(resp *http.Response, limit int64) ([]byte, error) {
	const claimed = 1 << 20
	var buf bytes.Buffer
	if resp.ContentLength > 0 {
		// One more than the blob has, in which ReadFrom finds its end.
		buf.Grow(int(min(resp.ContentLength, claimed)) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, addUp(limit, 1)))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("%w: it has more than %d bytes", blobstore.ErrTooLarge, limit)
	}
	if buf.Len() == 0 {
		return []byte{}, nil
	}
	return buf.Bytes(), nil
}

// Open fetches the blob into a temporary without a name, verifies it and opens that.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	b, err := s.open(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", ref, err)
	}
	return b, nil
}

func (s *Store) open(ctx context.Context, ref blobref.Ref) (_ *spool.Stream, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	resp, err := s.do(ctx, request{method: http.MethodGet, path: ref.Hex()})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if err := s.whole(resp, s.opts.MaxStreamBytes); err != nil {
		return nil, err
	}
	body := &failing{r: resp.Body}
	b, err := spool.Read(ctx, body, s.opts.SpoolDir, s.opts.MaxStreamBytes)
	if err != nil {
		if body.failed {
			err = s.unread(ctx, err)
		}
		return nil, err
	}
	if err := s.verify(resp, ref, b.Ref().Sum()); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// failing remembers that it was the reader that failed, and no disk.
type failing struct {
	r      io.Reader
	failed bool
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	f.failed = f.failed || err != nil && err != io.EOF
	return n, err
}

// GetRange returns a part of the blob. In mode Verified all of it is fetched, and what
// lies around the part is verified and forgotten.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: negative range", n, off, ref)
	}
	data, err := s.getRange(ctx, ref, off, n)
	if err != nil {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: %w", n, off, ref, err)
	}
	return data, nil
}

func (s *Store) getRange(ctx context.Context, ref blobref.Ref, off, n int64) (_ []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	q := request{method: http.MethodGet, path: ref.Hex()}
	if s.opts.Mode == blobstore.Opaque {
		if n == 0 {
			_, err := s.Stat(ctx, ref) // a range of nothing cannot be asked for
			return []byte{}, err
		}
		q.header = http.Header{"Range": {"bytes=" + strconv.FormatInt(off, 10) + "-" + strconv.FormatInt(addUp(off, n-1), 10)}}
	}
	resp, err := s.do(ctx, q)
	var beyond *beyondError
	if errors.As(err, &beyond) {
		return []byte{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	// skip is what comes before the part that was asked for.
	skip := off
	switch {
	case resp.StatusCode == http.StatusPartialContent && q.header != nil:
		if skip, err = partial(resp, off); err != nil {
			return nil, err
		}
	default:
		if err := s.whole(resp, s.opts.MaxStreamBytes); err != nil {
			return nil, err
		}
	}
	sum := sha256.New()
	data, err := s.window(resp.Body, sum, skip, n)
	if err != nil {
		return nil, s.unread(ctx, err)
	}
	if s.opts.Mode == blobstore.Opaque {
		return data, nil
	}
	return data, s.verify(resp, ref, [sha256.Size]byte(sum.Sum(nil)))
}

// window reads n bytes from offset off of r, and in mode Verified all the rest too.
func (s *Store) window(r io.Reader, sum hash.Hash, off, n int64) ([]byte, error) {
	r = &counted{r: io.TeeReader(r, sum), left: s.opts.MaxStreamBytes}
	if _, err := io.CopyN(io.Discard, r, off); err != nil {
		if err == io.EOF {
			return []byte{}, nil // it ends before
		}
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, min(n, addUp(s.opts.MaxBytes, 1))))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > s.opts.MaxBytes {
		return nil, fmt.Errorf("%w: the part has more than %d bytes", blobstore.ErrTooLarge, s.opts.MaxBytes)
	}
	if s.opts.Mode == blobstore.Verified {
		_, err = io.Copy(io.Discard, r)
	}
	return data, err
}

// partial checks that a part begins where it was asked for.
func partial(resp *http.Response, off int64) (int64, error) {
	text, _ := strings.CutPrefix(resp.Header.Get("Content-Range"), "bytes ")
	from, _, ok := strings.Cut(text, "-")
	if at, err := strconv.ParseInt(from, 10, 64); !ok || err != nil || at != off {
		return 0, fmt.Errorf("the server sends another range than was asked for: %s", printable(text))
	}
	return 0, nil
}

// beyondError is the answer to a range behind the end.
type beyondError struct{ error }

// addUp adds without overflow.
func addUp(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
