package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
)

func TestARegistryIsReadOrRefused(t *testing.T) {
	hex := blobref.Of([]byte("x")).Hex()
	for _, tt := range []struct {
		name, text string
		want       []Registered // Path, Home and Whole alone are compared
		blobs      int
		err        string
	}{
		{name: "an empty one", text: ""},
		{name: "a new session elsewhere cites what it says", text: `{"session":"/s","since":"2026-01-01T00:00:00Z"}` + "\n" + `{"session":"/s","blobs":["` + hex + `"]}` + "\n", want: []Registered{{Path: "/s", Whole: true}}, blobs: 1},
		{name: "one that had something in it may cite more", text: `{"session":"/s","since":"2026-01-01T00:00:00Z","size":5}` + "\n", want: []Registered{{Path: "/s"}}},
		{name: "unless the collector has read it", text: `{"session":"/s","since":"2026-01-01T00:00:00Z","size":5}` + "\n" + `{"session":"/s","seen":"2026-01-02T00:00:00Z"}` + "\n", want: []Registered{{Path: "/s", Whole: true}}},
		{name: "homes and sessions in the order of paths", text: `{"session":"/b","since":"2026-01-01T00:00:00Z"}` + "\n" + `{"home":"/a"}` + "\n", want: []Registered{{Path: "/a", Home: true}, {Path: "/b", Whole: true}}},
		{name: "half a line at the end was never written", text: `{"home":"/a"}` + "\n" + `{"session":"/s","blo`, want: []Registered{{Path: "/a", Home: true}}},
		{name: "half a line elsewhere is damage", text: `{"session":"/s","blo` + "\n" + `{"home":"/a"}` + "\n", err: "line 1 is no JSON"},
		{name: "a line about nothing is damage", text: `{}` + "\n", err: "line 1 names neither"},
		{name: "a relative path is damage", text: `{"home":"a"}` + "\n", err: "line 1 names neither"},
		{name: "a blob that is none is damage", text: `{"session":"/s","blobs":["x"]}` + "\n", err: "line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseRegistry([]byte(tt.text))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v", got)
			}
			blobs := 0
			for i, r := range got {
				blobs += len(r.Blobs)
				if w := tt.want[i]; r.Path != w.Path || r.Home != w.Home || r.Whole != w.Whole {
					t.Errorf("got %+v, want %+v", r, w)
				}
			}
			if blobs != tt.blobs {
				t.Errorf("%d blobs, want %d", blobs, tt.blobs)
			}
		})
	}
}

func TestARegistryGoesOnBehindHalfALine(t *testing.T) {
	home := t.TempDir()
	m, err := OpenManager(home, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, registryName), []byte(`{"home":"/a"}`+"\n"+`{"home":"/b`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.appendRegistry(t.Context(), registryLine{Home: "/c"}); err != nil {
		t.Fatal(err)
	}
	all, err := m.Registry()
	if err != nil || len(all) != 2 || all[0].Path != "/a" || all[1].Path != "/c" {
		t.Errorf("%+v, %v", all, err)
	}
}

func FuzzParseRegistry(f *testing.F) {
	f.Add(`{"session":"/s","since":"2026-01-01T00:00:00Z","size":5}` + "\n" + `{"home":"/a"}` + "\n")
	f.Add(`{"session":"/s","seen":"2026-01-01T00:00:00Z","blobs":["` + strings.Repeat("0a", 32) + `"]}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseRegistry([]byte(text))
		if err != nil {
			return
		}
		for _, r := range all {
			if !filepath.IsAbs(r.Path) {
				t.Errorf("%q", r.Path)
			}
		}
	})
}
