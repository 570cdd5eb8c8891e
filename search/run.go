package search

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// searched is a source that is being searched.
type searched struct {
	*source
	handle
	full atomic.Bool // enough hits were found
}

// job is a stretch of a source to search.
type job struct {
	*searched
	from  place
	end   int64
	known bool // from.line is a line of the file; else it counts from 1 in the stretch
	flush bool // of a log: what was found up to here comes before what follows
	last  bool // of the source
	title bool // of the session, instead of a file
	err   error
}

// answer is what was found in a stretch.
type answer struct {
	job
	hits  []found
	lines int64 // in the stretch
	err   error
}

// found is a hit, and what another entry says too.
type found struct {
	Hit
	told  told // of an entry; "" of most
	again bool // it is the later of the two
}

// pieceSize is how much of a file that is not indexed one worker searches at a time.
const pieceSize = 4 << 20

// delivery takes the answers in the order of the jobs.
type delivery struct {
	*plan
	at      *searched
	line    int64         // the number of the next line of at
	inOrder []found       // of a log, oldest first
	told    map[told]bool // by hits of at, which come newest first
	count   int           // of hits in at
	lastHit int64         // the line of the last one
}

// run searches what has to be and hands out hits in their order.
func (p *plan) run(ctx context.Context, owners []*owner) error {
	jobs := func(yield func(job) bool) {
		for _, o := range owners {
			if !p.jobs(ctx, o, yield) {
				return
			}
		}
	}
	d := &delivery{plan: p, told: map[told]bool{}}
	return ordered(ctx, busyAhead(), jobs, p.work, func(a answer) (bool, error) { return d.take(ctx, a) })
}

func (p *plan) deliver(h Hit) bool {
	if p.limit > 0 && p.hits == p.limit {
		p.res.More = true
		return false
	}
	p.hits++
	return p.each(h)
}

func (d *delivery) take(ctx context.Context, a answer) (going bool, err error) {
	if a.title {
		return d.deliver(a.hits[0].Hit), nil
	}
	if d.at != a.searched {
		d.at, d.count, d.lastHit, d.inOrder = a.searched, 0, 0, d.inOrder[:0]
		clear(d.told)
	}
	if a.err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		d.res.Problems = append(d.res.Problems, a.err)
	}
	base := int64(0)
	if a.known {
		d.line = a.from.line
	} else {
		base = d.line - 1
	}
	d.line += a.lines
	for i := range a.hits {
		a.hits[i].Line += base
	}
	if a.kind == kindLog {
		going = d.takeEntries(a)
	} else {
		going = d.takeLines(a)
	}
	if a.last || !going {
		_ = a.close() // it was only read
	}
	return going, nil
}

func (d *delivery) takeEntries(a answer) bool {
	d.inOrder = append(d.inOrder, a.hits...)
	if !a.flush {
		return true
	}
	slices.Reverse(d.inOrder)
	for _, h := range d.inOrder {
		if h.told != (told{}) && !h.again && d.told[h.told] {
			continue // the later entry was found
		}
		if h.again {
			d.told[h.told] = true
		}
		if !d.deliver(h.Hit) {
			return false
		}
	}
	d.inOrder = d.inOrder[:0]
	return true
}

func (d *delivery) takeLines(a answer) bool {
	for _, h := range a.hits {
		if h.Line == d.lastHit {
			continue // another piece of one long line
		}
		if d.perOutput > 0 && d.count == d.perOutput {
			if !a.full.Swap(true) {
				d.res.Capped = append(d.res.Capped, a.url)
			}
			return true
		}
		d.lastHit = h.Line
		d.count++
		if !d.deliver(h.Hit) {
			return false
		}
	}
	return true
}

// jobs yields what to search of one session.
func (p *plan) jobs(ctx context.Context, o *owner, yield func(job) bool) bool {
	if !p.q.Since.IsZero() && o.info.Modified.Before(p.q.Since) {
		return true
	}
	if h, ok := p.title(o); ok {
		s := &searched{source: &source{owner: o, url: h.URL}}
		if !yield(job{searched: s, title: true}) {
			return false
		}
	}
	for i := range o.sources {
		if s := &o.sources[i]; p.wants(s) && !p.sourceJobs(ctx, s, yield) {
			return false
		}
	}
	return true
}

// wants reports whether hits of the source can be what the query asks for.
func (p *plan) wants(s *source) bool {
	if s.kind == kindLog {
		return p.q.Role != RoleArtifact && p.q.Role != RoleAgent && p.q.Role != RoleTitle
	}
	switch {
	case p.q.Role != "" && p.q.Role != s.role,
		p.q.Tool != "" && (s.tool == "" || s.tool != artifacts.CleanTool(p.q.Tool)),
		!p.q.Since.IsZero() && s.stat.ModTime < p.q.Since.UnixNano():
		return false
	}
	return true
}

// title looks at the title that stands before the entries of a session.
func (p *plan) title(o *owner) (Hit, bool) {
	if o.info.Title == "" || p.q.Tool != "" || p.q.Role != "" && p.q.Role != RoleTitle {
		return Hit{}, false
	}
	var s scratch
	if title := []byte(o.info.Title); p.m.whole(title, &s) {
		return Hit{
			Session: o.info.ID, Title: o.info.Title, CWD: o.info.CWD, URL: "session://" + o.info.ID,
			Role: RoleTitle, Time: o.info.Modified, Snippet: p.m.snippet(title),
		}, true
	}
	return Hit{}, false
}

// sourceJobs yields what to search of one file: what the index pointed at, and what
// it does not know.
func (p *plan) sourceJobs(ctx context.Context, s *source, yield func(job) bool) bool {
	known, ok := p.known[s.key()]
	var chunks []chunk
	if ok {
		chunks = p.found[known.id]
	}
	same := ok && known.size == s.stat.Size && known.mtime == s.stat.ModTime
	if same && len(chunks) == 0 && known.upTo.off >= known.text {
		return true
	}
	x := &searched{source: s}
	fail := func(err error) bool {
		return yield(job{searched: x, last: true, flush: true, err: err})
	}
	t, err := x.get(p.x, s)
	if err != nil {
		return fail(err)
	}
	from := t.begin
	if ok && !same {
		ok = known.extends(t)
	}
	if ok {
		from = known.upTo
	} else {
		chunks = nil
	}
	pieces, err := pieces(ctx, t, from)
	if err != nil {
		return fail(err)
	}
	if n := len(pieces); n > 0 {
		p.res.addScanned(pieces[n-1].end - pieces[0].from.off)
	}
	jobs := make([]job, 0, len(chunks)+len(pieces))
	for _, c := range chunks {
		jobs = append(jobs, job{from: c.place, end: c.off + c.size, known: true, flush: true})
	}
	if s.kind == kindLog {
		slices.Reverse(jobs)
		if n := len(pieces); n > 0 {
			pieces[n-1].flush = true
		}
		jobs = append(pieces, jobs...)
	} else {
		jobs = append(jobs, pieces...)
	}
	if len(jobs) == 0 {
		_ = x.close() // it was only read
		return true
	}
	for i := range jobs {
		jobs[i].searched, jobs[i].last = x, i == len(jobs)-1
		if !yield(jobs[i]) {
			_ = x.close()
			return false
		}
	}
	return true
}

// extends reports whether t is the file that was indexed, with more behind it.
func (f *indexed) extends(t *text) bool {
	if t.size < f.upTo.off || t.log != nil && t.log.Migrated() {
		return false
	}
	if t.file != nil && t.size <= f.text {
		return false // outputs grow, or are not touched
	}
	sum, err := t.tail(f.upTo.off)
	return err == nil && sum == f.tail
}

// pieces are the jobs for what follows a place in a text.
func pieces(ctx context.Context, t *text, from place) ([]job, error) {
	var list []job
	for known := true; from.off < t.size; known = false {
		end := t.size
		if next := from.off + pieceSize; next < t.size {
			var err error
			if end, err = lineStart(ctx, t, next, from.off, t.size); err != nil {
				return nil, err
			}
		}
		if !known {
			from.line = 1
		}
		list = append(list, job{from: from, end: end, known: known})
		from = place{off: end}
	}
	return list, nil
}

// work searches one stretch.
func (p *plan) work(ctx context.Context, j job, s *scratch) answer {
	a := answer{job: j, err: j.err}
	if j.title {
		h, _ := p.title(j.owner)
		a.hits = []found{{Hit: h}}
		return a
	}
	if j.err != nil || j.full.Load() || ctx.Err() != nil {
		return a
	}
	t, err := j.get(p.x, j.source)
	if err == nil {
		if j.kind == kindLog {
			err = p.searchEntries(ctx, t, &a, s)
		} else {
			err = p.searchLines(ctx, t, &a, s)
		}
	}
	a.err = err
	return a
}

// searchLines searches a stretch of an output.
func (p *plan) searchLines(ctx context.Context, t *text, a *answer, s *scratch) error {
	b := newBatches(t, a.from, a.end)
	o := a.owner.info
	for b.at.off < b.end {
		x, err := b.next(ctx)
		if err != nil {
			return problem(a.path, err)
		}
		a.lines = x.next.line - a.from.line
		if !p.m.may(x.text, false, s) {
			continue
		}
		text := s.plainText(x.text)
		skip := bytes.Count(x.text[:x.before], newline)
		for _, sp := range p.m.spans(text, x.cut, skip, s) {
			starts := s.starts
			first, to := starts[sp.first], len(text)
			if sp.last+1 < len(starts) {
				to = starts[sp.last+1]
			}
			a.hits = append(a.hits, found{Hit: Hit{
				Session: a.session, Title: o.Title, CWD: o.CWD, URL: a.url, Line: x.line + int64(sp.first-skip),
				Role: a.role, Time: time.Unix(0, a.stat.ModTime), Snippet: p.m.snippet(text[first:to]),
			}})
			if p.perOutput > 0 && len(a.hits) > p.perOutput {
				return nil // one more than is wanted, which tells that there are more
			}
		}
	}
	return nil
}

// searchEntries searches a stretch of a log.
func (p *plan) searchEntries(ctx context.Context, t *text, a *answer, s *scratch) error {
	number := a.from.line
	var failed error
	err := t.log.Lines(ctx, a.from.off, a.end, func(line []byte, at int64) bool {
		n := number
		number++
		if !p.m.may(line, true, s) && !bytes.Contains(line, externalized) {
			return true
		}
		for _, e := range session.LineEntries(line, at, int(n)) {
			if !p.admits(e) {
				continue
			}
			text, err := p.x.entryText(ctx, e, s)
			if err != nil {
				failed = err
				return false
			}
			if !p.m.whole(text, s) {
				continue
			}
			h := found{Hit: p.entryHit(t, a, e, text)}
			if h.Session == a.owner.info.ID && a.owner.current(e) {
				if _, ok := p.title(a.owner); ok {
					continue // it was found as the title of the session
				}
			}
			h.told, h.again = toldIn(e)
			a.hits = append(a.hits, h)
		}
		return ctx.Err() == nil
	})
	a.lines = number - a.from.line
	if err == nil {
		err = failed
	}
	if err != nil {
		return problem(a.path, err)
	}
	return nil
}

var externalized = []byte(`"externalized"`)

// entryText is what an entry says, with long strings that were put elsewhere.
func (x *Searcher) entryText(ctx context.Context, e entry.Entry, s *scratch) ([]byte, error) {
	if bytes.Contains(e.Raw(), externalized) {
		whole, _, err := x.manager.RestoreEntry(ctx, e)
		if err != nil {
			return nil, err
		}
		e = whole
	}
	s.entry = appendEntryText(s.entry[:0], e.Raw())
	return s.plainText(s.entry), nil
}

func (p *plan) entryHit(t *text, a *answer, e entry.Entry, text []byte) Hit {
	o := a.owner.info
	id := a.session
	if id == "" {
		id = t.log.ID()
	}
	return Hit{
		Session: id, Title: o.Title, CWD: o.CWD, Entry: e.ID(), URL: "session://" + id + "/" + e.ID(),
		Line: int64(e.Line()), Role: roleOf(e), Time: e.Time(), Snippet: p.m.snippet(text),
	}
}

// roleOf is the role of a message, else the type of the entry.
func roleOf(e entry.Entry) string {
	if e.Type() == entry.TypeMessage {
		if r := e.Role(); r != "" {
			return r
		}
	}
	return e.Type()
}

// admits reports whether the query's filters let an entry through.
func (p *plan) admits(e entry.Entry) bool {
	switch {
	case p.q.Role != "" && roleOf(e) != p.q.Role:
		return false
	case !p.q.Since.IsZero() && !e.Time().IsZero() && e.Time().Before(p.q.Since):
		return false
	case p.q.Tool == "":
		return true
	}
	switch roleOf(e) {
	case entry.RoleToolResult:
		return gjson.GetBytes(e.Raw(), "message.toolName").String() == p.q.Tool
	case entry.RoleBashExecution:
		return p.q.Tool == "bash"
	case entry.RolePythonExecution:
		return p.q.Tool == "python"
	case entry.RoleAssistant:
		found := false
		gjson.GetBytes(e.Raw(), "message.content").ForEach(func(_, block gjson.Result) bool {
			found = block.Get("type").String() == entry.BlockToolCall && block.Get("name").String() == p.q.Tool
			return !found
		})
		return found
	}
	return false
}
