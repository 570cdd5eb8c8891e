// Package spool holds a stream until its end is known: stores that talk to a
// remote one need the hash of what they send before they send it, and have to
// verify what they get before they hand it out. What is short stays in memory;
// the rest goes to a file without a name, 0600 in the directory for temporaries,
// which is gone with the process however that ends.
package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// MaxMemory is how many bytes of a stream are held in memory.
const MaxMemory = 1 << 20

// Stream is a stream that has been read to its end. It is a blobstore.Blob.
type Stream struct {
	*io.SectionReader
	file durable.File // nil for what is in memory
	ref  blobref.Ref
}

var _ blobstore.Blob = (*Stream)(nil)

// Ref is the reference of what the stream holds.
func (s *Stream) Ref() blobref.Ref { return s.ref }

// Close frees the stream.
func (s *Stream) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// Read reads r until io.EOF. More than limit bytes are blobstore.ErrTooLarge. dir is
// where the file goes; "" is the system's directory for temporaries. The caller
// closes what it gets.
func Read(ctx context.Context, r io.Reader, dir string, limit int64) (_ *Stream, err error) {
	var (
		head bytes.Buffer
		file durable.File
		hash = sha256.New()
		size int64
		buf  = make([]byte, 64<<10)
	)
	defer func() {
		if err != nil && file != nil {
			_ = file.Close()
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, rerr := r.Read(buf)
		if size += int64(n); size > limit {
			return nil, fmt.Errorf("%w: it has more than %d bytes", blobstore.ErrTooLarge, limit)
		}
		hash.Write(buf[:n])
		if file == nil && head.Len()+n > MaxMemory {
			if file, err = unnamed(dir); err != nil {
				return nil, err
			}
			if _, err := file.Write(head.Bytes()); err != nil {
				return nil, fmt.Errorf("keeping a stream: %w", err)
			}
			head = bytes.Buffer{}
		}
		if file == nil {
			head.Write(buf[:n])
		} else if _, err := file.Write(buf[:n]); err != nil {
			return nil, fmt.Errorf("keeping a stream: %w", err)
		}
		if rerr == io.EOF {
			break
		}
		if rerr != nil {
			return nil, fmt.Errorf("reading it: %w", rerr)
		}
	}
	var sum [sha256.Size]byte
	hash.Sum(sum[:0])
	s := &Stream{file: file, ref: blobref.FromSum(sum)}
	if file == nil {
		s.SectionReader = io.NewSectionReader(bytes.NewReader(head.Bytes()), 0, size)
	} else {
		s.SectionReader = io.NewSectionReader(file, 0, size)
	}
	return s, nil
}

// unnamed makes a file and takes its name away.
func unnamed(dir string) (durable.File, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	f, err := durable.CreateTemp(durable.OS, dir, "agentrun-spool-")
	if err != nil {
		return nil, fmt.Errorf("making a temporary file in %s (TMPDIR says where): %w", dir, err)
	}
	if err := durable.OS.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("making a temporary file: %w", err)
	}
	return f, nil
}
