package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/artifacts"

	"github.com/agentrun/agentrun/outputsink"
)

func newArtifactsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "artifacts",
		Short: "List what a session kept of the output of its commands",
		Long: `artifacts lists the outputs that were more than a view. agentrun read prints
them.

With --json it is one object a line: id, url, tool, bytes, lines, state; and
where they are known agent (main, or the id of a subagent) and command (the
beginning of it, or what the agent's call was about). States: complete, writing,
interrupted (agentrun was killed), partial (a write failed), capped, changed
(not the bytes that were kept), missing (not copied with the session, or removed
since).`,
		Args: positional(0, 0, "no arguments; --session names another session"),
		RunE: func(cmd *cobra.Command, _ []string) error { return env.listArtifacts(cmd.Context()) },
	}
}

// artifactItem is one line of artifacts --json.
type artifactItem struct {
	ID    int64           `json:"id"`
	URL   string          `json:"url"`
	Tool  *string         `json:"tool"` // null when nobody knows it: of an artifact that did not come along
	Bytes int64           `json:"bytes"`
	Lines *int64          `json:"lines"` // null when the artifact is missing
	State artifacts.State `json:"state"`
	// Agent made it, with a call about Command, where that is known. Command of a person's run is its command.
	Agent   string `json:"agent,omitempty"`
	Command string `json:"command,omitempty"`
}

func (e *environment) listArtifacts(ctx context.Context) (err error) {
	m, s, err := e.view(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = closeSession(s, err) }()
	dir := e.artifacts(s)
	if dir == nil {
		return fmt.Errorf("%s can have no artifacts: they lie beside logs that are called *.jsonl", s.Path())
	}
	list, err := dir.List(ctx)
	if err != nil {
		return err
	}
	lost, err := dir.Lost(ctx)
	if err != nil {
		return err
	}
	list = append(list, lost...)
	slices.SortFunc(list, func(a, b artifacts.Info) int { return cmp.Compare(a.ID, b.ID) })
	if len(list) == 0 && !e.json {
		e.remark("session %s has no artifacts: output that fits into a view is in its log", s.ID())
		return nil
	}
	out := table(e.stdout)
	origins, err := originsOf(ctx, m, s, list)
	if err != nil {
		return err
	}
	if !e.json && !e.quiet {
		fmt.Fprintln(out, "URL\tTOOL\tSIZE\tLINES\tSTATE\tCOMMAND")
	}
	for _, info := range list {
		if info.HasCRC {
			// A checksum that is known of the file as it lies there costs no reading of it.
			if info, err = looked(ctx, dir, info); err != nil {
				e.remark("%s: %v", info.URL(), err)
			}
		}
		from := origins[cmp.Or(info.Call, info.Run)]
		item := artifactItem{
			ID: info.ID, URL: info.URL(), Tool: orNull(info.Tool), Bytes: info.Bytes, State: info.State, Agent: from.agent, Command: firstWords(from.command, 200),
		}
		if item.Lines, err = lines(ctx, dir, info); err != nil {
			e.remark("%s: %v", item.URL, err)
		}
		if e.json {
			if err := printJSON(e.stdout, item); err != nil {
				return err
			}
			continue
		}
		n := "-"
		if item.Lines != nil {
			n = fmt.Sprint(*item.Lines)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", item.URL, info.Tool, outputsink.FormatBytes(item.Bytes), n, item.State, from)
	}
	return out.Flush()
}

// looked returns info as it is once size, time and checksum were compared.
func looked(ctx context.Context, dir *artifacts.Dir, info artifacts.Info) (artifacts.Info, error) {
	r, err := dir.Open(ctx, info.ID)
	if err != nil {
		return info, err
	}
	defer r.Close()
	if _, err := r.Index(ctx); err != nil {
		return info, err
	}
	return r.Info(), nil
}

// lines is how many lines an artifact has; they are counted where nobody noted it.
func lines(ctx context.Context, dir *artifacts.Dir, info artifacts.Info) (*int64, error) {
	if info.Lines >= 0 || info.State == artifacts.Missing {
		if info.State == artifacts.Missing {
			return nil, nil
		}
		return &info.Lines, nil
	}
	r, err := dir.Open(ctx, info.ID)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ix, err := r.Index(ctx)
	if err != nil {
		return nil, err
	}
	return &ix.Lines, nil
}
