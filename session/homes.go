package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// HomesFile is where the homes of this user are listed: the file agentrun/homes in
// XDG_STATE_HOME, else in ~/.local/state. It is "" for a user without a home directory.
// A relative XDG_STATE_HOME is ignored, as the XDG base directory specification demands.
func HomesFile() string {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		user, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(user) {
			return ""
		}
		state = filepath.Join(user, ".local", "state")
	}
	return filepath.Join(state, "agentrun", "homes")
}

// maxHomes bounds the list of homes, in bytes.
const maxHomes = 16 << 20

// homesLine is one line of the list: a home, by its path without symbolic links.
type homesLine struct {
	Home  string `json:"home"`
	Since string `json:"since,omitempty"`
}

// KnownHomes lists the homes of Options.Homes, this one first, whether it is listed or
// not: those that are there, and those that are not.
func (m *Manager) KnownHomes() (there, vanished []string, err error) {
	there = []string{resolved(m.home)}
	lines, err := m.readHomes()
	if err != nil {
		return there, nil, err
	}
	for _, l := range lines {
		info, err := m.opts.FS.Lstat(l.Home)
		switch {
		case err != nil || !info.IsDir():
			if !slices.Contains(vanished, l.Home) {
				vanished = append(vanished, l.Home)
			}
		case !slices.Contains(there, l.Home):
			there = append(there, l.Home)
		}
	}
	return there, vanished, nil
}

func (m *Manager) readHomes() ([]homesLine, error) {
	if m.opts.Homes == "" {
		return nil, nil
	}
	data, err := durable.ReadFile(m.opts.FS, m.opts.Homes, maxHomes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var lines []homesLine
	if err == nil {
		lines, err = parseHomes(data)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of homes %s: %w", m.opts.Homes, err)
	}
	return lines, nil
}

// parseHomes refuses what it does not understand: a home may be missing then, and what
// it cites be taken away.
func parseHomes(data []byte) ([]homesLine, error) {
	var lines []homesLine
	n := 0
	for text := range bytes.Lines(data) {
		n++
		var l homesLine
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d is no JSON; remove it: %w", n, err)
		}
		if !filepath.IsAbs(l.Home) {
			return nil, fmt.Errorf("line %d names no home; remove it", n)
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// enlist puts this home on the list. A home that another program made is none of ours.
func (m *Manager) enlist(ctx context.Context) error {
	if m.opts.Homes == "" {
		return nil
	}
	home := resolved(m.home)
	lines, err := m.readHomes()
	if err != nil || listsHome(lines, home) {
		return err
	}
	return m.changeHomes(ctx, func(lines []homesLine) []homesLine {
		if listsHome(lines, home) {
			return lines
		}
		// What was made to be thrown away, and was, is not worth remembering.
		temp := resolved(os.TempDir()) + string(filepath.Separator)
		lines = slices.DeleteFunc(lines, func(l homesLine) bool {
			_, err := m.opts.FS.Lstat(l.Home)
			return strings.HasPrefix(l.Home, temp) && errors.Is(err, fs.ErrNotExist)
		})
		return append(lines, homesLine{Home: home, Since: m.opts.Now().UTC().Format(time.RFC3339)})
	})
}

func listsHome(lines []homesLine, home string) bool {
	return slices.ContainsFunc(lines, func(l homesLine) bool { return l.Home == home })
}

// ForgetHomes takes homes off the list.
func (m *Manager) ForgetHomes(ctx context.Context, homes ...string) error {
	lines, err := m.readHomes()
	gone := func(l homesLine) bool { return slices.Contains(homes, l.Home) }
	if err != nil || !slices.ContainsFunc(lines, gone) {
		return err
	}
	return m.changeHomes(ctx, func(lines []homesLine) []homesLine { return slices.DeleteFunc(lines, gone) })
}

// changeHomes replaces the list by what change makes of it. Nobody else writes meanwhile.
func (m *Manager) changeHomes(ctx context.Context, change func([]homesLine) []homesLine) error {
	path := m.opts.Homes
	err := m.withRegistry(ctx, path, func() error {
		lines, err := m.readHomes()
		if err != nil {
			return err
		}
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		for _, l := range change(lines) {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
		return durable.WriteFile(m.opts.FS, path, m.opts.Durability == Sync, buf.Bytes())
	})
	if err != nil {
		return fmt.Errorf("writing the list of homes %s: %w", path, err)
	}
	return nil
}
