package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// maxOutput is the largest output of an agent that is read whole, in bytes.
const maxOutput = 256 << 20

// agents examines what agents handed back. No checksum is kept of it: what is found is
// what breaks it.
func (d *Doctor) agents(ctx context.Context, dir *artifacts.Dir) error {
	ids, err := dir.AgentIDs(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.report(unreadable(dir.Path(), err))
		return nil
	}
	for _, id := range ids {
		newest, err := dir.LookupAgent(ctx, id, 0)
		if err != nil {
			d.report(unreadable(dir.Path(), err))
			continue
		}
		for _, version := range newest.Versions {
			a, err := dir.LookupAgent(ctx, id, version)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, artifacts.ErrNotFound):
			case err != nil:
				d.report(unreadable(dir.Path(), err))
			default:
				d.agentOutput(a)
			}
		}
	}
	return ctx.Err()
}

// absentAgents reports outputs that logs hand on and that are not there.
func (d *Doctor) absentAgents(ctx context.Context, dir *artifacts.Dir, logs []logged) error {
	told := map[string]bool{}
	for _, l := range logs {
		if l.found == nil {
			continue
		}
		for _, c := range l.found.Agents {
			id, err := artifacts.ParseAgentID(c.ID)
			if err != nil {
				continue
			}
			name := c.ID
			if c.Version > 0 {
				name = fmt.Sprintf("%s.v%d", name, c.Version)
			}
			if told[name] {
				continue
			}
			told[name] = true
			_, err = dir.LookupAgent(ctx, id, c.Version)
			var none *artifacts.AgentNotFoundError
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.As(err, &none), errors.Is(err, artifacts.ErrNoDirectory):
				d.absentAgent(ctx, dir, name, l.found.Path, c)
			}
		}
	}
	return nil
}

// absentAgent reports one output, and brings it back from elsewhere. No checksum is kept
// of outputs: what has its name among the artifacts of the same session is taken.
func (d *Doctor) absentAgent(ctx context.Context, dir *artifacts.Dir, name, file string, c session.AgentCitation) {
	f := Finding{Kind: KindAgentMissing, File: file}.at(c.First.Line, c.First.Offset, c.First.Bytes)
	f.What = fmt.Sprintf("the output of agent %s is cited by entry %s and not there: the log has only the view of it", name, c.First.Entry)
	if info, err := os.Lstat(filepath.Join(dir.Path(), c.ID+".jsonl")); err == nil && info.Mode().IsRegular() {
		f.What += ", and the session of the agent what it said"
	}
	output := name + ".md"
	if c.Version == 1 {
		output = c.ID + ".md"
	}
	path, from := d.artifact(dir.Path(), output, func(path string) bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode().IsRegular() && filepath.Base(filepath.Dir(path)) == filepath.Base(dir.Path())
	})
	d.report(d.bringBack(ctx, f, path, from, filepath.Join(dir.Path(), output)))
}

// agentOutput examines one output, and its JSON.
func (d *Doctor) agentOutput(a artifacts.Agent) {
	text, err := durable.ReadFile(d.opt.FS, a.Path, maxOutput)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		d.report(unreadable(a.Path, err))
		return
	}
	d.read(int64(len(text)))
	if zeros := len(text) - len(strings.TrimRight(string(text), "\x00")); zeros > 0 {
		f := Finding{Kind: KindAgentOutput, File: a.Path, Unmendable: true}.at(0, int64(len(text)-zeros), int64(zeros))
		f.What = fmt.Sprintf("the output of agent %s ends with %d zero bytes, as a power cut leaves them; what should have stood there is lost", a.ID, zeros)
		d.report(f.remedy("its session, if it has one, tells what it said", ""))
	}
	side := strings.TrimSuffix(a.Path, ".md") + ".json"
	data, err := durable.ReadFile(d.opt.FS, side, maxOutput)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		d.report(unreadable(side, err))
	case !json.Valid(data):
		f := Finding{Kind: KindAgentOutput, File: side, Unmendable: true}.at(0, 0, int64(len(data)))
		f.What = fmt.Sprintf("the structured output of agent %s is no JSON; its text is there, and is read instead", a.ID)
		d.report(f.remedy("move it away if the text will do", ""))
	}
}

// listCache examines the cache of the list of sessions.
func (d *Doctor) listCache() {
	path := catalog.CachePath(d.m.Home())
	whole, err := catalog.CheckCache(d.opt.FS, d.m.Home())
	if errors.Is(err, fs.ErrNotExist) || err == nil && whole {
		return
	}
	f := Finding{Kind: KindListCache, File: path}
	f.What = "the cache of the list of sessions is damaged, or of another version; nothing is lost, and the list is made from the logs"
	if err != nil {
		f.What += ": " + err.Error()
	}
	if d.opt.Repair {
		err := d.opt.FS.Remove(path)
		if f.Repaired = err == nil || errors.Is(err, os.ErrNotExist); !f.Repaired {
			f.Unmendable = true
			f.What += fmt.Sprintf("; removing it failed: %v", err)
			d.report(f)
			return
		}
	}
	d.report(f.remedy("removes it", "it is removed, and made anew when needed"))
}
