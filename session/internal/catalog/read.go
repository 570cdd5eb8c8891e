package catalog

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/record"
)

// buffers are reused from file to file; they hold a tail or nearly any head.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, tailBytes); return &b }}

// result is what looking into a log gave.
type result struct {
	cached
	hit  bool // from the cache
	keep bool // worth putting there
	gone bool // the log is not there any more
}

// read looks into one log. The error is an *Unreadable, or fs.ErrNotExist when
// the log is gone.
func (c *Catalog) read(f *file) (Info, error) {
	var r result
	switch c.look(f, &r); {
	case r.gone:
		return Info{}, fs.ErrNotExist
	case r.reason != "":
		return Info{}, &Unreadable{Path: f.path, Reason: r.reason}
	}
	return f.info(r.head), nil
}

// look fills r with what the log says, and f.id with the state that said it.
func (c *Catalog) look(f *file, r *result) {
	in, err := c.fsys.OpenFile(f.path, os.O_RDONLY, 0)
	if err != nil {
		// Not for the cache: permissions change without a trace in the stamp.
		r.gone, r.reason = errors.Is(err, fs.ErrNotExist), reason(err)
		return
	}
	defer in.Close()
	// Both from before the read: what is read is of that moment or later, and a
	// later change shows in the next stamp.
	now := c.now()
	if f.id, err = in.Identify(); err != nil {
		r.reason = reason(err)
		return
	}
	if IsCold(f.path) {
		r.head, err = readColdHead(in)
	} else if r.head, err = readPlainHead(in, f.id.Size); errors.Is(err, errNoHeader) {
		err = whose(in)
	}
	if err != nil {
		r.reason = reason(err)
	}
	r.stamp = stampOf(f.id)
	final := err == nil || slices.Contains([]error{errNoHeader, errClaude, errCodex, errLongHeader}, err)
	r.keep = final && r.stamp.settled(now) && r.cacheable()
}

// info is the head of a log with what the file itself says.
func (f *file) info(hd head) Info {
	info := Info{
		ID: hd.ID, Path: f.path, CWD: hd.CWD, Title: hd.Title, FirstPrompt: hd.First, Parent: hd.Parent, Project: hd.Project,
		Created: hd.Created, Modified: time.Unix(0, f.id.ModTime).UTC(),
		Size: f.id.Size, Version: hd.Version, Compressed: IsCold(f.path),
	}
	if info.Created.IsZero() {
		var named bool
		if info.Created, _, named = ParseFileName(baseName(f.path)); !named {
			info.Created = info.Modified
		}
	}
	return info
}

func readPlainHead(in durable.File, size int64) (head, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	hd, updated, read, err := readHead(in, (*buf)[:0:headBytes])
	if err != nil || hd.ID == "" {
		return hd, err
	}
	if hd.Title == "" {
		hd.First = firstOf(read)
	}
	if size > int64(len(read)) {
		if read, err = readTail(in, (*buf)[:tailBytes], size); err != nil {
			return hd, err
		}
	}
	hd.retitle(read, updated)
	return hd, nil
}

// whoseBytes is how much is read of a file to tell whose it is: the first records of
// others are longer than a header.
const whoseBytes = 64 << 10

// whose says what a file without a header is, by the first record that tells.
func whose(in io.ReaderAt) error {
	buf := make([]byte, whoseBytes)
	n, err := in.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return errNoHeader
	}
	for line := range bytes.Lines(buf[:n]) {
		switch record.FormatOf(bytes.TrimSpace(line)) {
		case record.FormatClaude:
			return errClaude
		case record.FormatCodex:
			return errCodex
		case record.FormatSession:
			return errNoHeader
		}
	}
	return errNoHeader
}

// readTail reads the last len(buf) bytes of a log of size bytes, and drops the
// line that begins before them.
func readTail(in io.ReaderAt, buf []byte, size int64) ([]byte, error) {
	from := max(0, size-int64(len(buf)))
	n, err := in.ReadAt(buf[:size-from], from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	tail := buf[:n]
	if from > 0 {
		tail = tail[bytes.IndexByte(tail, '\n')+1:]
	}
	return tail, nil
}

// reason makes a clause of an error, without the path that stands beside it.
func reason(err error) string {
	var irregular *durable.NotRegularError
	if errors.As(err, &irregular) {
		return "it is " + irregular.Kind + ", not a regular file"
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return "permission denied"
	}
	return err.Error()
}
