package internalurl_test

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestSessionsOfAManagerAreReadByURL(t *testing.T) {
	m, err := session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("long ", 150_000) // beyond what a line of the log holds
	make := func(text string) (*session.Session, string) {
		s, err := m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: "about " + text[:4]})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		content, err := json.Marshal(map[string]any{"role": "user", "content": text, "timestamp": 1})
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.Append(t.Context(), entry.MessageBody{Message: content})
		if err != nil {
			t.Fatal(err)
		}
		f, err := artifacts.Open(s.ArtifactsDir(), artifacts.Options{}).Create(t.Context(), "bash", artifacts.Provenance{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, "artifact of "+text[:4]); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return s, id
	}
	here, first := make(long)
	there, second := make("other")
	r := internalurl.ForSession(m, here, nil)
	get := func(url string) string {
		t.Helper()
		res, err := r.Open(t.Context(), url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		defer res.Close()
		size, err := res.Size()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(io.NewSectionReader(res, 0, size))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if _, err := there.Label(t.Context(), second, "the other one"); err != nil {
		t.Fatal(err)
	}
	whole := func(s *session.Session) string { return s.ID()[:len(s.ID())-4] }
	for url, want := range map[string]string{
		"session://" + whole(there):                      `"title": "about othe"`,
		"session://" + whole(here) + ":raw":              `"title": "about long"`,
		"session://" + whole(there) + "/" + second[:20]:  `"content": "other"`,
		"session://" + there.ID() + "/the%20other%20one": `"content": "other"`,
		"session://" + whole(there) + "/the other one":   `"content": "other"`,
		"artifact://0":                           "artifact of long",
		"artifact://" + here.ID() + "/0":         "artifact of long",
		"artifact://" + there.ID() + "/0":        "artifact of othe",
		"session://" + here.ID():                 `"title": "about long"`,
		"session://" + here.ID() + ":raw":        `"modified": "20`,
		"session://" + there.ID():                `"entries": 3`,
		"session://" + here.ID() + "/" + first:   long,
		"session://" + there.ID() + "/" + second: `"content": "other"`,
	} {
		if got := get(url); !strings.Contains(got, want) {
			t.Errorf("%s: %.300q", url, got)
		}
	}
	for url, want := range map[string]string{
		"session://0":                                       "several sessions begin with \"0\": give more of the id",
		"session://" + there.ID() + "/0":                    "several entries begin with \"0\": give more of the id (",
		"session://" + here.ID() + "/nope":                  "Entry nope not found",
		"session://" + there.ID() + "/" + first:             "not found",
		"session://" + there.ID()[:35] + "f" + "/x":         "not found",
		"artifact://00000000-0000-7000-8000-000000000000/0": "Session 00000000-0000-7000-8000-000000000000 not found",
	} {
		if res, err := r.Open(t.Context(), url); err == nil {
			res.Close()
			t.Errorf("%s: opened", url)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
