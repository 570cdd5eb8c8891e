package conversation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// ProjectHeadless stores the state of a log that has no header, so that nothing opens it as
// a session: its lines as they are, and the files beside it. The file is not changed. What
// it is of is not known here: Import makes a session of the state that gets a header, with a
// new id. The log is the plain file path; what it cites of images and long strings is read
// from the home m. Others may append to it meanwhile.
//
// progress is that of ProjectorOptions. The error matches session.ErrNotSession for a file in which nothing is a session's.
func ProjectHeadless(ctx context.Context, m *session.Manager, path string, store blobstore.Store, progress func(done, total int64)) (_ Projection, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("projecting the log %s: %w", path, err)
		}
	}()
	c, err := m.Check(ctx, path)
	if err != nil {
		return Projection{}, err
	}
	if c.Entries == 0 {
		return Projection{}, fmt.Errorf("%w: there is no entry in it", session.ErrNotSession)
	}
	f, err := durable.OS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return Projection{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Projection{}, err
	}
	p := NewSessionProjector(m, nil, store)
	p.OnProgress(progress)
	var holes []*Hole
	if dir := session.ArtifactsPath(path); dir != "" {
		at, err := os.Stat(dir)
		switch {
		case err == nil && at.IsDir():
			if holes, err = p.besideIn(ctx, dir); err != nil {
				return Projection{}, err
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return Projection{}, err
		}
	}
	got, err := p.own.Project(ctx, Log{f, info.Size()})
	if err != nil {
		return Projection{}, err
	}
	got.Holes = append(got.Holes, holes...)
	return got, nil
}
