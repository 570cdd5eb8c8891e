package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Limits of what is read of a file.
const (
	// headBytes is read at once: it holds the title slot (256 bytes) and nearly
	// every header (agentrun's is 511).
	headBytes = 4096
	// MaxHeaderBytes bounds title slot, white space and header together.
	MaxHeaderBytes = 1 << 20
	// tailBytes is searched for a later title, as oh-my-pi 18 searches it for
	// the status.
	tailBytes = 32 << 10
)

// maxVersion is far beyond any version of the format.
const maxVersion = 1 << 30

// head is what the first lines of a log say.
type head struct {
	ID, CWD, Parent string
	Title           string
	Created         time.Time // zero when the header has no timestamp
	Version         int       // 0 when there is no header yet
}

var (
	errNoHeader   = errors.New("its first line is no session header")
	errLongHeader = fmt.Errorf("its header is longer than %d bytes", MaxHeaderBytes)
)

// headReader hands out the first lines of a log, reading on only when a line is
// longer than what it has.
type headReader struct {
	r   io.Reader
	buf []byte // everything read so far
	pos int    // of the next line
	eof bool
}

// more reads at least one byte more.
func (h *headReader) more() error {
	if h.eof {
		return nil
	}
	if len(h.buf) >= MaxHeaderBytes {
		return errLongHeader
	}
	if len(h.buf) == cap(h.buf) {
		grown := make([]byte, len(h.buf), max(headBytes, 4*cap(h.buf)))
		copy(grown, h.buf)
		h.buf = grown
	}
	n, err := io.ReadFull(h.r, h.buf[len(h.buf):cap(h.buf)])
	h.buf = h.buf[:len(h.buf)+n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		h.eof, err = true, nil
	}
	return err
}

// line returns the next line that is not blank, without white space around it,
// and nil at the end of the file.
func (h *headReader) line() ([]byte, error) {
	for {
		rest := h.buf[h.pos:]
		end := bytes.IndexByte(rest, '\n')
		if end < 0 && !h.eof {
			if err := h.more(); err != nil {
				return nil, err
			}
			continue
		}
		if end < 0 {
			end = len(rest)
		}
		line := bytes.TrimSpace(rest[:end])
		h.pos += min(end+1, len(rest))
		if len(line) > 0 || h.pos == len(h.buf) && h.eof {
			return line, nil
		}
	}
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// readHead reads the title slot and the header of a log. buf is reused. A log
// without any line, or with a title slot only, is a session that has not begun:
// its head has no ID.
func readHead(r io.Reader, buf []byte) (head, []byte, error) {
	h := headReader{r: r, buf: buf[:0]}
	if err := h.more(); err != nil {
		return head{}, h.buf, err
	}
	if bytes.HasPrefix(h.buf, byteOrderMark) {
		h.pos = len(byteOrderMark)
	}
	line, err := h.line()
	if err != nil {
		return head{}, h.buf, err
	}
	title, isSlot := parseSlot(line)
	if isSlot {
		if line, err = h.line(); err != nil {
			return head{}, h.buf, err
		}
	}
	if len(line) == 0 {
		return head{Title: title}, h.buf, nil
	}
	hd, ok := parseHeader(line)
	if !ok {
		return head{}, h.buf, errNoHeader
	}
	if isSlot {
		hd.Title = title
	}
	return hd, h.buf, nil
}

// parseSlot reads the title slot of oh-my-pi 18: a first line of 256 bytes that
// it rewrites in place. An empty title there means that there is none.
func parseSlot(line []byte) (title string, ok bool) {
	if !bytes.Contains(line, []byte(`"title"`)) || !json.Valid(line) {
		return "", false
	}
	v := gjson.ParseBytes(line)
	source := v.Get("source")
	ok = v.Get("type").Str == "title" && v.Get("v").Num == 1 &&
		v.Get("title").Type == gjson.String && v.Get("updatedAt").Type == gjson.String && v.Get("pad").Type == gjson.String &&
		(!source.Exists() || source.Str == "auto" || source.Str == "user")
	return text(v.Get("title")), ok
}

// parseHeader reads a header line of any version: an object of type session with
// an id. A version that is no positive integer is 1, as one that is missing.
func parseHeader(line []byte) (head, bool) {
	if len(line) == 0 || line[0] != '{' || !json.Valid(line) {
		return head{}, false
	}
	hd := head{Version: 1}
	kind := ""
	gjson.ParseBytes(line).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "type":
			kind = value.Str
		case "id":
			hd.ID = value.Str
		case "cwd":
			hd.CWD = value.Str
		case "title":
			hd.Title = text(value)
		case "parentSession":
			hd.Parent = value.Str
		case "timestamp":
			if t, err := time.Parse(time.RFC3339, value.Str); err == nil {
				hd.Created = t.UTC()
			}
		case "version":
			if v := value.Num; v >= 1 && v <= maxVersion && v == float64(int(v)) {
				hd.Version = int(v)
			} else {
				hd.Version = 1
			}
		}
		return true
	})
	return hd, kind == "session" && hd.ID != ""
}

// lastTitle returns the title that the last whole title_change or session_info
// line of tail gives. Only a few underscores are in the way of finding them at
// memory speed.
func lastTitle(tail []byte) (title string, ok bool) {
	for pos := 0; pos < len(tail); {
		i := bytes.IndexByte(tail[pos:], '_')
		if i < 0 {
			break
		}
		at := pos + i
		pos = at + 1
		before, after := tail[:at], tail[at+1:]
		if !(bytes.HasSuffix(before, []byte(`"title`)) && bytes.HasPrefix(after, []byte(`change"`))) &&
			!(bytes.HasSuffix(before, []byte(`"session`)) && bytes.HasPrefix(after, []byte(`info"`))) {
			continue
		}
		start := bytes.LastIndexByte(before, '\n') + 1
		end := bytes.IndexByte(tail[at:], '\n')
		if end < 0 {
			end = len(tail) - at
		}
		if t, found := titleOf(tail[start : at+end]); found {
			title, ok = t, true
		}
		pos = at + end // one look at a line, however often it says the words
	}
	return title, ok
}

// titleOf reads a title_change entry, or the session_info entry of pi.
func titleOf(line []byte) (string, bool) {
	if !json.Valid(line) {
		return "", false
	}
	v := gjson.ParseBytes(line)
	field := "title"
	switch v.Get("type").Str {
	case "title_change":
	case "session_info":
		field = "name"
	default:
		return "", false
	}
	t := v.Get(field)
	return text(t), t.Type == gjson.String
}

// text is a string for people: bytes that are no UTF-8 are replaced.
func text(v gjson.Result) string { return strings.ToValidUTF8(v.Str, "\ufffd") }
