package conversation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/agentrun/agentrun/conversation/internal/sidecar"
)

// knownLog is the log in the sidecar of a state.
type knownLog struct {
	s    *State
	side sidecar.Root
	o    RestoreOptions
	r    *Restored

	head []byte         // what stands before the first entry, nil before it was read
	lost []sidecar.Span // stretches of the body that are not there, in their order
	torn bool           // the last byte that was written unparsed is no newline
}

// hole notes a hole, once.
func (k *knownLog) hole(h *Hole) {
	if !slices.ContainsFunc(k.r.Holes, func(o *Hole) bool { return o.ID == h.ID && o.What == h.What }) {
		k.r.Holes = append(k.r.Holes, h)
	}
}

// write writes all of the log that is there. With a log its lines are parsed too, and its
// spans are those of the log as it was, with what is lost.
func (k *knownLog) write(ctx context.Context, w io.Writer, parse *log) error {
	if err := k.readHead(ctx); err != nil {
		return err
	}
	if err := k.addHeader(ctx, w, parse); err != nil {
		return err
	}
	if len(k.head) > 0 {
		if err := k.put(ctx, w, k.head, parse); err != nil {
			return err
		}
	}
	at := uint64(0)
	for chunk, err := range k.side.Body.Items(ctx, k.s.raw, 0, k.side.Body.Weight) {
		var data []byte
		if err == nil {
			k.r.Cited = append(k.r.Cited, chunk.Cites...)
			data, err = k.chunk(ctx, chunk.Record)
		}
		if err != nil {
			h := holeOf(err)
			if h == nil || ctx.Err() != nil {
				return err
			}
			k.hole(h)
			continue
		}
		if err := k.gap(ctx, w, parse, at, chunk.Before); err != nil {
			return err
		}
		if err := k.put(ctx, w, data, parse); err != nil {
			return err
		}
		at = chunk.Before + chunk.Weight
	}
	return k.gap(ctx, w, parse, at, k.side.Body.Weight)
}

// gap notes that a stretch of the body is lost. A line that was cut by it is ended, so that
// what follows is not taken for the rest of it.
func (k *knownLog) gap(ctx context.Context, w io.Writer, parse *log, from, to uint64) error {
	if from >= to {
		return nil
	}
	k.lost = append(k.lost, sidecar.Span{From: from, Len: to - from})
	if parse != nil && len(parse.rest) > 0 || k.torn {
		if err := k.put(ctx, w, []byte("\n"), parse); err != nil {
			return err
		}
	}
	if parse != nil {
		parse.body.size = to
	}
	return nil
}

var errLongHead = fmt.Errorf("%w: it is longer than one is", ErrNotState)

// readHead reads what stands before the first entry. If any of it is missing there is a
// header as for a state of another program: a log without one is none.
func (k *knownLog) readHead(ctx context.Context) error {
	t := k.side.Head
	if k.head != nil || t.Weight == 0 {
		return nil
	}
	if t.Weight > maxHead {
		k.hole(&Hole{t.ID, "head of the log", errLongHead})
		return k.makeHead()
	}
	head := make([]byte, 0, t.Weight)
	for chunk, err := range t.Items(ctx, k.s.raw, 0, t.Weight) {
		var data []byte
		if err == nil {
			k.r.Cited = append(k.r.Cited, chunk.Cites...)
			data, err = k.chunk(ctx, chunk.Record)
		}
		if err == nil {
			head = append(head, data...)
			continue
		}
		h := holeOf(err)
		if h == nil || ctx.Err() != nil {
			return err
		}
		k.hole(h)
	}
	if uint64(len(head)) != t.Weight {
		return k.makeHead()
	}
	k.head = head
	return nil
}

// addHeader writes a header before a head that has none, where one was asked for.
func (k *knownLog) addHeader(ctx context.Context, w io.Writer, parse *log) error {
	if !k.o.header || hasHeader(k.head) {
		return nil
	}
	own := k.head
	defer func() { k.head = own }()
	if err := k.makeHead(); err != nil {
		return err
	}
	k.r.HeaderMade = true
	if err := k.put(ctx, w, k.head, parse); err != nil {
		return err
	}
	if parse != nil {
		parse.inHead = true // what stands before the first entry is no part of the body
	}
	return nil
}

// hasHeader reports whether a header stands in what is before the first entry of a log.
func hasHeader(head []byte) bool {
	l := newLog()
	for line := range bytes.Lines(head) {
		if l.scan(line); !l.inHead {
			return true // nothing else ends a head
		}
	}
	return false
}

func (k *knownLog) makeHead() error {
	var b bytes.Buffer
	out := &lineWriter{w: &b, limit: k.s.limits.Bytes, taken: map[string]bool{}, at: k.s.began(k.o)}
	err := k.s.header(out, k.o)
	k.head = b.Bytes()
	return err
}

// again is the same log, to be read once more for nothing but its lines.
func (k *knownLog) again() *knownLog {
	return &knownLog{s: k.s, side: k.side, o: k.o, r: &Restored{}, head: k.head}
}

// oldAndDamaged reports whether the log is of an older version, and not all there. Its
// lines are brought up to this version then, as entries of this one follow them; which is
// to be known before the first of them is written. Logs of older versions are small.
func (k *knownLog) oldAndDamaged(ctx context.Context) (bool, error) {
	if err := k.readHead(ctx); err != nil {
		return false, err
	}
	l := newLog()
	for line := range bytes.Lines(k.head) {
		l.scan(line)
	}
	if l.migrator == nil {
		return false, nil
	}
	again := k.again()
	err := again.write(ctx, io.Discard, nil)
	return len(again.lost) > 0, err
}

// mend writes behind the log of a state that nobody has changed what the state has of
// turns whose lines are lost: these are converted, under the last turn before them that
// is there, and those behind them are written once more, so that they are in one path.
func (s *State) mend(ctx context.Context, w io.Writer, known *knownLog) error {
	turns, err := known.turns(ctx)
	if err != nil {
		return err
	}
	if known.same(turns) == s.Len() && !known.endLost() {
		return nil // the lines of another branch
	}
	l := newLog()
	if err := known.again().write(ctx, io.Discard, l); err != nil {
		return err
	}
	if known.torn {
		if err := known.put(ctx, w, []byte("\n"), nil); err != nil {
			return err
		}
		if err := known.again().put(ctx, io.Discard, []byte("\n"), l); err != nil {
			return err
		}
	}
	return s.goOn(ctx, w, known, l, turns)
}

// same is how many of the first turns of the state are as they were projected, with all
// of their lines.
func (k *knownLog) same(turns *knownTurns) (n int) {
	for n < len(turns.order) && n < k.s.Len() && bytes.Equal(idOf(turns.order[n].ID), k.s.Message.Turns[n]) &&
		!slices.ContainsFunc(turns.order[n].Spans, k.isLost) {
		n++
	}
	return n
}

// isLost reports whether any of a stretch of the body is lost.
func (k *knownLog) isLost(s sidecar.Span) bool {
	i := sort.Search(len(k.lost), func(i int) bool { return k.lost[i].From+k.lost[i].Len > s.From })
	return i < len(k.lost) && k.lost[i].From < s.From+s.Len
}

// endLost reports whether the end of the log is lost, which says on which branch it is.
func (k *knownLog) endLost() bool {
	n := len(k.lost)
	return n > 0 && k.lost[n-1].From+k.lost[n-1].Len == k.side.Body.Weight
}

// missing is how many items cannot be read because of err.
func missing(err error) uint64 {
	var h *sidecar.HoleError
	if errors.As(err, &h) {
		return h.Count
	}
	return 0
}
