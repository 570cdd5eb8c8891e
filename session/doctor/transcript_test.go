package doctor_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
)

// claude renders a record of a Claude Code transcript.
func claude(uuid, parent, content string) string {
	if parent != "null" {
		parent = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"parentUuid":%s,"isSidechain":false,"sessionId":"s1","type":"user","message":{"role":"user","content":%s},"uuid":%q,"timestamp":"2026-01-20T14:00:0%d.000Z"}`, parent, content, uuid, len(uuid)%10)
}

const (
	codexMeta = `{"timestamp":"2026-06-30T00:12:38.982Z","type":"session_meta","payload":{"id":"019f15de","cwd":"/srv"}}`
	codexCall = `{"timestamp":"2026-06-30T00:12:39.004Z","type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{}","call_id":"c1"}}`
	codexDone = `{"timestamp":"2026-06-30T00:12:40.004Z","type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"ok"}}`
)

func TestTranscriptsOfOthersAreDiagnosedAndNeverChanged(t *testing.T) {
	a, b, c := claude("a", "null", `"one"`), claude("bb", "a", `"two"`), claude("ccc", "bb", `"three"`)
	use := claude("use", "a", `[{"type":"tool_use","id":"t1","name":"Bash","input":{}}]`)
	result := claude("result", "use", `[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]`)
	numbered := func(n int, line string) string { return fmt.Sprintf(`{"ordinal":%d,%s`, n, line[1:]) }
	for _, tt := range []struct {
		name    string
		content string
		kinds   []string
		what    string // in the first finding
	}{
		{"a whole transcript", a + "\n" + b + "\n" + c + "\n", nil, ""},
		{"one that ends without a newline", a + "\n" + b, nil, ""},
		{"a last line that a power cut truncated", a + "\n" + b + "\n" + c[:70], []string{"torn"}, "the file ends within a record, after 70 bytes"},
		{"a malformed line in the middle", a + "\nnonsense\n" + b + "\n", []string{"garbage"}, "may resume only what stands before it (behind the record of 2026-01-20T14:00:01.000Z)"},
		{"zeros of an interrupted append", a + "\n" + strings.Repeat("\x00", 300) + b + "\n", []string{"nul"}, "300 zero bytes"},
		{"zeros at the tail", a + "\n" + b + "\n" + strings.Repeat("\x00", 143_000), []string{"nul"}, "143000 zero bytes"},
		{"two records that two writers ran together", a + b + "\n" + c + "\n", []string{"joined"}, "nothing is lost"},
		{"two records without a time run together", `{"type":"summary","summary":"x","leafUuid":"a"}` + a + "\n", []string{"joined"}, "nothing is lost"},
		{"a record within another one", a[:60] + b + a[60:] + "\n", []string{"torn", "garbage", "orphan"}, "a record breaks off after 60 bytes"},
		{"a half-written record and the same one whole", a + "\n" + b[:80] + b + "\n" + c + "\n", []string{"torn"}, "the whole one behind it; nothing is lost"},
		{"a half-written line and the same one whole", a + "\n" + b[:80] + "\n" + b + "\n", []string{"torn"}, "the whole one behind it; nothing is lost"},
		{"a parent that was never written", a + "\n" + c + "\n", []string{"orphan"}, "names the parent bb, which is not in the file"},
		{"an id that two records have", a + "\n" + b + "\n" + claude("bb", "a", `"another"`) + "\n", []string{"duplicate-id"}, "the id of the one in line 2"},
		{"a circle", claude("a", "bb", `"one"`) + "\n" + b + "\n", []string{"cycle"}, "its own ancestor"},
		{"a tool call without its result", a + "\n" + use + "\n", []string{doctor.KindUnanswered}, "the call t1 of the tool Bash has no result"},
		{"a result without its tool call", a + "\n" + strings.Replace(result, `"use"`, `"a"`, 1) + "\n", []string{doctor.KindUnasked}, "answers the call t1"},
		{"a tool call and its result", a + "\n" + use + "\n" + result + "\n", nil, ""},
		{"JSON that is no record", a + "\nnull\n" + b + "\n", []string{"scalar"}, "JSON that is no record"},
		{"CRLF", a + "\r\n" + b + "\r\n", nil, ""},

		{"a whole rollout", codexMeta + "\n" + codexCall + "\n" + codexDone + "\n", nil, ""},
		{"a rollout with a half-written line and the same one whole", codexMeta + "\n" + codexCall[:60] + codexCall + "\n" + codexDone + "\n", []string{"torn"}, "nothing is lost"},
		{"a rollout without its first line", codexCall + "\n" + codexDone + "\n", []string{"header"}, "session_meta"},
		{"a rollout with a call without its output", codexMeta + "\n" + codexCall + "\n", []string{doctor.KindUnanswered}, "the call c1 of the tool shell"},
		{"a rollout with an output without its call", codexMeta + "\n" + codexDone + "\n", []string{doctor.KindUnasked}, "answers the call c1"},
		{"a rollout whose numbers have a gap", numbered(1, codexMeta) + "\n" + numbered(2, codexCall) + "\n" + numbered(4, codexDone) + "\n", []string{doctor.KindOrdinal}, "record 4 follows record 2"},
		{"an early rollout", `{"id":"x","timestamp":"2025-05-01T00:00:00Z","instructions":null}` + "\n" + `{"type":"function_call","call_id":"c1","name":"shell","arguments":"{}"}` + "\n" + `{"type":"function_call_output","call_id":"c1","output":"ok"}` + "\n", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "transcript.jsonl")
			write(t, path, tt.content)
			for _, repair := range []bool{false, true} {
				found := examineFile(t, path, repair)
				if !slices.Equal(kinds(found), tt.kinds) {
					t.Fatalf("found %+v", found)
				}
				for _, f := range found {
					if f.File != path || f.Line == nil || f.Repaired || !f.Unmendable {
						t.Errorf("%+v", f)
					}
				}
				if len(found) > 0 && !strings.Contains(found[0].What, tt.what) {
					t.Errorf("%q is not in: %s", tt.what, found[0].What)
				}
				if got := string(must(os.ReadFile(path))); got != tt.content {
					t.Fatal("the file was changed")
				}
			}
		})
	}
}

func examineFile(t *testing.T, path string, repair bool) (found []doctor.Finding) {
	t.Helper()
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{}))
	d := must(doctor.New(t.Context(), m, doctor.Options{Repair: repair, Report: func(f doctor.Finding) { found = append(found, f) }}))
	if err := d.File(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestAFileOfNoKnownFormatIsRefused(t *testing.T) {
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{}))
	d := must(doctor.New(t.Context(), m, doctor.Options{}))
	for name, content := range map[string]string{"text": "hello\n", "JSON": `{"a":1}` + "\n", "empty": ""} {
		path := filepath.Join(t.TempDir(), "file.txt")
		write(t, path, content)
		if err := d.File(t.Context(), path); !errors.Is(err, doctor.ErrUnknown) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLogsAreRecognisedByTheirContent(t *testing.T) {
	for content, want := range map[string]doctor.Format{
		`{"type":"session","version":3,"id":"s1"}`:                                                      doctor.FormatSession,
		`{"type":"session","ver` + "\n" + `{"type":"message","id":"a","parentId":null}`:                 doctor.FormatSession,
		`{"type":"message","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"x"}}`: doctor.FormatSession,
		"garbage\n" + claude("a", "null", `"x"`):                                                        doctor.FormatClaude,
		"\x00\x00\x00" + codexCall:                                                                      doctor.FormatCodex,
		"\x00\x00\x00":                                                                                  doctor.FormatSession,
	} {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		write(t, path, content)
		if got, err := doctor.Sniff(t.Context(), path); got != want {
			t.Errorf("%.60q: %s, %v", content, got, err)
		}
	}
}

// realData holds sessions and transcripts of real programs, where it is there.
func realData(t *testing.T) string {
	t.Helper()
	if data := os.Getenv("AGENTRUN_TEST_DATA"); data != "" {
		return data
	}
	for dir := must(os.Getwd()); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if data := filepath.Join(dir, "shared", "data"); isDir(data) {
			return data
		}
	}
	t.Skip("real inputs absent: no shared/data above the working directory, and AGENTRUN_TEST_DATA is not set")
	return ""
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func TestRealTranscriptsThatAreWholeHaveNoFindings(t *testing.T) {
	files := must(filepath.Glob(filepath.Join(realData(t), "claude", "entire-*.jsonl")))
	if len(files) == 0 {
		t.Fatal("no transcripts among the real inputs")
	}
	for _, path := range files {
		if found := examineFile(t, path, false); len(found) > 0 {
			t.Errorf("%s: %+v", path, found[0])
		}
	}
}

func TestARealSessionWithoutItsHeaderIsMended(t *testing.T) {
	data := must(os.ReadFile(filepath.Join(realData(t), "pi-sessions", "gjc-v3-01-youtube-transcript-extraction.jsonl")))
	path := filepath.Join(t.TempDir(), "session.jsonl")
	write(t, path, string(data))
	// Its blobs and artifacts were never published.
	gone := []string{doctor.KindBlobMissing, doctor.KindArtifactMissing}
	for _, f := range examineFile(t, path, true) {
		if f.Repaired == slices.Contains(gone, f.Kind) {
			t.Errorf("%+v", f)
		}
	}
	for _, f := range examineFile(t, path, false) {
		if !slices.Contains(gone, f.Kind) {
			t.Errorf("a second run finds %+v", f)
		}
	}
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{claude("a", "null", `"x"`) + "\n" + claude("b", "a", `[{"type":"tool_use","id":"t"}]`)[:100] + "\x00", codexMeta + codexCall + "\n{\"", `{"type":"session","id":"x"}{"type":"message","id":"a","parentId":"a"}`} {
		f.Add([]byte(seed))
	}
	m := must(session.OpenManager(filepath.Join(f.TempDir(), "home"), session.Options{Durability: session.Flush, FS: faultfs.Unsynced{FS: durable.OS}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		write(t, path, string(data))
		examine := func(repair bool) (n int, unmendable int) {
			d := must(doctor.New(t.Context(), m, doctor.Options{Repair: repair, Report: func(f doctor.Finding) {
				n++
				if f.Unmendable {
					unmendable++
				}
			}}))
			_ = d.File(t.Context(), path) // some have no format
			return n, unmendable
		}
		examine(false)
		if !bytes.Equal(must(os.ReadFile(path)), data) {
			t.Fatal("looking changed the file")
		}
		if _, left := examine(true); left == 0 {
			if n, _ := examine(true); n > 0 {
				t.Fatalf("a second run has %d findings", n)
			}
		}
	})
}
