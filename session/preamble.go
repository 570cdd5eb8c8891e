package session

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/session/internal/record"
)

// maxHeaderBytes bounds what is read in search of the header: its working
// directory, earlier files and title are a few kilobytes at most.
const maxHeaderBytes = 1 << 20

// preamble is what stands before the first entry of a file.
type preamble struct {
	header  record.Header
	line    []byte // of the header, without its newline
	at      int64  // of the header line
	end     int64  // behind its newline: where entries begin
	slot    record.Slot
	hasSlot bool
	// none is set for a file of white space or a title slot only: a session
	// without an id, until something is appended.
	none bool
}

// readPreamble reads the title slot and the header of a session file.
func readPreamble(src source) (preamble, error) {
	var p preamble
	buf := []byte(nil)
	for at := 0; ; {
		i := bytes.IndexByte(buf[at:], '\n')
		if have := int64(len(buf)); i < 0 && have < src.size {
			if have >= maxHeaderBytes {
				return p, fmt.Errorf("%w within its first %d bytes", ErrNotSession, maxHeaderBytes)
			}
			var err error
			if buf, err = appendSpan(src, have, min(max(2*have, 4096), src.size), buf); err != nil {
				return p, err
			}
			continue
		}
		line, next := buf[at:], len(buf)
		if i >= 0 {
			line, next = buf[at:at+i], at+i+1
		}
		if slot, ok := record.ParseSlot(record.Trim(line)); ok && !p.hasSlot {
			p.slot, p.hasSlot = slot, true
		} else if len(bytes.Trim(record.Trim(line), "\x00")) > 0 {
			h, err := record.ParseHeader(line)
			if err != nil {
				torn, ok := record.ParseTornHeader(line)
				if !ok {
					return p, fmt.Errorf("%w: its first record is %s", ErrNotSession, reason(err))
				}
				h = torn
			}
			p.header, p.line, p.at, p.end = h, bytes.Clone(line), int64(at), int64(next)
			return p, nil
		}
		if at = next; int64(at) >= src.size {
			p.none, p.end = true, src.size
			return p, nil
		}
	}
}

func reason(err error) string {
	if errors.Is(err, record.ErrSyntax) {
		return "no JSON"
	}
	return err.Error()
}
