package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// Lost is a session whose entries are gone, while what belongs to it is there. Which
// blobs they cited is not known.
type Lost struct {
	Log       string // where the log is, or was: then with the ending of a plain one
	Dir       string // its artifact directory; it need not be there when the log is
	Gone      bool   // the log is not there; otherwise it has no entry
	Size      int64  // of the log
	Artifacts int    // files in Dir: outputs of commands and agents
}

// String is a clause without the path.
func (l *Lost) String() string {
	switch {
	case l.Gone:
		return "its log is not there"
	case l.Size == 0:
		return "its log is empty"
	default:
		return "its log has no entry"
	}
}

// maxEmpty is how large a log may be that has a header, with its room, and no entry.
const maxEmpty = 16 << 10

// FindLost returns the lost sessions of one directory of logs, by path: logs without an
// entry that have artifacts or an index beside them, and directories of artifacts
// without a log. One that is being moved, forked or removed may be among them.
func FindLost(fsys durable.FS, dir string) ([]Lost, error) {
	fsys = orOS(fsys)
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	var lost []Lost
	for _, e := range entries {
		name := e.Name()
		l := Lost{}
		switch {
		case e.IsDir():
			if _, _, ok := ParseFileName(name + PlainExt); !ok || hasLogLike(entries, name) {
				continue
			}
			l.Gone, l.Log = true, filepath.Join(dir, name+PlainExt)
		case isLogName(name) && e.Type().IsRegular():
			stem, _ := Stem(name)
			if IsCold(name) && hasEntry(entries, PlainPath(name)) || !hasEntry(entries, stem) && !hasEntry(entries, stem+".index") {
				continue
			}
			l.Log = filepath.Join(dir, name)
		default:
			continue
		}
		is, err := l.look(fsys)
		if err != nil {
			return nil, err
		}
		if is {
			lost = append(lost, l)
		}
	}
	return lost, nil
}

// LostAt is FindLost for the log at path. The result is nil when it has entries, or
// nothing beside it.
func LostAt(fsys durable.FS, path string) (*Lost, error) {
	fsys = orOS(fsys)
	l := Lost{Log: path}
	switch there, err := exists(fsys, path); {
	case err != nil:
		return nil, err
	case !there:
		for _, other := range []string{PlainPath(path), ColdPath(path)} {
			if there, err := exists(fsys, other); there || err != nil {
				return nil, err
			}
		}
		l.Gone = true
	}
	is, err := l.look(fsys)
	if !is || err != nil {
		return nil, err
	}
	return &l, nil
}

// look completes l and reports whether it is lost.
func (l *Lost) look(fsys durable.FS) (bool, error) {
	l.Dir, _ = ArtifactsDir(l.Log)
	if !l.Gone {
		empty, size, err := withoutEntries(fsys, l.Log)
		if l.Size = size; errors.Is(err, fs.ErrNotExist) {
			return false, nil // it has another name now
		} else if err != nil || !empty {
			return false, err
		}
	}
	files, err := fsys.ReadDir(l.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("listing %s: %w", l.Dir, err)
	}
	for _, e := range files {
		if e.Name()[0] != '.' {
			l.Artifacts++
		}
	}
	if l.Artifacts > 0 || l.Gone {
		return l.Artifacts > 0, nil
	}
	return exists(fsys, IndexPath(l.Log))
}

// withoutEntries reports whether a log holds no whole entry. What is larger than a
// header is taken to hold some, and a compressed one that has bytes.
func withoutEntries(fsys durable.FS, path string) (empty bool, size int64, err error) {
	id, err := fsys.Identify(path)
	if err != nil || id.Size == 0 || id.Size > maxEmpty || IsCold(path) {
		return err == nil && id.Size == 0, id.Size, err
	}
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		var irregular *durable.NotRegularError
		if errors.As(err, &irregular) {
			err = nil
		}
		return false, id.Size, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, maxEmpty))
	if err != nil {
		return false, id.Size, fmt.Errorf("reading %s: %w", path, err)
	}
	for line := range bytes.Lines(head) {
		var record struct{ Type string }
		if json.Unmarshal(line, &record) == nil && record.Type != "" && record.Type != "session" && record.Type != "title" {
			return false, id.Size, nil
		}
	}
	return true, id.Size, nil
}

// hasLogLike reports whether a directory has the log of a stem, in whatever form, or
// anything that is called after one, such as what a repair kept of it.
func hasLogLike(entries []fs.DirEntry, stem string) bool {
	log := stem + PlainExt
	at, _ := slices.BinarySearchFunc(entries, log, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
	return at < len(entries) && strings.HasPrefix(entries[at].Name(), log)
}

// Directories returns the directories in which the logs of cwd are looked for, those of
// all working directories when cwd is empty.
func (c *Catalog) Directories(cwd string) ([]string, error) {
	names, _, err := c.directories(cwd)
	for i, name := range names {
		names[i] = filepath.Join(SessionsDir(c.home), name)
	}
	return names, err
}
