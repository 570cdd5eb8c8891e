package entry

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

var fuzzSeeds = []string{
	user("a"), answer("x", "y"), result("x"), ended(StopError, "x"), ended(StopAborted), note, `reset_boundary`,
	`compaction "summary":"s","firstKeptEntryId":"1","agentrun":{"settings":{"models":{"a":"b"}}}`,
	`compaction "preserveData":{"openaiRemoteCompaction":{"provider":"p","replacementHistory":[]}},"providerReplayThroughEntryId":"1"`,
	`branch_summary "fromId":"root","summary":"s"`, `model_change "provider":"p","modelId":"m"`, `mode_change "mode":"m","data":{}`,
	`thinking_level_change "thinkingLevel":null`, `service_tier_change "serviceTier":{"openai":"x"}`, `ttsr_injection "injectedRules":["a"]`,
	`session_init "systemPrompt":["a"],"task":"t","tools":[]`, `title_change "title":"t"`, `someday "a":1`,
	`message "message":{"role":"bashExecution","command":"c","output":"o","meta":{"truncation":{}},"images":[{"type":"image","data":"x","mimeType":"image/png"}]}`,
	`message "message":{"role":"fileMention","files":[{"path":"p","image":{"type":"image","data":"x","mimeType":"y"}}]}`,
	`message "message":{"content":[{"type":"toolCall","id":"x"}],"role":"\u0061ssistant","retryRecovery":0}`,
	`message "message":` + strings.Repeat("[", 50) + strings.Repeat("]", 50),
	`custom_message "content":[{"type":"text"},{"x":[`, `custom "customType":"agentrun.prune","data":{"keepToolOutput":1,"sessionId":"s"}`,
}

// FuzzEntry reads any bytes in every way there is. Bytes that are no JSON may give
// any answer, but an answer.
func FuzzEntry(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(chain(s)[0].Raw())
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		for _, typ := range []string{
			TypeMessage, TypeModelUsage, TypeThinkingLevelChange, TypeModelChange, TypeServiceTierChange, TypeCompaction, TypeBranchSummary,
			TypeResetBoundary, TypeCustom, TypeCustomMessage, TypeLabel, TypeTitleChange, TypeTTSRInjection, TypeSessionInit, TypeModeChange,
			TypeCredentialPin, TypeSessionInfo, "someday",
		} {
			e := New(raw, Envelope{Type: typ, ID: "1"})
			e.Role()
			e.ToolCallIDs()
			e.ToolCallID()
			e.Images()
			if got := e.ReplaceImages(map[int]string{0: "a note", 1: "b"}).Raw(); ecmajson.Valid(raw) && !ecmajson.Valid(got) {
				t.Fatalf("with notes for images: %q", got)
			}
			e.Title()
			e.Checkpoint()
			if m, err := e.Message(); err == nil {
				Text(m)
			}
			var s Settings
			Fold(&s, e)
			var r Reach
			r.Visit(e)
			b, err := e.Body()
			if err != nil {
				continue
			}
			fields, err := AppendFields(nil, b)
			if err != nil {
				continue
			}
			line := append(append([]byte(`{"type":"x"`), fields...), '}')
			if !json.Valid(line) {
				t.Fatalf("%T is written as %q", b, line)
			}
		}
		for version := range 4 {
			got, err := NewMigrator(version).Migrate(1, raw)
			if err == nil && json.Valid(raw) && !json.Valid(got) {
				t.Fatalf("migrated to %q", got)
			}
		}
		if !bytes.Equal(raw, before) {
			t.Fatal("the line was changed")
		}
	})
}

// FuzzBuildContext builds contexts of any lines: there is always one, and valid.
func FuzzBuildContext(f *testing.F) {
	for i := range fuzzSeeds { // small ones: the engine minimises each it finds interesting
		f.Add([]byte(strings.Join(fuzzSeeds[i:min(i+3, len(fuzzSeeds))], "\n")))
	}
	f.Add([]byte(strings.Join([]string{answer("x", "x", "y"), result("y"), user("a"), result("x"), result("z")}, "\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		var path []Entry
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			if len(path) == 200 {
				break
			}
			path = append(path, chain(string(line))[0])
		}
		strict := BuildContext(path, ContextOptions{Strict: true, KeepToolOutput: 1, SessionID: "s"})
		checkValid(t, strict)
		for _, m := range strict.Messages {
			m.JSON()
		}
		ctx := BuildContext(path, ContextOptions{})
		checkValid(t, ctx)
		for _, m := range ctx.Messages {
			m.Images()
			if _, err := m.JSON(); err == nil {
				if msg, err := m.Message(); err == nil {
					Text(msg)
				}
			}
		}
	})
}

// FuzzScanTurn holds the scanner against plain decoding.
func FuzzScanTurn(f *testing.F) {
	f.Add([]byte(`{"role":"assistant","content":[{"type":"toolCall","id":"x","arguments":{"type":"toolCall","id":"y"}}],"stopReason":"toolUse"}`))
	f.Add([]byte(`{"role":"assistant","content":[{"id":"x","type":"toolCall"},7,[],"a\\\"]"],"x":{"stopReason":"error"},"stopReason":"aborted"}`))
	f.Add([]byte(`{"retryRecovery":{},"content":[ {"\u0069d":"x","type":"toolCall"} , {} ] , "stopReason" : "stop"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			t.Skip("not JSON")
		}
		if !utf8.Valid(raw) {
			t.Skip("a look keeps the bytes that a decoder replaces")
		}
		if !ecmajson.Normal(raw) && hasDuplicates(raw) {
			t.Skip("which of two members counts differs")
		}
		ids, end := scanTurn(raw, 0, nil)
		wantIDs, want := decodeTurn(raw)
		if strings.Join(ids, " ") != strings.Join(wantIDs, " ") || end != want {
			t.Fatalf("%s: scanned %q, %d; decoded %q, %d", raw, ids, end, wantIDs, want)
		}
	})
}

func hasDuplicates(raw []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(raw))
	type level struct {
		names map[string]bool
		name  bool
	}
	var levels []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		top := len(levels) - 1
		switch d, isDelim := tok.(json.Delim); {
		case isDelim && (d == '}' || d == ']'):
			levels = levels[:top]
			continue
		case top >= 0 && levels[top].names != nil && levels[top].name:
			s := tok.(string)
			if levels[top].names[s] {
				return true
			}
			levels[top].names[s] = true
			levels[top].name = false
			continue
		case isDelim && d == '{':
			if top >= 0 {
				levels[top].name = true
			}
			levels = append(levels, level{map[string]bool{}, true})
			continue
		case isDelim:
			if top >= 0 {
				levels[top].name = true
			}
			levels = append(levels, level{})
			continue
		}
		if top >= 0 {
			levels[top].name = true
		}
	}
}

func decodeTurn(raw []byte) (ids []string, end outcome) {
	var m map[string]any
	if json.Unmarshal(raw, &m) != nil {
		return nil, succeeded
	}
	content, _ := m["content"].([]any)
	for _, b := range content {
		if b, ok := b.(map[string]any); ok && b["type"] == BlockToolCall {
			id, _ := b["id"].(string)
			ids = append(ids, id)
		}
	}
	retry, ok := m["retryRecovery"]
	switch {
	case ok && retry != nil && retry != false && retry != "" && !isZero(raw):
		return ids, void
	case m["stopReason"] == StopAborted:
		return ids, failed
	case m["stopReason"] == StopError:
		if isEmptyTurn(New([]byte(`{"message":`+string(raw)+`}`), Envelope{}).message()) {
			return ids, void
		}
		return ids, failed
	}
	return ids, succeeded
}

// isZero reports whether retryRecovery is written as 0: the scanner takes other
// zeros for something.
func isZero(raw []byte) bool {
	v, _ := ecmajson.Get(raw, "retryRecovery")
	return string(v) == "0"
}
