package internalurl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobstore"
)

// SessionView is what URLs can show of one session.
type SessionView interface {
	// ID is the session's id.
	ID() string
	// ArtifactsDir is where its artifacts are or will be; "" when it can have
	// none. Subagents answer with the directory of their root.
	ArtifactsDir() string
	// Metadata describes the session as one JSON object.
	Metadata(ctx context.Context) ([]byte, error)
	// EntryJSON is one entry of the log as JSON. For an id that no entry has it
	// returns an error that matches ErrNoEntry.
	EntryJSON(ctx context.Context, id string) ([]byte, error)
}

// Sessions finds sessions by id.
type Sessions interface {
	// FindSession returns the session with exactly that id. There being none is
	// an error that matches ErrNoSession.
	FindSession(ctx context.Context, id string) (SessionView, error)
}

// Errors that implementations of Sessions and SessionView return for what is not
// there.
var (
	ErrNoSession = errors.New("no such session")
	ErrNoEntry   = errors.New("no such entry")
)

// Sources are what a Router asks. Every one may be nil: its URLs are then refused
// with a sentence.
type Sources struct {
	Session  SessionView     // the session at hand
	Sessions Sessions        // for URLs that name a session
	Blobs    blobstore.Store // for blob://

	// OpenDir opens an artifact directory; nil means artifacts.Open with zero
	// options. A Router asks once for each directory.
	OpenDir func(dir string) *artifacts.Dir

	// Job describes a job of the session at hand as one JSON object. There being none with that number is
	// an error that says so.
	Job func(ctx context.Context, n int64) ([]byte, error)

	// AgentStatus says what became of an agent of the artifact directory dir that has no output, such as "running".
	AgentStatus func(ctx context.Context, dir string, id artifacts.AgentID) (string, error)
}

// Router opens what URLs stand for. It is safe for concurrent use.
type Router struct {
	src      Sources
	handlers map[string]handler

	mu   sync.Mutex // guards dirs
	dirs map[string]*artifacts.Dir
}

// handler opens the resources of one scheme.
type handler func(ctx context.Context, u URL) (*Resource, error)

// NewRouter returns a router over src.
func NewRouter(src Sources) *Router {
	if src.OpenDir == nil {
		src.OpenDir = func(dir string) *artifacts.Dir { return artifacts.Open(dir, artifacts.Options{}) }
	}
	r := &Router{src: src, dirs: map[string]*artifacts.Dir{}}
	r.handlers = map[string]handler{
		Artifact: r.openArtifact,
		Agent:    r.openAgent,
		Session:  r.openSession,
		Blob:     r.openBlob,
		Job:      r.openJob,
	}
	return r
}

// WithJob has job:// URLs show what [Sources].Job is, and returns r, which must not be in use yet.
func (r *Router) WithJob(job func(ctx context.Context, n int64) ([]byte, error)) *Router {
	r.src.Job = job
	return r
}

// Open parses raw and opens what it stands for.
func (r *Router) Open(ctx context.Context, raw string) (*Resource, error) {
	u, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	return r.OpenURL(ctx, u)
}

// OpenURL opens what u stands for.
func (r *Router) OpenURL(ctx context.Context, u URL) (*Resource, error) {
	open, ok := r.handlers[u.Scheme]
	if !ok {
		return nil, unknownScheme(u.Scheme)
	}
	res, err := open(ctx, u)
	if err != nil {
		return nil, err
	}
	res.URL, res.Selector = u.Resource(), u.Selector
	if res.Extracted && !u.Selector.IsZero() {
		_ = res.Close() // nothing was read
		return nil, ErrExtractionLines
	}
	return res, nil
}

// ErrExtractionLines is returned for lines of a part of structured output.
var ErrExtractionLines error = sentence("Cannot combine query extraction with line selectors: read the part whole, or lines of agent://<id>")

// session returns the session with that id, or the one whose id begins so, or the one at
// hand.
func (r *Router) session(ctx context.Context, id string) (SessionView, error) {
	at := r.src.Session
	switch {
	case id == "" && at == nil:
		return nil, sentence("No session: name one as in artifact://<sessionId>/0, or choose one with --session")
	case id == "" || at != nil && at.ID() == id:
		return at, nil
	case r.src.Sessions == nil && at != nil && strings.HasPrefix(at.ID(), id):
		return at, nil
	case r.src.Sessions == nil:
		return nil, sentence(fmt.Sprintf("Session %s not found: only the session at hand can be read here", id))
	}
	s, err := r.src.Sessions.FindSession(ctx, id)
	if errors.Is(err, ErrNoSession) && at != nil && strings.HasPrefix(at.ID(), id) {
		return at, nil // it lies elsewhere
	}
	if errors.Is(err, ErrNoSession) {
		return nil, sentence(fmt.Sprintf("Session %s not found: see agentrun sessions list", id))
	}
	if err != nil {
		return nil, fmt.Errorf("opening session %s: %w", id, err)
	}
	return s, nil
}

// dir returns the artifact directory of a session.
func (r *Router) dir(ctx context.Context, session string) (*artifacts.Dir, error) {
	s, err := r.session(ctx, session)
	if err != nil {
		return nil, err
	}
	path := s.ArtifactsDir()
	if path == "" {
		return nil, artifacts.ErrNoDirectory
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.dirs[path]
	if !ok {
		d = r.src.OpenDir(path)
		r.dirs[path] = d
	}
	return d, nil
}
