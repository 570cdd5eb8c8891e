package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// Info is what is known of a session without reading it.
type Info struct {
	ID    string // of the header; empty for a file that holds no header yet
	Path  string
	CWD   string // of the header
	Title string
	// FirstPrompt is what a session without a title begins with, for a person to know it
	// by: its first prompt, or "$ " and its first command. "" if that does not stand in
	// the first 4 KB of the log.
	FirstPrompt string
	Project     string    // fingerprint of the project of CWD, "" if it is not known
	Parent      string    // id or path of the session that this one came from
	Created     time.Time // of the header, else of the file name, else Modified
	Modified    time.Time
	Size        int64 // of the file, compressed or not
	Version     int   // of the format; 0 for a file that holds no header yet
	Compressed  bool
}

// Unreadable is a file or directory in the place of a session that is none.
type Unreadable struct {
	Path   string
	Reason string // a clause about it: "its first line is no session header"
}

func (u *Unreadable) Error() string {
	if u.Reason == errClaude.Error() || u.Reason == errCodex.Error() {
		return fmt.Sprintf("%s cannot be used as a session: %s; agentrun doctor %[1]s checks it, nothing else reads it; the file was not changed", u.Path, u.Reason)
	}
	if u.Reason == errNoHeader.Error() || u.Reason == errLongHeader.Error() {
		return fmt.Sprintf("%s cannot be used as a session: %s; if it is one, agentrun doctor --repair %[1]s mends it; the file was not changed", u.Path, u.Reason)
	}
	return fmt.Sprintf("%s cannot be used as a session: %s; the file was not changed", u.Path, u.Reason)
}

// Listing is what List found.
type Listing struct {
	Sessions   []Info       // newest first
	Unreadable []Unreadable // by path
}

// Options of a [Catalog]; the zero value is right for programs.
type Options struct {
	FS    durable.FS       // nil means durable.OS; tests inject faults here
	Now   func() time.Time // nil means time.Now
	Roots *Roots           // nil means SystemRoots
	// Moving describes the moves of sessions that are under way or have just been. A
	// listing of all directories during which it changes is made again: it may have
	// looked at the new place before the session was there, and at the old one
	// after. nil means that nobody moves any.
	Moving func() string
}

// Catalog is the sessions of one home.
type Catalog struct {
	home  string
	fsys  durable.FS
	now   func() time.Time
	roots func() Roots

	moving func() string
}

// Open returns the catalog of home. It touches nothing: a home that does not
// exist is one without sessions.
func Open(home string, opts Options) *Catalog {
	c := &Catalog{home: home, fsys: orOS(opts.FS), now: opts.Now, moving: opts.Moving}
	if c.now == nil {
		c.now = time.Now
	}
	if opts.Roots != nil {
		roots := *opts.Roots
		c.roots = func() Roots { return roots }
	} else {
		c.roots = sync.OnceValue(SystemRoots)
	}
	return c
}

// Home is the directory that the catalog is of.
func (c *Catalog) Home() string { return c.home }

// Dir returns the directory that new sessions of cwd are put into, and cwd as a
// header records it: absolute, symbolic links followed. It makes nothing.
func (c *Catalog) Dir(cwd string) (dir, resolved string, err error) {
	resolved, err = Resolve(cwd)
	if err != nil {
		return "", "", err
	}
	return filepath.Join(SessionsDir(c.home), c.roots().Encode(resolved)), resolved, nil
}

// List returns the sessions of the working directory cwd, or all of them when
// cwd is empty, ordered by Modified, Created and Path, each descending. Sessions
// of subagents, which lie among artifacts, are not listed.
//
// The error is only about the whole: a cancelled context, a sessions directory
// that cannot be read.
func (c *Catalog) List(ctx context.Context, cwd string) (*Listing, error) {
	var l *Listing
	err := c.steadily(func(moves string) error {
		found, err := c.find(ctx, cwd)
		if err != nil {
			return err
		}
		found.moves = moves
		l, err = c.load(ctx, found)
		return err
	})
	if err != nil {
		return nil, err
	}
	if cwd != "" {
		if err := c.keepOwn(l, cwd); err != nil {
			return nil, err
		}
	}
	l.Sessions = sorted(l.Sessions)
	slices.SortFunc(l.Unreadable, func(a, b Unreadable) int { return strings.Compare(a.Path, b.Path) })
	return l, nil
}

func newestFirst(a, b Info) int {
	return cmp.Or(b.Modified.Compare(a.Modified), b.Created.Compare(a.Created), strings.Compare(b.Path, a.Path))
}

// sorted returns the sessions newest first. It sorts small keys instead of the
// sessions: moving those, full of pointers as they are, took a quarter of a cached
// listing.
func sorted(sessions []Info) []Info {
	type key struct {
		modified int64
		at       int
	}
	keys := make([]key, len(sessions))
	for i := range sessions {
		keys[i] = key{sessions[i].Modified.UnixNano(), i}
	}
	slices.SortFunc(keys, func(a, b key) int {
		if a.modified != b.modified {
			return cmp.Compare(b.modified, a.modified)
		}
		return newestFirst(sessions[a.at], sessions[b.at])
	})
	out := make([]Info, len(sessions))
	for i, k := range keys {
		out[i] = sessions[k.at]
	}
	return out
}

// Newest returns the session of cwd that was modified last, compressed ones
// included, and false when there is none. Only as many files are opened as it
// takes to find one that is readable.
func (c *Catalog) Newest(ctx context.Context, cwd string) (Info, bool, error) {
	found, err := c.find(ctx, cwd)
	if err != nil {
		return Info{}, false, err
	}
	err = inParallel(ctx, len(found.files), func(i int) error {
		f := &found.files[i]
		f.id, _ = c.fsys.Identify(f.path) // what has no identity sorts last, and says why when it is read
		return nil
	})
	if err != nil {
		return Info{}, false, err
	}
	slices.SortFunc(found.files, func(a, b file) int {
		return cmp.Or(cmp.Compare(b.id.ModTime, a.id.ModTime), strings.Compare(b.path, a.path))
	})
	own := c.ownership(cwd)
	for i := range found.files {
		if err := ctx.Err(); err != nil {
			return Info{}, false, err
		}
		info, err := c.read(&found.files[i])
		if err != nil {
			continue // gone, or no session: List says which
		}
		if mine, err := own(info); err != nil {
			return Info{}, false, err
		} else if mine {
			return info, true, nil
		}
	}
	return Info{}, false, nil
}

// keepOwn drops the sessions of other working directories.
func (c *Catalog) keepOwn(l *Listing, cwd string) error {
	own := c.ownership(cwd)
	var failed error
	l.Sessions = slices.DeleteFunc(l.Sessions, func(info Info) bool {
		mine, err := own(info)
		failed = cmp.Or(failed, err)
		return !mine
	})
	return failed
}

// ownership returns a function that tells the sessions of cwd from those of
// another directory that is encoded to the same name (~/a-b and ~/a/b). A
// session whose working directory belongs under another name was put here by
// somebody, for instance when a project moved, and counts.
func (c *Catalog) ownership(cwd string) func(Info) (bool, error) {
	if cwd == "" {
		return func(Info) (bool, error) { return true, nil }
	}
	known := map[string]bool{"": true, cwd: true}
	mine, resolveErr := Resolve(cwd)
	return func(info Info) (bool, error) {
		if resolveErr != nil {
			return false, resolveErr
		}
		own, seen := known[info.CWD]
		if !seen {
			theirs, err := Resolve(info.CWD)
			own = err != nil || !filepath.IsAbs(info.CWD) || theirs == mine || c.roots().Encode(theirs) != c.roots().Encode(mine)
			known[info.CWD] = own
		}
		return own, nil
	}
}

// A listing is made again because of moves so often, and as long as that at least: on
// a busy machine many looks in a row meet one.
const (
	maxLooks = 16
	lookFor  = time.Second
)

// errMoves says that sessions were moved while they were listed: one may have been
// looked for at its new place before, and at its old one after.
var errMoves = errors.New("sessions were moved meanwhile")

// steadily calls look again while it returns errMoves. moves is what it compares with,
// "" for not at all.
func (c *Catalog) steadily(look func(moves string) error) error {
	begun := time.Now()
	for n := 0; n < maxLooks || time.Since(begun) < lookFor; n++ {
		moves := ""
		if c.moving != nil {
			moves = c.moving()
		}
		if err := look(moves); !errors.Is(err, errMoves) {
			return err
		}
	}
	return look("")
}

// file is a log found in a directory, not opened yet.
type file struct {
	path string
	key  string           // path below the sessions directory: the key in the cache
	id   durable.Identity // zero until somebody looked
}

// finding is what the directories hold.
type finding struct {
	files      []file
	unreadable []Unreadable
	all        bool   // these are the logs of all directories
	moves      string // see steadily
}

// find reads the directories of cwd, or all.
func (c *Catalog) find(ctx context.Context, cwd string) (*finding, error) {
	names, unreadable, err := c.directories(cwd)
	if err != nil {
		return nil, err
	}
	parts := make([]finding, len(names))
	err = inParallel(ctx, len(names), func(i int) error {
		parts[i] = c.readDir(names[i])
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := &finding{unreadable: unreadable, all: cwd == ""}
	for _, p := range parts {
		all.files = append(all.files, p.files...)
		all.unreadable = append(all.unreadable, p.unreadable...)
	}
	return all, nil
}

// directories returns the names of the directories to read.
func (c *Catalog) directories(cwd string) (names []string, bad []Unreadable, err error) {
	root := SessionsDir(c.home)
	if cwd != "" {
		dir, resolved, err := c.Dir(cwd)
		if err != nil {
			return nil, nil, err
		}
		names = []string{filepath.Base(dir)}
		// Sessions written by pi, or by oh-my-pi before 14, were not moved.
		if old := shorten(absoluteName(resolved), resolved); old != names[0] {
			names = append(names, old)
		}
		return names, nil, nil
	}
	entries, err := c.fsys.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("listing sessions: %w", err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir() && name[0] != '.':
			names = append(names, name)
		case e.Type()&fs.ModeSymlink != 0:
			bad = append(bad, Unreadable{Path: filepath.Join(root, name), Reason: "it is a symbolic link, and links are not followed here"})
		}
	}
	return names, bad, nil
}

// readDir finds the logs in one directory below the sessions directory.
func (c *Catalog) readDir(name string) finding {
	var f finding
	root := SessionsDir(c.home) + "/"
	dir := root + name
	entries, err := c.fsys.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			f.unreadable = append(f.unreadable, Unreadable{Path: dir, Reason: reason(err)})
		}
		return f
	}
	f.files = make([]file, 0, len(entries)/2+1)
	for _, e := range entries {
		base := e.Name()
		if log, ok := backupOf(base); ok && !hasEntry(entries, log) && !hasEntry(entries, ColdPath(log)) {
			f.unreadable = append(f.unreadable, Unreadable{Path: dir + "/" + base, Reason: "it is a backup that an interrupted rewrite left; rename it to " + log + " to have the session back"})
		}
		if !isLogName(base) {
			continue
		}
		// A compression or restoration under way leaves both; the plain one is
		// complete at every moment, and what is appended goes there.
		if IsCold(base) && hasEntry(entries, PlainPath(base)) {
			continue
		}
		path := dir + "/" + base
		f.files = append(f.files, file{path: path, key: path[len(root):]})
	}
	return f
}

// backupOf returns the name of the log that base is a backup of, made by
// oh-my-pi 18 where a file cannot be replaced in one step:
// <name>.jsonl.<snowflake>.bak.
func backupOf(base string) (log string, ok bool) {
	rest, ok := strings.CutSuffix(base, ".bak")
	if !ok {
		return "", false
	}
	dot := strings.LastIndexByte(rest, '.')
	if dot < 0 || !isLogName(rest[:dot]) || IsCold(rest[:dot]) {
		return "", false
	}
	return rest[:dot], true
}

// hasEntry searches entries, which ReadDir sorted.
func hasEntry(entries []fs.DirEntry, name string) bool {
	_, ok := slices.BinarySearchFunc(entries, name, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
	return ok
}

// workers is how many files are looked at at once: opening and reading small
// files is system time, which more goroutines than processors do not shorten.
var workers = min(8, runtime.GOMAXPROCS(0))

// inParallel calls do for 0 to n-1 and returns the first error, or the context's
// when it ends before.
func inParallel(ctx context.Context, n int, do func(i int) error) error {
	const batch = 16 // calls between two looks at the context and the counter
	var next atomic.Int64
	var wg sync.WaitGroup
	var once sync.Once
	var failed error
	work := func() {
		for {
			end := int(next.Add(batch))
			start := end - batch
			if start >= n {
				return
			}
			err := ctx.Err()
			for i := start; i < min(end, n) && err == nil; i++ {
				err = do(i)
			}
			if err != nil {
				next.Store(int64(n))
				once.Do(func() { failed = err })
				return
			}
		}
	}
	for range min(workers, (n+batch-1)/batch) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return failed
}
