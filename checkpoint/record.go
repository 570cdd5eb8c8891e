package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session/entry"
)

// Cause says why a record was made.
type Cause string

const (
	CauseTool       Cause = "tool"       // a tool is about to change files, or has
	CauseCheckpoint Cause = "checkpoint" // somebody asked for it
	CauseRewind     Cause = "rewind"     // a rewind is about to change files
)

// Record is the data of an entry of type [entry.CustomTypeCheckpoint]. A long one is
// several entries, one behind the other.
type Record struct {
	Cause Cause  `json:"cause"`
	Name  string `json:"name,omitempty"`
	// Target is the entry that a rewind goes to. Undoes is set beside it when that is
	// itself a rewind, which is taken back.
	Target string `json:"target,omitempty"`
	Undoes string `json:"undoes,omitempty"`
	// Corrects is the entry of a rewind that could not do to these files what it says.
	Corrects string `json:"corrects,omitempty"`
	// Group is common to the entries of one record that are several.
	Group string `json:"group,omitempty"`
	// Dirs were looked through. Their files are those that were recorded by then, and
	// those of Skipped; any other that is there later is new.
	Dirs    []Place   `json:"dirs,omitempty"`
	Skipped []Skipped `json:"skipped,omitempty"`
	// Made are the directories that a rewind makes.
	Made  []Place `json:"made,omitempty"`
	Files []File  `json:"files"`
}

// Place is a path: absolute, without symbolic links, and relative to the working
// directory of the session where it is below that, which counts when the session has
// moved.
type Place struct {
	Path string `json:"path"`
	Rel  string `json:"rel,omitempty"`
}

// File is what was observed of a file.
type File struct {
	Place
	Before *State `json:"before"` // as it was known before; nil is absent
	After  *State `json:"after"`  // as it is from then on; nil is absent
}

// State is a regular file as it was at some moment.
type State struct {
	Ref  blobref.Ref
	Size int64
	Mode fs.FileMode // permissions
	// Stamp tells, without reading, that a file still is as it was when this was
	// recorded; "" for one that was too young for that.
	Stamp string
}

// Skipped is a file or directory that was left out.
type Skipped struct {
	Place
	Reason string `json:"reason"`
}

// same reports whether a and b are alike: content and permissions.
func same(a, b *State) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Ref == b.Ref && a.Mode == b.Mode
}

// stateJSON is the form of a State in a log.
type stateJSON struct {
	Ref   string `json:"ref"`
	Size  int64  `json:"size"`
	Mode  string `json:"mode"` // octal
	Stamp string `json:"stamp,omitempty"`
}

func (s State) MarshalJSON() ([]byte, error) {
	return json.Marshal(stateJSON{s.Ref.String(), s.Size, fmt.Sprintf("%04o", uint32(s.Mode.Perm())), s.Stamp})
}

func (s *State) UnmarshalJSON(data []byte) error {
	var j stateJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	ref, err := blobref.Parse(j.Ref)
	if err != nil {
		return err
	}
	mode, err := strconv.ParseUint(j.Mode, 8, 32)
	switch {
	case err != nil || mode > 0o777:
		return fmt.Errorf("mode %.20q is none of 0000 to 0777", j.Mode)
	case j.Size < 0:
		return fmt.Errorf("size %d is negative", j.Size)
	case len(j.Stamp) > maxStamp:
		return errors.New("the stamp is too long")
	}
	*s = State{ref, j.Size, fs.FileMode(mode), j.Stamp}
	return nil
}

// maxStamp bounds a stamp: three numbers of 20 digits.
const maxStamp = 64

// Bounds of what a log may say. PATH_MAX of Linux is 4096, and NAME_MAX is 255.
const (
	maxPath = 4096
	maxName = 255
)

// errPath is in the error of a path that no record of ours has.
var errPath = errors.New("not a path that a record may have")

// check tells whether a place from a log is one: a log may hold anything.
func (p Place) check() error {
	ok := len(p.Path) <= maxPath && filepath.IsAbs(p.Path) && filepath.Clean(p.Path) == p.Path && plain(p.Path)
	if p.Rel != "" {
		ok = ok && len(p.Rel) <= maxPath && filepath.IsLocal(p.Rel) && filepath.Clean(p.Rel) == p.Rel && plain(p.Rel)
	}
	if !ok {
		return fmt.Errorf("%.200q (%.200q): %w", p.Path, p.Rel, errPath)
	}
	return nil
}

// plain reports whether a path can stand in JSON and be given to the kernel, and no
// element of it is too long.
func plain(path string) bool {
	if !utf8.ValidString(path) || strings.ContainsRune(path, 0) {
		return false
	}
	for element := range strings.SplitSeq(path, "/") {
		if len(element) > maxName {
			return false
		}
	}
	return true
}

// recordWord is in the line of every record: pi and oh-my-pi write it as we do.
var recordWord = []byte(entry.CustomTypeCheckpoint)

// parse returns the record in an entry. ok is false for every other entry, and for one
// that is none in spite of its type. Files and directories whose paths are none are
// taken out, and counted.
func parse(e entry.Entry) (r Record, bad int, ok bool) {
	if e.Type() != entry.TypeCustom || !bytes.Contains(e.Raw(), recordWord) {
		return Record{}, 0, false
	}
	var b struct {
		CustomType string `json:"customType"`
		Data       struct {
			Record
			Files []json.RawMessage `json:"files"`
		} `json:"data"`
	}
	if e.Decode(&b) != nil || b.CustomType != entry.CustomTypeCheckpoint {
		return Record{}, 0, false
	}
	r = b.Data.Record
	r.Files = nil
	for _, raw := range b.Data.Files {
		var f File
		if json.Unmarshal(raw, &f) != nil || f.check() != nil || f.Rel == "." {
			bad++
			continue
		}
		r.Files = append(r.Files, f)
	}
	r.Dirs = valid(r.Dirs, func(p Place) Place { return p }, &bad)
	r.Made = valid(r.Made, func(p Place) Place { return p }, &bad)
	r.Skipped = valid(r.Skipped, func(s Skipped) Place { return s.Place }, &bad)
	return r, bad, true
}

// Label is a word or two on what an entry records, "" for one that is no record.
func Label(e entry.Entry) string {
	r, _, ok := parse(e)
	switch {
	case !ok:
		return ""
	case r.Name != "":
		return r.Name
	case r.Cause == CauseRewind:
		return "rewind to " + r.Target
	case len(r.Files) == 1:
		return r.Files[0].Path
	}
	return fmt.Sprintf("%d files", len(r.Files))
}

func valid[T any](list []T, place func(T) Place, bad *int) []T {
	var good []T
	for _, x := range list {
		if place(x).check() != nil {
			*bad++
			continue
		}
		good = append(good, x)
	}
	return good
}
