package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/session"
)

// Action is what a rewind does to a file.
type Action string

const (
	Restore   Action = "restore"   // it gets its old content and mode back
	Recreate  Action = "recreate"  // it was deleted, and is made again
	Delete    Action = "delete"    // it was not there then
	Unchanged Action = "unchanged" // it is as it was
	Skip      Action = "skip"      // it is left alone, see Reason
	Refuse    Action = "refuse"    // it cannot be done, see Reason
)

// Changes reports whether the action changes anything.
func (a Action) Changes() bool { return a == Restore || a == Recreate || a == Delete }

// Item is what a rewind does to one file, and why.
type Item struct {
	Path   string
	Action Action
	Reason string

	target, present *State
	// declined is set when an option that was not given would have included the file.
	declined bool
}

// Missed reports whether a file that was to be brought back is not: it was refused, or
// left alone for another reason than an option that was not given.
func (it Item) Missed() bool {
	return it.Action == Refuse || it.Action == Skip && !it.declined
}

// Plan says what a rewind does. It is of the moment when it was made: Apply looks
// again.
type Plan struct {
	// Entry is where it goes to: files are as they were when this was the last entry
	// of the log. When that is itself a rewind, they are as they were before it, and
	// Undoes is the same id.
	Entry  string
	Undoes string
	// Leaf is the entry where the conversation goes on, "" for before the first one.
	Leaf string
	// Items are all files that were ever recorded, by path.
	Items []Item
	// Damaged counts what records name that no record may: it is left out.
	Damaged int
}

// Changes is how many files the plan changes.
func (p *Plan) Changes() (n int) {
	for _, it := range p.Items {
		if it.Action.Changes() {
			n++
		}
	}
	return n
}

// PlanOptions say what a rewind may do.
type PlanOptions struct {
	// Changed restores files as well that others changed since they were recorded.
	Changed bool
	// Outside restores files as well that are not below the session's working directory.
	Outside bool
}

// Find returns the id of the entry that a person means: an id, the name of a
// checkpoint, or the beginning of an id. Errors are those of session.FindEntry.
func (r *Recorder) Find(ctx context.Context, arg string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.update(ctx); err != nil {
		return "", err
	}
	named, isName := r.history.names[arg]
	id, err := r.s.FindEntry(ctx, arg)
	if isName && (err != nil || id != arg) {
		return named, nil
	}
	return id, err
}

// Plan compares the recorded files with how they were at an entry, "" for before the
// first one. It changes nothing.
func (r *Recorder) Plan(ctx context.Context, entryID string, o PlanOptions) (*Plan, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan(ctx, entryID, o)
}

func (r *Recorder) plan(ctx context.Context, entryID string, o PlanOptions) (*Plan, error) {
	if err := r.update(ctx); err != nil {
		return nil, err
	}
	p := &Plan{Entry: entryID, Leaf: entryID, Damaged: r.history.bad}
	c := comparison{Recorder: r, PlanOptions: o, ways: &ways{places: r.history.places}}
	if err := c.until(ctx, p); err != nil {
		return nil, fmt.Errorf("planning a rewind: %w", err)
	}
	for _, t := range r.history.files {
		it, err := c.item(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("planning a rewind: %w", err)
		}
		p.Items = append(p.Items, it)
		r.opts.Progress(len(p.Items), len(r.history.files))
	}
	slices.SortFunc(p.Items, func(a, b Item) int { return strings.Compare(a.Path, b.Path) })
	return p, nil
}

// until finds out how many records count: those up to the entry of the plan. Of a
// rewind it is what was before it.
func (c *comparison) until(ctx context.Context, p *Plan) error {
	h := c.history
	if p.Entry == "" {
		return nil
	}
	if i := h.find(p.Entry); i >= 0 {
		if h.records[i].Cause != CauseRewind {
			c.n, c.end = i+1, i+1
			return nil
		}
		if of := h.find(h.records[i].Corrects); of >= 0 {
			i = of
		}
		c.n, c.end = h.first(i), h.end(i)
		e, err := c.s.Entry(ctx, h.records[c.n].id)
		p.Undoes, p.Leaf = p.Entry, e.Parent()
		return err
	}
	at, err := c.offset(ctx, p.Entry)
	if err != nil {
		return err
	}
	for c.n < len(h.records) && h.records[c.n].offset <= at {
		c.n++
	}
	c.end = c.n
	return nil
}

// offset is where the newest entry with an id is in the log.
func (r *Recorder) offset(ctx context.Context, id string) (int64, error) {
	at := int64(-1)
	err := r.lines(ctx, 0, func(line []byte, offset int64) {
		if id == "" || !bytes.Contains(line, []byte(id)) {
			return
		}
		for _, e := range session.LineEntries(line, offset, 0) {
			if e.ID() == id {
				at = e.Offset()
			}
		}
	})
	if err == nil && at < 0 {
		err = fmt.Errorf("entry %.40q of %s: %w", id, r.s.Path(), session.ErrNoEntry)
	}
	return at, err
}

// lines reads the log from an offset on.
func (r *Recorder) lines(ctx context.Context, from int64, each func(line []byte, offset int64)) error {
	log, err := r.m.OpenLog(r.s.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer log.Close()
	begin, _ := log.Begin()
	return log.Lines(ctx, max(begin, from), log.Size(), func(line []byte, offset int64) bool {
		each(line, offset)
		return true
	})
}

// comparison of recorded files with those on disk.
type comparison struct {
	*Recorder
	PlanOptions
	n    int // records that count
	end  int // behind those of a rewind that is undone; n otherwise
	ways *ways
	runs *runs // nil before they are asked for
}

func (c *comparison) item(ctx context.Context, t *track) (Item, error) {
	it := Item{Path: t.path, target: t.undone(c.n, c.end)}
	decide := func(a Action, format string, args ...any) (Item, error) {
		it.Action, it.Reason = a, fmt.Sprintf(format, args...)
		return it, nil
	}
	last := t.last()
	switch why := c.history.forbidden(t.path); {
	case why != "":
		return decide(Refuse, "%s", why)
	case !c.Outside && (c.history.root == "" || !within(c.history.root, t.path)):
		it.declined = true
		return decide(Skip, "it is outside of the session's directory; --outside includes it")
	}
	info, obstacle, err := c.ways.inTheWay(t.path)
	switch {
	case err != nil:
		return decide(Refuse, "it cannot be looked at: %s", cause(err))
	case obstacle != "" && it.target == nil:
		return decide(Unchanged, "%s, and there was no file then", obstacle)
	case obstacle != "":
		return decide(Refuse, "%s", obstacle)
	case info == nil && it.target == nil:
		return decide(Unchanged, "it is not there, as then")
	case info == nil:
		if why := c.unreadable(ctx, it.target); why != "" {
			return decide(Refuse, "%s", why)
		}
		return decide(Recreate, "it was deleted since")
	}
	if it.present, err = c.present(ctx, t.path, info, last.after); err != nil {
		return decide(Refuse, "it cannot be read: %s", cause(err))
	}
	if same(it.present, it.target) {
		return decide(Unchanged, "it is as it was")
	}
	action, reason := Restore, "it is as it was recorded last"
	if it.target == nil {
		action, reason = Delete, "it was made since"
	} else if it.present.Ref == it.target.Ref {
		reason = fmt.Sprintf("its mode is %04o and was %04o", it.present.Mode, it.target.Mode)
	}
	if it.target != nil {
		if why := c.unreadable(ctx, it.target); why != "" {
			return decide(Refuse, "%s", why)
		}
	}
	if same(it.present, last.after) {
		return decide(action, "%s", reason)
	}
	if c.history.records[last.seq].Cause == CauseRewind && same(it.present, last.before) {
		return decide(action, "a rewind that was interrupted did not come to it")
	}
	run, err := c.changedBy(ctx, changeTime(info))
	switch {
	case err != nil:
		return it, err
	case run == "" && !c.Changed:
		it.declined = true
		return decide(Skip, "it was changed by someone else since it was recorded; --changed includes it")
	case info.Size() > c.opts.MaxFile:
		return decide(Skip, "it has %d bytes now, and only files of at most %d are kept; --max-file allows more", info.Size(), c.opts.MaxFile)
	case run == "":
		run = "someone else"
	}
	return decide(action, "it was changed by %s", run)
}

// present is the state of the file that is there now.
func (c *comparison) present(ctx context.Context, path string, info fs.FileInfo, last *State) (*State, error) {
	if last.unchanged(info, c.opts.Now()) {
		return last, nil
	}
	return observe(c.opts.FS, path, c.opts.Now, sum(ctx))
}

// unreadable says why the content of a state cannot be had, "" if it can, as far as
// can be told without reading it.
func (r *Recorder) unreadable(ctx context.Context, s *State) string {
	store, ok := blobstore.As[blobstore.Opener](r.m.Blobs())
	if !ok {
		return "the blob store cannot be read as streams"
	}
	if st, ok := blobstore.As[blobstore.Stater](r.m.Blobs()); ok {
		if _, err := st.Stat(ctx, s.Ref); err == nil {
			return ""
		}
	}
	blob, err := store.Open(ctx, s.Ref)
	if err != nil {
		return fmt.Sprintf("its content is lost: %s", lost(s.Ref, err))
	}
	blob.Close()
	return ""
}

func lost(ref blobref.Ref, err error) string {
	if errors.Is(err, blobstore.ErrNotFound) {
		return "the blob " + ref.Hex() + " is not there; agentrun doctor --from looks for it elsewhere"
	}
	return err.Error()
}

// changedBy names the run or tool call of the session during which a file was changed
// last, "" when there is none.
func (c *comparison) changedBy(ctx context.Context, at time.Time) (string, error) {
	if c.runs == nil {
		var err error
		if c.runs, err = c.findRuns(ctx); err != nil {
			return "", err
		}
	}
	return c.runs.at(at), nil
}
