package session

import (
	"bytes"
	"context"
)

// Reading backwards starts with firstBack bytes, which hold the context of most
// sessions that were compacted, or with leafBack where the last entry is enough, and
// doubles up to maxBack.
const (
	leafBack  = 4 << 10
	firstBack = 128 << 10
	maxBack   = 4 << 20
)

// eachBackward hands the lines of [from, to) to each, the last one first, until
// it returns false. The lines' bytes are never reused, so they may be kept.
func eachBackward(ctx context.Context, src source, from, to int64, each func(line []byte, at int64) bool) error {
	return eachBackwardBy(ctx, firstBack, src, from, to, each)
}

// eachBackwardBy is eachBackward that reads size bytes first.
func eachBackwardBy(ctx context.Context, size int64, src source, from, to int64, each func(line []byte, at int64) bool) error {
	var starts []int
	for to > from {
		if err := ctx.Err(); err != nil {
			return err
		}
		a := max(from, to-size)
		buf, err := readSpan(src, a, to, nil)
		if err != nil {
			return err
		}
		// Forward over the block: the search for a byte is fast in that
		// direction only.
		starts = starts[:0]
		if a == from {
			starts = append(starts, 0)
		}
		for at := 0; ; {
			i := bytes.IndexByte(buf[at:], '\n')
			if i < 0 || at+i+1 == len(buf) {
				break
			}
			at += i + 1
			starts = append(starts, at)
		}
		if len(starts) == 0 {
			size *= 2 // one line is longer than the block
			continue
		}
		end := len(buf)
		for i := len(starts) - 1; i >= 0; i-- {
			line := buf[starts[i]:end]
			if n := len(line); n > 0 && line[n-1] == '\n' {
				line = line[:n-1]
			}
			if !each(line, a+int64(starts[i])) {
				return nil
			}
			end = starts[i]
		}
		to = a + int64(starts[0])
		size = min(2*size, max(size, maxBack))
	}
	return nil
}
