package record_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/modeltest"
	"github.com/agentrun/agentrun/model/record"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

func read(t *testing.T, text string) *script.Model {
	t.Helper()
	m, err := script.New("test.jsonl", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ask(agent string, turn int) *model.Request {
	return &model.Request{
		Agent: agent, Turn: turn, Messages: []entry.Message{entry.UserText("what is hunter22?")},
		Tools: []model.ToolSpec{{Name: "read", Schema: []byte(`{"type":"object"}`)}},
	}
}

// play returns the content of an answer as JSON, or the kind of its error.
func play(t *testing.T, m model.Model, req *model.Request) string {
	t.Helper()
	for e, err := range m.Stream(t.Context(), req) {
		if err != nil {
			var failed *model.Error
			if !errors.As(err, &failed) {
				t.Fatal(err)
			}
			said := ""
			if failed.Partial != nil {
				said = failed.Partial.Content.Text()
			}
			return string(failed.Kind) + " " + said
		}
		if stop, ok := e.(model.Stop); ok {
			a := stop.Message
			raw, err := json.Marshal(map[string]any{"content": a.Content, "usage": a.Usage, "stop": a.StopReason})
			if err != nil {
				t.Fatal(err)
			}
			return string(raw)
		}
	}
	t.Fatal("no end")
	return ""
}

const conversation = `{"script":1,"model":{"id":"demo","contextWindow":1000,"prices":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}}}
{"agent":"main","say":[{"error":{"kind":"rate-limit","status":429,"retryAfter":"2s"}}]}
{"agent":"main","say":[{"text":"half"},{"cut":true}]}
{"agent":"main","say":[{"thinking":["hm","!"],"signature":"c2ln"},{"redacted":"eA=="},{"text":["a","b"]},{"call":"read","id":"c1","args":{"path":"x <&>"}},{"call":"read","id":"c2","rawArgs":"{\"pa"},{"usage":{"input":10,"output":20,"reasoningTokens":3}}]}
{"agent":"main","say":[{"text":"signed","signature":"{\"v\":1}"},{"text":"more"}],"stop":"length"}
{"agent":"0-Review","say":[]}
`

func TestARecordingPlaysWhatWasSaid(t *testing.T) {
	var text bytes.Buffer
	recorded := record.New(read(t, conversation), &text, record.Options{})
	asked := []*model.Request{ask("main", 0), ask("main", 0), ask("main", 0), ask("0-Review", 0), ask("main", 1)}
	var first, second []string
	for _, req := range asked {
		first = append(first, play(t, recorded, req))
	}
	if err := recorded.Err(); err != nil {
		t.Fatal(err)
	}
	replayed := read(t, text.String())
	if got := replayed.Info(); got.ID != "demo" || got.ContextWindow != 1000 || got.Prices.Output != 2 {
		t.Errorf("the model is %+v", got)
	}
	for _, req := range asked {
		second = append(second, play(t, replayed, req))
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("%s\n%s", diff, text.String())
	}
	// Asked something else, it says so.
	other := ask("main", 0)
	other.Tools = nil
	if got := play(t, read(t, text.String()), other); !strings.HasPrefix(got, string(model.KindInvalid)) {
		t.Error(got)
	}
}

func TestSecretsAreTakenOut(t *testing.T) {
	var text bytes.Buffer
	inner := read(t, strings.ReplaceAll(`{"agent":"main","say":[{"text":"SECRET"},{"thinking":"SECRET","signature":"SECRET-signed"},{"call":"read","args":{"a":"SECRET"}},{"call":"read","rawArgs":"{SECRET"}]}
{"agent":"main","say":[{"error":{"kind":"server","message":"SECRET"}}]}
`, "SECRET", "hunter22"))
	m := record.New(inner, &text, record.Options{Redact: func(b []byte) []byte {
		return bytes.ReplaceAll(b, []byte("hunter22"), []byte("[redacted:x:1]"))
	}})
	play(t, m, ask("main", 0))
	play(t, m, ask("main", 1))
	left := strings.ReplaceAll(text.String(), "hunter22-signed", "")
	if strings.Contains(left, "hunter22") || strings.Count(left, "[redacted:x:1]") != 7 || m.Err() != nil {
		t.Errorf("%v\n%s", m.Err(), text.String())
	}
	if got := play(t, read(t, text.String()), ask("main", 0)); !strings.Contains(got, `"a":"[redacted:x:1]"`) {
		t.Error(got)
	}
}

func TestARecordingMayBeginLate(t *testing.T) {
	var text bytes.Buffer
	inner := read(t, `{"agent":"main","say":[{"text":"x"}],"times":-1}`)
	m := record.New(inner, &text, record.Options{})
	play(t, m, ask("main", 3))
	play(t, m, ask("main", 4))
	replayed := read(t, text.String())
	if got := play(t, replayed, ask("main", 4)); !strings.Contains(got, `"text":"x"`) {
		t.Errorf("%s\n%s", got, text.String())
	}
	play(t, m, ask("main", 3))
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "turn 3 was answered before") {
		t.Error(err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAFullDiskEndsNoConversation(t *testing.T) {
	m := record.New(read(t, `{"agent":"main","say":[{"text":"x"}]}`), broken{}, record.Options{})
	if got := play(t, m, ask("main", 0)); !strings.Contains(got, `"text":"x"`) {
		t.Error(got)
	}
	if m.Err() == nil {
		t.Error("nobody is told")
	}
}

// noting is a model that keeps what it is asked.
type noting struct {
	model.Model
	mu   sync.Mutex
	sent [][]byte
}

func (n *noting) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	if model.Check(req, n.Info()) == nil {
		raw, err := json.Marshal(req)
		if err != nil {
			panic(err)
		}
		n.mu.Lock()
		n.sent = append(n.sent, raw)
		n.mu.Unlock()
	}
	return n.Model.Stream(ctx, req)
}

// TestModel: a model that is recorded keeps the contract.
func TestModel(t *testing.T) {
	modeltest.Run(t, modeltest.Options{
		NoImageLimits: true,
		Open: func(t *testing.T, s modeltest.Scenario) modeltest.Backend {
			var text bytes.Buffer
			lines := json.NewEncoder(&text)
			if err := lines.Encode(script.Head{Script: script.Version, Model: script.ModelInfo{ID: s.Info.ID, MaxOutput: s.Info.MaxOutput, Prices: s.Info.Prices}}); err != nil {
				t.Fatal(err)
			}
			for i, line := range s.Lines {
				if i == len(s.Lines)-1 {
					line.Times = -1
				}
				if err := lines.Encode(line); err != nil {
					t.Fatal(err)
				}
			}
			n := &noting{Model: read(t, text.String())}
			return modeltest.Backend{
				Model: record.New(n, &bytes.Buffer{}, record.Options{}), Close: func() {}, Sent: func() [][]byte { return n.sent },
			}
		},
	})
}
