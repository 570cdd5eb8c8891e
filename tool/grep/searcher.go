package grep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"github.com/agentrun/agentrun/internal/textform"
)

// block is how much of a file is searched at once.
const block = 256 << 10

// maxLine is the longest line that is searched in one piece, in bytes. Tests change it.
var maxLine = 64 << 20

// searcher looks through one content after the other. It belongs to one goroutine.
type searcher struct {
	*pattern
	context int
	buf     []byte

	// Of the content at hand:
	out     io.Writer
	name    string
	line    []byte // for writing
	matches int64
	shown   int64 // the last line that was written; 0 for none
	after   int   // how many lines of context are still to be written
	counted int   // up to here in buf newlines are counted
	number  int64 // of the line that begins at counted
	err     error // of writing
}

// search writes the lines of r that match to out, and returns how many there are. Content
// that is binary, by its first bytes, is not shown: one line tells that it matches.
func (s *searcher) search(ctx context.Context, r io.Reader, name string, out io.Writer) (int64, error) {
	s.out, s.name, s.matches, s.shown, s.after, s.counted, s.number, s.err = out, name, 0, 0, 0, 0, 1, nil
	if s.buf == nil {
		s.buf = make([]byte, block)
	}
	n, err := io.ReadAtLeast(r, s.buf, textform.Window)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return 0, err
	}
	eof := err != nil
	switch kind, bom := sniff(s.buf[:min(n, textform.Window)]); kind {
	case wide:
		r, n, eof = newWideReader(s.buf[:n], r), 0, false
	case binary:
		return s.binary(ctx, io.MultiReader(bytes.NewReader(bytes.Clone(s.buf[:n])), r))
	default:
		n = copy(s.buf, s.buf[bom:n])
	}
	err = s.scan(ctx, r, n, eof, s.found)
	if err == nil {
		err = s.err
	}
	return s.matches, err
}

// kind is what the first bytes of a file say of it.
type kind int

const (
	text kind = iota
	wide      // UTF-16, with a byte order mark
	binary
)

// sniff looks at the first bytes of a file. It goes by the byte order mark, as ripgrep does.
func sniff(head []byte) (kind, int) {
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return text, 3
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return wide, 2
	case bytes.IndexByte(head, 0) >= 0:
		return binary, 0
	}
	return text, 0
}

// scan calls found for stretches of whole lines, of which the first from bytes were
// scanned before. n bytes are in the buffer already.
func (s *searcher) scan(ctx context.Context, r io.Reader, n int, eof bool, found func(data []byte, from int, last bool)) error {
	from := 0
	for s.err == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		for n < len(s.buf) && !eof {
			k, err := r.Read(s.buf[n:])
			n += k
			if err == io.EOF {
				eof = true
			} else if err != nil {
				return err
			}
		}
		end := n
		if !eof {
			if end = bytes.LastIndexByte(s.buf[from:n], '\n') + 1 + from; end == from {
				if len(s.buf) < maxLine {
					s.buf = append(s.buf, make([]byte, len(s.buf))...)
					continue
				}
				end = n // a line in pieces
			}
		}
		found(s.buf[:end], from, eof)
		if eof {
			return nil
		}
		// Lines that may be context of the next match stay.
		keep := end
		for range s.context {
			keep = bytes.LastIndexByte(s.buf[:max(keep-1, 0)], '\n') + 1
		}
		if n-keep == len(s.buf) && len(s.buf) >= maxLine {
			keep = end // there would be no room for what comes next
		}
		s.count(keep)
		n = copy(s.buf, s.buf[keep:n])
		from = end - keep
		s.counted = 0
	}
	return s.err
}

// count counts lines up to a place in the buffer that one begins at.
func (s *searcher) count(to int) {
	if to >= s.counted {
		s.number += int64(bytes.Count(s.buf[s.counted:to], newline))
	} else {
		s.number -= int64(bytes.Count(s.buf[to:s.counted], newline))
	}
	s.counted = to
}

var newline = []byte("\n")

// found writes what matches in a stretch of lines.
func (s *searcher) found(data []byte, from int, last bool) {
	at := from
	for at < len(data) && s.err == nil {
		k := s.next(data[at:])
		if k < 0 {
			break
		}
		start := at + bytes.LastIndexByte(data[at:at+k], '\n') + 1
		if start == len(data) { // a match of nothing behind the last line
			break
		}
		end := lineEnd(data, at+k)
		if s.pattern.matches(content(data[start:end])) {
			s.trailing(data, at, start)
			s.leading(data, start)
			s.count(start)
			s.matches++
			s.write(data[start:end], s.number, ':')
			s.after = s.context
		} else {
			s.trailing(data, at, end)
		}
		at = end
	}
	s.trailing(data, at, len(data))
}

// lineEnd is where the line ends that has the byte at i, its newline included.
func lineEnd(data []byte, i int) int {
	if i >= len(data) {
		return len(data)
	}
	if k := bytes.IndexByte(data[i:], '\n'); k >= 0 {
		return i + k + 1
	}
	return len(data)
}

// content is a line without its end.
func content(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, newline), []byte("\r"))
}

// trailing writes the lines of data[from:to] that follow a match as its context.
func (s *searcher) trailing(data []byte, from, to int) {
	for s.after > 0 && from < to {
		end := lineEnd(data, from)
		s.count(from)
		s.write(data[from:end], s.number, '-')
		s.after--
		from = end
	}
}

// leading writes the lines before a match that are its context.
func (s *searcher) leading(data []byte, start int) {
	if s.context == 0 {
		return
	}
	from := start
	for range s.context {
		if from == 0 {
			break
		}
		from = bytes.LastIndexByte(data[:from-1], '\n') + 1
	}
	s.count(from)
	if s.shown > 0 && s.number > s.shown+1 {
		s.put(s.appendGap(nil))
	}
	for from < start {
		end := lineEnd(data, from)
		s.count(from)
		if s.number > s.shown {
			s.write(data[from:end], s.number, '-')
		}
		from = end
	}
}

// write writes a line with its name and number.
func (s *searcher) write(line []byte, number int64, mark byte) {
	s.shown = number
	s.line = s.appendLine(s.line[:0], s.name, number, mark, content(line))
	s.put(s.line)
}

// appendLine is a line of the result.
func (p *pattern) appendLine(b []byte, name string, number int64, mark byte, text []byte) []byte {
	if p.json {
		n := number
		return append(appendJSON(b, jsonLine{name, &n, mark == ':', string(text)}), '\n')
	}
	b = append(b, name...)
	b = append(b, mark)
	b = strconv.AppendInt(b, number, 10)
	b = append(b, mark)
	b = append(b, text...)
	return append(b, '\n')
}

// appendBinary is the line that tells of binary content.
func (p *pattern) appendBinary(b []byte, name string) []byte {
	if p.json {
		return append(appendJSON(b, jsonLine{name, nil, true, "binary content matches"}), '\n')
	}
	return append(b, name+": binary content matches\n"...)
}

// appendGap is what stands between stretches that do not touch.
func (p *pattern) appendGap(b []byte) []byte {
	if p.json {
		return b
	}
	return append(b, "--\n"...)
}

// jsonLine is a line of the result as an object.
type jsonLine struct {
	Path  string `json:"path"`
	Line  *int64 `json:"line"` // null for binary content
	Match bool   `json:"match"`
	Text  string `json:"text"`
}

func appendJSON(b []byte, l jsonLine) []byte {
	data, _ := json.Marshal(l) // strings and numbers
	return append(b, data...)
}

func (s *searcher) put(b []byte) {
	if s.err == nil {
		_, s.err = s.out.Write(b)
	}
}

// binary tells whether binary content matches.
func (s *searcher) binary(ctx context.Context, r io.Reader) (int64, error) {
	context := s.context
	s.context = 0
	defer func() { s.context = context }()
	err := s.scan(ctx, r, 0, false, func(data []byte, from int, _ bool) {
		for at := from; at < len(data) && s.matches == 0; {
			k := s.next(data[at:])
			if k < 0 {
				return
			}
			start := at + bytes.LastIndexByte(data[at:at+k], '\n') + 1
			if start == len(data) {
				return
			}
			end := lineEnd(data, at+k)
			if s.pattern.matches(content(data[start:end])) {
				s.matches = 1
				s.put(s.appendBinary(nil, s.name))
				s.err = errEnough
			}
			at = end
		}
	})
	if err == errEnough {
		err = nil
	}
	return s.matches, err
}

// errEnough ends a scan that has its answer.
var errEnough = errors.New("that is enough")

// wideReader is UTF-16 as UTF-8.
type wideReader struct {
	r        io.Reader
	encoding textform.Encoding
	raw      []byte // of which the first have bytes are there
	have     int
	text     []byte // not read yet
	err      error
}

func newWideReader(head []byte, r io.Reader) *wideReader {
	w := &wideReader{encoding: textform.UTF16BE, raw: make([]byte, 32<<10)}
	if head[0] == 0xff {
		w.encoding = textform.UTF16LE
	}
	w.r = io.MultiReader(bytes.NewReader(bytes.Clone(head[2:])), r)
	return w
}

func (w *wideReader) Read(p []byte) (int, error) {
	for len(w.text) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		var n int
		n, w.err = w.r.Read(w.raw[w.have:])
		w.have += n
		whole := w.have &^ 1
		// The first half of a character waits for the second.
		if hi := whole - 1; whole >= 2 && w.err == nil {
			if w.encoding == textform.UTF16BE {
				hi--
			}
			if w.raw[hi]&0xfc == 0xd8 {
				whole -= 2
			}
		}
		if w.err != nil {
			whole = w.have
		}
		w.text = w.encoding.Append(w.text[:0], w.raw[:whole])
		w.have = copy(w.raw, w.raw[whole:w.have])
	}
	n := copy(p, w.text)
	w.text = w.text[n:]
	return n, nil
}
