package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testRoots keep the directories of the machine out of the names.
var testRoots = Roots{Home: "/home/u", Temp: "/tmp"}

func open(t *testing.T) *Catalog {
	t.Helper()
	return Open(t.TempDir(), Options{Roots: &testRoots})
}

var day = time.Date(2026, 5, 12, 10, 0, 0, 0, time.UTC)

// put writes a log below the sessions directory, modified minutes after day.
func put(t *testing.T, c *Catalog, key, content string, minutes int) string {
	t.Helper()
	path := filepath.Join(SessionsDir(c.home), key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	at := day.Add(time.Duration(minutes) * time.Minute)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	return path
}

func header(id, cwd string) string {
	return `{"type":"session","version":3,"id":"` + id + `","timestamp":"2026-05-12T01:02:27.657Z","cwd":"` + cwd + `"}` + "\n"
}

func list(t *testing.T, c *Catalog, cwd string) *Listing {
	t.Helper()
	l, err := c.List(context.Background(), cwd)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ids(l *Listing) string {
	var s []string
	for _, info := range l.Sessions {
		s = append(s, info.ID)
	}
	return strings.Join(s, " ")
}

func TestListReadsEveryDirectoryNewestFirst(t *testing.T) {
	c := open(t)
	put(t, c, "-a/one.jsonl", header("one", "/home/u/a"), 1)
	put(t, c, "-a/three.jsonl", header("three", "/home/u/a"), 3)
	put(t, c, "-b/two.jsonl", header("two", "/home/u/b"), 2)
	put(t, c, "-b/two/0-Child.jsonl", header("child", "/home/u/b"), 9)
	put(t, c, "-b/.hidden.jsonl", header("hidden", "/home/u/b"), 9)
	put(t, c, "-b/two.jsonl.damaged", header("damaged", "/home/u/b"), 9)
	put(t, c, "-b/notes.txt", "x", 9)
	if got := ids(list(t, c, "")); got != "three two one" {
		t.Errorf("all: %s", got)
	}
	if got := ids(list(t, c, "/home/u/a")); got != "three one" {
		t.Errorf("one directory: %s", got)
	}
	if l := list(t, c, "/home/u/none"); len(l.Sessions)+len(l.Unreadable) != 0 {
		t.Errorf("none: %v", l)
	}
}

func TestFindTakesIdsPrefixesNamesAndPaths(t *testing.T) {
	c := open(t)
	const a, b = "019e19b4-eb48-746a-aa6b-8dfcfa37954b", "019e19b5-0000-746a-aa6b-8dfcfa37954b"
	path := put(t, c, "-a/2026-05-12T01-02-27-657Z_"+a+".jsonl", header(a, "/home/u/a"), 1)
	put(t, c, "-a/2026-05-13T01-02-27-657Z_"+b+".jsonl", header(b, "/home/u/a"), 2)
	put(t, c, "-b/copy.jsonl", header("x19e", "/home/u/b"), 3)
	for arg, want := range map[string]string{
		a: a, strings.ToUpper(a): a, "019E19B4": a, "2026-05-13": b, filepath.Base(path): a, path: a,
		"x19e": "x19e", "x1": "x19e", "cop": "x19e", "copy.jsonl": "x19e",
	} {
		if info, err := c.Find(t.Context(), arg); err != nil || info.ID != want {
			t.Errorf("Find(%q) = %q, %v, want %q", arg, info.ID, err, want)
		}
	}
	var ambiguous *AmbiguousError
	if _, err := c.Find(t.Context(), "019"); !errors.As(err, &ambiguous) || len(ambiguous.Candidates) != 2 {
		t.Errorf("an ambiguous prefix: %v", err)
	}
	for _, arg := range []string{"", "zzz", "a\x00", "/no/such.jsonl", "no.jsonl"} {
		if _, err := c.Find(t.Context(), arg); !errors.Is(err, ErrNotFound) {
			t.Errorf("Find(%q): %v", arg, err)
		}
	}
}
