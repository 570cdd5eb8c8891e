package session

import (
	"bytes"
	"context"
)

// eachForward hands the lines of [from, to) to each, in order and without their
// newlines, until it returns false. The lines' bytes are never reused, so they
// may be kept; memory is a block and the longest line.
func eachForward(ctx context.Context, src source, from, to int64, each func(line []byte, at int64) bool) error {
	var rest []byte // the beginning of a line that goes on
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := min(from+max(blockSize, int64(len(rest))), to)
		buf, err := appendSpan(src, from, next, append(make([]byte, 0, len(rest)+int(next-from)), rest...))
		if err != nil {
			return err
		}
		at := from - int64(len(rest))
		from = next
		for {
			i := bytes.IndexByte(buf, '\n')
			if i < 0 {
				break
			}
			if !each(buf[:i:i], at) {
				return nil
			}
			buf, at = buf[i+1:], at+int64(i)+1
		}
		rest = buf
	}
	if len(rest) > 0 {
		each(rest, to-int64(len(rest)))
	}
	return nil
}
