// Package exact reads streams of which the length, and maybe the hash, are known
// beforehand. Its last bytes are handed out when all of it was seen to be right, so that
// who passes the stream on never passes on the whole of a wrong one.
package exact

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Errors of a stream that is not as long as was said.
var (
	ErrLonger  = errors.New("the stream has more bytes than was said")
	ErrShorter = fmt.Errorf("the stream has fewer bytes than was said: %w", io.ErrUnexpectedEOF)
)

// Reader reads such a stream. Its errors are final.
type Reader struct {
	r    io.Reader
	left int64
	want blobref.Ref
	hash hash.Hash // nil where nothing is wanted
	err  error
}

// New returns a reader of size bytes, not none, of r. They are those of want, or any
// where that is the zero Ref.
func New(r io.Reader, size int64, want blobref.Ref) *Reader {
	e := &Reader{r: r, left: size, want: want}
	if !want.IsZero() {
		e.hash = sha256.New()
	}
	return e
}

func (e *Reader) Read(b []byte) (int, error) {
	if e.err != nil || len(b) == 0 {
		return 0, e.err
	}
	if int64(len(b)) > e.left {
		b = b[:e.left]
	}
	n, err := e.r.Read(b)
	if e.left -= int64(n); e.hash != nil {
		e.hash.Write(b[:n])
	}
	switch {
	case err != nil && err != io.EOF:
		e.err = err
		return n, err
	case e.left > 0 && err == io.EOF:
		e.err = ErrShorter
		return n, e.err
	case e.left > 0:
		return n, nil
	}
	if e.err = e.end(err); e.err != io.EOF {
		return 0, e.err
	}
	return n, nil
}

// end looks behind the last byte, whose read gave err.
func (e *Reader) end(err error) error {
	var more [1]byte
	for n := 0; err == nil; {
		if n, err = e.r.Read(more[:]); n > 0 {
			return ErrLonger
		}
	}
	if err != io.EOF {
		return err
	}
	if e.hash != nil {
		if got := blobref.FromSum([sha256.Size]byte(e.hash.Sum(nil))); got != e.want {
			return fmt.Errorf("%w (they are %s)", blobstore.ErrMismatch, got)
		}
	}
	return io.EOF
}
