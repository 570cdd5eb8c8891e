package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// request is one entry on its way to the file.
type request struct {
	typ    string
	fields []byte // behind the envelope, each member with its comma
	// parent is the id to put the entry under, when explicit is set; otherwise
	// the leaf at the time of the write.
	parent   string
	explicit bool
	tried    bool // a write of it failed, and may have left it in the file all the same
	prepared bool // the persistence rules were applied and its blobs are stored
	// beside is set for AppendBeside: parent holds unless the leaf descends from
	// it, and back follows when it does not.
	beside bool
	back   *request
	raw    []byte // a line that was written before, to the byte
	asked  int64  // bytes that the quota was asked for, of all entries of one call

	id  string
	at  time.Time // for the envelope; zero for the time of the write
	off int64
}

// group is what one call appends.
type group struct {
	reqs []*request
	one  [1]*request // backing array of reqs for the usual single entry
	req  request
	err  error
	do   func() error // runs under the lock, behind the entries; may be nil
	// asIs is set for a do that works on the file whatever form it has.
	asIs   bool
	closes bool      // the session is closed behind the entries
	wake   chan wake // made on first use, then kept
}

// wake tells a waiting appender how it goes on.
type wake uint8

const (
	wakeDone wake = iota // its group was written, or failed
	wakeLead             // it writes the queue now
)

var groups = sync.Pool{New: func() any { return &group{wake: make(chan wake, 1)} }}

// Append writes one entry under the leaf, which it becomes, and returns its id.
// When Append returns without an error the entry is as durable as
// Options.Durability says.
//
// A *PendingError means that the entry was accepted under the id that is
// returned as well, and is not in the file yet; every other error means that it
// was not accepted. When ctx ends while another process holds the lock, the entry is
// pending too. The call waits for that process LockWait at most, and as long again
// for appends of this Session that came before it.
func (s *Session) Append(ctx context.Context, b entry.Body) (id string, err error) {
	return s.appendOne(ctx, request{}, b)
}

// AppendUnder is Append with a parent of the caller's choice, "" for a root. The
// parent must be an entry of the session.
func (s *Session) AppendUnder(ctx context.Context, parent string, b entry.Body) (id string, err error) {
	if parent != "" {
		if err := s.knows(ctx, parent); err != nil {
			return "", err
		}
	}
	return s.appendOne(ctx, request{parent: parent, explicit: true}, b)
}

// AppendBeside is for the end of something that began with the entry parent. As
// long as the leaf is that entry or descends from it, b goes under the leaf. When
// others have left that branch meanwhile, b goes under parent itself, and back
// behind it under the leaf they had, which so stays theirs. Nobody else's entry
// comes in between.
func (s *Session) AppendBeside(ctx context.Context, parent string, b, back entry.Body) (id string, err error) {
	if err := s.knows(ctx, parent); err != nil {
		return "", err
	}
	r := &request{}
	if err := s.encode(r, back); err != nil {
		return "", err
	}
	return s.appendOne(ctx, request{parent: parent, beside: true, back: r}, b)
}

func (s *Session) appendOne(ctx context.Context, how request, b entry.Body) (string, error) {
	if err := s.writable(ctx); err != nil {
		return "", err
	}
	if c, ok := b.(entry.Compaction); ok {
		var err error
		if b, err = s.checkpoint(ctx, c, how.parent, how.explicit, nil); err != nil {
			return "", err
		}
	}
	g := groups.Get().(*group)
	g.one[0] = &g.req
	g.reqs = g.one[:]
	how.fields = g.req.fields[:0]
	g.req = how
	if err := s.encode(&g.req, b); err != nil {
		groups.Put(g)
		return "", err
	}
	if s.quota != nil && !how.beside {
		if err := s.admit(ctx, &g.req); err != nil {
			groups.Put(g)
			return "", err
		}
	}
	err := s.submit(ctx, g)
	id := g.req.id
	if err == nil {
		groups.Put(g) // a pending request stays the session's
	}
	return id, err
}

// AppendAll writes several entries, each under the one before it, with one write
// and one fsync: after a crash all of them are there, or the first ones.
func (s *Session) AppendAll(ctx context.Context, bodies ...entry.Body) (ids []string, err error) {
	if err := s.writable(ctx); err != nil || len(bodies) == 0 {
		return nil, err
	}
	g, err := s.groupOf(ctx, bodies)
	if err != nil {
		return nil, err
	}
	if s.quota != nil {
		if err := s.admit(ctx, g.reqs...); err != nil {
			return nil, err
		}
	}
	err = s.submit(ctx, g)
	for _, r := range g.reqs {
		ids = append(ids, r.id)
	}
	return ids, err
}

// groupOf makes a group of entries, each under the one before it.
func (s *Session) groupOf(ctx context.Context, bodies []entry.Body) (*group, error) {
	g := &group{wake: make(chan wake, 1)}
	for _, b := range bodies {
		r := &request{}
		if c, ok := b.(entry.Compaction); ok {
			var err error
			if b, err = s.checkpoint(ctx, c, "", false, g.reqs); err != nil {
				return nil, err
			}
		}
		if err := s.encode(r, b); err != nil {
			return nil, err
		}
		g.reqs = append(g.reqs, r)
	}
	return g, nil
}

// encode encodes a body, and replaces secrets in it.
func (s *Session) encode(r *request, b entry.Body) error {
	if err := r.set(b); err != nil || s.redactor == nil {
		return err
	}
	if c, ok := b.(entry.Custom); ok && c.CustomType == entry.CustomTypeCheckpoint {
		return nil // names of files that are brought back
	}
	whole, n := r.whole()
	out, err := persist.Redact(whole, s.redactor.Text)
	if err != nil {
		return fmt.Errorf("appending an entry: %w", err)
	}
	r.fields = append(r.fields[:0], out[n:len(out)-1]...)
	return nil
}

// set encodes a body.
func (r *request) set(b entry.Body) error {
	var err error
	if b == nil {
		return fmt.Errorf("appending an entry: it has no body")
	}
	r.typ = b.EntryType()
	switch r.typ {
	case "", "session", "title":
		return fmt.Errorf("appending an entry: %q is no type of an entry", r.typ)
	}
	r.fields, err = entry.AppendFields(r.fields[:0], b)
	if err != nil {
		return fmt.Errorf("appending an entry: %w", err)
	}
	return nil
}

// prepare applies the persistence rules: blobs are stored before the line that
// names them is written. With admit the quota is asked for each.
func (s *Session) prepare(ctx context.Context, r *request, admit bool) error {
	if r.back != nil {
		if err := s.prepare(ctx, r.back, admit); err != nil {
			return err
		}
	}
	if r.prepared || persist.Plain(r.fields) {
		r.prepared = true
		return nil
	}
	// The rules walk over a whole entry.
	whole, n := r.whole()
	put := s.putBlob
	if admit {
		put = s.admitBlob
	}
	out, err := persist.Prepare(ctx, whole, put)
	if err != nil {
		return err
	}
	r.fields = append(r.fields[:0], out[n:len(out)-1]...)
	r.prepared = true
	return nil
}

// whole is the entry without the rest of its envelope, which is not known yet, and
// where its fields begin.
func (r *request) whole() (raw []byte, fields int) {
	raw = ecmajson.AppendString([]byte(`{"type":`), r.typ)
	fields = len(raw)
	return append(append(raw, r.fields...), '}'), fields
}

// commitQueue gathers what concurrent callers append. The first to come leads:
// it writes all that is queued; who comes meanwhile waits, and one of those
// leads next.
type commitQueue struct {
	mu      sync.Mutex // guards the fields below
	waiting []*group
	leading bool
}

// submit hands g over and waits until it is written or failed.
func (s *Session) submit(ctx context.Context, g *group) error {
	q := &s.queue
	q.mu.Lock()
	q.waiting = append(q.waiting, g)
	if q.leading {
		q.mu.Unlock()
		if <-g.wake == wakeDone {
			return g.err
		}
	} else {
		q.leading = true
		q.mu.Unlock()
	}
	s.lead(ctx, g)
	return g.err
}

// lead writes everything that is queued, own among it, and hands over.
func (s *Session) lead(ctx context.Context, own *group) {
	q := &s.queue
	q.mu.Lock()
	batch := q.waiting
	q.waiting = s.spare[:0]
	q.mu.Unlock()

	if len(batch) > 1 {
		// The others' entries do not end with this caller's context.
		ctx = context.WithoutCancel(ctx)
	}
	s.commit(ctx, batch)
	for _, g := range batch {
		if g != own {
			g.wake <- wakeDone
		}
	}
	clear(batch)
	s.spare = batch[:0]

	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) > 0 {
		q.waiting[0].wake <- wakeLead
	} else {
		q.leading = false
	}
}
