package session_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// webp is the beginning of a WebP file of the given form and size.
func webp(form string, width, height int) string {
	b := make([]byte, 64)
	copy(b, "RIFF\x00\x00\x00\x00WEBP"+form)
	switch form {
	case "VP8 ":
		binary.LittleEndian.PutUint16(b[26:], uint16(width))
		binary.LittleEndian.PutUint16(b[28:], uint16(height))
	case "VP8L":
		binary.LittleEndian.PutUint32(b[21:], uint32(width-1)|uint32(height-1)<<14)
	case "VP8X":
		binary.LittleEndian.PutUint32(b[24:], uint32(width-1))
		copy(b[27:], []byte{byte(height - 1), byte((height - 1) >> 8), byte((height - 1) >> 16)})
	}
	return base64.StdEncoding.EncodeToString(b)
}

func TestImagesOfEveryFormatAreMeasured(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		large      string
	}{
		{"a PNG within the limit", pngOf(8000, 1), ""},
		{"a PNG beyond it", pngOf(1, 8001), "1 x 8001 pixels"},
		{"a lossy WebP", webp("VP8 ", 9000, 5), "9000 x 5 pixels"},
		{"a lossless WebP", webp("VP8L", 5, 9000), "5 x 9000 pixels"},
		{"an extended WebP", webp("VP8X", 100_000, 70_000), "100000 x 70000 pixels"},
		{"a small WebP", webp("VP8X", 100, 70), ""},
		{"bytes that are no image", base64.StdEncoding.EncodeToString([]byte("no image")), ""},
		{"text that is no base64", "%%%%", ""},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newManager(t, session.Options{})
			s := reopen(t, m, writeLog(t, m, "s.jsonl", foreignHeader, logLine("a", "", shows(tt.data))))
			r := must(s.Resume(t.Context(), session.ResumeOptions{}))
			if large := len(r.Repairs) == 1 && strings.Contains(r.Repairs[0].Detail, tt.large); large != (tt.large != "") || len(r.Repairs) > 1 {
				t.Errorf("repairs %+v, want %q", r.Repairs, tt.large)
			}
		})
	}
}

func TestTheLimitsOfImagesCanBeChosen(t *testing.T) {
	m := newManager(t, session.Options{})
	s := reopen(t, m, writeLog(t, m, "s.jsonl", foreignHeader, logLine("a", "", shows(pngOf(20, 20)))))
	for _, tt := range []struct {
		limits session.ImageLimits
		want   int
	}{{session.ImageLimits{}, 0}, {session.ImageLimits{Side: 19}, 1}, {session.ImageLimits{Side: 20}, 0}, {session.ImageLimits{Base64: 10}, 1}} {
		if r := must(s.Resume(t.Context(), session.ResumeOptions{Images: tt.limits})); len(r.Repairs) != tt.want {
			t.Errorf("%+v: repairs %+v, want %d", tt.limits, r.Repairs, tt.want)
		}
	}
}

// TestBlobsOfAResumedSession is about what lies in the blob store: a large image that is too
// large, a long text, and an image, both of which are lost in the middle of it.
func TestBlobsOfAResumedSession(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	large := pngOf(9000, 300)
	long := strings.Repeat("a long text ", 60_000)
	appendOK(t, s, entry.UserMessage{Content: entry.Blocks(
		entry.TextBlock{Text: "look"}, entry.ImageBlock{Data: large, MIMEType: "image/png"}, entry.ImageBlock{Data: pngOf(2000, 2000), MIMEType: "image/png"},
	), Timestamp: 1})
	appendOK(t, s, entry.AssistantMessage{Content: entry.Blocks(entry.ToolCallBlock{ID: "x", Name: "bash"}), StopReason: entry.StopToolUse, Timestamp: 2})
	result := appendOK(t, s, entry.ToolResultMessage{ToolCallID: "x", ToolName: "bash", Content: entry.Blocks(entry.TextBlock{Text: long}), Timestamp: 3})
	appendOK(t, s, user("well?"))
	path := s.Path()

	r := must(s.Resume(t.Context(), session.ResumeOptions{Restore: true}))
	if len(r.Repairs) != 1 || r.Repairs[0].Kind != entry.RepairImage || !strings.Contains(r.Repairs[0].Detail, "9000 x 300 pixels") || !strings.Contains(r.Repairs[0].Detail, "blob://sha256/") {
		t.Fatalf("repairs %+v", r.Repairs)
	}
	if images := r.Context.Messages[0].Images(); len(images) != 1 || images[0].IsRef() {
		t.Fatalf("%d images", len(images))
	}
	if got := said(t, r.Context)[2]; got != "x: "+long {
		t.Fatalf("the long text has %d bytes", len(got))
	}
	if r := must(s.Resume(t.Context(), session.ResumeOptions{KeepToolOutput: 100})); r.Context.Messages[2].Pruned != "tool output at session://"+s.ID()+"/"+result {
		t.Errorf("pruned to %q", r.Context.Messages[2].Pruned)
	}

	// The long text goes, and the other image is not what it was.
	for _, name := range blobFiles(t, m.Home(), "blobs") {
		data := must(os.ReadFile(name))
		switch {
		case string(data) == long:
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		case bytes.HasPrefix(data, []byte("\x89PNG")) && base64.StdEncoding.EncodeToString(data) != large:
			data[len(data)/2] ^= 1
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := "image, blob, blob"
	check := func(s *session.Session, want string) {
		t.Helper()
		r := must(s.WriteRepairs(t.Context(), session.ResumeOptions{Restore: true}))
		var got []string
		for _, repair := range r.Repairs {
			got = append(got, string(repair.Kind))
		}
		if strings.Join(got, ", ") != want {
			t.Fatalf("repairs %+v, want %s", r.Repairs, want)
		}
		accepted(t, r.Context)
		texts := said(t, r.Context)
		if len(r.Context.Messages[0].Images()) != 0 || strings.Count(texts[0], "blob://sha256/") != 2 || !strings.Contains(texts[2], "[Session persistence truncated large content]") {
			t.Fatalf("context %.2000q", texts)
		}
	}
	check(s, want)
	check(s, "")
	s.Close()
	s = reopen(t, m, path)
	check(s, "")
	if _, missing, err := s.ContextWith(t.Context(), session.ContextOptions{Restore: true}); err != nil || len(missing) > 0 {
		t.Fatalf("missing %v, %v", missing, err)
	}
	noDamage(t, s)
}

func TestIDsOfAResumedSessionGoOnAfterTheHighest(t *testing.T) {
	m := newManager(t, session.Options{})
	path := writeLog(t, m, "s.jsonl", foreignHeader, logLine("a", "", asks("hi")), logLine("b", "a", says("yes", "x")),
		logLine("c", "b", strings.Replace(answers("x", "out"), `"isError"`, `"details":{"meta":{"truncation":{"artifactId":"7"}}},"isError"`, 1)),
		logLine("d", "c", says("and", "y")))
	s := reopen(t, m, path)
	must(s.WriteRepairs(t.Context(), session.ResumeOptions{}))
	dir := s.ArtifactsDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"9.bash.log", "3-Anna.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := artifacts.Open(dir, artifacts.Options{LoggedMax: s.MaxArtifactID})
	for _, want := range []int64{10, 11} {
		w := must(d.Create(t.Context(), "bash", artifacts.Provenance{}))
		fmt.Fprint(w, "x")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if w.ID() != want {
			t.Errorf("artifact %d, want %d", w.ID(), want)
		}
	}
	if id := must(d.Reserve(t.Context(), artifacts.AgentID{}, "Bob", artifacts.Provenance{})); id.String() != "4-Bob" {
		t.Errorf("agent %s, want 4-Bob", id)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	// Only the log knows of number 7 now.
	w := must(artifacts.Open(dir, artifacts.Options{LoggedMax: s.MaxArtifactID}).Create(t.Context(), "bash", artifacts.Provenance{}))
	w.Close()
	if w.ID() != 8 {
		t.Errorf("artifact %d, want 8", w.ID())
	}
}
