package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// state is a session file as far as it was read.
type state struct {
	file durable.File     // nil before the file exists
	id   durable.Identity // of file, when it was opened; its size is not kept up
	cold bool             // file is compressed: restored before an append
	// blobs holds what was folded out of a compressed file.
	blobs blobs
	// image holds a session of version 1 or 2 as version 3 would write it; src
	// reads it, and it replaces the file before an append.
	image *image
	src   source // src.size is how far the file was read
	size  int64  // of file itself; differs from src.size when cold or an image

	preamble
	leaf     string // id of the last entry, "" when there is none
	lastAt   int64  // where the last line begins
	leafLast bool   // the last line holds the leaf
	unclosed bool   // the last line has no newline
}

// load opens and reads what every use of a session needs: its preamble and its
// last entry. The context of a large session is a matter of its end.
func load(fsys durable.FS, b blobs, path string) (*state, error) {
	st, err := openState(fsys, b, path)
	if err != nil {
		return nil, err
	}
	if err := st.read(); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

// openState opens the plain file or, when there is none, the compressed one.
func openState(fsys durable.FS, b blobs, path string) (*state, error) {
	plain := catalog.PlainPath(path)
	f, err := fsys.OpenFile(plain, os.O_RDONLY, 0)
	cold := false
	if errors.Is(err, fs.ErrNotExist) {
		if c, cerr := fsys.OpenFile(catalog.ColdPath(path), os.O_RDONLY, 0); cerr == nil {
			f, err, cold = c, nil, true
		}
	}
	if err != nil {
		return nil, openError(path, err)
	}
	st := &state{file: f, cold: cold, blobs: b}
	if st.id, err = f.Identify(); err != nil {
		f.Close()
		return nil, fmt.Errorf("opening session: %w", err)
	}
	st.size = st.id.Size
	st.src = source{f, st.size}
	if cold {
		if st.src, err = openCold(f, st.size, b); err != nil {
			f.Close()
			return nil, fmt.Errorf("opening session %s: %w", catalog.ColdPath(path), err)
		}
	}
	return st, nil
}

func openError(path string, err error) error {
	var irregular *durable.NotRegularError
	switch {
	case errors.As(err, &irregular):
		return fmt.Errorf("opening session: %w; name a .jsonl file", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("opening session: %s is not there; `agentrun sessions list` shows what is: %w", path, fs.ErrNotExist)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("opening session: %s cannot be read by this user; check its permissions: %w", path, fs.ErrPermission)
	}
	return fmt.Errorf("opening session: %w", err)
}

// noPreamble is the error of opening a file whose first lines cannot be read.
func noPreamble(path string, err error) error {
	if errors.Is(err, ErrNotSession) {
		return fmt.Errorf("opening session %s: %w; if it is one, agentrun doctor --repair %[1]s mends it; the file was not changed", path, err)
	}
	return fmt.Errorf("opening session %s: %w; the file was not changed", path, err)
}

func (st *state) read() error {
	var err error
	if st.preamble, err = readPreamble(st.src); err != nil {
		return noPreamble(st.file.Name(), err)
	}
	if st.none {
		st.lastAt = st.src.size
		return nil
	}
	if st.header.Version == 1 || st.header.Version == 2 {
		if st.image, err = migrate(st.src, st.preamble); err != nil {
			return fmt.Errorf("opening session %s: %w", st.file.Name(), err)
		}
		st.src = st.image.source()
		if st.preamble, err = readPreamble(st.src); err != nil {
			return fmt.Errorf("opening session %s: migrating it: %w", st.file.Name(), err)
		}
	}
	return st.findLeaf()
}

// findLeaf reads backwards to the last entry.
func (st *state) findLeaf() error {
	st.lastAt, st.leaf, st.leafLast = st.end, "", false
	if st.src.size <= st.end {
		// The header is the last line; a header without its newline too.
		st.unclosed = st.src.size > 0 && !st.closed()
		st.lastAt = st.src.size
		return nil
	}
	st.unclosed = !st.closed()
	found := false
	return eachBackwardBy(context.Background(), leafBack, st.src, st.end, st.src.size, func(line []byte, at int64) bool {
		if !found {
			found, st.lastAt = true, at
		}
		st.leafLast = at == st.lastAt
		eachRecord(line, func(_ []byte, _ int, e record.Envelope) {
			if !e.IsHeader() && !e.IsSlot() {
				st.leaf = string(e.ID)
			}
		}, nil)
		return st.leaf == ""
	})
}

// closed reports whether the source ends with a newline.
func (st *state) closed() bool {
	var last [1]byte
	n, _ := st.src.ReadAt(last[:], st.src.size-1)
	return n == 1 && last[0] == '\n'
}

// errRewritten is returned by advance for a file whose known part has changed.
var errRewritten = errors.New("it was rewritten in place")

// advance reads the lines that others wrote behind what is known, up to size.
// It reads the last known line again: a program that takes no lock may have
// written between our look at the size and our write, and then our line is not
// where we thought. If it is nowhere, what we know is not in the file any more:
// somebody has written all of it anew, and the error is errRewritten.
func (st *state) advance(size int64, each func(e record.Envelope)) error {
	st.src.size = size
	buf, err := readSpan(st.src, st.lastAt, size, nil)
	if err != nil {
		return err
	}
	off, leafAt := st.lastAt, int64(-1)
	want, seen := st.leaf, !st.leafLast
	for at := 0; at < len(buf); {
		line, next := buf[at:], len(buf)
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, next = line[:i], at+i+1
		}
		eachRecord(line, func(_ []byte, _ int, e record.Envelope) {
			if e.IsHeader() || e.IsSlot() {
				return
			}
			st.leaf, leafAt = string(e.ID), off+int64(at)
			seen = seen || st.leaf == want
			each(e)
		}, nil)
		st.lastAt = off + int64(at)
		at = next
	}
	if !seen {
		return errRewritten
	}
	st.leafLast = leafAt == st.lastAt
	st.size = size
	st.unclosed = !st.closed()
	return nil
}

func (st *state) close() error {
	if st.file == nil {
		return nil
	}
	return st.file.Close()
}
