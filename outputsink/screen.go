package outputsink

import "bytes"

// screenText takes the text of a screen for a view.
type screenText struct {
	view     *view
	bytes    int64
	newlines int64
	unended  bool
}

func (t *screenText) add(b []byte) {
	if len(b) == 0 {
		return
	}
	t.bytes += int64(len(b))
	t.newlines += int64(bytes.Count(b, []byte{'\n'}))
	t.unended = b[len(b)-1] != '\n'
	t.view.text(b)
}

// lines is how many there are, an unterminated last one included.
func (t *screenText) lines() int64 {
	if t.unended {
		return t.newlines + 1
	}
	return t.newlines
}
