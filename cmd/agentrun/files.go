package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/workspace"
)

// roots are the directories besides the working directory in which tools work.
type roots []string

func (r *roots) addFlag(f *pflag.FlagSet) {
	f.StringArrayVar((*[]string)(r), "root", nil, "also work in the directory `DIR`; may be repeated")
}

// workbench is a session with the files that its tools work on.
type workbench struct {
	*environment
	manager *session.Manager
	session *session.Session
	files   *workspace.Workspace
	begun   bool
	policy  *sandbox.Policy // of what tools run
}

// workbench opens the session, a new one if there is none, and the working directory.
func (e *environment) workbench(ctx context.Context, r roots) (*workbench, error) {
	cwd, err := workingDirectory()
	if err != nil {
		return nil, err
	}
	m, s, err := e.openWith(ctx)
	if err != nil {
		return nil, err
	}
	b := &workbench{environment: e, manager: m, session: s, begun: s.Exists()}
	b.files, err = workspace.Open(workspace.Options{
		Dir: cwd, Roots: append([]string{cwd}, r...), Sync: e.durability.value == session.Sync,
		Recorder: checkpoint.New(m, s, checkpoint.Options{}), Seen: seenBy(s),
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return b, nil
}

// seenBy is what the session saw of files; it is in its artifact directory, for logs that
// can have one.
func seenBy(s *session.Session) *workspace.Seen {
	dir := s.ArtifactsDir()
	if dir == "" {
		return nil
	}
	return seenIn(dir)
}

// seenIn is what the session with that artifact directory saw.
func seenIn(dir string) *workspace.Seen {
	return workspace.NewSeen(filepath.Join(dir, ".index", "seen"), nil)
}

// output is where diffs go.
func (b *workbench) output() edit.Output { return edit.Output{Artifacts: b.kept(), Sink: b.sink()} }

// begin says once that the session was begun.
func (b *workbench) begin() {
	if !b.begun {
		b.begun = true
		b.remark("started session %s", b.session.ID())
	}
}

// close closes both, and says when a session was begun.
func (b *workbench) close(err error) error {
	if b.session.Exists() {
		b.begin()
	}
	if cerr := b.files.Close(); err == nil {
		err = cerr
	}
	return closeSession(b.session, err)
}
