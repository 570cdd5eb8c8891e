package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// snapshot is what one listing of the directory found. It is not changed after
// it was made, and it is a hint: whatever it names is looked at again before it
// is served.
type snapshot struct {
	dir     durable.Identity // of the directory, before it was listed
	settled bool             // a change after the listing shows in dir
	logs    map[int64]string // number to file name; the first by name where there are two
	refused map[int64]string // names of artifacts that are links, directories or devices
	missing map[int64]struct{}
	packs   []string
	top     int64 // highest number used up, -1 for none

	agents   map[AgentID]agentFiles
	folders  []AgentID // directories that may hold nested agents, as oh-my-pi makes them
	topAgent int64     // highest index of an agent, -1 for none
}

// list returns what the directory holds. A listing made earlier is used again
// while the directory can't have changed since, unless fresh is set.
func (d *Dir) list(ctx context.Context, fresh bool) (*snapshot, error) {
	id, err := d.exists(ctx)
	if err != nil {
		return nil, err
	}
	if s := d.seen.Load(); s.holds(id) && !fresh {
		return s, nil
	}
	d.listing.Lock()
	defer d.listing.Unlock()
	if s := d.seen.Load(); s.holds(id) && !fresh {
		return s, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
	}
	// Before the listing: a change during it makes the snapshot look old.
	if id, err = d.exists(ctx); err != nil {
		return nil, err
	}
	settled := time.Since(time.Unix(0, id.ModTime)) >= tick(id.ModTime)
	entries, err := d.fs.ReadDir(d.Path())
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
	}
	s := newSnapshot(id, entries)
	s.settled = settled
	d.seen.Store(s)
	return s, nil
}

// holds reports whether the directory, which looks like id now, is still as it
// was listed.
func (s *snapshot) holds(id durable.Identity) bool { return s != nil && s.settled && s.dir == id }

// tick is how long a directory may keep a modification time over further
// changes: the kernel stamps files from a clock that moves up to every 10 ms
// (CONFIG_HZ=100), and some file systems keep whole seconds only (two on FAT).
// Until it is over, a listing may miss what came behind it and look new.
func tick(modTime int64) time.Duration {
	if modTime%int64(time.Second) == 0 {
		return 2 * time.Second
	}
	return 20 * time.Millisecond
}

func newSnapshot(id durable.Identity, entries []fs.DirEntry) *snapshot {
	s := &snapshot{
		dir: id, logs: make(map[int64]string, len(entries)), top: -1,
		refused: map[int64]string{}, missing: map[int64]struct{}{},
		agents: map[AgentID]agentFiles{}, topAgent: -1,
	}
	for _, e := range entries { // in the order of their names
		name := e.Name()
		if top, ok := parsePack(name); ok && e.Type().IsRegular() {
			s.top = max(s.top, top)
			s.packs = append(s.packs, name)
			continue
		}
		if n, ok := parseNumbered(name); ok {
			s.top = max(s.top, n)
			if _, _, ok := parseLog(name); ok {
				into := s.logs
				if !e.Type().IsRegular() {
					into = s.refused
				}
				if _, two := into[n]; !two {
					into[n] = name
				}
			} else if filepath.Ext(name) == missingSuffix {
				s.missing[n] = struct{}{}
			}
			continue
		}
		if e.IsDir() {
			if id, err := ParseAgentID(name); err == nil {
				s.folders = append(s.folders, id)
				s.topAgent = max(s.topAgent, id.topIndex())
			}
			continue
		}
		if id, version, kind, ok := parseAgentFile(name); ok {
			s.topAgent = max(s.topAgent, id.topIndex())
			if e.Type().IsRegular() {
				s.agents[id] = s.agents[id].with(version, kind)
			}
		}
	}
	return s
}

// available are the numbers that can be read, ascending.
func (s *snapshot) available() []int64 {
	return slices.Sorted(maps.Keys(s.logs))
}

// noDirectory reports whether err says that nothing was ever written.
func noDirectory(err error) bool { return errors.Is(err, ErrNoDirectory) }
