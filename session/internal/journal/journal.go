// Package journal keeps what has to be known to finish or undo the move of a session
// after a crash: one file for each move in progress, in the directory moves of the
// home, which is there only as long as a move is.
//
// # The file
//
// moves/<16 hex>.json, named after the log's old path, is one JSON object:
//
//	version  1
//	id       of the session
//	from, to paths of the plain log, before and after; both end with the same name
//	cwd      the new working directory
//	pid, host, begun   who moves it
//	header   {at, old, new}: the line to write over, where the pad has the room; old
//	         and new in base64, for they may hold any bytes
//	copied   the log is copied, for its header needs more room or it is compressed
//	cross    to is on another file system: all is copied
//	staged   the copies are complete, verified and on the disk
//	size     of the log, in bytes
//	modified when the log was modified last, in nanoseconds since 1970: it stays so old.
//	         0 or absent is unknown
//	written  of the copy
//
// It is on the disk before the first file is touched, and removed after the last
// step is. A move that is not copied has happened when the log stands at to, one
// that is copied when staged is set: from there on it is finished, before that it
// is undone.
//
// Whoever finds a journal takes the locks of both paths first; a process that moves
// holds them.
package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Version of the format.
const Version = 1

// maxBytes bounds what is read as a journal: two headers of the largest size, as
// JSON strings, and paths.
const maxBytes = 8 << 20

// Journal is one move.
type Journal struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	From    string    `json:"from"`
	To      string    `json:"to"`
	CWD     string    `json:"cwd"`
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Begun   time.Time `json:"begun"`
	Header  *Header   `json:"header,omitempty"`
	Copied  bool      `json:"copied,omitempty"`
	Cross   bool      `json:"cross,omitempty"`
	Staged  bool      `json:"staged,omitempty"`
	Size    int64     `json:"size,omitempty"`
	Written int64     `json:"written,omitempty"`

	Modified int64 `json:"modified,omitempty"`
}

// Header is the header line before and after, of one length and without newline.
type Header struct {
	At  int64  `json:"at"`
	Old []byte `json:"old"`
	New []byte `json:"new"`
}

// Dir is where journals are.
func Dir(home string) string { return filepath.Join(home, "moves") }

// path of the journal of a move from a log.
func path(home, from string) string { return filepath.Join(Dir(home), digest(from)+".json") }

// digest stands for a path of any length in a file name.
func digest(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:8])
}

// Any reports whether there may be a move in progress. It costs a stat of a name that
// is normally absent.
func Any(fsys durable.FS, home string) bool {
	_, err := fsys.Identify(Dir(home))
	return !errors.Is(err, fs.ErrNotExist)
}

// Parse reads a journal of home and refuses what [Journal.Write] would not have
// written.
func Parse(home string, data []byte) (Journal, error) {
	var j Journal
	if err := json.Unmarshal(data, &j); err != nil {
		return Journal{}, fmt.Errorf("reading the journal of a move: %w", err)
	}
	if err := j.check(home); err != nil {
		return Journal{}, fmt.Errorf("reading the journal of a move: %w", err)
	}
	return j, nil
}

func (j *Journal) check(home string) error {
	switch {
	case j.Version != Version:
		return fmt.Errorf("it has version %d, and this program knows %d; use a newer agentrun", j.Version, Version)
	case j.ID == "":
		return errors.New("it names no session")
	case !isLog(j.From) || !isLog(j.To) || filepath.Base(j.From) != filepath.Base(j.To):
		return fmt.Errorf("%.200q to %.200q is no move of a log", j.From, j.To)
	case filepath.Dir(filepath.Dir(j.To)) != catalog.SessionsDir(home):
		return fmt.Errorf("%.200q is no place in %s", j.To, catalog.SessionsDir(home))
	case j.Size < 0 || j.Written < 0 || j.Staged && !j.Copied || j.Cross && !j.Copied || j.Copied == (j.Header != nil):
		return errors.New("it contradicts itself")
	case j.From == j.To && j.Copied:
		return errors.New("it moves a log to where it is")
	}
	if h := j.Header; h != nil {
		header, err := record.ParseHeader(h.New)
		switch {
		case err != nil:
			return err
		case header.ID != j.ID || header.CWD != j.CWD:
			return errors.New("its header is of another session")
		case len(h.Old) != len(h.New) || h.At < 0 || h.At > catalog.MaxHeaderBytes || len(h.New) > catalog.MaxHeaderBytes ||
			bytes.IndexByte(h.Old, '\n') >= 0 || bytes.IndexByte(h.New, '\n') >= 0:
			return errors.New("its header does not fit over the old one")
		}
	}
	return nil
}

func isLog(p string) bool {
	return filepath.IsAbs(p) && filepath.Clean(p) == p && catalog.PlainPath(p) == p &&
		strings.HasSuffix(p, catalog.PlainExt) && filepath.Base(p) != catalog.PlainExt && strings.IndexByte(p, 0) < 0 && utf8.ValidString(p)
}

// Write puts the journal on the disk, in place of an earlier state of it.
func (j *Journal) Write(fsys durable.FS, home string) error {
	j.Version = Version
	if err := j.check(home); err != nil {
		return fmt.Errorf("writing the journal of the move: %w", err)
	}
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the journal of the move: %w", err)
	}
	name := path(home, j.From)
	for try := 0; ; try++ {
		if err = durable.MkdirAll(fsys, Dir(home)); err == nil {
			err = durable.WriteFile(fsys, name, true, append(data, '\n'))
		}
		// Somebody who ended a move has removed the empty directory meanwhile.
		if !errors.Is(err, fs.ErrNotExist) || try == maxTries {
			break
		}
	}
	touch(home)
	if err == nil && !j.Staged { // the second time the directory is on the disk
		err = fsys.SyncDir(home)
	}
	if err != nil {
		return fmt.Errorf("writing the journal of the move: %w", err)
	}
	return nil
}

// touch gives the home a modification time of its own: those that the kernel gives
// move in ticks of milliseconds, and who lists sessions sees by it that something was
// moved meanwhile.
func touch(home string) { _ = os.Chtimes(home, time.Time{}, time.Now()) }

// maxTries bounds how often a directory that others remove is made again.
const maxTries = 16

// Remove ends the move: its journal goes, and the directory with the last one. A
// journal that a power cut brings back is of a move that is found finished.
func (j *Journal) Remove(fsys durable.FS, home string) error {
	if err := fsys.Remove(path(home, j.From)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the journal of the move: %w", err)
	}
	touch(home)
	// Others may be moving; then it is not empty. Left behind it costs a listing.
	_ = fsys.Remove(Dir(home))
	return nil
}

// Again reads the journal as it is now. The error matches fs.ErrNotExist when the
// move has ended.
func (j *Journal) Again(fsys durable.FS, home string) (Journal, error) {
	return read(fsys, home, path(home, j.From))
}

func read(fsys durable.FS, home, name string) (Journal, error) {
	data, err := durable.ReadFile(fsys, name, maxBytes)
	if err != nil {
		return Journal{}, fmt.Errorf("reading the journal of a move: %w", err)
	}
	j, err := Parse(home, data)
	if err != nil {
		return Journal{}, fmt.Errorf("%s: %w", name, err)
	}
	if path(home, j.From) != name {
		return Journal{}, fmt.Errorf("%s: it is the journal of a move from %s", name, j.From)
	}
	return j, nil
}

// All returns the journals there are, and an error for each that cannot be read.
func All(fsys durable.FS, home string) (all []Journal, bad []error) {
	entries, err := fsys.ReadDir(Dir(home))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{fmt.Errorf("looking for moves in progress: %w", err)}
	}
	if len(entries) == 0 {
		_ = fsys.Remove(Dir(home)) // left by a crash; the next look costs a stat again
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || filepath.Ext(name) != ".json" {
			clearStale(fsys, home, filepath.Join(Dir(home), name))
			continue
		}
		j, err := read(fsys, home, filepath.Join(Dir(home), name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // ended
		case err != nil:
			bad = append(bad, err)
		default:
			all = append(all, j)
		}
	}
	return all, bad
}

// staleAfter is how old a temporary has to be to be one that a crash left. Its writer
// makes another, should it live after all.
const staleAfter = 10 * time.Second

func clearStale(fsys durable.FS, home, name string) {
	id, err := fsys.Identify(name)
	if err == nil && strings.HasPrefix(filepath.Base(name), ".tmp-") && time.Since(time.Unix(0, id.ModTime)) > staleAfter {
		_ = fsys.Remove(name)
		_ = fsys.Remove(Dir(home)) // when that was all
	}
}

// StagingDir is where copies are put together, beside the log's new place.
func (j *Journal) StagingDir() string {
	return filepath.Join(filepath.Dir(j.To), ".tmp-move-"+digest(j.From))
}

// WithdrawnPath is where the old log is between the two renames of a move that
// copies: nobody opens it there any more.
func (j *Journal) WithdrawnPath() string {
	return filepath.Join(filepath.Dir(j.From), ".tmp-moved-"+digest(j.From))
}
