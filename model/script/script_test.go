package script_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

func read(t *testing.T, lines ...string) *script.Model {
	t.Helper()
	m, err := script.New("test.jsonl", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func ask(agent string, turn int) *model.Request {
	return &model.Request{Agent: agent, Turn: turn, Messages: []entry.Message{entry.UserText("hello there")}}
}

// play returns the text of an answer, or its error.
func play(t *testing.T, m model.Model, req *model.Request) (string, error) {
	t.Helper()
	for e, err := range m.Stream(t.Context(), req) {
		if err != nil {
			return "", err
		}
		if stop, ok := e.(model.Stop); ok {
			return stop.Message.Content.Text(), nil
		}
	}
	t.Fatal("the stream ended without an end")
	return "", nil
}

func TestAgentsAreAnsweredByTheirTurnInWhateverOrder(t *testing.T) {
	m := read(
		t,
		`{"script":1,"model":{"id":"demo","contextWindow":1000}}`,
		`{"agent":"main","say":[{"text":"m0"}]}`,
		`{"agent":"0-Review","say":[{"text":"r0"}],"times":2}`,
		`{"agent":"main","say":[{"text":"m1"}],"note":"twice? no"}`,
		`{"agent":"*-Review","say":[{"text":"any"}],"times":-1}`,
		`{"agent":"0-Review","say":[{"text":["r","2"]}]}`,
	)
	if got := m.Info(); got.ID != "demo" || got.ContextWindow != 1000 || got.API != model.APIScript {
		t.Errorf("the model is %+v", got)
	}
	for _, c := range []struct {
		agent string
		turn  int
		want  string
	}{
		{"main", 1, "m1"},
		{"0-Review", 2, "r2"},
		{"main", 0, "m0"},
		{"0-Review", 1, "r0"},
		{"main", 0, "m0"},
		{"0-Review", 0, "r0"},
		{"1-Review", 0, "any"},
		{"1-Review", 77, "any"},
	} {
		if got, err := play(t, m, ask(c.agent, c.turn)); err != nil || got != c.want {
			t.Errorf("%s, turn %d: %q, %v", c.agent, c.turn, got, err)
		}
	}
	if left := m.Unplayed(); left != nil {
		t.Errorf("lines %v are left", left)
	}
	for want, req := range map[string]*model.Request{
		`no answer for turn 2 of agent "main": its last line is line 4`: ask("main", 2),
		`no line for agent "2-Scout"`:                                   ask("2-Scout", 0),
		`no answer for turn -1`:                                         ask("main", -1),
	} {
		_, err := play(t, m, req)
		if err == nil || !strings.Contains(err.Error(), want) || model.KindOf(err) != model.KindInvalid {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestLinesThatFailAreNoTurns(t *testing.T) {
	m := read(
		t,
		`{"agent":"main","say":[{"error":{"kind":"rate-limit","status":429,"retryAfter":"2s"}}],"times":2}`,
		`{"agent":"main","say":[{"text":"abc"},{"cut":true}]}`,
		`{"agent":"main","say":[{"text":"whole"}]}`,
		`{"agent":"main","say":[{"text":"next"}]}`,
		`{"agent":"main","say":[{"error":{"kind":"server","status":500}}],"times":-1}`,
	)
	for i, want := range []model.Kind{model.KindRateLimit, model.KindRateLimit, model.KindCut} {
		_, err := play(t, m, ask("main", 0))
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != want || want == model.KindRateLimit && (e.RetryAfter != 2*time.Second || e.Status != 429) {
			t.Errorf("try %d: %v", i, err)
		}
	}
	for turn, want := range []string{"whole", "next"} {
		if got, err := play(t, m, ask("main", turn)); err != nil || got != want {
			t.Errorf("turn %d: %q, %v", turn, got, err)
		}
	}
	for range 10 {
		if _, err := play(t, m, ask("main", 2)); model.KindOf(err) != model.KindServer {
			t.Error(err)
		}
	}
}

func TestExpectationsSayWhatWasSentInstead(t *testing.T) {
	req := &model.Request{
		Agent: "main", System: entry.Prompt{"be careful", "in Berlin"}, Thinking: model.ThinkingHigh,
		Tools: []model.ToolSpec{{Name: "read", Schema: []byte(`{}`)}},
		Messages: []entry.Message{
			entry.UserText("fix it"),
			entry.AssistantMessage{Content: entry.Blocks(entry.ToolCallBlock{ID: "c1", Name: "read"})},
			entry.ToolError(entry.ToolCallBlock{ID: "c1", Name: "read"}, "no such file"),
		},
	}
	for expect, want := range map[string]string{
		`{"system":["careful","Berlin"],"messages":3,"last":{"role":"toolResult","text":"file"},"tools":["read"],"noTools":["write"],
		  "results":[{"call":"c1","text":"such","isError":true},{}],"contains":"fix","thinking":"high"}`: "",
		`{"system":"bold"}`:               `the system prompt does not contain "bold"; it is "be careful\nin Berlin"`,
		`{"messages":2}`:                  `3 messages were sent, and 2 were expected`,
		`{"last":{"role":"user"}}`:        `the last message is of the role toolResult, and user was expected`,
		`{"last":{"text":"dir"}}`:         `the last message does not contain "dir"; it is "no such file"`,
		`{"tools":["write"]}`:             `tool "write" is not offered; these are: read`,
		`{"noTools":["read"]}`:            `tool "read" is offered`,
		`{"results":[{"call":"c2"}]}`:     `there are 1: c1 (error: true) "no such file"`,
		`{"results":[{"isError":false}]}`: `no tool result is as expected`,
		`{"contains":["fix","break"]}`:    `no message contains "break"`,
		`{"thinking":"off"}`:              `the level of thinking is high, and "off" was expected`,
	} {
		line := strings.ReplaceAll(strings.ReplaceAll(expect, "\n", " "), "\t", "")
		m := read(t, `{"agent":"main","expect":`+line+`,"say":[{"text":"ok"}]}`)
		_, err := play(t, m, req)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", expect, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), "test.jsonl:1: agent main, turn 0: ") || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", expect, err)
		}
	}
}

func TestDelaysEndWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := read(t, `{"agent":"main","say":[{"text":"a"},{"delay":"1h"},{"text":"b"}]}`, `{"agent":"main","say":[{"hang":true}]}`)
		begun := time.Now()
		if text, err := play(t, m, ask("main", 0)); err != nil || text != "ab" || time.Since(begun) != time.Hour {
			t.Errorf("%q after %v, %v", text, time.Since(begun), err)
		}
		for turn := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			var last error
			for _, err := range m.Stream(ctx, ask("main", turn)) {
				last = err
			}
			cancel()
			if model.KindOf(last) != model.KindCancelled || !errors.Is(last, context.DeadlineExceeded) {
				t.Errorf("turn %d: %v", turn, last)
			}
		}
	})
}

func TestAScriptThatIsNoneIsRefusedByItsLine(t *testing.T) {
	for text, want := range map[string]string{
		``:                                                                    `it has no lines`,
		"\n\n{":                                                               `line 3: unexpected EOF`,
		`{"agent":"main","say":[]} {}`:                                        `something follows`,
		`{"agent":"main","sai":[]}`:                                           `unknown field "sai"`,
		`{"say":[]}`:                                                          `agent is missing`,
		`{"agent":"[","say":[]}`:                                              `is no pattern`,
		`{"agent":"a","say":[{}]}`:                                            `step 1: says nothing to do`,
		`{"agent":"a","say":[{"text":1}]}`:                                    `cannot unmarshal number`,
		`{"agent":"a","say":[{"tex":"x"}]}`:                                   `unknown field "tex"`,
		`{"agent":"a","say":[],"times":-2}`:                                   `times is -2`,
		`{"agent":"a","say":[],"stop":"no"}`:                                  `stop is "no"`,
		`{"agent":"a","say":[{"text":"x","cut":true}]}`:                       `step 1: is both text and cut`,
		`{"agent":"a","say":[{"cut":true},{"text":"x"}]}`:                     `step 1 ends the answer, and step 2 follows`,
		`{"agent":"a","say":[{"delay":"-1s"}]}`:                               `"-1s" is no time`,
		`{"agent":"a","say":[{"delay":3}]}`:                                   `a time is a string`,
		`{"agent":"a","say":[{"error":{"kind":"bad"}}]}`:                      `no error of the kind "bad"`,
		`{"agent":"a","say":[{"text":"x","args":{}}]}`:                        `belong to call`,
		`{"agent":"a","say":[{"call":"x","signature":"y"}]}`:                  `signature belongs to thinking`,
		`{"agent":"a","say":[{"text":"xxxxxxxx","repeat":60000000}]}`:         `longer than 64 MiB`,
		`{"agent":"a","say":[{"parallel":[{"cut":true}]}]}`:                   `part 1: cut cannot be within parallel`,
		`{"agent":"a","say":[{"parallel":[{"text":"x","repeat":2}]}]}`:        `part 1: repeat cannot be within parallel`,
		`{"agent":"a","expect":{"last":{"role":"x"}},"say":[]}`:               `expect.last.role is "x"`,
		`{"agent":"a","expect":{"messages":0},"say":[]}`:                      `expect.messages is 0`,
		`{"agent":"a","say":[],"times":-1}` + "\n" + `{"agent":"a","say":[]}`: `line 2: line 1 of the same agent is played for ever`,
		`{"agent":"a","say":[{"cut":true}],"times":-1}` + "\n" + `{"agent":"a","say":[]}`: `line 2: line 1 of the same agent is played for ever`,
		`{"script":2}`:                          `line 1: the script is of version 2`,
		strings.Repeat("\n", script.MaxLines+1): `more than 100000 lines`,
		`{"agent":"a","say":[` + strings.Repeat(`{"text":"x"},`, script.MaxSteps) + `{"text":"x"}]}`: `more than 4096 steps`,
	} {
		_, err := script.New("bad.jsonl", strings.NewReader(text))
		if err == nil || !strings.HasPrefix(err.Error(), "reading script bad.jsonl: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
	if _, err := script.New("big.jsonl", endless{}); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("an endless script: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

// TestExamplesCanBePlayed: what testdata/script holds shows one feature a file, and each
// plays to its end as it stands.
func TestExamplesCanBePlayed(t *testing.T) {
	files, err := filepath.Glob("../../testdata/script/*.jsonl")
	if err != nil || len(files) < 10 {
		t.Fatal(len(files), "examples", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := script.New(filepath.Base(file), bytes.NewReader(data)); err != nil {
			t.Error(err)
		}
	}
}

func FuzzNew(f *testing.F) {
	files, _ := filepath.Glob("../../testdata/script/*.jsonl")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add(`{"agent":"main","say":[{"parallel":[{"call":"a","rawArgs":["{","\""]},{"text":"x"},{"thinking":"y","signature":"z"}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := script.New("fuzz.jsonl", strings.NewReader(text))
		if err != nil {
			return
		}
		for turn := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond) // for scripts that wait
			ends := 0
			n := 0
			for e, err := range m.Stream(ctx, ask("main", turn)) {
				if ends > 0 {
					t.Fatal("something follows the end")
				}
				if _, ok := e.(model.Stop); ok || err != nil {
					ends++
				}
				if n++; n > 100 {
					cancel()
				}
			}
			cancel()
			if ends != 1 {
				t.Fatalf("the stream has %d ends", ends)
			}
		}
	})
}

// BenchmarkTurn is what a turn costs besides what is said in it.
func BenchmarkTurn(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `{"agent":"main","say":[{"call":"noop","args":{"n":%d}}]}`+"\n", i)
	}
	m, err := script.New("bench.jsonl", strings.NewReader(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		for _, err := range m.Stream(b.Context(), ask("main", i%1000)) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}
