package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxEvent is the largest event, in bytes. The last one of OpenAI's Responses has the whole
// answer in it once more.
const MaxEvent = 96 << 20

// ErrTooLong is returned for an event that is larger than MaxEvent.
var ErrTooLong = fmt.Errorf("the provider sent an event of more than %d MiB", MaxEvent>>20)

// Events reads server-sent events (HTML Living Standard, 9.2.6): lines end with LF or
// CR LF, "data" lines of an event are joined by LF, comments are passed over.
type Events struct {
	r     *bufio.Reader
	data  []byte
	event string
	begun bool // the first line was read
}

// NewEvents reads events.
func NewEvents(r io.Reader) *Events { return &Events{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next event that has data; the data is valid until the next call. An
// event that its stream ends within is none: then, and at the end, the error is io.EOF.
func (e *Events) Next() (event string, data []byte, err error) {
	const keep = 1 << 20
	if cap(e.data) > keep {
		e.data = nil
	}
	e.data, e.event = e.data[:0], ""
	has := false
	for {
		line, err := e.line()
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			if has {
				return e.event, e.data, nil
			}
			e.event = ""
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if has {
				e.data = append(e.data, '\n')
			}
			has = true
			if len(e.data)+len(value) > MaxEvent {
				return "", nil, ErrTooLong
			}
			e.data = append(e.data, value...)
		case "event":
			e.event = string(value[:min(len(value), 256)])
		}
	}
}

// line reads a line without its end.
func (e *Events) line() ([]byte, error) {
	var long []byte // a line that is longer than the buffer
	for {
		part, err := e.r.ReadSlice('\n')
		if len(long)+len(part) > MaxEvent+64 {
			return nil, ErrTooLong
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			continue
		case err != nil:
			return nil, err // also of a line that has no end
		case long != nil:
			part = append(long, part...)
		}
		part = bytes.TrimRight(part, "\r\n")
		if !e.begun {
			e.begun = true
			part = bytes.TrimPrefix(part, []byte("\xef\xbb\xbf"))
		}
		return part, nil
	}
}
