package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session"
)

// pathsFor replaces the URLs in a script by paths. What it opens is open until the function that it returns is called:
// a path that would need quotes gets another name, in /proc. With lasting that is not enough, and such a URL stays.
func (e *environment) pathsFor(ctx context.Context, s *session.Session, script string, lasting bool) (string, func()) {
	var open []*os.File
	out, errs := internalurl.InScript(script, func(u internalurl.URL) (string, error) {
		path, err := e.pathOf(ctx, s, u)
		if err != nil || internalurl.Plain(path) || lasting {
			return path, err
		}
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		open = append(open, f)
		return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), nil
	})
	for _, err := range errs {
		e.remark("a URL in the script stays as it is: %v", err)
	}
	return out, func() {
		for _, f := range open {
			f.Close()
		}
	}
}

var errNoPath = errors.New("a part of an output has no file: agentrun read prints it")

// pathOf is the file that a URL stands for.
func (e *environment) pathOf(ctx context.Context, s *session.Session, u internalurl.URL) (string, error) {
	dir := e.artifacts(s)
	if u.Session != "" && u.Session != s.ID() {
		m, err := e.manager()
		if err != nil {
			return "", err
		}
		info, err := m.Find(ctx, u.Session)
		if err != nil {
			return "", err
		}
		other, err := m.View(ctx, info.Path)
		if err != nil {
			return "", err
		}
		defer other.Close()
		dir = e.artifacts(other)
	}
	switch {
	case dir == nil:
		return "", artifacts.ErrNoDirectory
	case len(u.Path) > 0:
		return "", errNoPath
	case u.Scheme == internalurl.Agent:
		a, err := dir.LookupAgent(ctx, u.Agent, u.Version)
		return a.Path, err
	}
	info, err := dir.Lookup(ctx, u.Artifact)
	return info.Path, err
}
