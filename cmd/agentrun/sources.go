package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/find"
)

// sources are what URLs name, for grep and find: of the session at hand where they name none.
type sources struct {
	*environment
	m *session.Manager
	s *session.Session // nil until it is needed, or for ever where close is to be called
}

var _ find.Sources = (*sources)(nil)

func (o *sources) manage() (*session.Manager, error) {
	var err error
	if o.m == nil {
		o.m, err = o.manager()
	}
	return o.m, err
}

// at is the session at hand, opened to be read.
func (o *sources) at(ctx context.Context) (*session.Session, error) {
	if o.s != nil {
		return o.s, nil
	}
	m, err := o.manage()
	if err != nil {
		return nil, err
	}
	info, err := o.find(ctx, m, "")
	if err != nil {
		return nil, err
	}
	o.s, err = m.View(ctx, info.Path)
	return o.s, err
}

// Sources lists one resource, or all of a kind for a URL that is a scheme alone.
func (o *sources) Sources(ctx context.Context, url string) ([]find.Source, error) {
	switch url {
	case internalurl.Artifact + "://", internalurl.Agent + "://":
		s, err := o.at(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", url, err)
		}
		dir := o.artifacts(s)
		if dir == nil {
			return nil, nil
		}
		if url == internalurl.Agent+"://" {
			return o.agents(ctx, dir)
		}
		return o.outputs(ctx, dir)
	case internalurl.Session + "://":
		return o.sessions(ctx)
	}
	u, err := internalurl.Parse(url)
	if err != nil {
		return nil, err
	}
	if u.Member != "" {
		return nil, fmt.Errorf("%s is within an archive: search what agentrun read prints of it", url)
	}
	if !u.Selector.IsZero() {
		return nil, fmt.Errorf("%s selects lines: name the whole of it, as %s", url, u.Resource())
	}
	if u.Scheme == internalurl.Session && u.Session != "" && u.Entry == "" {
		m, err := o.manage()
		if err != nil {
			return nil, err
		}
		info, err := m.Find(ctx, u.Session)
		if err != nil {
			return nil, err
		}
		return []find.Source{o.log(m, info)}, nil
	}
	return []find.Source{o.resource(url, filepath.Base(url))}, nil
}

func (o *sources) outputs(ctx context.Context, dir *artifacts.Dir) ([]find.Source, error) {
	list, err := dir.List(ctx)
	var all []find.Source
	for _, info := range list {
		if info.Path != "" {
			all = append(all, o.resource(info.URL(), filepath.Base(info.Path)))
		}
	}
	return all, err
}

func (o *sources) agents(ctx context.Context, dir *artifacts.Dir) ([]find.Source, error) {
	ids, err := dir.AgentIDs(ctx)
	var all []find.Source
	for _, id := range ids {
		all = append(all, o.resource("agent://"+id.String(), id.String()))
	}
	return all, err
}

// sessions are those of the working directory, newest first.
func (o *sources) sessions(ctx context.Context) ([]find.Source, error) {
	cwd, err := workingDirectory()
	if err != nil {
		return nil, err
	}
	m, err := o.manage()
	if err != nil {
		return nil, err
	}
	list, err := m.List(ctx, cwd)
	if err != nil {
		return nil, err
	}
	var all []find.Source
	for _, info := range list.Sessions {
		all = append(all, o.log(m, info))
	}
	return all, nil
}

// log is the text of a session's log, an entry a line.
func (o *sources) log(m *session.Manager, info session.Info) find.Source {
	return find.Source{URL: "session://" + info.ID, Name: info.ID, Open: func(context.Context) (io.ReadCloser, error) {
		log, err := m.OpenLog(info.Path)
		if err != nil {
			return nil, err
		}
		return &reading{io.NewSectionReader(log, 0, log.Size()), log}, nil
	}}
}

func (o *sources) resource(url, name string) find.Source {
	return find.Source{URL: url, Name: name, Open: func(ctx context.Context) (io.ReadCloser, error) {
		u, err := internalurl.Parse(url)
		if err != nil {
			return nil, err
		}
		m, err := o.manage()
		if err != nil {
			return nil, err
		}
		if u.Session == "" && u.Scheme != internalurl.Blob {
			if _, err := o.at(ctx); err != nil {
				return nil, err
			}
		}
		res, err := routerOf(m, o.s).OpenURL(ctx, u)
		if err != nil {
			return nil, err
		}
		size, err := res.Size()
		if err != nil {
			return nil, errors.Join(err, res.Close())
		}
		return &reading{io.NewSectionReader(res, 0, size), res}, nil
	}}
}

// reading is content from its beginning.
type reading struct {
	io.Reader
	io.Closer
}
