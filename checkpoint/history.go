package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// history is what the records of a log say, in the order of the log.
type history struct {
	places
	records []recorded
	files   map[string]*track // by path as it is now
	names   map[string]string // of checkpoints, to the id of the last one
	made    map[string]bool   // directories that rewinds made
	bad     int               // files in records that no record may have

	log  durable.Identity // that was read
	read int64            // how far
	tail []byte           // the end of that
}

// recorded is a record without its files.
type recorded struct {
	id     string
	offset int64
	Record
}

// track is a file through time.
type track struct {
	path   string
	events []event
}

// event is what one record says about a file.
type event struct {
	seq           int // of the record
	time          time.Time
	before, after *State
}

func (t *track) last() event { return t.events[len(t.events)-1] }

func newHistory(p places) *history {
	return &history{places: p, files: map[string]*track{}, names: map[string]string{}, made: map[string]bool{}}
}

// update reads what was appended to the log since the last time, or all of it. It
// returns a new history where the old one does not hold any more.
func (h *history) update(ctx context.Context, m *session.Manager, path string) (*history, error) {
	log, err := m.OpenLog(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newHistory(h.places), nil
	}
	if err != nil {
		return nil, err
	}
	defer log.Close()
	id, err := log.Identify()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	begin, _ := log.Begin()
	if log.Migrated() || !id.SameFile(h.log) || !h.continues(log) {
		h = newHistory(h.places)
	}
	err = log.Lines(ctx, max(begin, h.read), log.Size(), func(line []byte, at int64) bool {
		if at+int64(len(line)) >= log.Size() {
			return false // somebody is about to write the rest of it, perhaps
		}
		h.read = at + int64(len(line)) + 1
		h.tail = line[max(0, len(line)-tailSize):]
		if bytes.Contains(line, recordWord) {
			h.add(line, at)
		}
		return true
	})
	h.log = id
	return h, err
}

// tailSize is how much of the end of what was read tells that a log was not rewritten
// in place: the end of a line of ours is its checksum.
const tailSize = 64

func (h *history) continues(log *session.Log) bool {
	tail := make([]byte, len(h.tail))
	if log.Size() < h.read || len(tail) == 0 {
		return false
	}
	_, err := log.ReadAt(tail, h.read-1-int64(len(tail)))
	return (err == nil || err == io.EOF) && bytes.Equal(tail, h.tail)
}

// add takes in a line that may hold a record.
func (h *history) add(line []byte, at int64) {
	for _, e := range session.LineEntries(line, at, 0) {
		r, bad, ok := parse(e)
		if !ok {
			continue
		}
		seq := len(h.records)
		h.bad += bad
		for _, f := range r.Files {
			path := h.resolve(f.Place)
			t := h.files[path]
			if t == nil {
				t = &track{path: path}
				h.files[path] = t
			}
			t.events = append(t.events, event{seq, e.Time(), f.Before, f.After})
		}
		for _, d := range r.Made {
			h.made[h.resolve(d)] = true
		}
		if r.Name != "" {
			h.names[r.Name] = e.ID()
		}
		r.Files = nil
		h.records = append(h.records, recorded{e.ID(), at, r})
	}
}

// find returns the record of an entry, or -1.
func (h *history) find(id string) int {
	for i := len(h.records) - 1; i >= 0; i-- {
		if h.records[i].id == id {
			return i
		}
	}
	return -1
}

// first is the first of the records that belong together with record i.
func (h *history) first(i int) int {
	for group := h.records[i].Group; group != "" && i > 0 && h.records[i-1].Group == group; {
		i--
	}
	return i
}

// end is behind the last of the records that belong together with record i.
func (h *history) end(i int) int {
	group := h.records[i].Group
	for i++; group != "" && i < len(h.records) && h.records[i].Group == group; i++ {
	}
	return i
}

// state is how a file was when the first n records were made.
func (t *track) state(n int) *State {
	state := t.events[0].before
	for _, e := range t.events {
		if e.seq >= n {
			break
		}
		state = e.after
	}
	return state
}

// undone is how a file was before the first of the records from n on that says
// something of it, if that is before record end; else it is the state when the first n
// were made. What a rewind found is in its own record alone.
func (t *track) undone(n, end int) *State {
	for _, e := range t.events {
		if e.seq >= n && e.seq < end {
			return e.before
		}
	}
	return t.state(n)
}

// isNew reports whether a file that has no record came to be after a directory that
// it is in was looked through.
func (h *history) isNew(path string) bool {
	for i := len(h.records) - 1; i >= 0; i-- {
		for _, d := range h.records[i].Dirs {
			if within(h.resolve(d), path) {
				return !h.leftOut(h.records[i].Skipped, path)
			}
		}
	}
	return false
}

func (h *history) leftOut(skipped []Skipped, path string) bool {
	for _, s := range skipped {
		if within(h.resolve(s.Place), path) {
			return true
		}
	}
	return false
}

// dirs are the directories that were ever looked through and none of which is in
// another one.
func (h *history) dirs() []string {
	var all []string
	seen := map[string]bool{}
	for _, r := range h.records {
		for _, d := range r.Dirs {
			if path := h.resolve(d); !seen[path] {
				seen[path] = true
				all = append(all, path)
			}
		}
	}
	return outermost(all)
}

// outermost leaves out what is within another of the paths.
func outermost(paths []string) []string {
	var out []string
	for i, path := range paths {
		inner := false
		for j, other := range paths {
			inner = inner || j != i && within(other, path) && (other != path || j < i)
		}
		if !inner {
			out = append(out, path)
		}
	}
	return out
}
