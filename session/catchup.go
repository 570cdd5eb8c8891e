package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// catchUp brings s.st up to the file as it is now. Nothing is parsed twice: an
// unchanged file costs two stats.
func (s *Session) catchUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.catchUpLocked()
}

func (s *Session) catchUpLocked() error {
	st := &s.st
	if s.closed {
		return fmt.Errorf("reading %s: %w", s.Path(), ErrClosed)
	}
	if st.file == nil {
		return nil
	}
	now, err := st.file.Identify()
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	at, err := s.fs.Identify(s.name())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s.reload() // compressed, restored, or gone
	case err != nil:
		return fmt.Errorf("reading %s: %w", s.Path(), err)
	case !at.SameFile(now) || now.Size < st.size || (now.Size != st.size && (st.cold || st.image != nil || st.none)):
		return s.reload()
	case now.Size == st.size:
		return nil
	case st.unclosed && st.end == st.size:
		return s.reload() // whatever follows the header, it may be on its line
	}
	retitled := false
	err = st.advance(now.Size, func(e record.Envelope) {
		retitled = retitled || kindOf(e.Type) == kindTitle
	})
	if errors.Is(err, errRewritten) {
		return s.reload()
	}
	if err == nil && retitled {
		st.preamble, err = readPreamble(st.src)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	return nil
}

// reload reads the file that stands under the path now, after another one has
// taken the place of ours or bytes of ours are missing.
func (s *Session) reload() error {
	st, err := load(s.fs, s.blobs, s.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading %s: %w", s.Path(), errAway)
	}
	if err != nil {
		return fmt.Errorf("reading %s, which was replaced: %w", s.Path(), err)
	}
	if !st.none && !s.st.none && st.header.ID != s.st.header.ID {
		st.close()
		return fmt.Errorf("reading %s: it is now session %.40q; open it anew: %w", s.Path(), st.header.ID, ErrGone)
	}
	s.take(st)
	return nil
}

// take goes on with another file. Readers may still use the old one, and entries of
// ours may have to be read from it: it is closed when nothing refers to it any more.
// s.mu is held.
func (s *Session) take(st *state) {
	if st.none && !s.st.none {
		s.fresh = s.st.header // emptied under us: it is still this session
	}
	s.st = *st
	s.replaced = true
	s.tree, s.ctxPath, s.index = nil, nil, nil
}

// look is catchUp with s.mu held, which it gives back while it follows a log that was
// moved.
func (s *Session) look(ctx context.Context) error {
	for try := 0; ; try++ {
		err := s.catchUpLocked()
		if !errors.Is(err, errAway) || try == maxHops {
			return err
		}
		s.mu.Unlock()
		err = s.follow(ctx)
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// name is where the open file is. s.mu is held.
func (s *Session) name() string { return s.st.name(s.Path()) }

// name is where the file is that st is of, when the log is at path.
func (st *state) name(path string) string {
	if st.cold {
		return catalog.ColdPath(path)
	}
	return path
}

// restoreOwn writes again what another program's rewrite of the file dropped
// from what this Session had appended. Such a program knows nothing of locks: it
// writes the file as it remembers it.
func (s *Session) restoreOwn(ctx context.Context) error {
	w := &s.writer
	s.mu.Lock()
	if !s.replaced {
		s.mu.Unlock()
		return nil
	}
	st := s.st
	own := slices.Clone(w.own)
	s.mu.Unlock()

	if w.file != nil {
		w.file = nil // of the old file; entries in own still refer to it
	}
	tree := &Tree{end: st.end}
	if err := tree.extend(ctx, st.src, st.src.size); err != nil {
		return fmt.Errorf("reading %s, which was replaced: %w", s.Path(), err)
	}
	var kept []ownEntry
	var lost []string
	back := restorer{tree: tree}
	for _, e := range own {
		if i := tree.Find(e.id); i >= 0 {
			// The next rewrite may drop it, and the old file need not stay open.
			e.file, e.off, e.size = st.file, tree.nodes.list[i].off, int(tree.nodes.list[i].size)
			kept = append(kept, e)
			continue
		}
		if err := back.add(ctx, e); err != nil {
			lost = append(lost, e.id)
		}
	}
	dropped := back.reqs
	s.mu.Lock()
	w.own = kept
	s.mu.Unlock()
	if len(dropped) > 0 {
		err := s.needsRewrite(ctx)
		if err == nil {
			err = s.write(dropped)
		}
		if err != nil {
			s.mu.Lock()
			w.own, s.replaced = own, true
			s.mu.Unlock()
			return fmt.Errorf("writing %s again that another program dropped: %w", plural(len(dropped), "entry", "entries"), err)
		}
	}
	s.mu.Lock()
	s.replaced = s.st.file != st.file // a rewrite of ours: look where our entries are now
	s.mu.Unlock()
	if len(dropped) > 0 {
		ids := make([]string, len(dropped))
		for i, r := range dropped {
			ids[i] = r.id
		}
		s.report(Event{Kind: EventRestored, Path: s.Path(), IDs: ids})
	}
	if len(lost) > 0 {
		s.report(Event{Kind: EventLost, Path: s.Path(), IDs: lost})
	}
	return nil
}

// restorer gathers what has to be written again.
type restorer struct {
	tree *Tree // of the file that lacks it
	reqs []*request
	ids  map[string]bool // of reqs
	old  map[durable.File]*Tree
}

// add reads an entry of ours from the file that it was written to.
func (r *restorer) add(ctx context.Context, e ownEntry) error {
	if r.ids[e.id] {
		return nil // as an ancestor
	}
	raw, env, err := e.read()
	if err != nil {
		// Not where we thought: a program without a lock wrote just before us.
		old, oerr := r.oldTree(ctx, e.file)
		if oerr != nil {
			return errors.Join(err, oerr)
		}
		i := old.Find(e.id)
		if i < 0 {
			return err
		}
		x := old.nodes.list[i]
		e.off, e.size = x.off, int(x.size)
		if raw, env, err = e.read(); err != nil {
			return err
		}
	}
	r.ancestors(ctx, e, string(env.Parent))
	r.put(e.id, raw)
	return nil
}

func (r *restorer) put(id string, raw []byte) {
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	r.ids[id] = true
	r.reqs = append(r.reqs, &request{id: id, raw: raw})
}

// ancestors adds what e hangs from, root first, as far as it was dropped as well:
// without it e would be an orphan, and its context would begin with it. The process
// that wrote it may be gone, or would write it again behind e, where it would be no
// parent.
func (r *restorer) ancestors(ctx context.Context, e ownEntry, parent string) {
	if parent == "" || r.ids[parent] || r.tree.Find(parent) >= 0 {
		return
	}
	old, err := r.oldTree(ctx, e.file)
	if err != nil {
		return // the file was written over; e is what there is
	}
	i := old.Find(parent)
	if i < 0 {
		return
	}
	path := old.Path(i)
	for n := len(path) - 1; n >= 0; n-- {
		if id := old.Node(path[n]).ID; r.ids[id] || r.tree.Find(id) >= 0 {
			path = path[n+1:]
			break
		}
	}
	for _, at := range path {
		x := old.nodes.list[at]
		if raw, err := readSpan(old.src, x.off, x.off+int64(x.size), nil); err == nil {
			r.put(old.Node(at).ID, raw)
		}
	}
}

// read reads the entry from where it was written.
func (e ownEntry) read() ([]byte, record.Envelope, error) {
	raw, err := readSpan(source{e.file, e.off + int64(e.size)}, e.off, e.off+int64(e.size), nil)
	if err != nil {
		return nil, record.Envelope{}, err
	}
	env, err := record.Parse(raw)
	if err == nil && string(env.ID) != e.id {
		err = ErrNoEntry
	}
	return raw, env, err
}

// oldTree reads the tree of a file that was replaced, once.
func (r *restorer) oldTree(ctx context.Context, f durable.File) (*Tree, error) {
	if t := r.old[f]; t != nil {
		return t, nil
	}
	id, err := f.Identify()
	if err != nil {
		return nil, err
	}
	t := &Tree{}
	if err := t.extend(ctx, source{f, id.Size}, id.Size); err != nil {
		return nil, err
	}
	if r.old == nil {
		r.old = map[durable.File]*Tree{}
	}
	r.old[f] = t
	return t, nil
}
