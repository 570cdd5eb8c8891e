package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// Output is what a subagent hands back.
type Output struct {
	Text []byte // Markdown, for <id>.md
	JSON []byte // the same as JSON, for <id>.json; nil when it is not structured
}

// WriteAgent keeps the output of id. It never overwrites: where id has an output
// already, this one becomes its next version. The text appears whole or not at
// all, and its JSON is there before it. With Options.Sync both are on the disk
// when WriteAgent returns; when only the last fsync failed, both can be read and
// the error says that a power cut may lose them.
func (d *Dir) WriteAgent(ctx context.Context, id AgentID, out Output) (Agent, error) {
	if id.IsZero() {
		return Agent{}, errors.New("writing the output of an agent: it has no id")
	}
	if out.JSON != nil && !json.Valid(out.JSON) {
		return Agent{}, fmt.Errorf("writing the output of agent %s: its structured part is not JSON", id)
	}
	a, err := d.writeAgent(ctx, id, out)
	if err != nil {
		return Agent{}, fmt.Errorf("writing the output of agent %s: %w", id, err)
	}
	return a, nil
}

func (d *Dir) writeAgent(ctx context.Context, id AgentID, out Output) (Agent, error) {
	if err := ctx.Err(); err != nil {
		return Agent{}, err
	}
	if err := d.admit(int64(len(out.Text) + len(out.JSON))); err != nil {
		return Agent{}, err
	}
	// Before the lock is taken: of many subagents each writes its own, and only the names are given one after the other.
	draft := d.draft(ctx, id, out.Text)
	defer func() {
		if draft != "" {
			_ = d.fs.Remove(draft) // gone, where all went well
		}
	}()
	release, err := d.lock(ctx)
	if err != nil {
		d.giveBack(int64(len(out.Text) + len(out.JSON)))
		return Agent{}, err
	}
	defer release()
	have, err := d.versionsNow(id)
	if err != nil {
		return Agent{}, err
	}
	version := 1
	if len(have) > 0 {
		version = have[len(have)-1] + 1
	}
	// The text makes a version visible, so JSON of this version was left by a
	// crash and is nobody's.
	side := d.join(agentFile(id, version, jsonSuffix))
	if out.JSON != nil {
		err = durable.WriteFile(d.fs, side, d.opt.Sync, out.JSON)
	} else if err = d.fs.Remove(side); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return Agent{}, err
	}
	if d.opt.Sync {
		if err := d.publish(); err != nil {
			return Agent{}, err
		}
	}
	published, err := d.publishDraft(&draft, d.join(agentFile(id, version, ".md")), out.Text)
	if err != nil {
		if out.JSON != nil && !published {
			_ = d.fs.Remove(side) // the first error is the one to report
		}
		return Agent{}, err
	}
	return d.describeAgent(id, version, append(slices.Clip(have), version)) // the lock is held: there is no newer one
}

// admit asks the quota for n bytes, all or none.
func (d *Dir) admit(n int64) error {
	if d.opt.Quota == nil {
		return nil
	}
	granted, err := d.opt.Quota(d.Path(), n)
	if granted < n {
		d.giveBack(granted)
		return err
	}
	return nil
}

// giveBack gives back what the quota has granted and that was not used.
func (d *Dir) giveBack(n int64) {
	if d.opt.Quota != nil {
		_, _ = d.opt.Quota(d.Path(), -n) // there is nothing to refuse
	}
}

// draft writes a text into a temporary of the directory, and returns its name. It is "" where that is not possible, as in a
// directory that is not there yet: the text is then written under the lock, and errors are told there.
func (d *Dir) draft(ctx context.Context, id AgentID, text []byte) string {
	if _, err := d.exists(ctx); err != nil {
		return ""
	}
	temp, err := d.writeText(id.s+".md", text)
	if err != nil {
		return ""
	}
	return temp
}

// writeText writes a temporary, of which nothing is left on an error, and returns its name.
func (d *Dir) writeText(prefix string, text []byte) (temp string, err error) {
	f, err := durable.CreateTemp(d.fs, d.Path(), prefix)
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err == nil && d.opt.Sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = d.fs.Remove(f.Name()) // the first error is the one to report
		return "", err
	}
	return f.Name(), nil
}

// publishDraft gives a draft its name; it fails with fs.ErrExist when there is such a file. A draft that is "", or that was
// removed or left behind when the directory moved, is written anew. The lock is held. It reports whether the file is
// there: after an error it may be, whole and not durable. What is left of the draft is named in *draft.
func (d *Dir) publishDraft(draft *string, name string, text []byte) (published bool, err error) {
	err = fs.ErrNotExist
	if *draft != "" {
		if err = d.fs.RenameNoReplace(d.join(filepath.Base(*draft)), name); err == nil {
			*draft = ""
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		var temp string
		if temp, err = d.writeText(filepath.Base(name), text); err != nil {
			return false, err
		}
		if err = d.fs.RenameNoReplace(temp, name); err != nil {
			_ = d.fs.Remove(temp) // the first error is the one to report
		}
	}
	if err != nil {
		return false, err
	}
	if d.opt.Sync {
		if err := d.fs.SyncDir(d.Path()); err != nil {
			return true, fmt.Errorf("it is written, but a power cut may lose it: %w", err)
		}
	}
	return true, nil
}

// versionsNow are those of id that have a text, ascending, by a look at the directory. The lock is held. It does without a
// snapshot of all that there is, which nobody would use: what is written next makes it old.
func (d *Dir) versionsNow(id AgentID) ([]int, error) {
	entries, err := d.fs.ReadDir(d.Path())
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
	}
	var files agentFiles
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), id.s+".") || !e.Type().IsRegular() {
			continue
		}
		if of, version, kind, ok := parseAgentFile(e.Name()); ok && of == id {
			files = files.with(version, kind)
		}
	}
	return d.withNested(id, files.versions), nil
}
