package task

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
	"github.com/agentrun/agentrun/task/isolation"
	"github.com/agentrun/agentrun/tool"
)

// MergeType is the entry when the patch of a subagent was merged. Its data is a Merged.
const MergeType = "agentrun.task.merge"

// Merged is the data of an entry of [MergeType].
type Merged struct {
	ID       string `json:"id"`
	Artifact string `json:"artifact"` // of the patch
	Dir      string `json:"dir"`
}

// Recorder is told of files before they are changed and behind, so that the change can be taken back. *checkpoint.Recorder is
// one.
type Recorder interface {
	Before(ctx context.Context, path string) error
	After(ctx context.Context, path string) error
}

// MergeOptions say what is merged.
type MergeOptions struct {
	Log       *session.Session // of the agent that started the subagent, open for writing
	Artifacts *artifacts.Dir
	ID        artifacts.AgentID
	Dir       string // the directory that agent works in
	Spaces    string // as in Options
	Check     bool   // look only
	Recorder  Recorder
}

// Merge brings what a subagent with files of its own has changed into a directory. Conflicts are no error: nothing is changed
// then. What was merged is in the log.
func Merge(ctx context.Context, o MergeOptions) (end End, m isolation.Merge, err error) {
	f, err := readFamily(ctx, o.Log)
	if err != nil {
		return end, m, err
	}
	end, ended := f.ends[o.ID.String()]
	switch {
	case !ended && f.has(o.ID.String()):
		return end, m, fmt.Errorf("%s has not come to its end, and so there is no patch of it yet: agentrun tasks tells how it stands", o.ID)
	case !ended:
		return end, m, fmt.Errorf("there is no subagent %s here: agentrun tasks lists them", o.ID)
	case end.Patch == nil:
		return end, m, fmt.Errorf("%s has no patch: it worked in the files themselves, or its own were lost", o.ID)
	case end.Patch.Artifact == "":
		return end, isolation.Merge{Done: !o.Check}, nil
	}
	patch, size, err := openPatch(ctx, o.Artifacts, end.Patch.Artifact)
	if err != nil {
		return end, m, err
	}
	defer patch.Close()
	top, err := isolation.Top(ctx, end.Isolation, o.Dir)
	if err != nil {
		return end, m, err
	}
	if err := durable.MkdirAll(durable.OS, o.Spaces); err != nil {
		return end, m, fmt.Errorf("merging %s: %w", o.ID, err)
	}
	mo := isolation.MergeOptions{Dir: top, Patch: patch, Size: size, Scratch: filepath.Join(o.Spaces, isolation.MergeName(top)), Check: o.Check}
	if o.Recorder != nil {
		mo.Before, mo.After = each(o.Recorder.Before), each(o.Recorder.After)
	}
	m, err = isolation.Apply(ctx, mo)
	if err == nil && m.Done {
		err = record(ctx, o.Log, MergeType, Merged{o.ID.String(), end.Patch.Artifact, top})
	}
	return end, m, err
}

// each tells a recorder of files; it records no links.
func each(tell func(context.Context, string) error) func(context.Context, []string) error {
	return func(ctx context.Context, paths []string) error {
		for _, path := range paths {
			info, err := os.Lstat(path)
			if err == nil && !info.Mode().IsRegular() || err != nil && !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := tell(ctx, path); err != nil {
				return err
			}
		}
		return nil
	}
}

// MergeTool is the tool by which an agent takes over what a subagent has changed.
func (t *Tree) MergeTool(p Parent) tool.Tool { return mergeTool{t, &p} }

type mergeTool struct {
	tree   *Tree
	parent *Parent
}

// Name implements [tool.Tool], here and below.
func (mergeTool) Name() string { return "merge" }

func (mergeTool) Description() string {
	return "Brings what a subagent with isolation has changed into your files: all of it, or nothing when there are conflicts, which are told by file."
}

func (mergeTool) Schema() json.RawMessage {
	return json.RawMessage(`{
  "type": "object",
  "properties": {
    "id": {"type": "string", "description": "The subagent, such as 0-Fix."},
    "check": {"type": "boolean", "description": "Only say what would be done."}
  },
  "required": ["id"],
  "additionalProperties": false
}`)
}

// Idempotent is true: what is merged is found to be so.
func (mergeTool) Idempotent() bool { return true }

// ParallelSafe is false: merges into the same files wait for each other anyway.
func (mergeTool) ParallelSafe() bool { return false }

// Call merges.
func (t mergeTool) Call(ctx context.Context, raw json.RawMessage) (tool.Result, error) {
	var in struct {
		ID    string `json:"id"`
		Check bool   `json:"check"`
	}
	if err := tool.Decode(raw, &in); err != nil {
		return tool.Refuse(fmt.Errorf("the input is not as the schema says: %w", err)), nil
	}
	id, err := artifacts.ParseAgentID(in.ID)
	if err != nil {
		return tool.Refuse(err), nil
	}
	o := t.tree.o
	_, m, err := Merge(ctx, MergeOptions{
		Log: t.parent.Session, Artifacts: o.Artifacts, ID: id, Dir: t.parent.dir, Spaces: o.Spaces, Check: in.Check, Recorder: o.Recorder,
	})
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, err
		}
		return tool.Refuse(err), nil
	}
	res := tool.Result{Text: SayMerge(in.ID, m), IsError: len(m.Conflicts()) > 0}
	res.Details, _ = json.Marshal(m) // strings
	return res, nil
}

// SayMerge tells a person or a model of a merge.
func SayMerge(id string, m isolation.Merge) string {
	var b strings.Builder
	switch n := len(m.Conflicts()); {
	case len(m.Files) == 0:
		return id + " changed no file."
	case n > 0:
		fmt.Fprintf(&b, "Nothing was changed: %d of %d files of %s are in conflict with what is here. The patch is kept.", n, len(m.Files), id)
	case m.Done:
		fmt.Fprintf(&b, "What %s changed is merged.", id)
	default:
		fmt.Fprintf(&b, "What %s changed can be merged.", id)
	}
	for _, f := range m.Files {
		fmt.Fprintf(&b, "\n%s %s", f.Action, printable(f.Path))
		if f.Reason != "" {
			b.WriteString(": " + f.Reason)
		}
	}
	return b.String()
}

// printable writes a path that is no plain text in quotes.
func printable(path string) string {
	if quoted := fmt.Sprintf("%q", path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}
