package outputsink

import (
	"bytes"
	"strings"
)

// gap is the line of the view that stands where lines are missing between its head and its tail.
const gap = "…\n"

// LineRange is a run of lines that is shown, numbered from 1 as in the artifact.
type LineRange struct {
	First, Last int64

	// Partial tells that only a part of the one line is shown, because it is larger than the window: its beginning
	// in the first range of a view, its end in the last.
	Partial bool
}

// rendered is what a view shows.
type rendered struct {
	text      string
	ranges    []LineRange
	bytes     int64 // of lines, without the gap
	lines     int64
	shortened int64
	total     int64 // lines that there are
	screen    bool  // they are those of a screen
	headLast  int64 // the last line of the head, 0 without one
	tailFirst int64 // the first line of the tail, total+1 without one
}

// render shows the view of a stream of total lines, which has been finished.
func (v *view) render(total int64) rendered {
	tail := v.tail.appendTo(nil)
	if !v.tail.evicted() && !v.tailLost && v.size() <= int64(v.maxBytes) && total <= int64(v.maxLines) {
		return v.renderAll(tail, total)
	}
	var r rendered
	var b strings.Builder
	b.Write(v.head)
	r.bytes, r.lines, r.shortened = int64(len(v.head)), int64(v.headCount), v.headCut
	r.tailFirst = total + 1
	switch {
	case v.headPart:
		r.ranges = append(r.ranges, LineRange{1, 1, true})
		r.lines, r.headLast = 1, 1
	case v.headCount > 0:
		r.ranges = append(r.ranges, LineRange{1, r.lines, false})
		r.headLast = r.lines
	}

	end := v.lastLines(tail, int64(v.maxBytes)-r.bytes, int64(v.maxLines)-r.lines)
	if end.lines > 0 {
		r.tailFirst = total - end.lines + 1
		if b.Len() > 0 && (r.headLast+1 < r.tailFirst || end.partial || v.headPart) {
			if v.headPart {
				b.WriteByte('\n')
			}
			b.WriteString(gap)
		}
		appendUnmarked(&b, end.text)
		r.ranges = append(r.ranges, LineRange{r.tailFirst, total, end.partial})
		r.bytes += end.size
		r.shortened += end.shortened
		r.lines += end.lines
		if r.headLast == r.tailFirst {
			r.lines-- // both parts are of one line
		}
	}
	r.text = b.String()
	return r
}

// renderAll shows every line.
func (v *view) renderAll(tail []byte, total int64) rendered {
	var b strings.Builder
	r := rendered{shortened: v.headCut, lines: total, headLast: total, tailFirst: total + 1}
	if !v.headPart {
		b.Write(v.head)
	}
	appendUnmarked(&b, tail)
	r.shortened += int64(bytes.Count(tail, []byte{markShortened}))
	r.text = b.String()
	r.bytes = int64(len(r.text))
	if total > 0 {
		r.ranges = []LineRange{{1, total, false}}
	}
	return r
}

// tailLines is the end of a tail window that fits.
type tailLines struct {
	text      []byte // with marks
	size      int64  // without
	lines     int64
	shortened int64
	partial   bool // the only line is not whole
}

// lastLines takes the last whole lines of the tail window that fit in the given bytes and lines, or else the end of
// the last line.
func (v *view) lastLines(tail []byte, maxBytes, maxLines int64) tailLines {
	t := tailLines{text: tail[len(tail):]}
	for end := len(tail); end > 0 && t.lines < maxLines; {
		start := bytes.LastIndexByte(tail[:end-1], '\n') + 1
		line := tail[start:end]
		whole := (start > 0 || !v.tail.evicted()) && line[0] != markHeadless
		cut := bytes.IndexByte(line, markShortened) >= 0
		size := int64(len(line) - marks(line))
		if whole && t.size+size <= maxBytes {
			t.text, t.size, t.lines = tail[start:], t.size+size, t.lines+1
			if cut {
				t.shortened++
			}
			end = start
			continue
		}
		if t.lines == 0 {
			t.endOf(line, maxBytes)
		}
		break
	}
	return t
}

// endOf takes the end of a line that does not fit.
func (t *tailLines) endOf(line []byte, maxBytes int64) {
	line = bytes.TrimPrefix(line, []byte{markHeadless})
	behind := marks(line) // all that are left stand at its end
	line = line[runeCeil(line, max(0, len(line)-behind-int(maxBytes))):]
	size := len(line) - behind
	if size <= 0 || line[0] == '\n' || line[0] == markShortened {
		return // nothing but the newline has room: that shows nothing
	}
	t.text, t.size, t.lines, t.partial = line, int64(size), 1, true
	if bytes.IndexByte(line, markShortened) >= 0 {
		t.shortened = 1
	}
}

// marks returns how many marks a line of the tail window has.
func marks(line []byte) int {
	n := 0
	for _, m := range []byte{markHeadless, markShortened, markOpen} {
		if bytes.IndexByte(line, m) >= 0 {
			n++
		}
	}
	return n
}

// appendUnmarked writes text without its marks.
func appendUnmarked(b *strings.Builder, text []byte) {
	for len(text) > 0 {
		i := bytes.IndexFunc(text, func(r rune) bool { return r < '\t' })
		if i < 0 {
			i = len(text)
		}
		b.Write(text[:i])
		text = text[min(i+1, len(text)):]
	}
}
