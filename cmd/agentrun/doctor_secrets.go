package main

import (
	"context"

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
	n, err = doctor.Secrets(ctx, s, c.artifacts(s), func(f doctor.Finding) {
		if failed == nil {
			failed = report(f)
		}
	})
	if err == nil {
		err = failed
	}
	return n, err
}
