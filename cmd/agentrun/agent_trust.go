package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/seal"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/session"
)

// sealing returns what seals the settings of runs of a session. It is nil where they let nobody do more than the defaults do.
func sealing(s *session.Session, raw json.RawMessage) (func(run string) (string, error), error) {
	var set runSettings
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("reading the settings of the run: %w", err)
	}
	if set.Sandbox == "" && set.Net == "" && set.Redact == "" && set.Limits == (sandbox.Limits{}) &&
		len(set.Roots) == 0 && len(set.Allow) == 0 && set.Dir == s.CWD() {
		return nil, nil
	}
	return func(run string) (string, error) {
		key, err := seal.Make(nil, s.Home())
		if err != nil {
			return "", err
		}
		return key.Seal(s.ID(), run, raw), nil
	}, nil
}

// sealed reports whether the settings that a run began with are those that were written in this home, for this session and run.
// A key that is not there or is none makes nothing fail: then they are not.
func sealed(s *session.Session, start *agent.Start) bool {
	if start.Seal == "" {
		return false
	}
	key, err := seal.Load(nil, s.Home())
	return err == nil && key.Holds(start.Seal, s.ID(), start.Run, start.Settings)
}

// leaveOut takes from settings what lets the agent do more than it may by default, where no flag says it, and tells
// that: whoever wrote them into the log need not be the one who resumes the run.
func (c *agentCommand) leaveOut(set *runSettings, s *session.Session) error {
	home, _, err := config.Load(nil, s.Home()) // whoever opened the home has told of mistakes
	if err != nil {
		return err
	}
	var wider []string
	if looserMode(set.Sandbox, string(home.Sandbox.Mode)) {
		if c.confine.mode == "" {
			wider = append(wider, "--sandbox "+set.Sandbox)
		}
		set.Sandbox = ""
	}
	if set.Net == "on" && home.Sandbox.Net == "off" {
		if c.confine.net == "" {
			wider = append(wider, "--net on")
		}
		set.Net = ""
	}
	if looserRedaction(set.Redact, home.Redact.Mode) {
		if c.redact == "" {
			wider = append(wider, "--redact "+string(set.Redact))
		}
		set.Redact = ""
	}
	wider = append(wider, c.leaveOutLimits(&set.Limits, home.Sandbox.Limits)...)
	for _, name := range set.Allow {
		if !slices.Contains(c.allow, name) {
			wider = append(wider, "--allow "+name)
		}
	}
	set.Allow = nil
	set.Roots = slices.DeleteFunc(set.Roots, func(root string) bool {
		if inside(root, s.CWD()) {
			return false
		}
		if len(c.confine.roots) == 0 {
			wider = append(wider, "--root "+root)
		}
		return true
	})
	if here, err := workingDirectory(); err == nil && set.Dir != "" && set.Dir != here && !inside(set.Dir, s.CWD()) {
		wider, set.Dir = append(wider, "--root "+set.Dir), ""
	}
	if len(wider) > 0 {
		slices.Sort(wider)
		c.say("the run goes on without %s: nothing proves that it was begun so in this home and session; give the flags again if they are to hold", strings.Join(slices.Compact(wider), " "))
	}
	return nil
}

// looserMode reports whether a sandbox confines less than the one of a home, which is the workspace where it has none.
func looserMode(mode, home string) bool {
	order := []string{string(sandbox.ReadOnly), string(sandbox.Workspace), string(sandbox.Off)}
	if home != string(sandbox.ReadOnly) {
		home = string(sandbox.Workspace)
	}
	return slices.Index(order, mode) > slices.Index(order, home)
}

// looserRedaction reports whether more of secrets is kept than a home wants.
func looserRedaction(mode, home redact.Mode) bool {
	order := []redact.Mode{redact.On, redact.Reversible, redact.Off}
	if home == "" {
		home = redact.Off
	}
	return slices.Index(order, mode) > slices.Index(order, home)
}

// leaveOutLimits takes the limits away that are wider than those of the home, and returns the flags that they were.
func (c *agentCommand) leaveOutLimits(set *sandbox.Limits, home config.SandboxLimits) (wider []string) {
	given := c.confine.limits.Limits
	for _, l := range []struct {
		name        string
		set         *int64
		home, given int64
	}{
		{sandbox.LimitMemory, &set.Memory, int64(home.Memory), given.Memory},
		{sandbox.LimitProcesses, &set.Processes, int64(home.Processes), given.Processes},
		{sandbox.LimitCPU, (*int64)(&set.CPU), int64(home.CPU.Duration()), int64(given.CPU)},
		{sandbox.LimitFile, &set.File, int64(home.File), given.File},
		{sandbox.LimitDisk, &set.Disk, int64(home.Disk), given.Disk},
	} {
		if *l.set >= 0 && (l.home == 0 || *l.set <= l.home) {
			continue
		}
		if *l.set = 0; l.given == 0 {
			wider = append(wider, "--limits "+l.name+"=...")
		}
	}
	return wider
}

// inside reports whether a directory is another one, or below it, wherever links lead. What is not there is not.
func inside(dir, above string) bool {
	if !filepath.IsAbs(dir) || !filepath.IsAbs(above) {
		return false
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	if above, err = filepath.EvalSymlinks(above); err != nil {
		return false
	}
	rel, err := filepath.Rel(above, dir)
	return err == nil && filepath.IsLocal(rel)
}
