package entry

import (
	"fmt"
	"strings"
	"testing"
)

// outputs are three tool results of 1,000 bytes and their turns, then a question.
func outputs(details ...string) []Entry {
	text := strings.Repeat("0123456789\\n", 90)
	var lines []string
	for i, d := range details {
		id := fmt.Sprint("c", i)
		lines = append(lines, answer(id), fmt.Sprintf(`message "message":{"role":"toolResult","toolCallId":%q,"content":[{"type":"text","text":"%s"},{"type":"image","data":"x"}],"isError":false%s}`, id, text, d))
	}
	return chain(append(lines, user("well?"))...)
}

func TestPruning(t *testing.T) {
	none, ours := "", `,"details":{"artifact":{"id":3,"lines":4301}}`
	for _, tt := range []struct {
		name    string
		path    []Entry
		keep    int64
		session string
		want    []string // of each result, "" for one that is whole
	}{
		{"nothing is pruned unless asked for", outputs(ours, ours), 0, "s", []string{"", ""}},
		{"what is new stays", outputs(ours, ours, ours), 2500, "s", []string{"tool output at artifact://3, 4,301 lines", "", ""}},
		{"all but nothing", outputs(ours, ours), 1, "s", []string{"tool output at artifact://3, 4,301 lines", "tool output at artifact://3, 4,301 lines"}},
		{"output in no artifact is in the log", outputs(none), 1, "s", []string{"tool output at session://s/2, 90 lines"}},
		{"or stays where no log is known", outputs(none), 1, "", []string{""}},
		{"an artifact that ends early does not hold it", outputs(`,"details":{"artifact":{"id":3,"lines":9,"state":"disk full"}}`), 1, "s", []string{"tool output at session://s/2, 90 lines"}},
		{"artifacts of oh-my-pi", outputs(`,"details":{"meta":{"truncation":{"artifactId":"7","totalLines":1000000}}}`), 1, "s", []string{"tool output at artifact://7, 1,000,000 lines"}},
		{"an artifact of unknown length", outputs(`,"details":{"artifactId":7}`), 1, "s", []string{"tool output at artifact://7"}},
		{"what is no id", outputs(`,"details":{"artifactId":"../7"}`), 1, "s", []string{"tool output at session://s/2, 90 lines"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := BuildContext(tt.path, ContextOptions{KeepToolOutput: tt.keep, SessionID: tt.session})
			n := 0
			for _, m := range ctx.Messages {
				if m.Role != RoleToolResult {
					continue
				}
				want := tt.want[n]
				n++
				if m.Pruned != want {
					t.Errorf("result %d: %q, want %q", n, m.Pruned, want)
				}
				msg, err := m.Message()
				if err != nil {
					t.Fatal(err)
				}
				r := msg.(ToolResultMessage)
				if len(r.Content.Blocks()) != 2 {
					t.Errorf("result %d: %d blocks", n, len(r.Content.Blocks()))
				}
				if want != "" && r.Content.Text() != want {
					t.Errorf("result %d reads %q", n, r.Content.Text())
				}
				raw, err := m.JSON()
				if err != nil || strings.Contains(string(raw), "0123456789") != (want == "") {
					t.Errorf("result %d: %s, %v", n, raw, err)
				}
				if !strings.Contains(string(m.Entry().Raw()), "0123456789") {
					t.Errorf("result %d: the entry was changed", n)
				}
			}
		})
	}
}

func TestExecutionsArePrunedToo(t *testing.T) {
	long := strings.Repeat("x", 1000)
	ctx := BuildContext(chain(
		`message "message":{"role":"bashExecution","command":"make","output":"`+long+`","details":{"artifact":{"id":1,"lines":1}}}`,
		`message "message":{"role":"pythonExecution","code":"1","output":"`+long+`\n"}`,
		`message "message":{"role":"bashExecution","command":"true","output":"short"}`,
	), ContextOptions{KeepToolOutput: 10, SessionID: "s"})
	for i, want := range []string{"tool output at artifact://1, 1 line", "tool output at session://s/2, 1 line", "short"} {
		msg, err := ctx.Messages[i].Message()
		if err != nil {
			t.Fatal(err)
		}
		if got := Text(msg); !strings.Contains(got, want) || strings.Contains(got, "xxx") {
			t.Errorf("message %d reads %q", i, got)
		}
	}
}
