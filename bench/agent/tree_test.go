package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/task"
	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/toolset"
)

// tree is the agent of a session whose subagents play a script.
func tree(b *testing.B, m *session.Manager, s *session.Session, concurrency int, lines string) (*agent.Agent, *artifacts.Dir, func()) {
	b.Helper()
	mdl := must(script.New("bench.jsonl", strings.NewReader(lines)))
	dir := artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID})
	types, _ := task.Types()
	tr := must(task.New(task.Options{
		Manager: m, Root: s, Artifacts: dir, Types: types, Default: mdl, Concurrency: concurrency,
		Tools: func(context.Context, task.Subagent) ([]tool.Tool, func(), error) {
			return []tool.Tool{noop{}}, func() {}, nil
		},
	}))
	root := tr.Root(nil)
	o := agent.Options{Session: s, Model: mdl, Tools: must(toolset.New(tr.Tool(root))), Artifacts: dir}
	root.Attach(&o)
	return must(agent.New(o)), dir, root.Stop
}

// calls are turns of the root that start so many subagents, at most task.MaxItems in one.
func calls(n int) string {
	var b strings.Builder
	for n > 0 {
		items := make([]string, min(n, task.MaxItems))
		for i := range items {
			items[i] = `{"name":"A","task":"a"}`
		}
		n -= len(items)
		fmt.Fprintf(&b, `{"agent":"main","say":[{"call":"task","args":{"tasks":[%s]}}]}`+"\n", strings.Join(items, ","))
	}
	return b.String() + `{"agent":"main","times":-1,"say":[{"text":"ok"}]}` + "\n"
}

// peak is the most memory that this process has had, in bytes.
func peak(b *testing.B) float64 {
	b.Helper()
	status := string(must(os.ReadFile("/proc/self/status")))
	_, rest, _ := strings.Cut(status, "VmHWM:")
	var kb float64
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		b.Fatal(err)
	}
	return kb * 1024
}

// BenchmarkManySubagents is 64 subagents at once, each with 100 calls. Limit: 200 MB of memory (peak-MB, of the process);
// no result is lost or doubled, and the ids have no gap, which it checks.
func BenchmarkManySubagents(b *testing.B) {
	const agents, each = 64, 100
	lines := calls(agents) + fmt.Sprintf(`{"agent":"*","times":%d,"say":[{"call":"noop","args":{}}]}`, each) + "\n" + `{"agent":"*","times":-1,"say":[{"text":"done"}]}`
	for b.Loop() {
		m := must(session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: session.Flush}))
		s := must(m.Create(b.Context(), b.TempDir(), session.CreateOptions{}))
		a, dir, stop := tree(b, m, s, agents, lines)
		out, err := a.Run(b.Context(), entry.PlainText("go"))
		if err != nil || out.Status != agent.Completed {
			b.Fatal(out, err)
		}
		b.StopTimer()
		stop()
		for i := range agents {
			id := must(artifacts.ParseAgentID(fmt.Sprintf("%d-A", i)))
			if got, err := dir.LookupAgent(b.Context(), id, 0); err != nil || got.Version != 1 {
				b.Fatalf("%s: %+v, %v", id, got, err)
			}
			child := must(m.View(b.Context(), filepath.Join(s.ArtifactsDir(), id.String()+".jsonl")))
			results := 0
			for _, cm := range must(child.Context(b.Context())).Messages {
				if cm.Role == entry.RoleToolResult {
					results++
				}
			}
			child.Close()
			if results != each {
				b.Fatalf("%s has %d results", id, results)
			}
		}
		s.Close()
		b.StartTimer()
	}
	b.ReportMetric(peak(b)/1e6, "peak-MB")
}

// BenchmarkResumeTree resumes a run that was stopped with 100 subagents in the background, each behind three calls, and
// works until each has said its last word. Limit of the resuming alone: 300 ms.
func BenchmarkResumeTree(b *testing.B) {
	const agents = 100
	start := strings.ReplaceAll(calls(agents), `"tasks"`, `"background":true,"tasks"`)
	const three = `{"agent":"*","times":3,"say":[{"call":"noop","args":{}}]}` + "\n"
	for b.Loop() {
		b.StopTimer()
		m := must(session.OpenManager(filepath.Join(b.TempDir(), "home"), session.Options{Durability: session.Flush}))
		s := must(m.Create(b.Context(), b.TempDir(), session.CreateOptions{}))
		ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second) // by then all of them hang
		a, _, stop := tree(b, m, s, agents, start+three+`{"agent":"*","times":-1,"say":[{"hang":true}]}`)
		out, err := a.Run(ctx, entry.PlainText("go"))
		cancel()
		stop()
		if err != nil || out.Status != agent.Cancelled {
			b.Fatal(out, err)
		}
		a, dir, stop := tree(b, m, s, agents, start+three+`{"agent":"*","times":-1,"say":[{"text":"done"}]}`)
		b.StartTimer()
		out, err = a.Resume(b.Context())
		b.StopTimer()
		stop()
		if ids := must(dir.AgentIDs(b.Context())); err != nil || out.Status != agent.Completed || len(ids) != agents {
			b.Fatal(len(ids), out, err)
		}
		s.Close()
		b.StartTimer()
	}
}
