package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

// doctorSecrets says where there are secrets in sessions: of the FILE, of the one that is chosen, of all, or of the working
// directory.
func (c *doctorCommand) doctorSecrets(ctx context.Context, m *session.Manager, file string) error {
	paths, err := c.pathsForSecrets(ctx, m, file)
	if err != nil {
		return err
	}
	progress := c.progress("looking for secrets")
	defer progress.end()
	found := 0
	for i, path := range paths {
		n, err := c.secretsIn(ctx, m, path, func(f doctor.Finding) error {
			progress.end()
			return c.finding(f)
		})
		if err != nil {
			return err
		}
		found += n
		progress.step(i+1, len(paths))
	}
	progress.end()
	if !c.json && !c.quiet {
		c.remark("%s in %s", count(int64(found), "secret", "secrets"), count(int64(len(paths)), "session", "sessions"))
	}
	if found > 0 {
		return &commandError{status: statusFindings}
	}
	return nil
}

func (c *doctorCommand) pathsForSecrets(ctx context.Context, m *session.Manager, file string) ([]string, error) {
	if file != "" {
		return []string{file}, nil
	}
	cwd := ""
	if !c.all {
		if c.chosen("") != "" {
			path, err := pathOf(ctx, m, c.chosen(""))
			return []string{path}, err
		}
		var err error
		if cwd, err = workingDirectory(); err != nil {
			return nil, err
		}
	}
	list, err := m.List(ctx, cwd)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, info := range list.Sessions {
		paths = append(paths, info.Path)
	}
	for _, u := range list.Unreadable {
		c.remark("%s was not looked at: it does not open", u.Path)
	}
	return paths, nil
}

func (c *doctorCommand) secretsIn(ctx context.Context, m *session.Manager, path string, report func(doctor.Finding) error) (n int, err error) {
	s, err := m.View(ctx, path)
	if err != nil {
		return 0, err
	}
	defer func() { err = closeSession(s, err) }()
	var failed error
	dir := c.artifacts(s)
	found := func(f doctor.Finding) {
		if failed == nil {
			failed = report(f)
		}
	}
	if n, err = doctor.Secrets(ctx, s, dir, found); err != nil || dir == nil {
		return n, cmp.Or(err, failed)
	}
	agents, err := dir.AgentIDs(ctx)
	if err != nil {
		return n, err
	}
	for _, id := range agents {
		path := filepath.Join(s.ArtifactsDir(), id.String()+".jsonl")
		if path == s.Path() {
			continue
		}
		log, err := m.View(ctx, path)
		if errors.Is(err, session.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			continue // it has an output alone
		}
		if err != nil {
			return n, err
		}
		more, err := doctor.Secrets(ctx, log, nil, found)
		if n += more; err != nil {
			return n, errors.Join(err, log.Close())
		}
		if err := log.Close(); err != nil {
			return n, err
		}
	}
	return n, failed
}
