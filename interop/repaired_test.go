package interop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// broken is a log that a program was killed over, or that another one has spoilt.
type broken struct {
	name    string
	lines   []string // without the header
	want    int      // messages of the repaired context
	repairs int
}

func line(id, parent, rest string) string {
	if parent != "null" {
		parent = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"type":"message","id":"%s","parentId":%s,"timestamp":"2026-11-20T20:17:08.000Z","message":%s}`, id, parent, rest)
}

func asked(text string) string {
	return fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":%q}],"timestamp":1763697600000}`, text)
}

func answered(text string, calls ...string) string {
	blocks := []string{fmt.Sprintf(`{"type":"thinking","thinking":"hm","thinkingSignature":"c2lnbmVk"},{"type":"text","text":%q}`, text)}
	stop := "stop"
	for _, c := range calls {
		blocks, stop = append(blocks, fmt.Sprintf(`{"type":"toolCall","id":%q,"name":"bash","arguments":{"command":"ls"}}`, c)), "toolUse"
	}
	return fmt.Sprintf(`{"role":"assistant","content":[%s],"api":"anthropic-messages","provider":"anthropic","model":"some-model",`+
		`"usage":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"totalTokens":2,"cost":{"input":1,"output":1,"cacheRead":0,"cacheWrite":0,"total":2}},`+
		`"stopReason":%q,"timestamp":1763697601000}`, strings.Join(blocks, ","), stop)
}

func resulted(call string) string {
	return fmt.Sprintf(`{"role":"toolResult","toolCallId":%q,"toolName":"bash","content":[{"type":"text","text":"out"}],"isError":false,"timestamp":1763697602000}`, call)
}

const lostBlob = "blob:sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

var brokenLogs = []broken{
	{name: "a call without a result at the end", repairs: 1, want: 3, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000001", answered("yes", "c1")),
	}},
	{name: "a call without a result in the middle", repairs: 1, want: 5, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000001", answered("yes", "c1")),
		line("e0000003", "e0000002", asked("well?")), line("e0000004", "e0000003", answered("done")),
	}},
	{name: "a result without a call", repairs: 1, want: 3, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000001", resulted("c0")),
		line("e0000003", "e0000002", asked("well?")), line("e0000004", "e0000003", answered("done")),
	}},
	{name: "a turn that is there twice", repairs: 2, want: 4, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000001", answered("yes", "c1")), line("e0000003", "e0000002", resulted("c1")),
		line("e0000004", "e0000003", answered("yes", "c1")), line("e0000005", "e0000004", resulted("c1")), line("e0000006", "e0000005", answered("done")),
	}},
	{name: "an empty turn", repairs: 1, want: 3, lines: []string{
		line("e0000001", "null", asked("hi")),
		line("e0000002", "e0000001", strings.Replace(answered("x"), `[{"type":"thinking","thinking":"hm","thinkingSignature":"c2lnbmVk"},{"type":"text","text":"x"}]`, "[]", 1)),
		line("e0000003", "e0000002", asked("well?")), line("e0000004", "e0000003", answered("done")),
	}},
	{name: "a parent that was never written", repairs: 1, want: 4, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000001", answered("yes")),
		line("e0000004", "e0000003", asked("well?")), line("e0000005", "e0000004", answered("done")),
	}},
	{name: "a circle of parents", repairs: 1, want: 4, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000003", answered("yes")),
		line("e0000003", "e0000002", asked("well?")), line("e0000004", "e0000003", answered("done")),
	}},
	{name: "an id that is there twice", repairs: 1, want: 4, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000001", answered("yes")),
		line("e0000001", "e0000002", asked("well?")), line("e0000004", "e0000001", answered("done")),
	}},
	{name: "a blob that is missing", repairs: 1, want: 3, lines: []string{
		line("e0000001", "null", asked("hi")),
		line("e0000002", "e0000001", `{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","data":"`+lostBlob+`","mimeType":"image/png"}],"timestamp":1763697603000}`),
		line("e0000003", "e0000002", answered("done")),
	}},
	{name: "a call without a result that a compaction keeps", repairs: 1, want: 5, lines: []string{
		line("e0000001", "null", asked("hi")), line("e0000002", "e0000001", answered("yes", "c1")), line("e0000003", "e0000002", asked("well?")),
		`{"type":"compaction","id":"e0000004","parentId":"e0000003","timestamp":"2026-11-20T20:17:08.000Z","summary":"so far","firstKeptEntryId":"e0000002","tokensBefore":1}`,
		line("e0000005", "e0000004", answered("done")),
	}},
}

// TestRepairsWrittenHereAreFollowedThere repairs logs and compares the contexts that the
// programs then build, which repair little themselves, with ours.
func TestRepairsWrittenHereAreFollowedThere(t *testing.T) {
	t.Parallel()
	for _, p := range programs {
		for i, b := range brokenLogs {
			t.Run(p.name+"/"+b.name, func(t *testing.T) {
				t.Parallel()
				home, cwd := t.TempDir(), t.TempDir()
				dir := filepath.Join(home, "sessions", "-broken")
				path := filepath.Join(dir, fmt.Sprintf("2026-11-20T20-17-07-977Z_01a1fa9b-0000-7000-8000-%012d.jsonl", i))
				header := fmt.Sprintf(`{"type":"session","version":3,"id":"01a1fa9b-0000-7000-8000-%012d","timestamp":"2026-11-20T20:17:07.977Z","cwd":%q}`, i, cwd)
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(header+"\n"+strings.Join(b.lines, "\n")+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				m := manager(t, home)
				s := open(t, m, path)
				written := records(t, path)
				r, err := s.WriteRepairs(t.Context(), session.ResumeOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Repairs) != b.repairs || len(r.Context.Messages) != b.want {
					t.Fatalf("%d repairs and %d messages, want %d and %d: %+v", len(r.Repairs), len(r.Context.Messages), b.repairs, b.want, r.Repairs)
				}
				unchanged(t, path, written)
				_, want := look(t, s, p) // no repairs any more
				written = records(t, path)
				s.Close()

				q := p.start(t, home)
				same(t, "the session as "+p.name+" opens it", q.do(step{"do": "open", "path": path}), want)
				q.end(step{"do": "append", "message": user("and on")})
				unchanged(t, path, written)
				s = open(t, m, path)
				if r, err = s.Resume(t.Context(), session.ResumeOptions{}); err != nil || len(r.Repairs) > 0 || len(r.Context.Messages) != b.want+1 {
					t.Fatalf("after the next message: %d messages, repairs %+v, %v", len(r.Context.Messages), r.Repairs, err)
				}
			})
		}
	}
}
