package outputsink

import (
	"errors"
	"fmt"
	"io"
)

const (
	// MinArtifactBytes is the smallest limit of an artifact: it has room for the line that tells what is missing.
	MinArtifactBytes = 4 << 10

	// elisionBytes is the fixed size of that line.
	elisionBytes = 256
)

var (
	errLimit = errors.New("the size of the artifact is limited")
	errCount = errors.New("the file counted more bytes than it was given")
)

// layout is how the stream lies in its file: as it is, or, with a limit,
//
//	first half of the limit | from the first drop on: line of elisionBytes | last bytes of the stream
//
// so that the file is a true account of the stream at any time. When it is full, the older half of the last bytes is
// dropped: the younger half is moved down to the line, which is rewritten. A byte is moved at most once for each time
// it is written.
type layout struct {
	File
	limit int64 // 0: none
	end   int64 // bytes of the stream
	tail  int64 // where in the stream the last bytes begin; 0 while nothing was dropped
}

func (l *layout) half() int64   { return l.limit / 2 }
func (l *layout) dropped() bool { return l.tail > 0 }

// position returns where in the file the byte of the stream at off is.
func (l *layout) position(off int64) int64 {
	if !l.dropped() || off < l.half() {
		return off
	}
	return l.half() + elisionBytes + off - l.tail
}

// append writes the next bytes of the stream and returns how many the file took.
func (l *layout) append(b []byte) (int, error) {
	if l.limit == 0 {
		return took(len(b))(l.Write(b))
	}
	done := 0
	for done < len(b) {
		at := l.position(l.end)
		if at >= l.limit {
			if err := l.drop(); err != nil {
				return done, err
			}
			continue
		}
		piece := b[done:min(int64(len(b)), int64(done)+l.limit-at)]
		n, err := took(len(piece))(l.WriteAt(piece, at))
		done += n
		l.end += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// took makes the result of writing `want` bytes one that can be relied on.
func took(want int) func(n int, err error) (int, error) {
	return func(n int, err error) (int, error) {
		switch {
		case n < 0 || n > want:
			return 0, errors.Join(errCount, err)
		case n < want && err == nil:
			err = io.ErrShortWrite
		}
		return n, err
	}
}

// drop makes room.
func (l *layout) drop() error {
	to := l.half() + elisionBytes
	keep := (l.limit - to) / 2
	from := l.position(l.end - keep)
	l.tail = l.end - keep // from here on the file is not what it was, whatever fails

	line := fmt.Sprintf("\n[%d bytes (%s) of the output, from byte %d on, are left out here: this file is limited to %d bytes]",
		l.tail-l.half(), FormatBytes(l.tail-l.half()), l.half(), l.limit)
	line = fmt.Sprintf("%-*s\n", elisionBytes-1, line)
	if _, err := took(len(line))(l.WriteAt([]byte(line), l.half())); err != nil {
		return err
	}
	buf := make([]byte, min(keep, spoolBytes))
	for moved := int64(0); moved < keep; {
		b := buf[:min(keep-moved, int64(len(buf)))]
		if n, err := l.ReadAt(b, from+moved); n != len(b) {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := took(len(b))(l.WriteAt(b, to+moved)); err != nil {
			return err
		}
		moved += int64(len(b))
	}
	return l.Truncate(to + keep)
}
