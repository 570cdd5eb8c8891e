package runview

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/internal/screen"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// happened is an event of an agent, some seconds after the start.
type happened struct {
	after int
	id    string
	event agent.Event
}

func treeOf(all ...happened) *Tree {
	t := &Tree{}
	for _, h := range all {
		t.Observe(h.id, h.event, start.Add(time.Duration(h.after)*time.Second))
	}
	return t
}

func text(rows []Row) string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, r.String())
	}
	return strings.Join(lines, "\n")
}

func answered(tokens int64, dollars float64) agent.Answered {
	return agent.Answered{Message: entry.AssistantMessage{Usage: entry.Usage{TotalTokens: tokens, Cost: entry.Cost{Total: dollars}}}}
}

func calls(id, name, arguments string) agent.CallStarted {
	return agent.CallStarted{ID: id, Tool: name, Arguments: json.RawMessage(arguments)}
}

var family = []happened{
	{0, "main", agent.StateChanged{State: agent.Thinking}},
	{1, "main", answered(1000, 0.01)},
	{1, "main", calls("a", "task", `{"tasks":[{"name":"Review"},{"agent":"scout"}]}`)},
	{1, "0-Review", agent.Spawned{Type: "reviewer"}},
	{1, "1-Tests", agent.Spawned{Type: "scout"}},
	{2, "0-Review", agent.StateChanged{State: agent.Thinking}},
	{3, "0-Review", answered(200, 0.002)},
	{3, "0-Review.2-Deep", agent.Spawned{Type: "task"}},
	{3, "0-Review.2-Deep", agent.StateChanged{State: agent.Calling}},
	{3, "0-Review.2-Deep", calls("b", "bash", `{"command":"go test\n./..."}`)},
	{4, "0-Review.2-Deep", answered(34, 0)},
}

func TestTheTreeShowsWhatAgentsDoAndSpend(t *testing.T) {
	got := text(treeOf(family...).Rows(100, 10, start.Add(5*time.Second)))
	want := `● main  task Review, scout  1,234 tokens  $0.0120  5.0 s
├─ ● 0-Review  reviewer  thinking  234 tokens  $0.0020  3.0 s
│  └─ ● 0-Review.2-Deep  task  bash go test ./...  34 tokens  2.0 s
└─ ○ 1-Tests  scout  queued`
	if got != want {
		t.Errorf("the tree is\n%s\nnot\n%s", got, want)
	}
}

func TestTheTreeShowsEnds(t *testing.T) {
	tree := treeOf(append(family,
		happened{7, "0-Review.2-Deep", agent.Reported{Status: "schema-violation", Spent: agent.Spent{Tokens: 34}}},
		happened{8, "0-Review", agent.Ended{Outcome: agent.Outcome{Status: agent.Completed}}},
		happened{9, "1-Tests", agent.Reported{Status: "completed", Spent: agent.Spent{Tokens: 66}}},
	)...)
	got := text(tree.Rows(100, 10, start.Add(20*time.Second)))
	want := `● main  task Review, scout  1,300 tokens  $0.0120  20 s
├─ ✓ 0-Review  reviewer  completed  234 tokens  $0.0020  6.0 s
│  └─ ✗ 0-Review.2-Deep  task  schema-violation  34 tokens  4.0 s
└─ ✓ 1-Tests  scout  completed  66 tokens  8.0 s`
	if got != want {
		t.Errorf("the tree is\n%s\nnot\n%s", got, want)
	}
}

func TestATreeThatIsTooHighHidesWhatHasEndedFirst(t *testing.T) {
	all := []happened{{0, "main", agent.StateChanged{State: agent.Calling}}}
	for i := range 64 {
		id := fmt.Sprintf("%d-Work", i)
		all = append(all, happened{0, id, agent.Spawned{Type: "task"}})
		if i < 40 {
			all = append(all, happened{1 + i, id, agent.Reported{Status: "completed"}})
		} else if i == 50 {
			all = append(all, happened{1, id, agent.StateChanged{State: agent.Thinking}})
		}
	}
	got := text(treeOf(all...).Rows(80, 4, start))
	want := `● main  calling
├─ ○ 40-Work  task  queued
└─ ● 50-Work  task  thinking
… 62 more: 40 completed, 22 queued`
	if got != want {
		t.Errorf("the tree is\n%s\nnot\n%s", got, want)
	}
}

func TestRowsFitWhateverTheWidth(t *testing.T) {
	tree := treeOf(append(family, happened{5, "0-Review.2-Deep", calls("c", "漢字漢字漢字", `{"path":"👩‍👩‍👧👩‍👩‍👧"}`)})...)
	for width := 1; width < 120; width++ {
		for _, r := range tree.Rows(width, 10, start.Add(time.Minute)) {
			if r.Width() > width {
				t.Errorf("%q takes %d columns of %d", r, r.Width(), width)
			}
		}
	}
}

func TestACallIsOneRow(t *testing.T) {
	e := agent.CallFinished{ID: "a", Tool: "bash", Result: tool.Result{Artifact: "artifact://3"}, Took: 1234 * time.Millisecond}
	if got, want := CallRow("main", "go test ./...", e, 80).String(), "✓ bash go test ./...  1.2 s  artifact://3"; got != want {
		t.Errorf("the row is %q, not %q", got, want)
	}
	e.Result = tool.Result{IsError: true}
	if got, want := CallRow("0-Review", "", e, 80).String(), "✗ 0-Review  bash  1.2 s"; got != want {
		t.Errorf("the row is %q, not %q", got, want)
	}
}

var hostile = []string{
	"\x1b[2J\x1b[H", "\x1b]0;title\a", "\x1b]52;c;aGk=\x1b\\", "\x1bP1$r0m\x1b\\", "\x9b2J", "\u009b2J", "a\rb", "\b\b\b", "\x1b[?1049h", "\x1bc", "\u202eabc\u202c",
	"\x0e\x0f", "\x7f", "\x1b[31mred", "\x1b_Gi=1\x1b\\", "\xff\xfe", "\u2028", "\x1b", "\x00",
}

// harmless reports what is left of a control sequence.
func harmless(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("it is no UTF-8")
	}
	for _, r := range s {
		if r != '\n' && (r < ' ' || r >= 0x7f && r <= 0x9f || turns(r)) {
			return fmt.Errorf("%q is left", r)
		}
	}
	return nil
}

func TestNothingHostileIsLeft(t *testing.T) {
	for _, s := range hostile {
		s = "before " + s + " behind"
		for _, got := range []string{Clean(s), CleanLines(s)} {
			if err := harmless(got); err != nil || !strings.Contains(got, "be") {
				t.Errorf("of %q there is %q: %v", s, got, err)
			}
		}
	}
	if got := Clean("two\nlines\tand more"); got != "two lines and more" {
		t.Errorf("one line is %q", got)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, 3)
	}
	f.Add("漢字\r\nb\tc", 1)
	f.Fuzz(func(t *testing.T, s string, cut int) {
		cut = max(0, min(cut, len(s)))
		var text Text
		got := text.Add(s[:cut]) + text.Add(s[cut:]) + text.End()
		if err := harmless(got); err != nil {
			t.Errorf("%q: %v", got, err)
		}
		for _, line := range strings.Split(got, "\n") {
			for _, rows := range [][]string{Wrap(line, 7), WrapWords(line, 7)} {
				for _, r := range rows {
					if Width(r) > 7 {
						t.Errorf("%q takes %d columns", r, Width(r))
					}
				}
			}
			if strings.Join(Wrap(line, 7), "") != line {
				t.Errorf("%q is broken into %q", line, Wrap(line, 7))
			}
		}
	})
}

// liveOn is a view on an emulated terminal.
func liveOn(t *testing.T, columns, rows int) (*Live, *terminal) {
	t.Helper()
	tt := &terminal{columns: columns, rows: rows}
	var err error
	if tt.Screen, err = screen.New(screen.Size{Cols: columns, Rows: rows}, func(p []byte) { tt.scrolled.Write(p) }); err != nil {
		t.Fatal(err)
	}
	l := NewLive(tt, func() (int, int) { return tt.columns, tt.rows }, true)
	t.Cleanup(l.Close)
	return l, tt
}

// shown is what the screen shows.
func (t *terminal) shown() string { return strings.TrimRight(t.Shown(), "\n") }

type terminal struct {
	*screen.Screen
	columns, rows int
	scrolled      strings.Builder
}

func says(s string) agent.Answering { return agent.Answering{Event: model.TextDelta{Text: s}} }

func TestTextScrollsAboveTheTree(t *testing.T) {
	l, on := liveOn(t, 40, 12)
	l.Observe("main", agent.StateChanged{State: agent.Thinking})
	for _, piece := range []string{"Hello, ", "wor", "ld.\nThis line is long enough to be bro", "ken at the margin \x1b[2J\x1b[", "H漢字\nand"} {
		l.Observe("main", says(piece))
	}
	l.Observe("0-Look", agent.CallFinished{Tool: "find", Took: time.Millisecond})
	l.Redraw()
	want := "Hello, world.\nThis line is long enough to be broken at\n the margin 漢字\nand\n● main  thinking\n└─ ○ 0-Look  queued"
	if got := on.shown(); got != want {
		t.Errorf("the screen is\n%s\nnot\n%s", got, want)
	}
	l.Observe("main", says(" more"))
	l.Observe("main", answered(0, 0))
	l.Redraw()
	want = strings.Replace(want, "\nand\n", "\nand more\n✓ 0-Look  find  1 ms\n", 1)
	if got := on.shown(); got != want {
		t.Errorf("the screen is then\n%s\nnot\n%s", got, want)
	}
	l.Close()
	if got := on.shown(); !strings.Contains(got, "✓ 0-Look  find  1 ms\n● main  thinking\n└─ ○ 0-Look  queued") {
		t.Errorf("at the end the screen is\n%s", got)
	}
}

func TestWhatScrollsOffIsNotLost(t *testing.T) {
	l, on := liveOn(t, 30, 6)
	l.Observe("main", agent.StateChanged{State: agent.Thinking})
	var want strings.Builder
	for i := range 200 {
		line := fmt.Sprintf("line %d %s\n", i, strings.Repeat("漢x", i%40))
		want.WriteString(line)
		for _, r := range line {
			l.Observe("main", says(string(r)))
		}
		if i%50 == 0 {
			l.Redraw()
		}
	}
	l.Observe("main", answered(0, 0))
	l.Close()
	on.Finish()
	// Where a line was drawn over at the margin, the terminal does not know that it is one.
	bare := func(s string) string { return strings.Join(strings.Fields(s), "") }
	if got, want := bare(on.scrolled.String()), bare(want.String()); got != want {
		t.Errorf("there is\n%s\nnot\n%s", got, want)
	}
}

func TestNothingIsDrawnWhileAPersonIsAsked(t *testing.T) {
	l, on := liveOn(t, 40, 12)
	l.Observe("main", says("Text"))
	l.Redraw()
	resume := l.Hold()
	fmt.Fprint(on, "May it? ")
	l.Observe("0-Look", agent.CallFinished{Tool: "find"})
	l.Redraw()
	if got := on.shown(); got != "Text\nMay it?" {
		t.Errorf("meanwhile the screen is\n%s", got)
	}
	fmt.Fprint(on, "y\r\n")
	resume()
	if got := on.shown(); !strings.HasPrefix(got, "Text\nMay it? y\n✓ 0-Look  find") {
		t.Errorf("then the screen is\n%s", got)
	}
}

func TestRemarksAreAboveTheTree(t *testing.T) {
	l, on := liveOn(t, 40, 12)
	l.Observe("main", agent.StateChanged{State: agent.Thinking})
	fmt.Fprint(l, "agentrun: one\nagentrun: two\n")
	if got := on.shown(); got != "agentrun: one\nagentrun: two\n● main  thinking" {
		t.Errorf("the screen is\n%s", got)
	}
}
