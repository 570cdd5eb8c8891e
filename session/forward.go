package session

import (
	"bytes"
	"context"
)

// eachForward hands the lines of [from, to) to each, in order and without their
// newlines, until it returns false. The lines' bytes are never reused, so they
// may be kept; memory is a block and the longest line.
func eachForward(ctx context.Context, src source, from, to int64, each func(line []byte, at int64) bool) error {
	return eachLine(ctx, src, from, to, func(rest []byte, n int) []byte {
		return append(make([]byte, 0, len(rest)+n), rest...)
	}, each)
}

// eachPassing is eachForward for lines that are done with when each returns.
func eachPassing(ctx context.Context, src source, from, to int64, each func(line []byte, at int64) bool) error {
	var all []byte
	return eachLine(ctx, src, from, to, func(rest []byte, n int) []byte {
		if cap(all) < len(rest)+n {
			all = make([]byte, 0, len(rest)+n)
		}
		return append(all[:0], rest...)
	}, each)
}

// eachLine hands the lines of [from, to) to each. room returns a buffer that begins
// with rest, the beginning of a line that goes on, and has room for n bytes more.
func eachLine(ctx context.Context, src source, from, to int64, room func(rest []byte, n int) []byte, each func(line []byte, at int64) bool) error {
	var rest []byte
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := min(from+max(blockSize, int64(len(rest))), to)
		buf, err := appendSpan(src, from, next, room(rest, int(next-from)))
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
