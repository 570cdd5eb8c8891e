package diskkv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/agentrun/agentrun/internal/durable"
)

// ErrFormat means that a file is there and is not a database with a table
// cursorDiskKV of the form that this package reads. Nothing was changed.
var ErrFormat = errors.New("not a cursorDiskKV database")

// applicationID marks a file of our own in its header: "agrn".
const applicationID = 0x6167726e

// header is what the first bytes of a database file say,
// https://www.sqlite.org/fileformat.html section 1.3.
type header struct {
	wal  bool   // changes go to a log beside the file first
	app  uint32 // which program's file it says to be
	none bool   // the file has no bytes
}

const (
	headerSize   = 100
	headerMagic  = "SQLite format 3\x00"
	offWriteVer  = 18
	offReadVer   = 19
	offAppID     = 68
	walVersion   = 2
	rollbackOnly = 1
)

func parseHeader(b []byte) (header, error) {
	if len(b) == 0 {
		return header{none: true}, nil
	}
	if len(b) < headerSize || string(b[:len(headerMagic)]) != headerMagic {
		return header{}, fmt.Errorf("%w: it does not begin as a SQLite file does", ErrFormat)
	}
	return header{
		wal: b[offReadVer] == walVersion,
		app: binary.BigEndian.Uint32(b[offAppID:]),
	}, nil
}

// held are the files that stores of this process have open, by what they are, not by
// their names. POSIX takes all locks of a process off a file when the process closes
// any descriptor of it: one that was only opened to look at a header would leave a
// database that another store writes without its locks. So a descriptor that was
// opened here is kept until the last store of that file is closed.
var held = struct {
	sync.Mutex
	files map[inode]*heldFile
}{files: make(map[inode]*heldFile)}

type inode struct{ dev, ino uint64 }

type heldFile struct {
	key    inode
	stores int
	open   []durable.File
}

// hold opens the file, or finds it open, until drop. It is refused unless it is a
// regular file under that very name.
func hold(fsys durable.FS, path string) (*heldFile, error) {
	held.Lock()
	defer held.Unlock()
	id, err := fsys.Identify(path)
	if err != nil {
		return nil, err
	}
	key := inode{id.Dev, id.Ino}
	if h, ok := held.files[key]; ok {
		h.stores++
		return h, nil
	}
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	if id, err = f.Identify(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	key = inode{id.Dev, id.Ino} // it may be another than a moment ago
	h, ok := held.files[key]
	if !ok {
		h = &heldFile{key: key}
		held.files[key] = h
	}
	h.stores++
	h.open = append(h.open, f)
	return h, nil
}

// drop ends a hold. All connections that the holder had to the file are closed.
func (h *heldFile) drop() error {
	held.Lock()
	defer held.Unlock()
	if h.stores--; h.stores > 0 {
		return nil
	}
	delete(held.files, h.key)
	var errs []error
	for _, f := range h.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// header reads the header of the file as it is now.
func (h *heldFile) header() (header, error) {
	b := make([]byte, headerSize)
	n, err := h.open[0].ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return header{}, err
	}
	return parseHeader(b[:n])
}

// is reports whether the file is the one of that identity.
func (h *heldFile) is(id durable.Identity) bool { return h.key == inode{id.Dev, id.Ino} }
