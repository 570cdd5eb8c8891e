package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
)

// Carried reports whether a file of an artifact directory, called name within it
// with slashes, belongs to a copy of the directory that goes to another place. Locks,
// temporaries and what can be rebuilt do not; numbers handed out do.
func Carried(name string) bool {
	elements := strings.Split(name, "/")
	for i, e := range elements {
		switch {
		case strings.HasPrefix(e, ".tmp-"):
			return false
		case e == indexDir:
			return i == len(elements)-2 && elements[i+1] == countersName
		}
	}
	base := elements[len(elements)-1]
	return !strings.Contains(base, logSuffix+".tmp-") && !strings.HasSuffix(base, ".lock") && !strings.HasSuffix(base, ".driver")
}

// Piece is a file of an artifact directory that goes along with a copy.
type Piece struct {
	Name string // within the directory, with slashes
	Size int64  // now; a file that is being written may grow
	Log  bool   // it is the file of an artifact://<n>
	// Data is what the copy has in place of the file's bytes, nil for those. The
	// provenance of an artifact that is not finished names its writer, which the copy
	// will not have.
	Data []byte
}

// Left is a file that can not go along.
type Left struct{ Name, Reason string }

// Pieces lists what a copy of the directory consists of, nested directories
// included, by name, and what of it cannot be copied. A directory that does not exist
// has neither.
func (d *Dir) Pieces(ctx context.Context) (pieces []Piece, left []Left, err error) {
	if _, err := d.exists(ctx); noDirectory(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	root := d.Path()
	for todo := []string{""}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("listing %s: %w", root, err)
		}
		entries, err := d.fs.ReadDir(filepath.Join(root, dir))
		if err != nil {
			return nil, nil, fmt.Errorf("listing %s: %w", filepath.Join(root, dir), err)
		}
		// Provenance before the sizes: what it calls finished does not grow after it.
		sides, first := map[int64]int{}, len(pieces)
		for _, e := range slices.Backward(entries) {
			name := path.Join(dir, e.Name())
			if _, _, ok := parseLog(e.Name()); ok && e.IsDir() && dir == "" {
				left = append(left, Left{name, errDirectory.Error()})
				continue
			}
			switch {
			case e.IsDir() && (e.Name() == indexDir || Carried(name)):
				todo = append(todo, name)
			case e.IsDir() || !Carried(name) || isIndexOfLog(e.Name(), entries):
			case !e.Type().IsRegular():
				left = append(left, Left{name, "it is no regular file"})
			default:
				if n, ok := parseNumbered(e.Name()); ok && strings.HasPrefix(e.Name(), artifactSidecar) {
					if data := d.unfinished(name); data != nil {
						sides[n] = len(pieces)
						pieces = append(pieces, Piece{Name: name, Size: int64(len(data)), Data: data})
						continue
					}
				}
				pieces = append(pieces, Piece{Name: name, Size: -1})
			}
		}
		for i := range pieces[first:] {
			p := &pieces[first+i]
			if p.Size >= 0 {
				continue
			}
			id, err := d.fs.Identify(d.join(filepath.FromSlash(p.Name)))
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed since
			}
			if err != nil {
				return nil, nil, fmt.Errorf("listing %s: %w", root, err)
			}
			p.Size = id.Size
			n, tool, ok := parseLog(path.Base(p.Name))
			p.Log = ok && dir == ""
			if at, unfinished := sides[n]; ok && unfinished {
				pieces[at].settle(tool, id.Size)
			}
		}
		pieces = slices.DeleteFunc(pieces, func(p Piece) bool { return p.Size < 0 })
	}
	slices.SortFunc(pieces, func(a, b Piece) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(left, func(a, b Left) int { return strings.Compare(a.Name, b.Name) })
	return pieces, left, nil
}

// isIndexOfLog reports whether base is the rebuildable index of a subagent's log.
func isIndexOfLog(base string, entries []fs.DirEntry) bool {
	stem, ok := strings.CutSuffix(base, indexDir)
	return ok && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == stem+".jsonl" || e.Name() == stem+".jsonl.zst"
	})
}

// unfinished returns the provenance called name if it is ours and says nothing of an
// end.
func (d *Dir) unfinished(name string) []byte {
	data, err := durable.ReadFile(d.fs, d.join(filepath.FromSlash(name)), maxSidecar)
	var s sidecar
	if err != nil || json.Unmarshal(data, &s) != nil || s.PID == 0 || s.State != "" {
		return nil
	}
	return data
}

// settle ends the provenance of an artifact that is copied to a length of size bytes.
func (p *Piece) settle(tool string, size int64) {
	var s sidecar
	if json.Unmarshal(p.Data, &s) != nil || s.Tool != tool {
		return
	}
	s.State, s.Note, s.Bytes, s.Lines, s.CRC32C = Interrupted, "its writer ended without finishing it", size, -1, nil
	if s.Life() != process.Gone {
		s.State, s.Note = Partial, "it was still being written when the session was copied"
	}
	if data, err := s.encode(); err == nil {
		p.Data, p.Size = data, int64(len(data))
	}
}
