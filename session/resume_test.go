package session_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// logLine is a line of a log with a parent, "" for none.
func logLine(id, parent, rest string) string {
	p := "null"
	if parent != "" {
		p = `"` + parent + `"`
	}
	typ := "message"
	if !strings.HasPrefix(rest, `"`) {
		typ, rest, _ = strings.Cut(rest, " ")
	}
	if rest != "" {
		rest = "," + rest
	}
	return fmt.Sprintf(`{"type":%q,"id":%q,"parentId":%s,"timestamp":"2026-11-20T20:17:08.000Z"%s}`+"\n", typ, id, p, rest)
}

var clock = 1000 // the time of the next message

func asks(text string) string {
	clock++
	return fmt.Sprintf(`"message":{"role":"user","content":%q,"timestamp":%d}`, text, clock)
}

const cost = `"usage":{"input":100,"output":20,"cost":{"input":1,"output":2,"total":3}}`

func says(text string, calls ...string) string {
	clock++
	var blocks []string
	if text != "" {
		blocks = append(blocks, fmt.Sprintf(`{"type":"thinking","thinking":"hm","thinkingSignature":"c2ln"},{"type":"text","text":%q}`, text))
	}
	stop := "stop"
	for _, c := range calls {
		blocks, stop = append(blocks, fmt.Sprintf(`{"type":"toolCall","id":%q,"name":"bash","arguments":{"a":1}}`, c)), "toolUse"
	}
	return fmt.Sprintf(`"message":{"role":"assistant","content":[%s],"api":"x","provider":"p","model":"m",%s,"stopReason":%q,"timestamp":%d}`, strings.Join(blocks, ","), cost, stop, clock)
}

func fails(call string) string {
	return strings.Replace(says("no", call), `"stopReason":"toolUse"`, `"stopReason":"aborted"`, 1)
}

func answers(call, text string) string {
	clock++
	return fmt.Sprintf(`"message":{"role":"toolResult","toolCallId":%q,"toolName":"bash","content":[{"type":"text","text":%q}],"isError":false,"timestamp":%d}`, call, text, clock)
}

func shows(images ...string) string {
	clock++
	var blocks []string
	for _, data := range images {
		blocks = append(blocks, fmt.Sprintf(`{"type":"image","data":%q,"mimeType":"image/png"}`, data))
	}
	return fmt.Sprintf(`"message":{"role":"user","content":[{"type":"text","text":"look"},%s],"timestamp":%d}`, strings.Join(blocks, ","), clock)
}

func pngOf(width, height int) string {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// said words the messages of a context: their words, calls and images.
func said(t testing.TB, c *entry.Context) []string {
	t.Helper()
	var out []string
	for _, m := range c.Messages {
		msg, err := m.Message()
		if err != nil {
			t.Fatal(err)
		}
		text := entry.Text(msg)
		switch b := msg.(type) {
		case entry.AssistantMessage:
			for _, call := range b.Content.ToolCalls() {
				text += " -> " + call.ID
			}
		case entry.ToolResultMessage:
			text = b.ToolCallID + ": " + text
		}
		if n := len(m.Images()); n > 0 {
			text += fmt.Sprintf(" (%d images)", n)
		}
		out = append(out, strings.ReplaceAll(text, entry.InterruptedResult, "interrupted"))
	}
	return out
}

// accepted fails unless a provider would accept the context.
func accepted(t testing.TB, c *entry.Context) {
	t.Helper()
	var open []string
	calls := map[string]bool{}
	for i, m := range c.Messages {
		if m.Role == entry.RoleToolResult {
			if len(open) == 0 {
				t.Fatalf("message %d: a result of no call", i)
			}
			for j, id := range open {
				if id == m.ToolCallIDs[0] {
					open = append(open[:j:j], open[j+1:]...)
					break
				}
			}
			continue
		}
		if len(open) > 0 {
			t.Fatalf("message %d: calls %v have no result", i, open)
		}
		if m.Role == entry.RoleAssistant {
			open = m.ToolCallIDs
			for _, id := range open {
				if calls[id] || id == "" {
					t.Fatalf("message %d: the call id %q is there twice or empty", i, id)
				}
				calls[id] = true
			}
		}
		raw, err := m.JSON()
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ Content any }
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if list, ok := body.Content.([]any); body.Content == "" || ok && len(list) == 0 {
			t.Fatalf("message %d says nothing: %s", i, raw)
		}
		for _, img := range m.Images() {
			if len(img.Data) > 5<<20 {
				t.Fatalf("message %d has an image of %d bytes", i, len(img.Data))
			}
		}
	}
	if len(open) > 0 {
		t.Fatalf("calls %v have no result", open)
	}
}

func kinds(repairs []entry.Repair) string {
	var words []string
	for _, r := range repairs {
		words = append(words, string(r.Kind)+" "+r.EntryID)
	}
	return strings.Join(words, ", ")
}

const missingBlob = "blob:sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// oneContext fails unless the built context, the path of a transcript and a fork of the
// path go the way that r went.
func oneContext(t *testing.T, m *session.Manager, path string, r *session.Resumed) {
	t.Helper()
	s := must(m.View(t.Context(), path))
	defer s.Close()
	entriesOf := func(c *entry.Context) (ids []string) {
		for _, m := range c.Messages {
			ids = append(ids, m.Role+" "+m.EntryID)
		}
		return ids
	}
	want := entriesOf(r.Context)
	for range 2 { // read, and from what is remembered
		c, _, err := s.ContextWith(t.Context(), session.ContextOptions{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, entriesOf(c)); d != "" {
			t.Fatalf("the built context is not the resumed one (-resumed +built):\n%s", d)
		}
	}
	tree := must(s.Tree(t.Context()))
	way, _, err := tree.ContextPath(tree.Leaf())
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry.Entry
	for _, i := range way {
		entries = append(entries, must(tree.Entry(i)))
	}
	if d := cmp.Diff(want, entriesOf(entry.BuildContext(entries, entry.ContextOptions{Strict: true}))); d != "" {
		t.Fatalf("the path of a transcript is not the resumed one (-resumed +path):\n%s", d)
	}
	fork := must(m.Fork(t.Context(), path, session.ForkOptions{PathOnly: true}))
	f := must(m.View(t.Context(), fork.Path))
	defer f.Close()
	if d := cmp.Diff(want, entriesOf(must(f.Resume(t.Context(), session.ResumeOptions{})).Context)); d != "" {
		t.Fatalf("a fork of the path does not resume as its origin (-origin +fork):\n%s", d)
	}
}

func TestResumeRepairsWhatProvidersRefuse(t *testing.T) {
	again := asks("twice")
	turn := says("once", "x")
	for _, tt := range []struct {
		name    string
		lines   []string
		want    []string
		repairs string
	}{
		{"nothing to repair", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")), logLine("c", "b", answers("x", "out")), logLine("d", "c", says("done")),
		}, []string{"hi", "yes -> x", "x: out", "done"}, ""},
		{"a call at the end without a result", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x", "y")), logLine("c", "b", answers("y", "out")),
		}, []string{"hi", "yes -> x -> y", "y: out", "x: interrupted"}, "interrupted b"},
		{"a call in the middle without a result", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")), logLine("c", "b", asks("well?")), logLine("d", "c", says("done")),
		}, []string{"hi", "yes -> x", "x: interrupted", "well?", "done"}, "interrupted b"},
		{"a call without a result before a turn that failed", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")), logLine("c", "b", fails("y")),
		}, []string{"hi", "yes -> x", "x: interrupted"}, "interrupted b"},
		{"a result without a call", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", answers("x", "out")), logLine("c", "b", says("done")),
		}, []string{"hi", "done"}, "orphan b"},
		{"a result at the end without a call", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", answers("x", "out")),
		}, []string{"hi"}, "orphan b"},
		{"a result apart from its turn", []string{
			logLine("a", "", says("yes", "x")), logLine("b", "a", asks("and")), logLine("c", "b", answers("x", "out")), logLine("d", "c", says("done")),
		}, []string{"yes -> x", "x: out", "and", "done"}, "moved c"},
		{"a turn that is there twice", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", turn), logLine("c", "b", answers("x", "out")), logLine("d", "c", turn), logLine("e", "d", answers("x", "out")), logLine("f", "e", says("done")),
		}, []string{"hi", "once -> x", "x: out", "done"}, "repeated d, orphan e"},
		{"a question that is there twice", []string{
			logLine("a", "", again), logLine("b", "a", again), logLine("c", "b", says("done")),
		}, []string{"twice", "done"}, "repeated b"},
		{"a question asked twice", []string{
			logLine("a", "", asks("twice")), logLine("b", "a", asks("twice")),
		}, []string{"twice", "twice"}, ""},
		{"empty turns", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("")), logLine("c", "b", asks(" \n")), logLine("d", "c", asks("well?")),
			logLine("e", "d", strings.Replace(says("x"), `"text":"x"`, `"text":""`, 1)), logLine("f", "e", strings.Replace(asks("x"), `"content":"x"`, `"content":[]`, 1)),
			logLine("g", "f", `custom_message "customType":"c","content":"","display":true`), logLine("h", "g", says("done")),
		}, []string{"hi", "well?", "", "done"}, "empty b, empty c, empty f, empty g"},
		{"an empty turn at the end", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("")),
		}, []string{"hi"}, "empty b"},
		{"a parent that was never written", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes")), logLine("c", "lost", asks("well?")), logLine("d", "c", says("done")),
		}, []string{"hi", "yes", "well?", "done"}, "parent c"},
		{"two parents that were never written", []string{
			logLine("a", "", asks("hi")), logLine("b", "lost", says("yes")), logLine("c", "b", asks("well?")), logLine("d", "gone", says("done")),
		}, []string{"hi", "yes", "well?", "done"}, "parent d, parent b"},
		{"only the first parent was never written", []string{
			logLine("a", "lost", asks("hi")), logLine("b", "a", says("yes")),
		}, []string{"hi", "yes"}, ""},
		{"the parent was in a line that is damaged", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes")), "{\"type\":\"mess\n", logLine("d", "c", says("done")),
		}, []string{"hi", "yes", "done"}, "parent d"},
		{"an orphan at the end that is no message", []string{
			logLine("a", "", asks("hi")), logLine("b", "lost", `custom "customType":"c"`),
		}, []string{"hi"}, "parent b"},
		{"an orphan at the end that nobody needs", []string{
			logLine("a", "", asks("hi")), logLine("b", "lost", `label "targetId":"a","label":"x"`),
		}, []string{"hi"}, "parent b"},
		{"a circle of two", []string{
			logLine("a", "", asks("hi")), logLine("b", "c", says("yes")), logLine("c", "b", asks("well?")), logLine("d", "c", says("done")),
		}, []string{"hi", "yes", "well?", "done"}, "cycle b"},
		{"an entry that is its own parent", []string{
			logLine("a", "", asks("hi")), logLine("b", "b", says("yes")), logLine("c", "b", asks("well?")),
		}, []string{"hi", "yes", "well?"}, "cycle b"},
		{"a first entry that is its own parent", []string{
			logLine("a", "a", asks("hi")), logLine("b", "a", says("yes")),
		}, []string{"hi", "yes"}, "cycle a"},
		{"a parent that was never written, and all before it is on the way already", []string{
			logLine("a", "c", asks("hi")), logLine("b", "lost", says("yes")), logLine("c", "b", asks("well?")), logLine("d", "a", says("done")),
		}, []string{"yes", "well?", "hi", "done"}, "parent b"},
		{"a parent behind its child", []string{
			logLine("b", "a", says("yes")), logLine("a", "", asks("hi")), logLine("c", "b", asks("well?")),
		}, []string{"hi", "yes", "well?"}, ""},
		{"one id twice on the way", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes")), logLine("a", "b", asks("well?")), logLine("c", "a", says("done")),
		}, []string{"hi", "yes", "well?", "done"}, "duplicate-id a"},
		{"one id twice beside the way", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes")), logLine("c", "b", asks("well?")), logLine("b", "a", says("no")), logLine("d", "c", says("done")),
		}, []string{"hi", "yes", "well?", "done"}, "duplicate-id b"},
		{"one id twice where it does no harm", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes")), logLine("b", "a", says("no")), logLine("c", "b", asks("well?")),
		}, []string{"hi", "no", "well?"}, ""},
		{"an image of too many pixels", []string{
			logLine("a", "", shows(pngOf(3, 3), pngOf(8001, 1))), logLine("b", "a", says("done")),
		}, []string{"look\n[image (image/png) of 8001 x 1 pixels, which is more than model providers take; it is kept as session://s1/a] (1 images)", "done"}, "image a"},
		{"an image of too many bytes", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", shows(strings.Repeat("A", 5<<20+4))),
		}, []string{"hi", "look\n[image (image/png) of 5.0 MB, which is more than model providers take; it is kept as session://s1/b]"}, "image b"},
		{"an image that is missing", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", shows(missingBlob)), logLine("c", "b", says("done")),
		}, []string{"hi", "look\n[image (image/png): its data is missing; it was kept as " + strings.Replace(missingBlob, "blob:sha256:", "blob://sha256/", 1) + "]", "done"}, "blob b"},
		{"what a compaction cuts off", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")), logLine("c", "b", answers("x", "out")), logLine("d", "c", asks("well?")),
			logLine("e", "d", `compaction "summary":"so far","firstKeptEntryId":"c","tokensBefore":1`), logLine("f", "e", says("done")),
		}, []string{"so far", "well?", "done"}, "orphan c"},
		{"a call without a result that a compaction keeps", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")), logLine("c", "b", asks("well?")),
			logLine("d", "c", `compaction "summary":"so far","firstKeptEntryId":"b","tokensBefore":1`), logLine("e", "d", says("done")),
		}, []string{"so far", "yes -> x", "x: interrupted", "well?", "done"}, "interrupted b"},
		{"what is behind a compaction does not matter", []string{
			logLine("a", "", says("yes", "x")), logLine("b", "lost", asks("hi")),
			logLine("c", "b", `compaction "summary":"so far","firstKeptEntryId":"b","tokensBefore":1`), logLine("d", "c", says("done")),
		}, []string{"so far", "hi", "done"}, ""},
		{"one call id in two turns", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")), logLine("c", "b", answers("x", "one")), logLine("d", "c", says("and", "x")), logLine("e", "d", answers("x", "two")), logLine("f", "e", says("done")),
		}, []string{"hi", "yes -> x", "x: one", "and -> x-2", "x-2: two", "done"}, "call-id d"},
		{"one call id in two turns, an image of the second too large", []string{
			logLine("a", "", says("yes", "x")), logLine("b", "a", answers("x", "one")), logLine("c", "b", says("and", "x")),
			logLine("d", "c", strings.Replace(answers("x", "two"), `}],"isError"`, `},{"type":"image","mimeType":"image/png","data":"`+pngOf(8001, 1)+`"}],"isError"`, 1)),
		}, []string{"yes -> x", "x: one", "and -> x-2", "x-2: two\n[image (image/png) of 8001 x 1 pixels, which is more than model providers take; it is kept as session://s1/d]"}, "image d, call-id c"},
		{"one call id in two turns, and no result at the end", []string{
			logLine("a", "", says("yes", "x")), logLine("b", "a", answers("x", "one")), logLine("c", "b", says("and", "x")),
		}, []string{"yes -> x", "x: one", "and -> x-2", "x-2: interrupted"}, "call-id c, interrupted c"},
		{"one call id twice in a turn", []string{
			logLine("a", "", says("yes", "x", "x")), logLine("b", "a", answers("x", "one")), logLine("c", "b", answers("x", "two")), logLine("d", "c", says("done")),
		}, []string{"yes -> x -> x-2", "x: one", "x-2: two", "done"}, "call-id a"},
		{"settings are taken along", []string{
			logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")), logLine("c", "b", `model_change "model":"q/n"`), logLine("d", "c", asks("well?")),
			logLine("e", "d", `title_change "title":"old","source":"user"`), logLine("f", "e", `mode_change "mode":"plan"`), logLine("g", "f", says("done")),
		}, []string{"hi", "yes -> x", "x: interrupted", "well?", "done"}, "interrupted b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newManager(t, session.Options{})
			path := writeLog(t, m, "s.jsonl", append([]string{foreignHeader}, tt.lines...)...)
			before := must(os.ReadFile(path))
			s := must(m.View(t.Context(), path))
			defer s.Close()
			r := must(s.Resume(t.Context(), session.ResumeOptions{}))
			accepted(t, r.Context)
			if d := cmp.Diff(tt.want, said(t, r.Context)); d != "" {
				t.Fatalf("context (-want +got):\n%s", d)
			}
			if got := kinds(r.Repairs); got != tt.repairs {
				t.Fatalf("repairs %q, want %q", got, tt.repairs)
			}
			for _, r := range r.Repairs {
				if r.What() == string(r.Kind) {
					t.Errorf("%s: nothing is said about it", r.Kind)
				}
			}
			if !bytes.Equal(must(os.ReadFile(path)), before) {
				t.Fatal("the log was changed")
			}
			oneContext(t, m, path, r)
			if _, err := s.WriteRepairs(t.Context(), session.ResumeOptions{}); !errors.Is(err, session.ErrReadOnly) {
				t.Fatalf("writing to a session that was opened for reading: %v", err)
			}

			w := reopen(t, m, path)
			written := must(w.WriteRepairs(t.Context(), session.ResumeOptions{}))
			if got := kinds(written.Repairs); got != tt.repairs {
				t.Fatalf("repairs written %q, want %q", got, tt.repairs)
			}
			after := must(os.ReadFile(path))
			if !bytes.HasPrefix(after, before) {
				t.Fatal("what was in the log was changed")
			}
			if tt.repairs == "" && len(after) != len(before) {
				t.Fatalf("nothing was repaired, and something written:\n%s", after[len(before):])
			}
			w.Close()

			s = must(m.View(t.Context(), path))
			defer s.Close()
			r = must(s.Resume(t.Context(), session.ResumeOptions{}))
			if len(r.Repairs) > 0 {
				t.Fatalf("repairs again: %+v\n%s", r.Repairs, after)
			}
			if d := cmp.Diff(tt.want, said(t, r.Context)); d != "" {
				t.Fatalf("context after writing (-want +got):\n%s\n%s", d, after)
			}
			// Whoever builds the context without repairing anything gets the same.
			c := must(s.Context(t.Context()))
			if d := cmp.Diff(tt.want, said(t, c)); d != "" || len(c.Repairs) > 0 {
				t.Fatalf("context without repairs %v (-want +got):\n%s\n%s", c.Repairs, d, after)
			}
			if model, want := r.Context.Settings.DefaultModel(), "q/n"; tt.name == "settings are taken along" && model != want {
				t.Fatalf("model %q, want %q", model, want)
			}
			if paid := strings.Count(string(after[len(before):]), `"total":3`); paid > 0 {
				t.Errorf("%d answers are paid twice", paid)
			}
		})
	}
}
