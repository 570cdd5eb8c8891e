package outputsink

import "unicode/utf8"

// window keeps the last bytes of what is added to it, at most cap(buf) of them.
type window struct {
	buf   []byte // a ring once it is full
	at    int    // where the next byte goes
	total int64  // bytes ever added
}

// add appends b and lets the oldest bytes go.
func (w *window) add(b []byte, capacity int) {
	w.total += int64(len(b))
	if len(b) >= capacity {
		w.buf = append(w.buf[:0], b[len(b)-capacity:]...)
		w.at = 0
		return
	}
	if room := capacity - len(w.buf); room > 0 { // not full yet
		n := min(room, len(b))
		w.buf = append(w.buf, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		n := copy(w.buf[w.at:], b)
		b = b[n:]
		if w.at += n; w.at == len(w.buf) {
			w.at = 0
		}
	}
}

// reset empties the window.
func (w *window) reset() { w.buf, w.at, w.total = w.buf[:0], 0, 0 }

// evicted reports whether something that was added is gone.
func (w *window) evicted() bool { return w.total > int64(len(w.buf)) }

// appendTo appends the bytes kept, oldest first.
func (w *window) appendTo(dst []byte) []byte {
	return append(append(dst, w.buf[w.at:]...), w.buf[:w.at]...)
}

// runeFloor returns the greatest i <= n that is between two characters of the valid text b.
func runeFloor(b []byte, n int) int {
	if n >= len(b) {
		return len(b)
	}
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

// runeCeil returns the smallest i >= n that is between two characters of the valid text b.
func runeCeil(b []byte, n int) int {
	for n < len(b) && !utf8.RuneStart(b[n]) {
		n++
	}
	return n
}
