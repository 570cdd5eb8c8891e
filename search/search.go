package search

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// Searcher searches the sessions of one home. It is safe for concurrent use.
type Searcher struct {
	manager *session.Manager
	home    string
	fs      durable.FS
	report  func(Progress)
}

// Options of a Searcher; the zero value is right for programs.
type Options struct {
	// Progress is told, from the goroutine of the caller, how far indexing has come;
	// nil means that nobody is.
	Progress func(Progress)
	// FS is the file system, but for the database; nil means the real one.
	FS durable.FS
}

// Progress is how far indexing has come.
type Progress struct {
	Done, Total int64 // bytes
	Files       int   // that are left
}

// New returns a searcher over the sessions of m. It touches nothing.
func New(m *session.Manager, o Options) *Searcher {
	x := &Searcher{manager: m, home: m.Home(), fs: o.FS, report: o.Progress}
	if x.fs == nil {
		x.fs = durable.OS
	}
	if x.report == nil {
		x.report = func(Progress) {}
	}
	return x
}

// Indexed reports whether there is an index, in whatever state. Without one a search reads
// everything.
func (x *Searcher) Indexed() bool {
	_, err := x.fs.Lstat(filepath.Join(x.home, indexName))
	return err == nil
}

// DefaultLimit is how many hits a query without a limit has, and
// DefaultPerOutput how many of them are lines of one artifact.
const (
	DefaultLimit     = 100
	DefaultPerOutput = 10
)

// Query says what to look for.
type Query struct {
	// Words must all be there: in one entry, or near each other in an artifact.
	Words []string
	// Regexp says that Words are regular expressions.
	Regexp bool
	// Session is the only session to search, by its id; "" means all.
	Session string
	// File is the log of that session. One that is not listed in the home, because it
	// lies elsewhere or among the artifacts of another one, is searched there, without
	// the index.
	File string
	// CWD is the working directory whose sessions are searched; "" means all.
	CWD string
	// Since leaves out what is older; the zero value leaves out nothing.
	Since time.Time
	// Tool leaves only what this tool was asked or wrote.
	Tool string
	// Role leaves only entries of this role or type, or lines of RoleArtifact or
	// RoleAgent.
	Role string
	// Limit is how many hits are wanted; 0 means DefaultLimit, less than 0 all, of
	// each artifact too.
	Limit int
	// NoIndex leaves the index alone: the files themselves are searched.
	NoIndex bool
}

// Hit is a match.
type Hit struct {
	Session string    // id; a subagent's own where its log is what matched
	Title   string    // of the session of the home
	CWD     string    // of the session of the home
	Entry   string    // id, "" for a line of an output
	URL     string    // artifact://, agent:// or session://
	Line    int64     // from 1: of the output, or of the log that the entry is in; 0 for a title
	Role    string    // of the message, else the type of the entry, else RoleArtifact, RoleAgent or RoleTitle
	Time    time.Time // of the entry; of an output, when it was last written
	Snippet Snippet
}

// Result says how a query was answered.
type Result struct {
	Hits int
	// More is set when there are more hits than the limit let through.
	More bool
	// Capped are the URLs of artifacts with more lines than were wanted.
	Capped []string
	// Scanned is how many bytes were searched without the index, and Why the reason.
	Scanned int64
	Why     string
	// Left is how many bytes are not indexed, for Update.
	Left int64
	// Problems are files that could not be searched.
	Problems []error
}

// freshBacklog is how many bytes a query indexes before it is answered. More than
// that is searched as it is.
const freshBacklog = 16 << 20

// Search hands the hits to each, until it returns false. Sessions come newest first;
// within a session the lines of artifacts, of the newest one first, then what agents
// handed back, then entries, the newest first.
//
// It is right whatever the state of the index: what the index does not know, or
// cannot be asked about, is searched in the files. An error is about the whole;
// files that cannot be read are in Result.Problems.
func (x *Searcher) Search(ctx context.Context, q Query, each func(Hit) bool) (Result, error) {
	var res Result
	m, err := newMatcher(q.Words, q.Regexp)
	if err != nil {
		return res, err
	}
	owners, err := x.owners(ctx, &q, &res)
	if err != nil {
		return res, err
	}
	p := &plan{x: x, q: q, m: m, res: &res, each: each}
	switch {
	case q.Limit == 0:
		p.limit, p.perOutput = DefaultLimit, DefaultPerOutput
	case q.Limit > 0:
		p.limit, p.perOutput = q.Limit, max(DefaultPerOutput, q.Limit/10)
	}
	if err := p.consult(ctx, owners); err != nil {
		return res, err
	}
	err = p.run(ctx, owners)
	res.Hits = p.hits
	return res, err
}

// owners lists the sessions that a query is about, with their files.
func (x *Searcher) owners(ctx context.Context, q *Query, res *Result) ([]*owner, error) {
	l, err := x.manager.List(ctx, q.CWD)
	if err != nil {
		return nil, fmt.Errorf("searching: %w", err)
	}
	for i := range l.Unreadable {
		res.Problems = append(res.Problems, &l.Unreadable[i])
	}
	infos := l.Sessions
	if q.Session != "" {
		infos = slices.DeleteFunc(infos, func(s session.Info) bool { return s.ID != q.Session })
	}
	if q.File != "" && q.CWD == "" && (len(infos) == 0 || !x.manager.Holds(q.File)) {
		info, err := x.manager.Find(ctx, q.File)
		if err != nil {
			return nil, fmt.Errorf("searching: %w", err)
		}
		infos, q.NoIndex = []session.Info{info}, true
	}
	return x.walk(ctx, infos, func(err error) { res.Problems = append(res.Problems, err) })
}

// plan is a query on its way.
type plan struct {
	x         *Searcher
	q         Query
	m         *matcher
	res       *Result
	each      func(Hit) bool
	limit     int // of hits, 0 for none
	perOutput int // of hits in one output, 0 for none
	hits      int

	known map[fileKey]indexed
	found map[int64][]chunk // that the index points at, by file, ascending
}

// consult asks the index, after it was brought up to date where that is quick.
func (p *plan) consult(ctx context.Context, owners []*owner) error {
	if p.q.NoIndex {
		p.res.Why = "the index was not asked"
		return nil
	}
	why := func(err error) {
		p.known, p.found = nil, nil
		p.res.Why = err.Error()
		p.res.Left = p.x.backlog(owners, nil)
	}
	ix, err := p.x.openIndex(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		why(err)
		return nil
	}
	defer func() { p.x.closeIndex(ix) }()
	if p.known, err = ix.files(ctx); err != nil {
		why(fmt.Errorf("the index cannot be used: %w", err))
		return ctx.Err()
	}
	p.res.Left = p.x.backlog(owners, p.known)
	if left := p.res.Left; left > 0 && left <= freshBacklog {
		switch err := p.x.update(ctx, ix, owners, false); {
		case err == nil:
			if p.known, err = ix.files(ctx); err != nil {
				why(fmt.Errorf("the index cannot be used: %w", err))
				return ctx.Err()
			}
			p.res.Left = 0
		case ctx.Err() != nil:
			return ctx.Err()
		case corrupt(err):
			why(err)
			return nil
		default:
			p.res.Why = err.Error()
		}
	} else if left > 0 {
		p.res.Why = "the index is not up to date"
	}
	if p.m.match == "" {
		p.known = nil
		p.res.Why = "the query has no whole word to ask the index for"
		return nil
	}
	if p.found, err = ix.candidates(ctx, p.m.match); err != nil {
		why(fmt.Errorf("the index cannot be used: %w", err))
		return ctx.Err()
	}
	return nil
}

// addScanned counts bytes that were not indexed. It is called by one goroutine.
func (r *Result) addScanned(n int64) { r.Scanned += n }

// problem names the file that an error is about.
func problem(path string, err error) error { return fmt.Errorf("searching %s: %w", path, err) }
