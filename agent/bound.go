package agent

import (
	"context"
	"io"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

// bound shortens a text that its tool did not, and keeps all of it in an artifact. Tools of ours bound themselves; this
// is for others.
func (r *run) bound(ctx context.Context, c entry.ToolCallBlock, res tool.Result) tool.Result {
	o := outputsink.DefaultOptions()
	if len(res.Text) <= o.MaxBytes+slack || res.Artifact != "" {
		return res
	}
	if r.Artifacts != nil {
		o.Open = func() (outputsink.File, error) {
			return r.Artifacts.Create(ctx, c.Name, artifacts.Provenance{Run: c.ID})
		}
	}
	sink := outputsink.New(o)
	_, _ = io.WriteString(sink.Stdout(), res.Text) // a sink takes everything
	sum, _ := sink.Close()                         // its error is what its notice says
	res.Text, res.Artifact = sum.View, sum.Artifact
	return res
}

// slack is what tools add to a view of theirs: remarks.
const slack = 4 << 10
