package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/internal/process"
)

// unnotedError is returned when not even the note can be written that an artifact
// did not come along: its number might be used again.
type unnotedError struct{ error }

func (e *unnotedError) Unwrap() error { return e.error }

// missing notes in the clone that an artifact did not come along.
func (d *cloneDir) missing(o output, why error) error {
	failure := CloneFailure{Name: filepath.Join(d.rel, o.name), ID: o.id, Err: why}
	if d.rel != "" {
		failure.ID = -1
	}
	d.done.Failed = append(d.done.Failed, failure)
	note := filepath.Join(d.to, strconv.FormatInt(o.id, 10)+missingSuffix)
	reason := fmt.Sprintf("it did not come along when the session was forked: %v\n", why)
	if err := durable.WriteFile(d.fs, note, d.opt.Sync, []byte(reason)); err != nil {
		return &unnotedError{err}
	}
	return nil
}

// numbersAlone brings along the provenance of numbers without an artifact: they are
// used up.
func (d *cloneDir) numbersAlone(outputs []output, step func() error) error {
	there := make(map[int64]bool, len(outputs))
	for _, o := range outputs {
		there[o.id] = true
	}
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if !strings.HasPrefix(name, artifactSidecar) {
			continue
		}
		if id, ok := sidecarID(name); !ok || !there[id] {
			if err := d.note(name, d.record(name)); err != nil {
				return err
			}
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// provenances brings along what is known of artifacts, except where a pack has it.
func (d *cloneDir) provenances(came []output, packed map[int64]bool) error {
	for _, o := range came {
		var err error
		if !packed[o.id] {
			err = d.provenanceOf(o)
		}
		if err != nil {
			// Without it an artifact that ends early would count as complete.
			if rerr := d.fs.Remove(filepath.Join(d.to, o.name)); rerr != nil {
				return rerr
			}
			if err := d.missing(o, fmt.Errorf("its provenance: %w", err)); err != nil {
				return err
			}
			continue
		}
		switch o.how {
		case reflinked:
			d.done.Reflinked++
		case linked:
			d.done.Linked++
		case copied:
			d.done.Copied++
		}
	}
	return nil
}

// provenanceOf brings along what is known of an artifact. One that is still being
// written is said to end early.
func (d *cloneDir) provenanceOf(o output) error {
	name := sidecarName(o.id)
	if o.final {
		err := d.record(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
			return nil // of another program, or of another file of this number
		}
		return err
	}
	now, err := d.fs.Identify(filepath.Join(d.to, o.name))
	if err != nil {
		return err
	}
	side, from := d.provenance(o.id)
	_, tool, _ := parseLog(o.name)
	switch {
	case from == ours && side.Tool != tool:
		return nil
	case from == ours && side.State != "" && side.Bytes == now.Size:
		return d.record(name) // finished since
	}
	if from != ours {
		side = sidecar{Tool: tool, Created: d.opt.Now().UTC(), ID: process.Self()}
	}
	side.State, side.Bytes, side.Lines = Partial, now.Size, -1
	side.Note = fmt.Sprintf("it ends at byte %d because it was still being written when the session was forked", now.Size)
	content, err := side.encode()
	if err != nil {
		return err
	}
	return durable.WriteFile(d.fs, filepath.Join(d.to, name), d.opt.Sync, content)
}

// keptFrom is the size from which the line index of an artifact comes along, in
// bytes. A smaller one is counted anew in a millisecond when somebody asks, and costs
// a directory entry less.
const keptFrom = 4 << 20

// lineIndex brings the index of a large artifact along. That it can't is no error.
func (d *cloneDir) lineIndex(o *output, to string, at durable.Identity) {
	if at.Size < keptFrom {
		return
	}
	ix, ok := d.source().keptIndex(o.id, at)
	if !ok {
		return
	}
	name := strconv.FormatInt(o.id, 10) + ".idx"
	if o.how == linked {
		_ = d.fs.Link(filepath.Join(d.from, indexDir, name), filepath.Join(d.to, indexDir, name))
		return
	}
	now, err := d.fs.Identify(to)
	if err == nil && now.Size == at.Size {
		stamp := lineindex.Stamp{Size: now.Size, ModTime: now.ModTime}
		_ = durable.WriteFile(d.fs, filepath.Join(d.to, indexDir, name), false, ix.Marshal(stamp))
	}
}
