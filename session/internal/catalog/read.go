package catalog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/internal/durable"
)

// buffers are reused from file to file; they hold a tail or nearly any head.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, tailBytes); return &b }}

// read looks into one log. The error is an *Unreadable, or fs.ErrNotExist when
// the log is gone.
func (c *Catalog) read(f *file) (Info, error) {
	in, err := c.fsys.OpenFile(f.path, os.O_RDONLY, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return Info{}, err
		}
		return Info{}, &Unreadable{Path: f.path, Reason: reason(err)}
	}
	defer in.Close()
	// From before the read: what is read is of that moment or later, and a later
	// change shows in the next identity.
	if f.id, err = in.Identify(); err != nil {
		return Info{}, &Unreadable{Path: f.path, Reason: reason(err)}
	}
	cold := IsCold(f.path)
	var hd head
	if cold {
		hd, err = readColdHead(in)
	} else {
		hd, err = readPlainHead(in, f.id.Size)
	}
	if err != nil {
		return Info{}, &Unreadable{Path: f.path, Reason: reason(err)}
	}
	info := Info{
		ID: hd.ID, CWD: hd.CWD, Title: hd.Title, Parent: hd.Parent, Created: hd.Created, Version: hd.Version,
		Compressed: cold,
	}
	f.fill(&info)
	return info, nil
}

// fill sets what the file says by being there.
func (f *file) fill(info *Info) {
	info.Path = f.path
	info.Size = f.id.Size
	info.Modified = time.Unix(0, f.id.ModTime)
	if info.Created.IsZero() {
		var named bool
		if info.Created, _, named = ParseFileName(baseName(f.path)); !named {
			info.Created = info.Modified
		}
	}
}

func readPlainHead(in durable.File, size int64) (head, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	hd, read, err := readHead(in, (*buf)[:0:headBytes])
	if err != nil || hd.Title != "" || hd.ID == "" {
		return hd, err
	}
	if size > int64(len(read)) {
		tail := (*buf)[:min(tailBytes, size)]
		n, err := in.ReadAt(tail, size-int64(len(tail)))
		if err != nil && !errors.Is(err, io.EOF) {
			return hd, err
		}
		read = tail[:n]
	}
	hd.Title, _ = lastTitle(read)
	return hd, nil
}

// maxWindow bounds the memory that a hostile frame can ask for. The windows of
// agentrun's own frames are far smaller.
const maxWindow = 8 << 20

var decoders = sync.Pool{New: func() any {
	// With these options NewReader has nothing to fail at.
	d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	return d
}}

func readColdHead(in durable.File) (head, error) {
	d := decoders.Get().(*zstd.Decoder)
	defer decoders.Put(d)
	if err := d.Reset(in); err != nil {
		return head{}, err
	}
	defer d.Reset(nil)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	hd, read, err := readHead(d, (*buf)[:0:headBytes])
	if err == nil && hd.Title == "" {
		hd.Title, _ = lastTitle(read)
	}
	return hd, err
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
