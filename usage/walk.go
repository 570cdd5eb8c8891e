package usage

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// The places of a home.
const (
	sessionsDir  = "sessions"
	blobsDir     = "blobs"
	keptBlobsDir = "kept-blobs"
	trashDir     = "trash"
	indexDir     = ".index" // in a directory of artifacts
)

// rebuildable are files of a home that only save time.
var rebuildable = map[string]bool{
	"list.cache": true, "search.db": true, "search.db-wal": true, "search.db-shm": true, ledgerName: true,
}

// file is a regular file of a home.
type file struct {
	path    string
	class   Class
	session string // path of the session's log without its ending; "" for what is of no session
	what    string // of artifacts: the tool, agents or agentSessions
	id      durable.Identity
	fresh   int64 // its size, 0 for the second name of a file that was seen
}

// What artifacts are that no tool wrote.
const (
	agents        = "(agents)"         // what subagents handed back
	agentSessions = "(agent sessions)" // their logs
)

type inode struct{ dev, ino uint64 }

// walker finds the files of a home.
type walker struct {
	fs   durable.FS
	seen map[inode]bool // files with several names; nil: each name counts
}

// home walks over a home. Directories that are not there hold nothing, and what is
// removed meanwhile is passed over.
func (w *walker) home(home string, visit func(file)) error {
	entries, err := w.list(home)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if rebuildable[e.Name()] {
			w.file(file{path: filepath.Join(home, e.Name()), class: Indexes}, visit)
		}
	}
	cwds, err := w.list(filepath.Join(home, sessionsDir))
	if err != nil {
		return err
	}
	for _, e := range cwds {
		if err := w.sessions(filepath.Join(home, sessionsDir, e.Name()), visit); err != nil {
			return err
		}
	}
	for dir, class := range map[string]Class{blobsDir: Blobs, keptBlobsDir: Blobs, trashDir: Trash} {
		err := w.each(filepath.Join(home, dir), func(path string, _ fs.DirEntry) {
			w.file(file{path: path, class: class}, visit)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sessions walks over the sessions of one working directory.
func (w *walker) sessions(dir string, visit func(file)) error {
	entries, err := w.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			if err := w.tree(path, visit); err != nil {
				return err
			}
			continue
		}
		f := file{path: path, class: Other}
		if strings.HasPrefix(e.Name(), ".") {
			w.file(f, visit)
			continue
		}
		if stem, class, ok := beside(path); ok {
			f.session, f.class = stem, class
		}
		w.file(f, visit)
	}
	return nil
}

// beside says what a file among sessions is, by its ending.
func beside(path string) (stem string, c Class, ok bool) {
	for _, e := range []struct {
		ending string
		class  Class
	}{
		{".jsonl", Log},
		{".jsonl.zst", Log},
		{".jsonl.gz", Log},
		{".jsonl.damaged", Log},
		{".index", Indexes},
		{".lock", Other},
		{".driver", Other},
	} {
		if stem, ok := strings.CutSuffix(path, e.ending); ok {
			return stem, e.class, true
		}
	}
	return "", Other, false
}

// tree walks over the artifacts of one session.
func (w *walker) tree(dir string, visit func(file)) error {
	return w.each(dir, func(path string, e fs.DirEntry) {
		f := file{path: path, class: Artifacts, session: dir, what: kindOf(e.Name())}
		if filepath.Base(filepath.Dir(path)) == indexDir {
			f.class, f.what = Indexes, ""
		}
		w.file(f, visit)
	})
}

// kindOf says what a file among artifacts is, by its name.
func kindOf(name string) string {
	if stem, ok := strings.CutSuffix(name, ".log"); ok {
		if n, tool, ok := strings.Cut(stem, "."); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			return tool
		}
	}
	if strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".jsonl.zst") {
		return agentSessions
	}
	if strings.HasPrefix(name, ".artifact-") {
		return "" // a few bytes about one
	}
	return agents
}

// each hands every file below dir to visit. Links are not followed below it; dir
// itself may be one, for people move their homes.
func (w *walker) each(dir string, visit func(path string, e fs.DirEntry)) error {
	entries, err := w.list(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			visit(path, e)
			continue
		}
		if err := w.each(path, visit); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) list(dir string) ([]fs.DirEntry, error) {
	entries, err := w.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || isNoDir(err) {
		return nil, nil
	}
	return entries, err
}

// file looks at f and hands it on, if it is a regular file.
func (w *walker) file(f file, visit func(file)) {
	id, err := w.fs.Identify(f.path)
	if err != nil || id.Mode&modeType != modeRegular {
		return
	}
	f.id, f.fresh = id, id.Size
	if id.Links > 1 && w.seen != nil {
		n := inode{id.Dev, id.Ino}
		if w.seen[n] {
			f.fresh = 0
		}
		w.seen[n] = true
	}
	visit(f)
}
