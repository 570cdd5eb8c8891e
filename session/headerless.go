package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// withoutHeader gives x.st the header that stands further down in the file, or a new
// one. Entries then begin with the first byte.
func (x *examined) withoutHeader(ctx context.Context, m *Manager, path string) error {
	st := x.st
	head, err := readSpan(st.src, 0, min(st.src.size, maxHeaderBytes), nil)
	if err != nil {
		return err
	}
	x.lost = &lostHeader{told: firstLine(head)}
	var header record.Header
	if st.header.Torn {
		header, x.lost.from = st.header, "it is what is left of the header, which was being given another title"
		x.lost.told = Damage{Line: lineAt(st.src, st.at), Offset: st.at, Bytes: int64(len(st.line)), Kind: KindHeader}
	}
	hint := headHint{}
	n := 0
	for line := range bytes.Lines(head) {
		if n++; header.ID == "" {
			eachRecord(bytes.TrimSuffix(line, []byte("\n")), func(raw []byte, _ int, e record.Envelope) {
				if h, err := record.ParseHeader(raw); err == nil && header.ID == "" {
					header = h
					x.lost.from = fmt.Sprintf("the header stands in line %d", n)
				}
			}, nil)
		}
		hint.line(line)
	}
	if header.ID == "" {
		if err := ownLines(ctx, st.src); err != nil {
			return err
		}
		if header, x.lost.from, err = m.rebuildHeader(ctx, path, hint); err != nil {
			return err
		}
		_, _, named := catalog.ParseFileName(filepath.Base(path))
		x.strange = !named && !bytes.Contains(head[:min(len(head), 64)], []byte(`"session"`))
	}
	st.preamble = preamble{header: header}
	if st.header.Version == 1 || st.header.Version == 2 {
		if st.image, err = migrate(st.src, st.preamble); err != nil {
			return err
		}
		st.src = st.image.source()
		if st.preamble, err = readPreamble(st.src); err != nil {
			return err
		}
	}
	return st.findLeaf()
}

// firstLine is the stretch where a header should have been: the first line, or
// nothing when that is an entry.
func firstLine(head []byte) Damage {
	d := Damage{Line: 1, Kind: KindHeader}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	if e, err := record.Parse(line); err != nil || len(e.ID) == 0 {
		d.Bytes = int64(len(line))
	}
	return d
}

// headHint is what the first lines of a file tell about its header.
type headHint struct {
	members map[string]string // of a broken header
	version int               // 1 when entries have no ids
	entries int
	created time.Time // of the first entry
	parent  string    // of the first entry, when it was not found: some programs name the session there
	runs    []string  // working directories of runs
}

func (h *headHint) line(line []byte) {
	e, err := record.Parse(bytes.TrimSuffix(line, []byte("\n")))
	if h.members == nil {
		h.members = map[string]string{}
	}
	if err != nil && len(h.members) == 0 && h.entries == 0 {
		for _, name := range []string{"id", "timestamp", "cwd", "parentSession", "title", "titleSource"} {
			if v := brokenMember(line, name); v != "" {
				h.members[name] = v
			}
		}
	}
	if err != nil || e.IsHeader() || e.IsSlot() {
		return
	}
	if h.entries++; h.entries == 1 {
		h.created, _ = record.ParseTime(e.Timestamp)
		h.parent = string(e.Parent)
		h.version = record.Version
		if e.ID == nil && !e.HasParent {
			h.version = 1
		}
	}
	if bytes.Contains(line, []byte(`"agentrun.run.start"`)) && len(h.runs) < 16 {
		if cwd := gjson.GetBytes(line, "data.cwd").String(); cwd != "" {
			h.runs = append(h.runs, cwd)
		}
	}
}

// brokenMember returns the string value of a member in what is left of an object.
func brokenMember(line []byte, name string) string {
	key := `"` + name + `":`
	i := bytes.Index(line, []byte(key))
	if i < 0 {
		return ""
	}
	lit := line[i+len(key):]
	n, err := ecmajson.Scan(lit)
	if err != nil || lit[0] != '"' {
		return ""
	}
	s, err := ecmajson.Unquote(lit[:n])
	if err != nil {
		return ""
	}
	return string(s)
}

// rebuildHeader makes a header of what is known besides: the file's name, its
// directory, and the entries. from tells it in a clause.
func (m *Manager) rebuildHeader(ctx context.Context, path string, hint headHint) (h record.Header, from string, err error) {
	created, id, named := catalog.ParseFileName(filepath.Base(path))
	broken := hint.members
	switch {
	case named:
		from = "id and time are from the file's name"
	case strings.Contains(broken["id"], "-") && catalog.CheckID(broken["id"]) == nil:
		id, from = broken["id"], "the id is from what is left of the header"
	case uuid.Validate(hint.parent) == nil:
		id, from = hint.parent, "the id is the one that the first entry names"
	default:
		u, err := uuid.NewV7()
		if err != nil {
			return h, "", fmt.Errorf("making a session id: %w", err)
		}
		id, from = u.String(), "the id is a new one"
	}
	if !named {
		if t, ok := record.ParseTime([]byte(broken["timestamp"])); ok {
			created = t
		} else if created = hint.created; created.IsZero() {
			created = m.opts.Now()
		}
	}
	cwd, how := m.lostCWD(ctx, path, hint)
	h = record.NewHeader(id, cwd, created)
	h.Title, h.TitleSource, h.ParentSession = broken["title"], broken["titleSource"], broken["parentSession"]
	if hint.version == 1 {
		h.Version = 1
	}
	return h, from + ", the working directory is " + how, nil
}

// lostCWD finds out the working directory of a session: the first of all that name
// one that stands for the directory the file is in.
func (m *Manager) lostCWD(ctx context.Context, path string, hint headHint) (cwd, how string) {
	dir := filepath.Dir(path)
	if info, err := m.catalog.At(dir + catalog.PlainExt); err == nil {
		return info.CWD, "that of the session it belongs to"
	}
	base := filepath.Base(dir)
	roots := catalog.SystemRoots()
	fits := func(c string) bool { return c != "" && roots.Fits(base, c) }
	if c := hint.members["cwd"]; fits(c) {
		return c, "from what is left of the header"
	}
	for _, c := range hint.runs {
		if fits(c) {
			return c, "that of its first run"
		}
	}
	if c := m.siblingCWD(ctx, path, fits); c != "" {
		return c, "that of the sessions beside it"
	}
	c, exact := roots.Decode(base)
	switch {
	case exact:
		return c, "read off the name of the directory"
	case hint.members["cwd"] != "":
		return hint.members["cwd"], "from what is left of the header"
	case len(hint.runs) > 0:
		return hint.runs[0], "that of its first run"
	case c != "":
		return c, "guessed from the name of the directory, where / and - look alike"
	}
	wd, err := os.Getwd()
	if err != nil {
		wd = "/"
	}
	return wd, "the present one, for nothing tells it"
}

// maxSiblings bounds how many sessions are asked for their working directory.
const maxSiblings = 64

func (m *Manager) siblingCWD(ctx context.Context, path string, fits func(string) bool) string {
	entries, err := m.opts.FS.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	asked := 0
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(path), e.Name())
		if _, ok := catalog.Stem(name); !ok || e.IsDir() || e.Name()[0] == '.' || asked == maxSiblings || ctx.Err() != nil {
			continue
		}
		asked++
		if info, err := m.catalog.At(name); err == nil && fits(info.CWD) {
			return info.CWD
		}
	}
	return ""
}

// errStrange is returned for a file in which nothing is a session's.
var errStrange = errors.New("no line of it is one of a session")

// ownLines returns ErrForeign for a file with records of another program's format and
// none of ours: without a header, only its entries tell whose it is.
func ownLines(ctx context.Context, src source) error {
	own, foreign := false, false
	err := eachForward(ctx, src, 0, src.size, func(line []byte, _ int64) bool {
		for _, p := range record.Split(line) {
			if p.Kind != "" {
				continue
			}
			switch record.FormatOf(line[p.Off : p.Off+p.Len]) {
			case record.FormatSession:
				own = true
			case record.FormatClaude, record.FormatCodex:
				foreign = true
			}
		}
		return !own
	})
	if err == nil && foreign && !own {
		err = fmt.Errorf("%w: %w", ErrNotSession, ErrForeign)
	}
	return err
}
