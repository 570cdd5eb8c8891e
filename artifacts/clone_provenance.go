package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
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
	d.fail(o, why)
	return d.noteMissing(o.id, why)
}

func (d *cloneDir) fail(o output, why error) {
	failure := CloneFailure{Name: filepath.Join(d.rel, o.name), ID: o.id, Err: why}
	if d.rel != "" {
		failure.ID = -1
	}
	d.done.Failed = append(d.done.Failed, failure)
}

// noteMissing leaves <n>.missing.
func (d *cloneDir) noteMissing(id int64, why error) error {
	reason := fmt.Sprintf("it did not come along when the session was forked: %v\n", why)
	return d.writeNote(strconv.FormatInt(id, 10)+missingSuffix, reason)
}

func (d *cloneDir) writeNote(name, text string) error {
	if err := durable.WriteFile(d.fs, filepath.Join(d.to, name), d.opt.Sync, []byte(text)); err != nil {
		return &unnotedError{err}
	}
	return nil
}

// keep brings along a file that says that a number or an id is used, or what became of
// artifacts. Where that fails, a note of the number or id takes its place. Without a
// pack that can be read, unfinished artifacts would count as complete: that ends the
// clone.
func (d *cloneDir) keep(name string) error {
	err := d.record(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		d.done.Vanished = d.done.Vanished || err != nil
		return nil
	}
	var irregular *durable.NotRegularError
	if _, ok := parsePack(name); ok && !errors.As(err, &irregular) {
		return err
	}
	if err := d.note(name, err); err != nil {
		return err
	}
	if id, ok := parseNumbered(name); ok {
		return d.noteMissing(id, err)
	}
	if _, _, kind, ok := parseAgentFile(name); ok && kind == agentHold {
		return d.writeNote(name, "")
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
	for _, e := range d.entries {
		name := e.Name()
		if !strings.HasPrefix(name, artifactSidecar) {
			continue
		}
		if id, ok := sidecarID(name); !ok || !there[id] {
			if err := d.keep(name); err != nil {
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
// An artifact whose provenance cannot come along does not either: one that ends early
// would count as complete.
func (d *cloneDir) provenances(came []output, packed map[int64]bool) error {
	for i := range came {
		o := &came[i]
		if packed[o.id] {
			continue
		}
		if err := d.provenanceOf(*o); err != nil {
			d.lost[o.id] = true
			if err := d.noteMissing(o.id, fmt.Errorf("its provenance: %w", err)); err != nil {
				return err
			}
			o.err = err
		}
	}
	return nil
}

// withdraw takes back what came along of a number that is lost, since programs without
// a lock may have made two files of it and one would stand for the other, and counts
// the rest.
func (d *cloneDir) withdraw(came []output) error {
	for _, o := range came {
		if d.lost[o.id] {
			if err := d.fs.Remove(filepath.Join(d.to, o.name)); err != nil {
				return err
			}
			if o.err == nil {
				o.err = errors.New("the other file of its number did not")
			}
			d.fail(o, o.err)
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
	if o.final && len(d.packs) > 0 && !d.has(name) {
		return d.unpack(o)
	}
	if o.final {
		err := d.record(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
			d.done.Vanished = d.done.Vanished || errors.Is(err, fs.ErrNotExist) && d.has(name)
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
func (d *cloneDir) lineIndex(o *output, to string) {
	at := o.at
	if at.Size < keptFrom {
		return
	}
	ix, ok := d.source.keptIndex(o.id, at)
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
