package conversation

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session"
)

// ImportOptions say how a state becomes a session of a home.
type ImportOptions struct {
	// CWD is the working directory of a session whose state does not tell; "" is the
	// one that the program runs in.
	CWD string
	// Map rewrites paths of the session, see session.ImportOptions.
	Map []session.PathMap
}

// Imported is what became of a state.
type Imported struct {
	Session string // its id here, another one than there where the home has that
	Path    string // of its log
	CWD     string
	Restored
	Subagents int
	Files     int // beside the log, logs of subagents aside
}

// Import makes a new session of the home m of the state s: its log, the logs of its
// subagents, the files beside it, and in the store of the home the blobs that it needs. The
// session is there whole or not at all. What is not in the store of the state is in
// Restored.Holes, and ends nothing.
func Import(ctx context.Context, m *session.Manager, s *State, o ImportOptions) (_ Imported, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("importing a conversation state: %w", err)
		}
	}()
	release, err := m.LeaseBlobs()
	if err != nil {
		return Imported{}, err
	}
	defer func() { err = errors.Join(err, release()) }()
	id, err := uuid.NewV7()
	if err != nil {
		return Imported{}, fmt.Errorf("making a session id: %w", err)
	}
	if s, err = s.Upgrade(ctx); err != nil {
		return Imported{}, err
	}
	here, err := os.Getwd()
	if err != nil {
		return Imported{}, fmt.Errorf("finding the working directory: %w", err)
	}
	in := &importer{m: m, o: o, here: here, names: map[string]bool{}}
	log := stream(ctx, s, RestoreOptions{ID: id.String(), CWD: o.CWD, header: true, here: in.here})
	defer log.stop()
	head := make([]byte, session.MaxHeadBytes)
	n, err := io.ReadFull(log, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Imported{}, err
	}
	head = head[:n]
	if in.im, err = m.BeginImport(ctx, head, session.ImportOptions{Map: o.Map}); err != nil {
		return Imported{}, err
	}
	defer func() { err = errors.Join(err, in.im.Close()) }()
	if err := in.im.Log(io.MultiReader(strings.NewReader(string(head)), log)); err != nil {
		return Imported{}, err
	}
	r, err := log.result()
	if err != nil {
		return Imported{}, err
	}
	in.out.Restored = r
	in.cited = r.Cited
	if err := in.files(ctx, s); err != nil {
		return Imported{}, err
	}
	if err := in.subagents(ctx, s, "", id.String(), 0); err != nil {
		return Imported{}, err
	}
	holes, err := copyTo(ctx, s.store, m.Blobs(), in.cited, s.limits.Parallel)
	if err != nil {
		return Imported{}, err
	}
	in.out.Holes = append(in.out.Holes, holes...)
	done, err := in.im.Publish(ctx)
	if err != nil {
		return Imported{}, err
	}
	in.out.Session, in.out.Path, in.out.CWD = done.ID, done.Path, done.CWD
	return in.out, nil
}

// importer brings one state in.
type importer struct {
	m     *session.Manager
	im    *session.Import
	o     ImportOptions
	here  string
	out   Imported
	names map[string]bool // of files that are there
	cited []blobref.Ref
}

// logStream is a log that is being written to who reads it.
type logStream struct {
	*io.PipeReader
	done chan struct{}
	r    Restored
	err  error
}

func stream(ctx context.Context, s *State, o RestoreOptions) *logStream {
	pr, pw := io.Pipe()
	l := &logStream{PipeReader: pr, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		w := bufio.NewWriterSize(pw, 256<<10)
		l.r, l.err = s.WriteLog(ctx, w, o)
		if l.err == nil {
			l.err = w.Flush()
		}
		pw.CloseWithError(l.err)
	}()
	return l
}

// result is what became of the log, when all of it was read.
func (l *logStream) result() (Restored, error) {
	<-l.done
	return l.r, l.err
}

func (l *logStream) stop() {
	l.CloseWithError(context.Canceled)
	<-l.done
}

// badName says why a file of a state is not written, "" for one that is.
func (in *importer) badName(name string) string {
	switch {
	case name == "" || len(name) > 1024 || path.Clean(name) != name || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\\' || r == 0x7f }):
		return "its name is none of a file"
	case !artifacts.Carried(name):
		return "it is a lock, a temporary, or can be rebuilt"
	case in.names[strings.ToLower(name)]:
		return "another one has that name"
	}
	return ""
}

// files takes in the files beside the log.
func (in *importer) files(ctx context.Context, s *State) error {
	list, err := s.Files(ctx)
	if h := holeOf(err); h != nil {
		in.out.Holes = append(in.out.Holes, h)
		return nil
	} else if err != nil {
		return err
	}
	for _, f := range list {
		if why := in.badName(f.Name); why != "" {
			in.out.Holes = append(in.out.Holes, &Hole{What: fmt.Sprintf("file %.200q", f.Name), Err: errors.New(why)})
			continue
		}
		if f.Bytes > s.limits.Bytes {
			return fmt.Errorf("file %.200q has %d bytes, and %d are allowed: %w", f.Name, f.Bytes, s.limits.Bytes, ErrTooMuch)
		}
		r, err := s.whole(ctx, f)
		if h := holeOf(err); h != nil && ctx.Err() == nil {
			in.out.Holes = append(in.out.Holes, &Hole{h.ID, fmt.Sprintf("piece of file %.200q", f.Name), h.Err})
			continue
		} else if err != nil {
			return err
		}
		in.names[strings.ToLower(f.Name)] = true
		if err := in.im.Artifact(f.Name, r); err != nil {
			return err
		}
		in.out.Files++
	}
	return nil
}

// fileInMemory is how long a file is that is read once, in bytes.
const fileInMemory = 8 << 20

// whole is a reader of a file all of which is there and as its ids say: a file comes
// whole, or not at all. A long one has been read once then.
func (s *State) whole(ctx context.Context, f File) (io.Reader, error) {
	if f.Bytes > fileInMemory {
		_, err := io.Copy(io.Discard, s.Reader(ctx, f))
		return s.Reader(ctx, f), err
	}
	var b bytes.Buffer
	_, err := io.Copy(&b, s.Reader(ctx, f))
	return &b, err
}

// subagents takes in the logs of the subagents of a state, and of theirs.
func (in *importer) subagents(ctx context.Context, s *State, parent, root string, depth int) error {
	if depth > s.limits.Depth {
		return fmt.Errorf("its subagents are nested deeper than %d: %w", s.limits.Depth, ErrTooMuch)
	}
	list, holes, err := s.Subagents(ctx)
	if err != nil {
		return err
	}
	in.out.Holes = append(in.out.Holes, holes...)
	for i, sub := range list {
		name := sub.ID
		if sub.State.side == nil { // else it is the name of a log of ours
			name = nameOf(parent, sub.ID)
		}
		if _, err := artifacts.ParseAgentID(name); err != nil {
			// Programs that name subagents otherwise: by their order.
			name = nameOf(parent, fmt.Sprintf("%d-subagent", i))
		}
		file := name + logExt
		if why := in.badName(file); why != "" {
			in.out.Holes = append(in.out.Holes, &Hole{What: fmt.Sprintf("subagent %.200q", sub.ID), Err: errors.New(why)})
			continue
		}
		in.names[strings.ToLower(file)] = true
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("making a session id: %w", err)
		}
		said, err := marshal.Marshal(sub.Message)
		if err != nil {
			return fmt.Errorf("subagent %.200q: %w", sub.ID, err)
		}
		o := RestoreOptions{ID: id.String(), CWD: in.o.CWD, Parent: root, header: true, here: in.here, subagent: &keptSubagent{sub.ID, said}}
		if err := in.subagent(ctx, sub, file, o); err != nil {
			return err
		}
		if err := in.subagents(ctx, sub.State, name, id.String(), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (in *importer) subagent(ctx context.Context, sub Subagent, file string, o RestoreOptions) error {
	log := stream(ctx, sub.State, o)
	defer log.stop()
	if err := in.im.Artifact(file, log); err != nil {
		return err
	}
	r, err := log.result()
	if err != nil {
		return err
	}
	in.out.Holes = append(in.out.Holes, r.Holes...)
	in.cited = append(in.cited, r.Cited...)
	in.out.Subagents++
	return nil
}
