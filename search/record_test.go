package search_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/search"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestRecordsAreFoundOnceAndByWhatAPersonLooksFor(t *testing.T) {
	h := newHome(t)
	s := h.session("hello")
	add := func(b entry.Body) string {
		t.Helper()
		id, err := s.Append(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	start := func(run, command string) string {
		return add(entry.Custom{CustomType: "agentrun.run.start", Data: json.RawMessage(`{"run":"` + run + `","command":"` + command + `","argv":["` + command + `"],"cwd":"/where","host":"quercus","bootId":"0b0b0b0b-1111-2222-3333-444444444444","pid":7}`)})
	}
	end := func(run, command string) string {
		return add(entry.BashExecutionMessage{Command: command, Output: "leaves", Details: json.RawMessage(`{"run":"` + run + `","artifact":{"id":0,"crc32c":"deadbeef"},"signal":null}`)})
	}
	killed := start("0198f2d3-aaaa-7222-8333-444455556666", "autumn storm")
	start("0198f2d3-bbbb-7222-8333-444455556666", "autumn wind")
	ended := end("0198f2d3-bbbb-7222-8333-444455556666", "autumn wind")
	start("0198f2d3-cccc-7222-8333-444455556666", "autumn rain")
	h.say(s, "for a while "+strings.Repeat("nothing happens ", 100_000)) // more than a MiB
	late := end("0198f2d3-cccc-7222-8333-444455556666", "autumn rain")
	point := add(entry.Custom{CustomType: entry.CustomTypeCheckpoint, Data: json.RawMessage(`{"name":"before pruning","files":[{"path":"/garden/maple.txt","after":{"ref":"blob:sha256:feed"}}]}`)})
	if err := s.Rename(t.Context(), "hornbeam", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	if err := s.Rename(t.Context(), "hazel", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	add(entry.ToolResultMessage{ToolCallID: "c", ToolName: "edit", Content: entry.PlainText("done"), Details: json.RawMessage(`{"diff":"+ birch"}`)})
	for _, tt := range []struct {
		query search.Query
		want  []string // entries, the newest first; "?" is any
	}{
		{search.Query{Words: []string{"autumn"}}, []string{late, ended, killed}},
		{search.Query{Words: []string{"autumn", "leaves"}}, []string{late, ended}},
		{search.Query{Words: []string{"autumn storm"}}, []string{killed}},
		{search.Query{Words: []string{"autumn wind"}, Tool: "bash"}, []string{ended}},
		{search.Query{Words: []string{"quercus"}}, nil},
		{search.Query{Words: []string{"0b0b0b0b"}}, nil},
		{search.Query{Words: []string{"0198f2d3-bbbb-7222-8333-444455556666"}}, nil},
		{search.Query{Words: []string{"deadbeef"}}, nil},
		{search.Query{Words: []string{"feed"}}, nil},
		{search.Query{Words: []string{"pruning"}}, []string{point}},
		{search.Query{Words: []string{"maple"}}, []string{point}},
		{search.Query{Words: []string{"hornbeam"}}, []string{"?"}},
		{search.Query{Words: []string{"hazel"}}, []string{"?"}},
		{search.Query{Words: []string{"hazel"}, Role: search.RoleTitle}, []string{"?"}},
		{search.Query{Words: []string{"hazel"}, Role: entry.TypeSessionInfo}, []string{"?"}},
		{search.Query{Words: []string{"hazel"}, Role: entry.TypeTitleChange}, []string{"?"}},
		{search.Query{Words: []string{"birch"}}, []string{"?"}},
	} {
		got := h.both(tt.query)
		if len(got) != len(tt.want) {
			t.Errorf("%+v finds %q, want %q", tt.query, got, tt.want)
			continue
		}
		for i, id := range tt.want {
			if id != "?" && !strings.Contains(got[i], "/"+id+":") {
				t.Errorf("%+v finds %q, want %q", tt.query, got, tt.want)
			}
		}
	}
}
