package session

import (
	"context"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// snapshot catches up with the file and returns what is known of it.
func (s *Session) snapshot(ctx context.Context) (state, error) {
	if err := ctx.Err(); err != nil {
		return state{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.look(ctx); err != nil {
		return state{}, err
	}
	return s.st, nil
}

// Tree reads the tree of all entries, with their places and the damage of the
// file. Every checksum is verified. A tree is kept and extended by what was
// appended since.
func (s *Session) Tree(ctx context.Context) (*Tree, error) {
	st, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	cached := s.tree
	s.mu.Unlock()
	if cached != nil && cached.end == st.src.size {
		return cached, nil
	}
	t := &Tree{begin: st.end, end: st.end, lines: st.linesBefore(), session: st.header.ID, origin: st.origin()}
	if cached != nil && cached.closed && cached.end <= st.lastAt {
		t = cached.clone()
	}
	t.closed = !st.unclosed
	if st.file != nil && !st.none {
		if err := t.extend(ctx, st.src, st.src.size); err != nil {
			return nil, fmt.Errorf("reading %s: %w", s.Path(), err)
		}
	}
	if st.image != nil {
		for i := range t.damage {
			t.damage[i] = st.image.origin(t.damage[i])
		}
	}
	s.mu.Lock()
	if s.st.file == st.file {
		s.tree = t
	}
	s.mu.Unlock()
	return t, nil
}

// linesBefore is how many lines stand before the first entry.
func (st *state) linesBefore() int {
	if st.none || st.file == nil {
		return 0
	}
	n := 0
	_ = eachPassing(context.Background(), st.src, 0, st.end, func([]byte, int64) bool { n++; return true })
	return n
}

// Damage lists everything that is wrong with the file.
func (s *Session) Damage(ctx context.Context) ([]Damage, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return nil, err
	}
	return t.Damage(), nil
}

// Entries yields every entry in file order, whatever branch it is on, with what
// the persistence rules took out put back. Damaged stretches are passed over. An
// error ends the sequence.
func (s *Session) Entries(ctx context.Context) iter.Seq2[entry.Entry, error] {
	return func(yield func(entry.Entry, error) bool) {
		t, err := s.Tree(ctx)
		if err != nil {
			yield(entry.Entry{}, err)
			return
		}
		// The tree knows which lines count; its order is that of the file it was
		// read from, which may have been replaced meanwhile.
		next := 0
		err = eachForward(ctx, t.src, t.begin, t.end, func(line []byte, at int64) bool {
			going := true
			eachRecord(line, func(raw []byte, in int, e record.Envelope) {
				if !going || next >= len(t.nodes.list) || t.nodes.list[next].off != at+int64(in) {
					return // a header, a slot, or a line that was folded
				}
				x, rerr := s.restore(ctx, newEntry(raw, at+int64(in), e, int(t.nodes.list[next].line)))
				next++
				going = yield(x, rerr) && rerr == nil
			}, nil)
			return going
		})
		if err != nil {
			yield(entry.Entry{}, fmt.Errorf("reading %s: %w", s.Path(), err))
		}
	}
}

// Entry returns the newest entry with that id, with what the persistence rules
// took out put back. The error matches ErrNoEntry when there is none.
func (s *Session) Entry(ctx context.Context, id string) (entry.Entry, error) {
	t, err := s.Tree(ctx)
	if err != nil {
		return entry.Entry{}, err
	}
	i := t.Find(id)
	if i < 0 {
		return entry.Entry{}, fmt.Errorf("reading entry %.40q of %s: %w", id, s.Path(), ErrNoEntry)
	}
	return s.EntryAt(ctx, t, i)
}

// EntryAt returns entry i of t, which must be a tree of this session.
func (s *Session) EntryAt(ctx context.Context, t *Tree, i int) (entry.Entry, error) {
	e, err := t.entry(i)
	if err != nil {
		return e, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	return s.restore(ctx, e)
}

// Entry returns entry i as it stands in the file: images and long strings are still
// references. It reads that line and nothing else.
func (t *Tree) Entry(i int) (entry.Entry, error) {
	e, err := t.entry(i)
	if err != nil {
		return e, fmt.Errorf("reading entry %.40q: %w", t.Node(i).ID, err)
	}
	return e, nil
}

// entry reads entry i as it stands in the file.
func (t *Tree) entry(i int) (entry.Entry, error) {
	x := t.nodes.list[i]
	raw, err := readSpan(t.src, x.off, x.off+int64(x.size), make([]byte, 0, x.size))
	if err != nil {
		return entry.Entry{}, err
	}
	return x.parse(raw)
}

// parse returns the entry whose line is raw.
func (x *node) parse(raw []byte) (entry.Entry, error) {
	e, err := record.Parse(raw)
	if err != nil {
		return entry.Entry{}, fmt.Errorf("the entry at %d changed meanwhile: %w", x.off, err)
	}
	return newEntry(raw, x.off, e, int(x.line)), nil
}
