package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/internal/record"
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

// head is what the first lines of a log say.
type head struct {
	ID, CWD, Parent string
	Project         string
	Title           string
	First           string    // see firstOf; "" where there is a title
	Created         time.Time // zero when the header has no timestamp
	Version         int       // 0 when there is no header yet, or one without a version that is a number
}

var (
	errNoHeader   = errors.New("its first line is no session header")
	errClaude     = errors.New("it is a Claude Code transcript")
	errCodex      = errors.New("it is a Codex transcript")
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

// readHead reads the title slot and the header of a log. A log without any line,
// or with a title slot only, is a session that has not begun: its head has no ID.
// updated is when the title was written, as far as a slot says so. buf is reused,
// and read is all that was read.
func readHead(r io.Reader, buf []byte) (hd head, updated string, read []byte, err error) {
	h := headReader{r: r, buf: buf[:0]}
	defer func() { read = h.buf }()
	if err := h.more(); err != nil {
		return head{}, "", nil, err
	}
	if bytes.HasPrefix(h.buf, byteOrderMark) {
		h.pos = len(byteOrderMark)
	}
	line, err := h.line()
	if err != nil {
		return head{}, "", nil, err
	}
	slot, slotted := record.ParseSlot(line)
	if slotted {
		if line, err = h.line(); err != nil {
			return head{}, "", nil, err
		}
	}
	if len(line) > 0 {
		header, err := record.ParseHeader(line)
		if err != nil {
			torn, ok := record.ParseTornHeader(line)
			if !ok {
				return head{}, "", nil, errNoHeader
			}
			header = torn
		}
		hd = head{ID: header.ID, CWD: header.CWD, Parent: header.ParentSession, Project: header.Project, Title: printable(header.Title), Version: header.Version}
		if at, ok := record.ParseTime([]byte(header.Timestamp)); ok {
			hd.Created = at.UTC()
		}
	}
	if slotted {
		hd.Title = printable(slot.Title)
	}
	return hd, slot.UpdatedAt, nil, nil
}

// printable replaces bytes that are no UTF-8, lone surrogates among them.
func printable(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// retitle gives hd the title of the last rename in tail, the end of the log.
//
// Who renames appends an entry first and then writes slot or header, where a long
// title is cut; pi writes the entry only. So the entry is what counts, unless a
// slot says that it was written later and says something else.
func (hd *head) retitle(tail []byte, updated string) {
	t, ok := lastRename(tail)
	if ok && (t.at >= updated || hd.Title != "" && strings.HasPrefix(t.title, hd.Title)) {
		hd.Title = t.title
	}
	if hd.Title != "" {
		hd.First = ""
	}
}

// rename is an entry that gives the session a title.
type rename struct{ title, at string }

var (
	typeFirst   = []byte(`{"type":"`)
	renameTypes = [...][]byte{[]byte(`title_change"`), []byte(`session_info"`)}
)

// lastRename returns the last rename among the lines of tail. All known programs
// put the type first, so one look at the beginning of a line is enough; only the
// lines of others are searched.
func lastRename(tail []byte) (last rename, ok bool) {
	for len(tail) > 0 {
		line := tail
		if end := bytes.IndexByte(tail, '\n'); end >= 0 {
			line, tail = tail[:end], tail[end+1:]
		} else {
			tail = nil
		}
		rest, known := bytes.CutPrefix(line, typeFirst)
		for _, typ := range renameTypes {
			if known && bytes.HasPrefix(rest, typ) || !known && bytes.Contains(line, typ) {
				if r, is := renameOf(line); is {
					last, ok = r, true
				}
			}
		}
	}
	return last, ok
}

// renameOf reads a title_change entry, or the session_info entry of pi.
func renameOf(line []byte) (rename, bool) {
	if !ecmajson.Valid(line) {
		return rename{}, false
	}
	v := gjson.GetManyBytes(line, "type", "title", "name", "timestamp")
	title := v[1]
	switch v[0].Str {
	case "title_change":
	case "session_info":
		title = v[2]
	default:
		return rename{}, false
	}
	return rename{title: printable(title.Str), at: v[3].Str}, title.Type == gjson.String
}
