package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// cut is what of a log goes into a fork, behind the new header: stretches of the
// source to the byte, then records.
type cut struct {
	src     source
	file    durable.File // that src reads as it is; nil for a compressed or migrated one
	begin   int64        // of the first entry in src
	spans   []stretch
	records []byte // lines
	title   string // for the header; "" for the one it has
	// untitled is set when no entry of the fork gives the title.
	untitled bool
	cites    *artifacts.Selection // nil: all that lies beside the log
}

// stretch is [from, to) of a source. A newline goes behind it when it has none.
type stretch struct{ from, to int64 }

// cut decides what goes into a fork of the session as st knows it.
func (s *Session) cut(ctx context.Context, st state, o ForkOptions) (*cut, error) {
	if o.At == "" && !o.PathOnly {
		return s.cutNothing(st)
	}
	t, err := s.Tree(ctx)
	if err != nil {
		return nil, err
	}
	at := t.Leaf()
	if o.At != "" {
		id, err := s.FindEntry(ctx, o.At)
		if err != nil {
			return nil, err
		}
		at = t.Find(id)
	}
	if at < 0 {
		return nil, fmt.Errorf("entry %.40q: %w", o.At, ErrNoEntry)
	}
	if o.PathOnly {
		return s.cutPath(ctx, st, t, at)
	}
	return s.cutBehind(ctx, st, t, at)
}

// cutNothing takes the whole log. Of a last line without a newline it takes the
// records: they may be the beginning of a line that is being written.
func (s *Session) cutNothing(st state) (*cut, error) {
	c := &cut{src: st.src, file: st.plain(), begin: st.end, spans: []stretch{{st.end, st.src.size}}}
	if !st.unclosed {
		return c, nil
	}
	c.spans[0].to = st.lastAt
	line, err := readSpan(st.src, st.lastAt, st.src.size, nil)
	if err != nil {
		return nil, err
	}
	eachRecord(line, func(raw []byte, _ int, e record.Envelope) {
		if !e.IsHeader() && !e.IsSlot() {
			c.records = append(append(c.records, raw...), '\n')
		}
	}, nil)
	return c, nil
}

// plain is the file when its bytes are the source's.
func (st *state) plain() durable.File {
	if st.cold || st.image != nil {
		return nil
	}
	return st.file
}

// cutBehind takes the log up to entry at.
func (s *Session) cutBehind(ctx context.Context, st state, t *Tree, at int) (*cut, error) {
	x := t.nodes.list[at]
	end := x.off + int64(x.size)
	c := &cut{src: t.src, begin: t.begin, spans: []stretch{{t.begin, end}}}
	if t.src == st.src {
		c.file = st.plain()
	}
	// What the log said of the title by then.
	given, err := t.titleBy(at, nil)
	c.title, c.untitled = given.Title, !given.OK
	return c, err
}

// cutPath takes the entries from the root to entry at, as a context is built of them,
// and says behind them again what entries on other branches say of these: their
// labels, and the title.
func (s *Session) cutPath(ctx context.Context, st state, t *Tree, at int) (*cut, error) {
	c := &cut{src: t.src, begin: t.begin}
	if t.src == st.src {
		c.file = st.plain()
	}
	way, _, err := t.ContextPath(at)
	if err != nil {
		return nil, err
	}
	// In the order of the file, in which the way breaks off and goes on as it does
	// there, but for the leaf, which is the last.
	path := slices.Sorted(slices.Values(way))
	lines, leaf, last := path, "", -1
	if n := len(way); n > 0 {
		at, last = way[n-1], path[n-1]
		leaf = string(t.nodes.id(int32(at)))
		lines = append(slices.DeleteFunc(slices.Clone(path), func(i int) bool { return i == at }), at)
	}
	for _, i := range lines {
		x := t.nodes.list[i]
		from, to := x.off, x.off+int64(x.size)
		// Neighbours go together when one newline stands between them.
		if n := len(c.spans); n > 0 && c.spans[n-1].to+1 == from && t.nodes.list[i-1].line != x.line {
			c.spans[n-1].to = to
		} else {
			c.spans = append(c.spans, stretch{from, to})
		}
	}
	reqs, err := s.labelsLeft(ctx, t, path)
	if err != nil {
		return nil, err
	}
	whole, err := t.titleBy(t.Leaf(), nil)
	if err != nil {
		return nil, err
	}
	onPath, err := t.titleBy(last, path)
	if err != nil {
		return nil, err
	}
	if whole.OK && whole.Title != onPath.Title {
		r := &request{id: record.NewID()}
		if err := r.set(entry.SessionInfo{Name: whole.Title}); err != nil {
			return nil, err
		}
		c.title, reqs = whole.Title, append(reqs, r)
	}
	c.untitled = !whole.OK
	c.records = s.lines(nil, reqs, leaf)
	c.cites, err = s.citesOfPath(ctx, t, lines, c.spans)
	return c, err
}

// labelsLeft makes entries for the labels of a path that the path itself does not
// give: the last label of an entry counts, whatever branch it is on.
func (s *Session) labelsLeft(ctx context.Context, t *Tree, path []int) ([]*request, error) {
	labels, err := s.Labels(ctx)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, i := range path {
		if t.nodes.list[i].kind != kindLabel {
			continue
		}
		l, ok, err := t.label(i)
		if err != nil {
			return nil, err
		}
		if ok {
			given[l.TargetID] = l.Label
		}
	}
	var reqs []*request
	for _, i := range path {
		id := t.nodes.id(int32(i))
		if labels[string(id)] == given[string(id)] {
			continue
		}
		r := &request{id: record.NewID()}
		if err := r.set(entry.Label{TargetID: string(id), Label: labels[string(id)]}); err != nil {
			return nil, err
		}
		reqs = append(reqs, r)
	}
	return reqs, nil
}

// label reads entry i as a label.
func (t *Tree) label(i int) (entry.Label, bool, error) {
	e, err := t.entry(i)
	if err != nil {
		return entry.Label{}, false, err
	}
	var l entry.Label
	err = e.Decode(&l) // one that names nothing is no error
	return l, err == nil, nil
}

// size is how long the fork's file will be behind its header, but for newlines.
func (c *cut) size() int64 {
	n := int64(len(c.records))
	for _, x := range c.spans {
		n += x.to - x.from
	}
	return n
}

// titleBy is the title that the last entry up to at gives, of those in path where
// there is one.
func (t *Tree) titleBy(at int, path []int) (given, error) {
	for n := at; n >= 0; n-- {
		k := t.nodes.list[n].kind
		if k != kindTitle && k != kindCompaction {
			continue
		}
		if _, on := slices.BinarySearch(path, n); path != nil && !on {
			continue
		}
		e, err := t.entry(n)
		if err != nil {
			return given{}, err
		}
		if g, ok := titleIn(k, e, ""); ok {
			return g, nil
		}
	}
	return given{}, nil
}

// write writes header and cut to a new file.
func (c *cut) write(ctx context.Context, w io.Writer, header []byte) error {
	if f, ok := w.(durable.File); ok && c.reflinks(int64(len(header))) {
		err := f.CloneFrom(c.file)
		if err == nil {
			return c.finishClone(f, header)
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			// Nothing is in the file; what the disk can still take shows below.
			if err := f.Truncate(0); err != nil {
				return err
			}
		}
	}
	out := w
	var buffered *bufio.Writer
	if len(c.spans) > 1 {
		buffered = bufio.NewWriterSize(w, 1<<20)
		out = buffered
	}
	if _, err := out.Write(header); err != nil {
		return err
	}
	for _, x := range c.spans {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := durable.Copy(out, c.reader(), x.from, x.to); err != nil {
			return err
		}
		if err := c.closeLine(out, x); err != nil {
			return err
		}
	}
	if len(c.records) > 0 {
		if _, err := out.Write(c.records); err != nil {
			return err
		}
	}
	if buffered != nil {
		return buffered.Flush()
	}
	return nil
}

// reader reads the source, where possible as a file: then the kernel copies it.
func (c *cut) reader() io.ReaderAt {
	if c.file != nil {
		return c.file
	}
	return c.src
}

// closeLine writes the newline behind a stretch that does not end with one.
func (c *cut) closeLine(w io.Writer, x stretch) error {
	if x.from == x.to {
		return nil
	}
	var last [1]byte
	if n, err := c.src.ReadAt(last[:], x.to-1); n < 1 {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err := w.Write([]byte{'\n'})
	return err
}

// reflinks reports whether the fork's file can share blocks with the source: all of
// what is taken begins where it begins there.
func (c *cut) reflinks(header int64) bool {
	return c.file != nil && len(c.spans) == 1 && c.spans[0].from == c.begin && c.begin == header
}

// finishClone makes a fork of a file that is a clone of the source, which may have
// grown since.
func (c *cut) finishClone(f durable.File, header []byte) error {
	x := c.spans[0]
	if err := f.Truncate(x.to); err != nil {
		return err
	}
	if _, err := f.WriteAt(header, 0); err != nil {
		return err
	}
	if _, err := f.Seek(x.to, io.SeekStart); err != nil {
		return err
	}
	if err := c.closeLine(f, x); err != nil {
		return err
	}
	if len(c.records) == 0 {
		return nil
	}
	_, err := f.Write(c.records)
	return err
}
