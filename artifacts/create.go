package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
)

// counters is the content of .index/next: the numbers to hand out next. It
// remembers the numbers of files that were removed since.
type counters struct {
	Artifact int64 `json:"artifact"`
	Agent    int64 `json:"agent"`
}

const (
	countersName = "next"
	maxCounters  = 4 << 10
)

// counters reads .index/next. A file that is absent or unreadable as JSON is the
// same as zeros: the listing and the log know the rest.
func (d *Dir) counters() (counters, error) {
	data, err := durable.ReadFile(d.fs, d.index(countersName), maxCounters)
	var c counters
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, durable.ErrTooLarge) {
		return c, fmt.Errorf("reading the numbers handed out: %w", err)
	}
	if json.Unmarshal(data, &c) != nil || c.Artifact < 0 || c.Artifact > maxID || c.Agent < 0 || c.Agent > maxID {
		c = counters{}
	}
	return c, nil
}

func (d *Dir) remember(c counters) error {
	// Never fsynced: after a power cut the listing and the log still know every
	// number that anybody can refer to.
	return d.rememberWith(c, false)
}

func (d *Dir) rememberWith(c counters, sync bool) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return durable.WriteFile(d.fs, d.index(countersName), sync, data)
}

// claimTries bounds how often a number is found taken by a program that does not
// use the lock.
const claimTries = 1000

// Create takes the next number and makes an empty file for the output of tool.
// Nothing is left of it when Create fails. Waiting for other processes ends with
// ctx or after LockWait.
//
// Call it when there is output to keep: File.Discard removes the file again, but
// its number is used up.
func (d *Dir) Create(ctx context.Context, tool string, p Provenance) (*File, error) {
	release, err := d.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("taking an artifact number: %w", err)
	}
	defer release()
	count, err := d.next(ctx)
	if err != nil {
		return nil, fmt.Errorf("taking an artifact number: %w", err)
	}
	side := sidecar{Run: p.Run, Call: p.Call, Tool: CleanTool(tool), Created: d.opt.Now().UTC(), ID: process.Self()}
	for range claimTries {
		if count.Artifact > maxID {
			break
		}
		f, err := d.claim(count.Artifact, side)
		count.Artifact++
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("creating artifact %d: %w", count.Artifact-1, err)
		}
		if err := d.remember(count); err != nil {
			_ = f.Discard() // the first error is the one to report
			return nil, fmt.Errorf("creating artifact %d: %w", f.id, err)
		}
		return f, nil
	}
	return nil, fmt.Errorf("taking an artifact number: %s has no free one up to %d", d.Path(), count.Artifact)
}

// next returns the lowest numbers that were never used. The lock is held.
func (d *Dir) next(ctx context.Context) (counters, error) {
	c, err := d.counters()
	if err != nil {
		return c, err
	}
	// Always listed: only the lock keeps agentrun apart, and other programs do
	// not take it.
	s, err := d.list(ctx, true)
	if err != nil {
		return c, err
	}
	c.Artifact = max(c.Artifact, s.top+1)
	c.Agent = max(c.Agent, s.topAgent+1)
	if d.opt.LoggedMax != nil {
		logged, err := d.opt.LoggedMax(ctx)
		if err != nil {
			return c, fmt.Errorf("asking the log: %w", err)
		}
		if logged >= 0 && logged <= maxID {
			c.Artifact = max(c.Artifact, logged+1)
		}
	}
	return c, nil
}

// claim makes both files of one number. The sidecar comes first: its name does
// not depend on the tool, so two programs with two tools still meet there.
func (d *Dir) claim(id int64, side sidecar) (f *File, err error) {
	content, err := side.encode()
	if err != nil {
		return nil, err
	}
	sideName, name := d.join(sidecarName(id)), d.join(logName(id, side.Tool))
	claimed, err := durable.CreateExclusive(d.fs, sideName)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = d.fs.Remove(sideName) // the first error is the one to report
		}
	}()
	_, err = claimed.Write(content)
	if cerr := claimed.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	file, err := durable.CreateExclusive(d.fs, name)
	if err != nil {
		return nil, err
	}
	return &File{dir: d, id: id, f: file, side: side}, nil
}
