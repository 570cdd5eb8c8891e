package conversation

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation/internal/sidecar"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/entry"
)

// RestoreOptions say how a log is made of a state.
type RestoreOptions struct {
	// ID, CWD and Time are those of a session whose state has no sidecar; "" and zero
	// make an id, take the directory that the state names last, and the time of its
	// first turn.
	ID, CWD string
	Time    time.Time
	// Parent is the id of the session whose subagent it is, "" for none.
	Parent string

	subagent *keptSubagent
	// header gives a log a header that had none when it was projected, and is no session so.
	header bool
	here   string // the working directory where nothing else tells, "" for none
}

// Restored says what a log was made of.
type Restored struct {
	// Exact is set when the log is the one that was projected, to the byte.
	Exact bool
	// HeaderMade is set when the log had no header and was given one.
	HeaderMade bool
	// Known and Converted are turns that came from their lines, and that were made of
	// the state, because another program has made or changed them.
	Known, Converted int
	// Added are the entries behind the lines that the sidecar has.
	Added int
	Bytes int64
	Holes []*Hole
	// Cited are blobs that the log needs, in the store of the state: images, long
	// strings, contents of files.
	Cited []blobref.Ref
}

// WriteLog writes the log of the session that the state s is of.
//
// A state as it was projected gives the log to the byte. If another program has changed
// it since, the log is all the same there, with every branch, and what the other program
// did goes on from the last turn that it left as it was: turns that it made or changed
// are converted, and turns behind them that it left alone are written once more, to the
// byte but for their ids. A state without a sidecar is converted from its first turn on.
//
// A missing blob costs what it holds: it is in Holes, and no error. Turns whose lines are
// lost with it are converted, as those of other programs are, and the turns behind them
// are written once more, under them. A log whose header is lost gets one like that of a
// state without a sidecar.
func (s *State) WriteLog(ctx context.Context, w io.Writer, o RestoreOptions) (r Restored, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("restoring a session: %w", err)
		}
	}()
	side, ok, err := s.sidecar(ctx)
	if h := holeOf(err); h != nil {
		r.Holes = append(r.Holes, h)
	} else if err != nil {
		return r, err
	}
	if !ok {
		return r, s.convertAll(ctx, w, o, &r)
	}
	if side.Head.Weight+side.Body.Weight > uint64(s.limits.Bytes) {
		return r, fmt.Errorf("its log has %d bytes, and %d are allowed: %w", side.Head.Weight+side.Body.Weight, s.limits.Bytes, ErrTooMuch)
	}
	known := &knownLog{s: s, side: side, o: o, r: &r}
	if digest(s.fields) != side.Digest {
		return r, s.writeChanged(ctx, w, known)
	}
	if odd, err := known.oldAndDamaged(ctx); err != nil || odd {
		if err == nil {
			err = s.writeChanged(ctx, w, known)
		}
		return r, err
	}
	if err := known.write(ctx, w, nil); err != nil {
		return r, err
	}
	r.Exact, r.Known = len(r.Holes) == 0 && !r.HeaderMade, s.Len()
	if len(known.lost) > 0 {
		return r, s.mend(ctx, w, known)
	}
	return r, nil
}

func (k *knownLog) chunk(ctx context.Context, r sidecar.Record) ([]byte, error) {
	data, err := k.s.rawRef(ctx, r.ID, "chunk of the log")
	if err == nil && uint64(len(data)) != r.Weight {
		err = &Hole{r.ID, "chunk of the log", fmt.Errorf("%w: it has %d bytes and not %d", ErrNotState, len(data), r.Weight)}
	}
	return data, err
}

func (k *knownLog) put(ctx context.Context, w io.Writer, data []byte, parse *log) error {
	if parse == nil {
		n, err := w.Write(data)
		k.r.Bytes += int64(n)
		k.torn = len(data) > 0 && data[len(data)-1] != '\n'
		return err
	}
	data = append(parse.rest[:len(parse.rest):len(parse.rest)], data...)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		if err := k.line(ctx, w, data[:i+1:i+1], parse); err != nil {
			return err
		}
		data = data[i+1:]
	}
	parse.rest = data
	return nil
}

// line writes a line to which entries of this version will be added: one of an older
// version is brought up to it.
func (k *knownLog) line(ctx context.Context, w io.Writer, line []byte, parse *log) error {
	before, entries := len(parse.head), []entry.Entry(nil)
	if err := parse.line(ctx, discard, line, func(_ int32, e entry.Entry) error {
		entries = append(entries, e)
		return nil
	}); err != nil {
		return err
	}
	if parse.migrator != nil && len(parse.head) > before && !parse.inHead {
		line = newVersion(line)
	} else if parse.migrator != nil && len(entries) > 0 {
		line = nil
		for _, e := range entries {
			line = append(append(line, e.Raw()...), '\n')
		}
	}
	n, err := w.Write(line)
	k.r.Bytes += int64(n)
	return err
}

// newVersion is a header line with the version of this program.
func newVersion(header []byte) []byte {
	line := []byte(`{"type":"session","version":3`)
	gjson.ParseBytes(header).ForEach(func(key, v gjson.Result) bool {
		if key.Str != "type" && key.Str != "version" && key.Str != "crc" {
			line = append(append(append(append(line, ','), key.Raw...), ':'), v.Raw...)
		}
		return true
	})
	return append(line, "}\n"...)
}

// discard is a store of chunks that nobody wants.
func discard(context.Context, []byte) (blobref.Ref, error) { return blobref.Ref{}, nil }

// writeChanged writes the log of a state that another program has changed.
func (s *State) writeChanged(ctx context.Context, w io.Writer, known *knownLog) error {
	l := newLog()
	if err := known.write(ctx, w, l); err != nil {
		return err
	}
	if len(l.rest) > 0 {
		// The last line has no newline: as the next writer of the session would, end it.
		if err := known.put(ctx, w, []byte("\n"), l); err != nil {
			return err
		}
	}
	turns, err := known.turns(ctx)
	if err != nil {
		return err
	}
	return s.goOn(ctx, w, known, l, turns)
}

// goOn writes what the state says behind the lines of the log l: the turns from the first
// one on that is not in them as it is.
func (s *State) goOn(ctx context.Context, w io.Writer, known *knownLog, l *log, turns *knownTurns) error {
	out := &lineWriter{w: w, limit: s.limits.Bytes, taken: map[string]bool{}, at: s.began(known.o)}
	for _, p := range l.entries {
		out.taken[p.id] = true
	}
	c := &converter{s: s, out: out, subagent: known.o.subagent}
	same := known.same(turns)
	known.r.Known = same
	if same == len(turns.order) && l.leaf >= 0 && !known.endLost() {
		out.leaf = l.entries[l.leaf].id
	} else {
		for i := same - 1; i >= 0; i-- {
			if at := l.lastIn(turns.order[i].Spans); at >= 0 {
				out.leaf = l.entries[at].id
				break
			}
		}
	}
	for i := same; i < s.Len(); i++ {
		if err := s.moved(ctx, i, turns, l, known, c); err != nil {
			return err
		}
	}
	if err := c.pending(ctx); err != nil {
		return err
	}
	if err := c.rest(ctx); err != nil {
		return err
	}
	known.r.Added, known.r.Bytes = out.count, known.r.Bytes+out.n
	for _, h := range c.holes {
		known.hole(h)
	}
	known.r.Cited = append(known.r.Cited, c.cited...)
	return nil
}

// moved writes turn i in a new place: from its lines if they are known.
func (s *State) moved(ctx context.Context, i int, turns *knownTurns, l *log, known *knownLog, c *converter) error {
	id := s.Message.Turns[i]
	if len(id) == 32 {
		if r, ok := turns.take(blobref.FromSum([32]byte(id))); ok {
			entries, err := known.entries(ctx, l, r.Spans)
			if err == nil {
				if len(entries) > 0 && !beginsTurn(entries[0].Role()) {
					if err := c.begin(); err != nil {
						return err
					}
				}
				for _, e := range entries {
					if err := c.out.again(e); err != nil {
						return err
					}
				}
				known.r.Known++
				return nil
			}
			h := holeOf(err)
			if h == nil {
				return err
			}
			known.hole(h)
		}
	}
	known.r.Converted++
	return c.turn(ctx, i)
}

// knownTurns are the turns that a sidecar has the lines of.
type knownTurns struct {
	order []sidecar.Record
	byID  map[blobref.Ref][]int
}

// take returns the lines of a turn; of equal ones each once, and the last one again.
func (k *knownTurns) take(id blobref.Ref) (sidecar.Record, bool) {
	list := k.byID[id]
	if len(list) == 0 {
		return sidecar.Record{}, false
	}
	if len(list) > 1 {
		k.byID[id] = list[1:]
	}
	return k.order[list[0]], true
}

func (k *knownLog) turns(ctx context.Context) (*knownTurns, error) {
	t := &knownTurns{byID: map[blobref.Ref][]int{}}
	if k.side.Turns.Count > uint64(k.s.limits.Blobs) {
		return nil, fmt.Errorf("its sidecar has %d turns: %w", k.side.Turns.Count, ErrTooMuch)
	}
	for r, err := range k.side.Turns.Items(ctx, k.s.raw, 0, k.side.Turns.Weight) {
		if h := holeOf(err); h != nil && ctx.Err() == nil {
			k.hole(h)
			// Those behind it keep their places.
			for n := missing(err); n > 0 && len(t.order) < int(k.side.Turns.Count); n-- {
				t.order = append(t.order, sidecar.Record{})
			}
			continue
		} else if err != nil {
			return nil, err
		}
		t.byID[r.ID] = append(t.byID[r.ID], len(t.order))
		t.order = append(t.order, r.Record)
	}
	return t, nil
}

// lastIn is the last entry that stands in the last of some spans, -1 for none.
func (l *log) lastIn(spans []sidecar.Span) int32 {
	if len(spans) == 0 {
		return -1
	}
	s := spans[len(spans)-1]
	for i := len(l.entries) - 1; i >= 0; i-- {
		if p := l.entries[i].span; p.From >= s.From && p.From+p.Len <= s.From+s.Len {
			return int32(i)
		}
	}
	return -1
}

// entries reads the entries that stand in some spans of the body.
func (k *knownLog) entries(ctx context.Context, l *log, spans []sidecar.Span) (list []entry.Entry, err error) {
	for _, s := range spans {
		data, err := k.s.bodyRange(ctx, k.side, s.From, s.Len)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(data) {
			list = append(list, l.parse(line, 0)...)
		}
	}
	return list, nil
}

// bodyRange reads a stretch of the body.
func (s *State) bodyRange(ctx context.Context, side sidecar.Root, from, n uint64) ([]byte, error) {
	if from > side.Body.Weight || n > side.Body.Weight-from || n > uint64(s.limits.Bytes) {
		return nil, &Hole{What: "stretch of the log", Err: fmt.Errorf("%w: it is not in the log", ErrNotState)}
	}
	var data []byte
	for chunk, err := range side.Body.Items(ctx, s.raw, from, from+n) {
		if err != nil {
			return nil, err
		}
		b, err := s.rawRef(ctx, chunk.ID, "chunk of the log")
		if err != nil {
			return nil, err
		}
		if uint64(len(b)) != chunk.Weight {
			return nil, &Hole{chunk.ID, "chunk of the log", ErrNotState}
		}
		lo, hi := max(from, chunk.Before), min(from+n, chunk.Before+chunk.Weight)
		data = append(data, b[lo-chunk.Before:hi-chunk.Before]...)
	}
	return data, nil
}

// TurnLines returns the lines of turn i as they stand in the log of the session, and
// false for a turn that was not projected from one.
func (s *State) TurnLines(ctx context.Context, i int) ([]byte, bool, error) {
	side, ok, err := s.sidecar(ctx)
	if err != nil || !ok || i < 0 || i >= s.Len() {
		return nil, false, err
	}
	want := s.Message.Turns[i]
	if uint64(i) >= side.Turns.Count {
		return nil, false, nil
	}
	r, err := side.Turns.At(ctx, s.raw, uint64(i))
	if err != nil {
		return nil, false, errOrHole(err)
	}
	if !bytes.Equal(idOf(r.ID), want) {
		return nil, false, nil
	}
	var data []byte
	for _, span := range r.Spans {
		b, err := s.bodyRange(ctx, side, span.From, span.Len)
		if err != nil {
			return nil, false, errOrHole(err)
		}
		data = append(data, b...)
	}
	return data, true, nil
}

func errOrHole(err error) error {
	if h := holeOf(err); h != nil {
		return h
	}
	return err
}

// began is when the session of a state began, as far as the state tells.
func (s *State) began(o RestoreOptions) time.Time {
	m := s.Message
	switch {
	case !o.Time.IsZero():
		return o.Time
	case m.GetConversationStartedTimestampMs() > 0:
		return time.UnixMilli(int64(min(m.GetConversationStartedTimestampMs(), 1<<47)))
	case len(m.TurnTimings) > 0 && m.TurnTimings[0].GetTimestampMs() > 0:
		return time.UnixMilli(int64(min(m.TurnTimings[0].GetTimestampMs(), 1<<47)))
	}
	return time.UnixMilli(0)
}

// convertAll writes the log of a state without a sidecar.
func (s *State) convertAll(ctx context.Context, w io.Writer, o RestoreOptions, r *Restored) error {
	out := &lineWriter{w: w, limit: s.limits.Bytes, taken: map[string]bool{}, at: s.began(o)}
	if err := s.header(out, o); err != nil {
		return err
	}
	out.count = 0
	c := &converter{s: s, out: out, subagent: o.subagent}
	if err := s.summaryFirst(ctx, c); err != nil {
		return err
	}
	for i := range s.Len() {
		if err := c.turn(ctx, i); err != nil {
			return err
		}
	}
	if err := c.pending(ctx); err != nil {
		return err
	}
	if err := c.rest(ctx); err != nil {
		return err
	}
	r.Converted, r.Added, r.Bytes = s.Len(), out.count, out.n
	r.Holes = append(r.Holes, c.holes...)
	r.Cited = append(r.Cited, c.cited...)
	return nil
}

// summaryFirst writes the summary of a state before its turns: nobody can tell which of
// them it stands for, and what it says of turns that the state has not is nowhere else.
func (s *State) summaryFirst(ctx context.Context, c *converter) error {
	text := ""
	if len(s.Message.Summary) > 0 {
		m := &agentv1.ConversationSummary{}
		if err := s.message(ctx, s.Message.Summary, "summary", m); err == nil {
			text = m.Summary
		} else if h := holeOf(err); h != nil {
			c.holes = append(c.holes, h)
		} else {
			return err
		}
	}
	if text == "" {
		return nil
	}
	_, err := c.out.add(entry.Compaction{Summary: text}, "")
	return err
}

// header writes the header of a new session.
func (s *State) header(out *lineWriter, o RestoreOptions) error {
	id := o.ID
	if id == "" {
		made, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("making a session id: %w", err)
		}
		id = made.String()
	}
	cwd := o.CWD
	for _, uri := range s.Message.PreviousWorkspaceUris {
		if path := uriPath(uri); path != "" && o.CWD == "" {
			cwd = path
		}
	}
	if cwd == "" {
		cwd = o.here
	}
	line := ecmajson.AppendString([]byte(`{"type":"session","version":3,"id":`), id)
	line = append(line, `,"timestamp":"`...)
	line = append(out.at.UTC().AppendFormat(line, "2006-01-02T15:04:05.000Z"), '"')
	line = ecmajson.AppendString(append(line, `,"cwd":`...), cwd)
	if o.Parent != "" {
		line = ecmajson.AppendString(append(line, `,"parentSession":`...), o.Parent)
		line = ecmajson.AppendString(append(line, `,"artifactRoot":{"session":`...), o.Parent)
		line = append(line, `,"path":"."}`...)
	}
	return out.end(line)
}

// residue is what a state says beside its turns, in its own bytes.
func residue(m *agentv1.ConversationStateStructure) ([]byte, error) {
	data, err := marshal.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("writing what the state says beside its turns: %w", err)
	}
	list, err := split(data)
	if err != nil {
		return nil, err
	}
	data = data[:0:0]
	for _, f := range list {
		switch f.number {
		case fieldTurns, fieldTimings, fieldSubagent, SidecarField:
		case fieldPending:
			if !isCall(f.value) {
				data = append(data, f.raw...)
			}
		default:
			data = append(data, f.raw...)
		}
	}
	return data, nil
}

// isCall reports whether the text of a pending call is one that becomes an entry.
func isCall(text []byte) bool {
	m := gjson.GetManyBytes(text, "toolCallId", "toolName")
	return gjson.ValidBytes(text) && m[0].Str != "" && m[1].Str != ""
}
