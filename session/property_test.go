package session_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// realInputs finds the directory of real session files, or skips.
func realInputs(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("AGENTRUN_TEST_DATA")
	if dir == "" {
		at := must(os.Getwd())
		for at != "/" && dir == "" {
			at = filepath.Dir(at)
			if _, err := os.Stat(filepath.Join(at, "shared", "data")); err == nil {
				dir = filepath.Join(at, "shared", "data")
			}
		}
	}
	if dir == "" {
		t.Skip("real inputs absent: set AGENTRUN_TEST_DATA to a directory that has " + name)
	}
	return filepath.Join(dir, name)
}

func decode(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %.200s", err, raw)
	}
	return v
}

// withoutEnvelope leaves what a body says.
func withoutEnvelope(v map[string]any) map[string]any {
	for _, k := range []string{"type", "id", "parentId", "timestamp", "crc"} {
		delete(v, k)
	}
	return v
}

// withoutTransient drops what the persistence rules drop.
func withoutTransient(v any, inArguments bool) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if !inArguments && (k == "partialJson" || k == "jsonlEvents") {
				delete(v, k)
				continue
			}
			v[k] = withoutTransient(x, inArguments || k == "arguments" && v["type"] == "toolCall")
		}
	case []any:
		for i, x := range v {
			v[i] = withoutTransient(x, inArguments)
		}
	}
	return v
}

func TestEveryLineOfRealSessionsComesBackAsItWasAppended(t *testing.T) {
	dir := realInputs(t, "pi-sessions")
	m := newManager(t, session.Options{Durability: session.Flush})
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".jsonl") {
			return err
		}
		t.Run(d.Name(), func(t *testing.T) {
			s := newSession(t, m)
			var want []map[string]any
			var types []string
			in := bufio.NewReader(bytes.NewReader(must(os.ReadFile(path))))
			for {
				line, rerr := in.ReadBytes('\n')
				if json.Valid(line) {
					v := decode(t, line)
					typ, _ := v["type"].(string)
					if typ != "" && typ != "session" && typ != "title" {
						fields := withoutEnvelope(v)
						appendOK(t, s, entry.Raw{Type: typ, Fields: must(json.Marshal(fields))})
						want = append(want, fields)
						types = append(types, typ)
					}
				}
				if rerr != nil {
					break
				}
			}
			s2 := reopen(t, m, s.Path())
			noDamage(t, s2)
			i := 0
			for e, err := range s2.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				got := withoutEnvelope(decode(t, e.Raw()))
				if e.Type() != types[i] || !reflect.DeepEqual(got, withoutTransient(want[i], false)) {
					t.Fatalf("entry %d came back as\n%.500v\nwant\n%.500v", i, got, want[i])
				}
				i++
			}
			if i != len(want) || i == 0 {
				t.Fatalf("%d entries of %d came back", i, len(want))
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRealSessionsOpenWithEverythingGoodInThem(t *testing.T) {
	dir := realInputs(t, "pi-sessions")
	for _, tt := range []struct {
		file            string
		entries, damage int
		refused         bool
	}{
		{"pi-v1-large-session.jsonl", 1018, 0, false},
		{"omp-v1-large-session.jsonl", 1018, 0, false},
		{"gjc-v3-04-awesome-agent-ide.jsonl", -1, 2, false},           // a line that is no JSON, and the child it left
		{"gjc-v3-01-youtube-transcript-extraction.jsonl", 0, 0, true}, // its header line is missing
		{"fixtures/casr-openclaw.jsonl", -1, 0, false},
		{"fixtures/cass-pi.jsonl", -1, 0, false},
		{"fixtures/jazzyalex-openclaw-large.jsonl", -1, 2, false}, // two parents that are not in the file
		{"fixtures/jazzyalex-pi-small.jsonl", -1, 0, false},
	} {
		t.Run(tt.file, func(t *testing.T) {
			m := newManager(t, session.Options{})
			path := filepath.Join(dir, tt.file)
			before := must(os.ReadFile(path))
			s, err := m.View(t.Context(), path)
			if tt.refused {
				if err == nil {
					t.Fatal("it opened")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			got := ids(t, s)
			want := tt.entries
			if want < 0 {
				want = 0
				for _, line := range bytes.Split(before, []byte("\n")) {
					if json.Valid(line) && !bytes.HasPrefix(line, []byte(`{"type":"session"`)) {
						want++
					}
				}
			}
			damage := must(s.Damage(t.Context()))
			if len(got) != want || len(damage) != tt.damage {
				t.Fatalf("%d entries, want %d; damage %+v", len(got), want, damage)
			}
			c := must(s.Context(t.Context()))
			if len(c.Messages) == 0 && !strings.Contains(tt.file, "openclaw-large") { // ends in a result without its call
				t.Fatal("the context is empty")
			}
		})
	}
}

// anyValue generates JSON values, long strings and images among them.
func anyValue(depth int) *rapid.Generator[any] {
	text := rapid.OneOf(
		rapid.String(), rapid.String(), rapid.String(), rapid.String(), rapid.String(), rapid.String(),
		rapid.Map(rapid.IntRange(499_999, 500_003), func(n int) string { return strings.Repeat("é", n) }),
	)
	image := rapid.Map(rapid.SliceOfN(rapid.Byte(), 700, 1200), func(b []byte) any {
		return map[string]any{"type": "image", "mimeType": "image/png", "data": base64.StdEncoding.EncodeToString(b)}
	})
	leaf := rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.Int64Range(-1<<53, 1<<53), func(n int64) any { return n }),
		rapid.Map(rapid.Float64Range(-1e300, 1e300), func(f float64) any { return f }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just[any](nil), image)
	if depth == 0 {
		return leaf
	}
	inner := anyValue(depth - 1)
	key := rapid.SampledFrom([]string{"content", "images", "frames", "image", "files", "data", "details", "x", "1", "text", "image_url"})
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(key, inner, 0, 4), func(m map[string]any) any { return m }))
}

func TestWhatIsLoadedIsWhatWasAppended(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	rapid.Check(t, func(rt *rapid.T) {
		s, err := m.Create(t.Context(), os.TempDir(), session.CreateOptions{})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		var want []map[string]any
		for range rapid.IntRange(1, 4).Draw(rt, "entries") {
			v := map[string]any{"content": anyValue(3).Draw(rt, "content"), "role": "user"}
			raw := must(json.Marshal(v))
			if _, err := s.Append(t.Context(), entry.MessageBody{Message: raw}); err != nil {
				rt.Fatal(err)
			}
			want = append(want, decode(t, raw))
		}
		r, err := m.View(t.Context(), s.Path())
		if err != nil {
			rt.Fatal(err)
		}
		defer r.Close()
		i := 0
		for e, err := range r.Entries(t.Context()) {
			if err != nil {
				rt.Fatal(err)
			}
			if got := decode(t, e.Raw())["message"]; !sameValue(got, any(want[i])) {
				rt.Fatalf("entry %d came back as %.300v, want %.300v", i, got, want[i])
			}
			i++
		}
		if i != len(want) {
			rt.Fatalf("%d entries of %d came back", i, len(want))
		}
	})
}

// sameValue compares decoded JSON; numbers by value, since 1e3 and 1000 are one.
func sameValue(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, errX := a.Float64()
		y, errY := b.Float64()
		return a == b || errX == nil && errY == nil && x == y
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k := range a {
			if v, ok := b[k]; !ok || !sameValue(a[k], v) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], b[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}
