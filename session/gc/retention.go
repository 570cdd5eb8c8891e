package gc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// Notice is how long before it goes to the trash a session is warned of.
const Notice = 7 * 24 * time.Hour

// warnedName is the file in the home that says since when a session is warned of: a
// JSON object of paths and times.
const (
	warnedName = "retention.json"
	maxWarned  = 64 << 20
)

// Retention is what became of the sessions that nobody has written to for long.
type Retention struct {
	Class           // moved to the trash
	Warned []Warned // of these, which are to go later, the first first
}

// Warned is a session that goes to the trash unless somebody writes to it.
type Warned struct {
	session.Info
	Goes time.Time // not before
}

// retain moves to the trash what was warned of, and warns of the rest.
func (c *collector) retain(ctx context.Context) error {
	if c.Options.Retention <= 0 {
		return nil
	}
	r := &Retention{}
	c.report.Retention = r
	warned, err := c.readWarned()
	if err != nil {
		return err
	}
	all, err := c.m.List(ctx, "")
	if err != nil {
		return err
	}
	next := map[string]time.Time{}
	var failed error
	for _, s := range all.Sessions {
		if c.now.Sub(s.Modified) <= c.Options.Retention {
			continue
		}
		since, known := warned[s.Path]
		if !known || since.After(c.now) {
			since = c.now
		}
		if c.now.Sub(since) < Notice {
			next[s.Path] = since
			r.Warned = append(r.Warned, Warned{s, since.Add(Notice)})
			continue
		}
		if c.Apply {
			if _, err := c.m.Trash(ctx, s.Path); err != nil {
				c.keep("%s stays: %v", s.Path, err)
				next[s.Path] = since
				continue
			}
		}
		r.add(1, s.Size)
	}
	slices.SortFunc(r.Warned, func(a, b Warned) int { return a.Goes.Compare(b.Goes) })
	if c.Apply {
		failed = errors.Join(failed, c.writeWarned(next))
	}
	return failed
}

func (c *collector) readWarned() (map[string]time.Time, error) {
	path := filepath.Join(c.home, warnedName)
	data, err := durable.ReadFile(c.FS, path, maxWarned)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var warned map[string]time.Time
	if err == nil {
		err = json.Unmarshal(data, &warned)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s, which says since when sessions are warned of; remove it to warn anew: %w", path, err)
	}
	return warned, nil
}

func (c *collector) writeWarned(warned map[string]time.Time) error {
	data, err := json.MarshalIndent(warned, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(c.FS, filepath.Join(c.home, warnedName), true, append(data, '\n'))
}
