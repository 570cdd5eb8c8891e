package conversation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// readBlock is how much of a log is read at once, in bytes.
const readBlock = 1 << 20

// maxHead bounds what may stand before the first entry, in bytes.
const maxHead = 1 << 20

// log is a session's log as far as it was read: the tree of its entries, their lines,
// and the chunks they are in. What it has read can't change; see stale.
type log struct {
	head   []byte // everything before the first entry
	header header
	body   chunks
	rest   []byte // behind the last newline
	read   int64  // of the file, head and rest included
	last   []byte // the last whole line, to see whether the file is still the same

	inHead   bool
	migrator *entry.Migrator // nil for lines that are as this version has them
	lines    int             // of the file
	cited    []blobref.Ref   // that nobody has copied

	// old are the entries of a file of an older version, which is small: what a line of
	// it says depends on those before.
	old []entry.Entry

	progress func(done, total int64) // of the file; may be nil

	ids     map[string]int32 // of the newest entry with that id
	entries []place
	leaf    int32 // -1 for none
}

// place is where an entry stands.
type place struct {
	parent int32 // index, -1 for a root
	line   int32
	span   sidecar.Span // of its line in the body, with its newline; of itself where it is not alone there
	id     string
}

// header is what the header says that matters here.
type header struct {
	ID, CWD, Parent, Time string
}

func newLog() *log { return &log{inHead: true, ids: map[string]int32{}, leaf: -1, lines: 0} }

// Log is the text of a session file: plain, as it stands there.
type Log struct {
	io.ReaderAt
	Size int64
}

// stale reports whether the file is not what was read once, with something behind it.
func (l *log) stale(f Log) (bool, error) {
	if f.Size < l.read {
		return true, nil
	}
	for _, known := range []struct {
		data []byte
		at   int64
	}{
		{l.head, 0},
		{l.rest, l.read - int64(len(l.rest))},
		{l.last, l.read - int64(len(l.rest)) - int64(len(l.last))},
	} {
		now := make([]byte, len(known.data))
		if err := readFull(f, now, known.at); err != nil {
			return false, err
		}
		if !bytes.Equal(now, known.data) {
			return true, nil
		}
	}
	return false, nil
}

func readFull(f io.ReaderAt, b []byte, at int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("reading the log at %d: %w", at, err)
}

// scanned is a line and what stands in it.
type scanned struct {
	line    []byte // with its newline
	head    bool   // it stands before the first entry
	entries []entry.Entry
	begins  bool // a turn begins there
	cites   []blobref.Ref
}

// advance reads what is new, and tells each of every entry as soon as it is known. Of a
// long stretch the lines are parsed while those before them are worked on.
func (l *log) advance(ctx context.Context, f Log, put sidecar.Put, each func(i int32, e entry.Entry) error) error {
	if f.Size-l.read <= readBlock/4 {
		for l.read < f.Size {
			list, err := l.block(ctx, f)
			if err != nil {
				return err
			}
			if err := l.take(ctx, put, list, each); err != nil {
				return err
			}
		}
		return nil
	}
	// What is read ahead ends with this call. What was put is stored while the caller goes on: with its own context.
	ahead, stop := context.WithCancel(ctx)
	type block struct {
		list []scanned
		err  error
	}
	blocks := make(chan block, 1)
	read := l.read - int64(len(l.rest)) // from here on who reads ahead has both
	go func() {
		defer close(blocks)
		for l.read < f.Size {
			list, err := l.block(ahead, f)
			select {
			case blocks <- block{list, err}:
			case <-ahead.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var failed error
	for b := range blocks {
		for _, s := range b.list {
			read += int64(len(s.line))
		}
		if l.progress != nil {
			l.progress(read, f.Size)
		}
		if failed == nil {
			if failed = b.err; failed == nil {
				failed = l.take(ctx, put, b.list, each)
			}
			if failed != nil {
				stop()
			}
		}
	}
	if failed == nil {
		failed = ctx.Err() // the blocks may have ended early
	}
	stop()
	return failed
}

// block reads the next stretch and scans its lines.
func (l *log) block(ctx context.Context, f Log) (list []scanned, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n := min(max(readBlock/4, int64(len(l.rest))), f.Size-l.read)
	buf := make([]byte, len(l.rest)+int(n)) // entries keep their lines
	copy(buf, l.rest)
	if err := readFull(f, buf[len(l.rest):], l.read); err != nil {
		return nil, err
	}
	l.read += n
	list = make([]scanned, 0, n/512)
	for {
		i := bytes.IndexByte(buf, '\n')
		if i < 0 {
			break
		}
		list = append(list, l.scan(buf[:i+1:i+1]))
		buf = buf[i+1:]
	}
	l.rest = buf
	return list, nil
}

// scan looks at a line, with its newline. It has nothing to do with the tree.
func (l *log) scan(line []byte) scanned {
	l.lines++
	l.last = line
	if l.inHead && l.preamble(line) {
		return scanned{line: line, head: true}
	}
	s := scanned{line: line, entries: l.parse(line, l.lines)}
	for _, e := range s.entries {
		s.begins = s.begins || beginsTurn(e.Role())
		s.cites = append(s.cites, session.EntryBlobs(e)...)
	}
	return s
}

// take puts lines into chunks and their entries into the tree.
func (l *log) take(ctx context.Context, put sidecar.Put, list []scanned, each func(i int32, e entry.Entry) error) error {
	for _, s := range list {
		if s.head {
			continue
		}
		l.cited = append(l.cited, s.cites...)
		span := sidecar.Span{From: l.body.size, Len: uint64(len(s.line))}
		if err := l.body.add(ctx, put, s.line, s.begins, s.cites); err != nil {
			return err
		}
		for _, e := range s.entries {
			own := span
			if len(s.entries) > 1 { // records that were run together
				own = sidecar.Span{From: span.From + uint64(e.Offset()), Len: uint64(len(e.Raw()))}
			}
			if err := each(l.enter(e, own), e); err != nil {
				return err
			}
		}
	}
	return nil
}

// line takes one line with its newline.
func (l *log) line(ctx context.Context, put sidecar.Put, line []byte, each func(i int32, e entry.Entry) error) error {
	return l.take(ctx, put, []scanned{l.scan(line)}, each)
}

// preamble takes a line that stands before the first entry.
func (l *log) preamble(line []byte) bool {
	if len(l.head)+len(line) > maxHead {
		l.inHead = false
		return false
	}
	if typ := gjson.GetBytes(line, "type").Str; typ == "session" && gjson.ValidBytes(line) {
		m := gjson.GetManyBytes(line, "id", "cwd", "parentSession", "timestamp", "version")
		l.header = header{m[0].String(), m[1].String(), m[2].String(), m[3].String()}
		if v := m[4]; !v.Exists() || v.Int() == 1 || v.Int() == 2 {
			l.migrator = entry.NewMigrator(max(1, int(v.Int())))
			l.lines = 1 // the form of this version has no title slot; ids depend on that
		}
		l.inHead = false
	} else if len(bytes.TrimSpace(line)) > 0 && len(session.LineEntries(line, 0, 0)) > 0 {
		l.inHead = false // a file without a header
		return false
	}
	l.head = append(l.head, line...)
	return true
}

// parse returns the entries of a line in the form of this version.
func (l *log) parse(line []byte, number int) []entry.Entry {
	if l.migrator != nil {
		if raw, err := l.migrator.Migrate(number, bytes.TrimSpace(line)); err == nil {
			line = raw
		}
	}
	return session.LineEntries(bytes.TrimSuffix(line, []byte("\n")), 0, number)
}

// whole reports whether a last line without a newline is an entry all the same.
func (l *log) whole(rest []byte) bool {
	if l.migrator != nil { // a line is brought up to this version once
		rest = bytes.TrimSpace(rest)
		return len(rest) > 0 && rest[0] == '{' && gjson.ValidBytes(rest)
	}
	return len(session.LineEntries(rest, 0, l.lines+1)) > 0
}

// enter puts an entry into the tree. The parent is the nearest entry before with that
// id; where there is none, the entry before.
func (l *log) enter(e entry.Entry, span sidecar.Span) int32 {
	i := int32(len(l.entries))
	p := place{parent: -1, line: int32(e.Line()), span: span, id: strings.Clone(e.ID())}
	if id := e.Parent(); e.HasParent() && id != "" && id != l.header.ID {
		if at, known := l.ids[id]; known {
			p.parent = at
		} else {
			p.parent = i - 1
		}
	}
	l.entries = append(l.entries, p)
	if l.migrator != nil {
		l.old = append(l.old, e)
	}
	l.ids[p.id] = i
	l.leaf = i
	return i
}

// path returns the entries from the root to the leaf.
func (l *log) path() (path []int32) {
	for i := l.leaf; i >= 0; i = l.entries[i].parent {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path
}

// entry reads an entry again.
func (l *log) entry(f Log, i int32) (entry.Entry, error) {
	if l.migrator != nil {
		return l.old[i], nil
	}
	p := l.entries[i]
	line := make([]byte, p.span.Len)
	if err := readFull(f, line, int64(len(l.head))+int64(p.span.From)); err != nil {
		return entry.Entry{}, err
	}
	for _, e := range l.parse(line, int(p.line)) {
		if e.ID() == p.id {
			return e, nil
		}
	}
	return entry.Entry{}, fmt.Errorf("reading the log: entry %.100s is not at %d any more; it was rewritten meanwhile", p.id, p.span.From)
}

// beginsTurn reports whether a message with that role begins a turn.
func beginsTurn(role string) bool {
	switch role {
	case entry.RoleUser, entry.RoleDeveloper, entry.RoleCustom, entry.RoleHookMessage, entry.RoleFileMention,
		entry.RoleBashExecution, entry.RolePythonExecution, entry.RoleBranchSummary:
		return true
	}
	return false
}
