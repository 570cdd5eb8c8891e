package record

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Version is the version of the format that is written here, the newest that
// pi and oh-my-pi write.
const Version = 3

// ErrHeader is wrapped by every error of [ParseHeader].
var ErrHeader = errors.New("not a session header")

// Header is the first record of a session. The fields are those that have a
// meaning here; members of other names are kept to the byte and in their order
// when a header that was parsed is written again.
type Header struct {
	// Version is the version of the format, 1 when the file does not say. It is 0
	// for a header whose version is no positive integer, such as "0.1.0": a file of
	// another program that borrowed the format. See Writable.
	Version   int
	ID        string // the session's; not empty, otherwise unchecked: never a path
	Timestamp string // when it was made; see ParseTime
	CWD       string // "" when the file does not say

	Title       string // may be cut to the room in the line; the entries keep all of it
	TitleSource string // "auto", "user" or ""

	AdditionalDirectories []string // besides CWD, absolute
	ParentSession         string   // the session this one was forked from: an id or, by some writers, a path
	PreviousSessionFiles  []string // where the file was before it was moved, oldest first
	Project               string   // the fingerprint of the project in CWD, see package project; unchecked

	// ArtifactRoot says that the artifacts of this session are those of another one.
	ArtifactRoot ArtifactRoot

	// KeepTitle makes AppendLine write a longer line rather than cut the title: no entry
	// of the file gives it.
	KeepTitle bool

	CRC    CRC  // as parsed
	Torn   bool // as parsed by ParseTornHeader
	Padded bool // as parsed: the line has a pad of spaces, so Retitle works on it

	members []headerMember // as parsed, in order, without pad and crc
	parsed  *Header        // the fields as parsed, to tell which were changed since
}

// ArtifactRoot names the session whose artifacts are those of a subagent's session too.
type ArtifactRoot struct {
	Session string // its id when the header was written; a fork of it has another one
	Path    string // of its artifact directory, relative to the directory that holds the log; unchecked
}

// headerMember is one member of a header, rendered.
type headerMember struct {
	name  string
	key   []byte // the literal
	value []byte
}

// The members with a meaning, in the order in which they are written.
var headerNames = []string{
	"type", "version", "id", "timestamp", "cwd", "artifactRoot", "title", "titleSource",
	"additionalDirectories", "parentSession", "previousSessionFiles", "project",
}

// NewHeader returns the header of a new session.
func NewHeader(id, cwd string, t time.Time) Header {
	return Header{Version: Version, ID: id, CWD: cwd, Timestamp: string(AppendTime(nil, t))}
}

// Writable reports whether entries may be appended to the file: its version is
// one that is understood here. A file of a newer version, or of no version at
// all, is read as far as it makes sense and never changed.
func (h *Header) Writable() bool { return 1 <= h.Version && h.Version <= Version }

// Member returns the raw value of any member of a header that was parsed, as it
// was then; nil when there is none. Version 1 keeps settings there.
func (h *Header) Member(name string) []byte {
	for _, m := range h.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// ParseHeader reads a header line, with or without its '\n'. The result does not
// share memory with it. An object of type "session" with an id is a header; a
// member of an unexpected type is kept but has no meaning. Every error wraps
// [ErrHeader] and says what is missing.
func ParseHeader(line []byte) (Header, error) {
	b := slices.Clone(Trim(line))
	h := Header{Version: 1, CRC: Verify(b)}
	typ := ""
	var m member
	w := walker{obj: b}
	for w.next(&m) {
		name := string(m.name())
		switch name {
		case "type":
			typ = string(m.text())
		case "version":
			h.Version = versionOf(m.value)
		case "id":
			h.ID = string(m.text())
		case "timestamp":
			h.Timestamp = string(m.text())
		case "cwd":
			h.CWD = string(m.text())
		case "artifactRoot":
			h.ArtifactRoot = artifactRootOf(m.value)
		case "title":
			h.Title = string(m.text())
		case "titleSource":
			h.TitleSource = string(m.text())
		case "additionalDirectories":
			h.AdditionalDirectories = stringsOf(m.value)
		case "parentSession":
			h.ParentSession = string(m.text())
		case "previousSessionFiles":
			h.PreviousSessionFiles = stringsOf(m.value)
		case "project":
			h.Project = string(m.text())
		case "pad":
			if h.Padded = isPad(m.value); h.Padded {
				h.members = slices.DeleteFunc(h.members, func(m headerMember) bool { return m.name == "pad" })
				continue
			}
		case "crc":
			continue // reserved: what is written again gets a crc of its own
		}
		hm := headerMember{name, m.key, m.value}
		if i := h.index(name); i >= 0 {
			h.members[i] = hm
		} else {
			h.members = append(h.members, hm)
		}
	}
	switch {
	case !w.valid:
		return Header{}, fmt.Errorf("%w: the line is not one JSON object", ErrHeader)
	case typ != typeSession:
		return Header{}, fmt.Errorf("%w: its type is %.40q, not %q", ErrHeader, typ, typeSession)
	case h.ID == "":
		return Header{}, fmt.Errorf("%w: it has no id", ErrHeader)
	}
	original := h
	original.AdditionalDirectories = slices.Clone(h.AdditionalDirectories)
	original.PreviousSessionFiles = slices.Clone(h.PreviousSessionFiles)
	h.parsed = &original
	return h, nil
}

// ParseTornHeader reads a header line whose title was being written over when the
// process, or the machine, died: its beginning is of the new line and its end of the
// old one, and together they may be no JSON. All members before the title are whole in
// both. What is returned has no title and Torn set; the entries have the title, which
// is written to them first.
//
// ok is false for a line that is no such one: it must begin like a header, with at
// least id, timestamp and cwd, and end with a crc as only we write it.
func ParseTornHeader(line []byte) (h Header, ok bool) {
	body, ok := Unseal(Trim(line))
	if !ok {
		return h, false
	}
	whole := 0 // the end of the last member before the title
	var m member
	w := walker{obj: body}
	for w.next(&m) {
		if name := string(m.name()); name == "title" || name == "titleSource" || name == "pad" {
			break
		}
		whole = w.at
	}
	h, err := ParseHeader(append(slices.Clone(body[:whole]), '}'))
	if err != nil || h.Version != Version || h.Timestamp == "" || h.CWD == "" {
		return Header{}, false
	}
	h.CRC, h.Torn = CRCMismatch, true
	return h, true
}

func (h *Header) index(name string) int {
	return slices.IndexFunc(h.members, func(m headerMember) bool { return m.name == name })
}

// versionOf reads a version: null is none, and so is 1; 0 is not a version.
func versionOf(value []byte) int {
	if string(value) == "null" {
		return 1
	}
	// JSON.parse reads 3.0 and 3e0 as 3.
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f < 1 || f > 1<<31-1 || f != float64(int(f)) {
		return 0
	}
	return int(f)
}

// stringsOf returns the strings of an array; elements of other types are left out.
func stringsOf(value []byte) []string {
	var out []string
	for _, v := range elements(value) {
		m := member{value: v}
		if s := m.text(); s != nil {
			out = append(out, string(s))
		}
	}
	return out
}

// artifactRootOf reads an object of two strings; what is none of those has no meaning.
func artifactRootOf(value []byte) (root ArtifactRoot) {
	var m member
	w := walker{obj: value}
	for w.next(&m) {
		switch string(m.name()) {
		case "session":
			root.Session = string(m.text())
		case "path":
			root.Path = string(m.text())
		}
	}
	if !w.valid {
		return ArtifactRoot{}
	}
	return root
}

// isPad reports whether a value is a string of spaces, the empty one included.
func isPad(value []byte) bool {
	if len(value) < len(`""`) || value[0] != '"' {
		return false
	}
	for _, c := range value[1 : len(value)-1] {
		if c != ' ' {
			return false
		}
	}
	return true
}

// literal renders a field; nil means that the member is not written.
func (h *Header) literal(name string) []byte {
	text := func(s string) []byte {
		if s == "" {
			return nil
		}
		return ecmajson.AppendString(nil, s)
	}
	list := func(l []string) []byte {
		if len(l) == 0 {
			return nil
		}
		out := []byte{'['}
		for i, s := range l {
			if i > 0 {
				out = append(out, ',')
			}
			out = ecmajson.AppendString(out, s)
		}
		return append(out, ']')
	}
	switch name {
	case "type":
		return text(typeSession)
	case "version":
		if h.Version == 0 {
			return nil
		}
		return strconv.AppendInt(nil, int64(h.Version), 10)
	case "id":
		return text(h.ID)
	case "timestamp":
		return text(h.Timestamp)
	case "cwd":
		return text(h.CWD)
	case "artifactRoot":
		if h.ArtifactRoot == (ArtifactRoot{}) {
			return nil
		}
		out := append(ecmajson.AppendString([]byte(`{"session":`), h.ArtifactRoot.Session), `,"path":`...)
		return append(ecmajson.AppendString(out, h.ArtifactRoot.Path), '}')
	case "title":
		return text(h.Title)
	case "titleSource":
		return text(h.TitleSource)
	case "additionalDirectories":
		return list(h.AdditionalDirectories)
	case "parentSession":
		return text(h.ParentSession)
	case "previousSessionFiles":
		return list(h.PreviousSessionFiles)
	case "project":
		return text(h.Project)
	}
	return nil
}

// render returns the members to write: those that were parsed, in their order and
// to the byte where the field was not changed since, then the fields that are new.
func (h *Header) render() []headerMember {
	out := make([]headerMember, 0, len(h.members)+len(headerNames))
	for _, m := range h.members {
		if slices.Contains(headerNames, m.name) {
			now := h.literal(m.name)
			if string(now) != string(h.parsed.literal(m.name)) {
				if now == nil {
					continue
				}
				m.value = now
			}
		}
		out = append(out, m)
	}
	for _, name := range headerNames {
		has := slices.ContainsFunc(out, func(m headerMember) bool { return m.name == name })
		if value := h.literal(name); value != nil && !has && !(h.parsed != nil && string(value) == string(h.parsed.literal(name))) {
			out = append(out, headerMember{name, ecmajson.AppendString(nil, name), value})
		}
	}
	return out
}
