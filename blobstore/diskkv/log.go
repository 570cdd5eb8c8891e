package diskkv

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// The log of a database, https://www.sqlite.org/fileformat2.html#walformat: a header and
// frames of one page each, with checksums that go on from frame to frame. SQLite takes
// the first frame that does not fit for the end of what was written before a crash, and
// so loses, without a word, all transactions behind one that was damaged.
const (
	logHeaderSize = 32
	frameSize     = 24 // of its header
	logMagic      = 0x377f0682
)

// errLogDamaged means that transactions of the log cannot be believed.
var errLogDamaged error = &damagedError{"the log of the database is damaged"}

// checkLog looks whether there are transactions in the log behind a place that SQLite will
// read as its end. What is left of the log is then copied beside it, for SQLite will
// write over it. A transaction that is damaged and the last is not told from one that
// a crash cut short.
func (s *Store) checkLog(ctx context.Context) (*Damage, error) {
	f, err := s.fsys.OpenFile(s.path+walSuffix, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	var first [logHeaderSize]byte
	for range attempts {
		n, err := f.ReadAt(first[:], 0)
		if err != nil && err != io.EOF {
			return nil, err
		}
		cause := scanLog(ctx, first[:n], bufio.NewReaderSize(io.NewSectionReader(f, logHeaderSize, 1<<62), 1<<20))
		if !errors.Is(cause, errLogDamaged) {
			return nil, cause
		}
		// Another process may have begun the log anew meanwhile.
		var again [logHeaderSize]byte
		if m, err := f.ReadAt(again[:], 0); m != n || err != nil && err != io.EOF || again != first {
			continue
		}
		id, err := f.Identify()
		if err != nil {
			return nil, err
		}
		kept := s.damagedName() + walSuffix
		err = durable.WriteNewFunc(s.fsys, kept, s.opts.Sync, func(w io.Writer) error { return durable.Copy(w, f, 0, id.Size) })
		if err != nil {
			return nil, fmt.Errorf("keeping the damaged log: %w", err)
		}
		return &Damage{File: s.path, Log: kept, Cause: cause}, nil
	}
	return nil, nil // it is in use, and so was found sound by others
}

// scanLog reads a log whose first bytes are head and the rest of which is r.
func scanLog(ctx context.Context, head []byte, r io.Reader) error {
	if len(head) < logHeaderSize {
		return nil // nothing was written yet
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[3]&1 != 0 {
		order = binary.BigEndian
	}
	size := binary.BigEndian.Uint32(head[8:])
	a, b := logSum(order, 0, 0, head[:24])
	if binary.BigEndian.Uint32(head)&^1 != logMagic || size < 512 || size > 65536 || size&(size-1) != 0 ||
		a != binary.BigEndian.Uint32(head[24:]) || b != binary.BigEndian.Uint32(head[28:]) {
		if _, err := io.ReadFull(r, make([]byte, frameSize)); err != nil {
			return nil // and nothing is lost with it
		}
		return fmt.Errorf("%w: its header", errLogDamaged)
	}
	salts := head[16:24]
	frame := make([]byte, frameSize+size)
	ended, lost := -1, 0
	for i := 0; ; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := io.ReadFull(r, frame)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return err
		}
		ours, commit := bytes.Equal(frame[8:16], salts), binary.BigEndian.Uint32(frame[4:]) != 0
		if ended >= 0 {
			if ours && commit {
				lost++
			}
			continue
		}
		a, b = logSum(order, a, b, frame[:8])
		a, b = logSum(order, a, b, frame[frameSize:])
		if !ours || a != binary.BigEndian.Uint32(frame[16:]) || b != binary.BigEndian.Uint32(frame[20:]) {
			ended = i
		}
	}
	if lost > 0 {
		return fmt.Errorf("%w: frame %d does not fit, and %d transactions behind it are lost", errLogDamaged, ended, lost)
	}
	return nil
}

// logSum goes on with the checksum of a log over p, whose length is a multiple of 8.
func logSum(order binary.ByteOrder, a, b uint32, p []byte) (uint32, uint32) {
	for ; len(p) >= 8; p = p[8:] {
		a += order.Uint32(p) + b
		b += order.Uint32(p[4:]) + a
	}
	return a, b
}

// damagedName is the name under which what is damaged is kept.
func (s *Store) damagedName() string {
	return s.path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000000000")
}
