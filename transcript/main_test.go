package transcript_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newSession(t testing.TB) *session.Session {
	t.Helper()
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush}))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: "A <b>title</b>", TitleSource: session.TitleUser}))
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t testing.TB, s *session.Session, b entry.Body) string {
	t.Helper()
	return must(s.Append(t.Context(), b))
}

func user(text string) entry.Body { return entry.UserMessage{Content: entry.PlainText(text)} }

func assistant(blocks ...entry.Block) entry.Body {
	return entry.AssistantMessage{Model: "a-model", Content: entry.Blocks(blocks...), StopReason: entry.StopStop}
}

func text(s string) entry.Block { return entry.TextBlock{Text: s} }

func toolCall(id, name, args string) entry.Block {
	return entry.ToolCallBlock{ID: id, Name: name, Arguments: json.RawMessage(args)}
}

func result(id, name, out string) entry.Body {
	return entry.ToolResultMessage{ToolCallID: id, ToolName: name, Content: entry.Blocks(text(out))}
}

// picture is large enough to leave the line for the blob store.
var picture = bytes.Repeat([]byte("not really a PNG"), 200)

func image() entry.Block {
	return entry.ImageBlock{Data: base64.StdEncoding.EncodeToString(picture), MIMEType: "image/png"}
}

func dirOf(s *session.Session) *artifacts.Dir {
	return artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID})
}

func written(t testing.TB, f transcript.Format, s *session.Session, o transcript.Options) (string, transcript.Summary) {
	t.Helper()
	var b strings.Builder
	sum, err := transcript.Write(t.Context(), &b, f, s, dirOf(s), o)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), sum
}

// keep makes an artifact with lines.
func keep(t testing.TB, s *session.Session, lines int) int64 {
	t.Helper()
	f := must(dirOf(s).Create(t.Context(), "bash", artifacts.Provenance{}))
	for i := range lines {
		fmt.Fprintf(f, "line %d\n", i+1)
	}
	must(0, f.Close())
	return f.ID()
}

func has(t testing.TB, page string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in it", want)
			if os.Getenv("AGENTRUN_TEST_SHOW") != "" {
				t.Log(page)
			}
		}
	}
}

func hasNot(t testing.TB, page string, unwanted ...string) {
	t.Helper()
	for _, u := range unwanted {
		if strings.Contains(page, u) {
			t.Errorf("%q is in it", u)
		}
	}
}
