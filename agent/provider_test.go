package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/anthropic"
	"github.com/agentrun/agentrun/model/openai"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/toolset"
)

// says is a piece of an answer: a text, or a call.
type says struct{ text, id, tool, args string }

// protocol is one over which a model is asked.
type protocol struct {
	name   string
	open   func(*http.Client) model.Model
	answer func(stop string, all ...says) string // a stream; "" is the stop of a model that has said all
	ping   string
}

func event(kind string, v map[string]any) string {
	v["type"] = kind
	return fmt.Sprintf("event: %s\ndata: %s\n\n", kind, must(json.Marshal(v)))
}

type object = map[string]any

var protocols = []protocol{
	{"anthropic", func(c *http.Client) model.Model {
		return anthropic.New(anthropic.Options{Info: model.Info{ID: "m", ContextWindow: 1 << 40, MaxOutput: 1000}, HTTP: c})
	}, func(stop string, all ...says) string {
		out := event("message_start", object{"message": object{"id": "msg", "model": "m", "usage": object{"input_tokens": 1}}})
		end := "end_turn"
		for i, s := range all {
			block, delta := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": s.text}
			if s.tool != "" {
				end = "tool_use"
				block, delta = object{"type": "tool_use", "id": s.id, "name": s.tool, "input": object{}}, object{"type": "input_json_delta", "partial_json": s.args}
			}
			out += event("content_block_start", object{"index": i, "content_block": block}) +
				event("content_block_delta", object{"index": i, "delta": delta}) + event("content_block_stop", object{"index": i})
		}
		if stop != "" {
			end = map[string]string{"refused": "refusal", "length": "max_tokens"}[stop]
			if end == "" {
				end = stop
			}
		}
		return out + event("message_delta", object{"delta": object{"stop_reason": end}, "usage": object{"output_tokens": 1}}) + event("message_stop", object{})
	}, event("ping", object{})},
	{"responses", func(c *http.Client) model.Model {
		return openai.New(openai.Options{Info: model.Info{ID: "m", ContextWindow: 1 << 40, API: model.APIOpenAIResponses}, HTTP: c})
	}, func(stop string, all ...says) string {
		out := event("response.created", object{"response": object{"id": "r", "model": "m"}})
		for i, s := range all {
			item := object{"type": "message", "id": fmt.Sprint("msg_", i)}
			kind, delta := "response.output_text.delta", s.text
			if s.tool != "" {
				item = object{"type": "function_call", "id": fmt.Sprint("fc_", i), "call_id": s.id, "name": s.tool}
				kind, delta = "response.function_call_arguments.delta", s.args
			}
			out += event("response.output_item.added", object{"output_index": i, "item": item}) +
				event(kind, object{"output_index": i, "content_index": 0, "delta": delta}) + event("response.output_item.done", object{"output_index": i, "item": item})
		}
		response := object{"id": "r", "model": "m", "status": "completed"}
		kind := "response.completed"
		switch stop {
		case "":
		case "refused":
			kind, response["status"], response["incomplete_details"] = "response.incomplete", "incomplete", object{"reason": "content_filter"}
		case "length":
			kind, response["status"], response["incomplete_details"] = "response.incomplete", "incomplete", object{"reason": "max_output_tokens"}
		default:
			response["status"] = stop
		}
		return out + event(kind, object{"response": response})
	}, event("response.queued", object{})},
	{"chat", func(c *http.Client) model.Model {
		return openai.New(openai.Options{Info: model.Info{ID: "m", ContextWindow: 1 << 40, API: model.APIOpenAIChat}, HTTP: c})
	}, func(stop string, all ...says) string {
		chunk := func(delta object, finish any) string {
			return fmt.Sprintf("data: %s\n\n", must(json.Marshal(object{"id": "c", "model": "m", "choices": []any{object{"index": 0, "delta": delta, "finish_reason": finish}}})))
		}
		out, end := chunk(object{"role": "assistant", "content": ""}, nil), "stop"
		for i, s := range all {
			delta := object{"content": s.text}
			if s.tool != "" {
				end = "tool_calls"
				delta = object{"tool_calls": []any{object{"index": i, "id": s.id, "function": object{"name": s.tool, "arguments": s.args}}}}
			}
			out += chunk(delta, nil)
		}
		if stop != "" {
			end = map[string]string{"refused": "content_filter", "length": "length"}[stop]
			if end == "" {
				end = stop
			}
		}
		return out + chunk(object{}, end) + "data: [DONE]\n\n"
	}, ": ping\n\n"},
}

// reply is what a provider does with one request.
type reply struct {
	refuse bool // the connection
	status int  // 0 is 200
	header http.Header
	silent time.Duration // before the body
	pings  int           // before the body, half a minute apart
	body   string
	hang   bool // behind it
}

// provider plays replies, the last one for ever, without a network: the clock of a test may be a false one then.
type provider struct {
	replies []reply
	ping    string
	asked   int
	open    int // bodies that nobody has closed
}

func (p *provider) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
	}
	r := p.replies[min(p.asked, len(p.replies)-1)]
	p.asked++
	if r.refuse {
		return nil, fmt.Errorf("connection refused")
	}
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.header == nil {
		r.header = http.Header{"Content-Type": {"text/event-stream"}}
	}
	p.open++
	return &http.Response{StatusCode: r.status, Header: r.header, Body: &body{p, r, req.Context()}, Request: req}, nil
}

// body is that of a reply.
type body struct {
	of  *provider
	r   reply
	ctx context.Context
}

func (b *body) wait(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.wait(b.r.silent); err != nil {
		return 0, err
	}
	b.r.silent = 0
	if b.r.pings > 0 {
		b.r.pings, b.r.silent = b.r.pings-1, 30*time.Second
		return copy(p, b.of.ping), nil
	}
	if b.r.body != "" {
		n := copy(p, b.r.body)
		b.r.body = b.r.body[n:]
		return n, nil
	}
	if b.r.hang {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return 0, io.EOF
}

func (b *body) Close() error {
	b.of.open--
	return nil
}

func TestWhateverAProviderDoesARunEndsAndGoesOn(t *testing.T) {
	errs := func(status int, more ...string) reply {
		h := http.Header{"Content-Type": {"application/json"}}
		for _, v := range more {
			h.Set("Retry-After", v)
		}
		return reply{status: status, header: h, body: `{"error":{"type":"some_error","message":"Oh."}}`}
	}
	ok := func(p protocol) reply { return reply{body: p.answer("", says{text: "Done."})} }
	big := strings.Repeat("0123456789", 1<<20)
	call := func(id, text string) says {
		return says{id: id, tool: "echo", args: `{"text":"` + text + `"}`}
	}
	for _, tt := range []struct {
		name    string
		replies func(p protocol) []reply
		status  agent.Status
		reason  string        // a part of it
		text    string        // the outcome's
		longer  time.Duration // it takes at least
		shorter time.Duration // and at most, 0 for a minute more
		results []string      // the beginning of each
		big     bool          // one protocol is enough: the log is the same
	}{
		{
			name: "one that says nothing at all", replies: func(protocol) []reply { return []reply{{hang: true}} },
			status: agent.FailedRun, reason: "the provider has said nothing for 10m0s; ask again (after 8 tries)", longer: 80 * time.Minute, shorter: 90 * time.Minute,
		},
		{name: "one that hangs in an answer", replies: func(p protocol) []reply {
			return []reply{{body: p.answer("", says{text: "Half"}, says{text: "more"})[:300], hang: true}, ok(p)}
		}, status: agent.Completed, text: "Done.", longer: 10 * time.Minute},
		{
			name: "one that is silent for nine minutes", replies: func(p protocol) []reply { r := ok(p); r.silent = 9 * time.Minute; return []reply{r} },
			status: agent.Completed, text: "Done.", longer: 9 * time.Minute,
		},
		{name: "one that shows that it is there, and thinks for fifteen minutes", replies: func(p protocol) []reply {
			r := ok(p)
			r.pings = 30
			return []reply{r}
		}, status: agent.Completed, text: "Done.", longer: 15 * time.Minute},
		{
			name: "one that only shows that it is there", replies: func(p protocol) []reply { return []reply{{pings: 1e6}, ok(p)} },
			status: agent.Completed, text: "Done.", longer: 20 * time.Minute,
		},
		{
			name: "one that sends garbage", replies: func(protocol) []reply { return []reply{{body: "data: <html>502</html>\n\n"}} },
			status: agent.FailedRun, reason: "the provider sent an event that is none; ask again, and see the base URL if this stays (after 8 tries)", longer: time.Minute, shorter: 5 * time.Minute,
		},
		{
			name: "one that sends bytes", replies: func(protocol) []reply { return []reply{{body: strings.Repeat("\x00\xff\n", 1000)}} },
			status: agent.FailedRun, reason: "the answer broke off; ask again (after 8 tries)", longer: time.Minute, shorter: 5 * time.Minute,
		},
		{name: "one that sends a page", replies: func(protocol) []reply {
			return []reply{{header: http.Header{"Content-Type": {"text/html"}}, body: "<html>Welcome"}}
		}, status: agent.FailedRun, reason: "the provider answered with something else than events; see the base URL (HTTP 200: <html>Welcome) (after 8 tries)", longer: time.Minute, shorter: 5 * time.Minute},
		{
			name: "one that cannot be reached", replies: func(protocol) []reply { return []reply{{refuse: true}} },
			status: agent.FailedRun, reason: "the connection failed (connection refused); ask again (after 8 tries)", longer: time.Minute, shorter: 5 * time.Minute,
		},
		{
			name: "one that fails for an hour", replies: func(protocol) []reply { return []reply{errs(500)} },
			status: agent.FailedRun, reason: "the provider failed; ask again (HTTP 500: Oh) (after 8 tries)", longer: time.Minute, shorter: 5 * time.Minute,
		},
		{
			name: "one that asks to wait", replies: func(p protocol) []reply { return []reply{errs(429, "90"), ok(p)} },
			status: agent.Completed, text: "Done.", longer: 90 * time.Second,
		},
		{
			name: "one that has too much to do", replies: func(p protocol) []reply { return []reply{errs(529, "20"), errs(529), ok(p)} },
			status: agent.Completed, text: "Done.", longer: 20 * time.Second,
		},
		{
			name: "one that asks to wait until tomorrow", replies: func(protocol) []reply { return []reply{errs(429, "86400")} },
			status: agent.FailedRun, reason: "(it asks to wait 24h0m0s, and 10m0s is the longest)",
		},
		{
			name: "one that takes no key", replies: func(protocol) []reply { return []reply{errs(401)} },
			status: agent.FailedRun, reason: "the provider does not take the key; see that it is right and may use this model (HTTP 401: Oh)",
		},
		{name: "one that breaks off once", replies: func(p protocol) []reply {
			return []reply{{body: p.answer("", says{text: "Half"})[:250]}, ok(p)}
		}, status: agent.Completed, text: "Done."},
		{name: "one that always breaks off within a call", replies: func(p protocol) []reply {
			whole := p.answer("", says{text: "I call."}, call("c", "a"))
			return []reply{{body: whole[:strings.LastIndex(whole, "c")-40]}}
		}, status: agent.FailedRun, reason: "the answer broke off; ask again (after 8 tries)", longer: time.Minute, shorter: 5 * time.Minute},
		{name: "one that has nothing to say", replies: func(p protocol) []reply { return []reply{{body: p.answer("")}} }, status: agent.Completed},
		{
			name: "one that stops for a reason of its own", replies: func(p protocol) []reply { return []reply{{body: p.answer("moonrise", says{text: "Done."})}} },
			status: agent.Completed, text: "Done.",
		},
		{
			name: "one that refuses", replies: func(p protocol) []reply { return []reply{{body: p.answer("refused", says{text: "I"})}} },
			status: agent.FailedRun, reason: "the provider does not want to answer this",
		},
		{
			name: "one that says ten megabytes", replies: func(p protocol) []reply { return []reply{{body: p.answer("", says{text: big})}} },
			status: agent.Completed, text: big, big: true,
		},
		{name: "arguments that are no JSON", replies: func(p protocol) []reply {
			return []reply{{body: p.answer("", says{id: "c", tool: "echo", args: `{"text":`})}, ok(p)}
		}, status: agent.Completed, text: "Done.", results: []string{`[echo was not called: the arguments are no JSON object: "{\"text\":"]`}},
		{name: "a tool that is not there", replies: func(p protocol) []reply {
			return []reply{{body: p.answer("", says{id: "c", tool: "rm -rf", args: `{}`})}, ok(p)}
		}, status: agent.Completed, text: "Done.", results: []string{`[there is no tool "rm -rf"; there are echo]`}},
		{name: "calls of one id", replies: func(p protocol) []reply {
			return []reply{{body: p.answer("", call("c", "a"), call("c", "b"), call("", "d"))}, {body: p.answer("", call("c", "e"))}, ok(p)}
		}, status: agent.Completed, text: "Done.", results: []string{"echo: a", "echo: b", "echo: d", "echo: e"}},
		{name: "a call with five megabytes of arguments", replies: func(p protocol) []reply {
			return []reply{{body: p.answer("", call("c", big[:5<<20]))}, ok(p)}
		}, status: agent.Completed, text: "Done.", results: []string{"echo: 0123"}, big: true},
	} {
		for i, p := range protocols {
			if tt.big && i > 0 || tt.big && testing.Short() { // seconds under the race detector
				continue
			}
			t.Run(tt.name+"/"+p.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t)
					far := &provider{replies: tt.replies(p), ping: p.ping}
					o := agent.Options{
						Session: h.session, Model: p.open(&http.Client{Transport: far}), Tools: must(toolset.New(echo{name: "echo"})),
						Artifacts: artifacts.Open(h.session.ArtifactsDir(), artifacts.Options{LoggedMax: h.session.MaxArtifactID}),
					}
					began := time.Now()
					out := must(must(agent.New(o)).Run(t.Context(), entry.PlainText("go")))
					took := time.Since(began)
					if out.Status != tt.status || !strings.Contains(out.Reason, tt.reason) || (out.Reason == "") != (tt.status == agent.Completed) || out.Text != tt.text {
						t.Errorf("the outcome is %s: %s: %.100q; want %s: %s: %.100q", out.Status, out.Reason, out.Text, tt.status, tt.reason, tt.text)
					}
					if most := max(tt.shorter, tt.longer+time.Minute); took < tt.longer || took > most {
						t.Errorf("it took %v, want %v to %v", took, tt.longer, most)
					}
					if far.open != 0 {
						t.Errorf("%d answers are still open", far.open)
					}
					h.answered(t, tt.results)
					if tt.status == agent.Completed {
						return
					}
					far = &provider{replies: []reply{ok(p)}}
					o.Model = p.open(&http.Client{Transport: far})
					if out = must(must(agent.New(o)).Resume(t.Context())); out.Status != agent.Completed || out.Text != "Done." {
						t.Errorf("resumed: %+v", out)
					}
					h.answered(t, tt.results)
				})
			})
		}
	}
}

// answered holds that each call has exactly one result, that these begin as they should, and that the log is as it should be.
func (h house) answered(t *testing.T, results []string) {
	t.Helper()
	c := must(h.session.Context(t.Context()))
	for _, r := range c.Repairs {
		t.Errorf("the log needs a repair: %s", r.What())
	}
	open := map[string]bool{}
	var got []string
	for _, cm := range c.Messages {
		switch m := must(cm.Message()).(type) {
		case entry.AssistantMessage:
			for _, call := range m.Content.ToolCalls() {
				if open[call.ID] {
					t.Errorf("two calls have the id %s", call.ID)
				}
				open[call.ID] = true
			}
		case entry.ToolResultMessage:
			if !open[m.ToolCallID] {
				t.Errorf("a result without a call: %s", m.ToolCallID)
			}
			delete(open, m.ToolCallID)
			got = append(got, m.Content.Text())
		}
	}
	if len(open) > 0 {
		t.Errorf("calls without a result: %v", open)
	}
	if !slices.EqualFunc(got, results, strings.HasPrefix) {
		t.Errorf("the results are %.300q, want %q", got, results)
	}
	m := must(session.OpenManager(h.Home(), session.Options{}))
	d := must(doctor.New(t.Context(), m, doctor.Options{Report: func(f doctor.Finding) {
		t.Errorf("the doctor finds %s: %s: %s", f.Kind, filepath.Base(f.File), f.What)
	}}))
	if err := d.Home(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
