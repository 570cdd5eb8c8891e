package catalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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

func TestFindPrefersTheBetterMatch(t *testing.T) {
	c := open(t)
	put(t, c, "-a/2026-05-12T01-02-27-657Z_abc.jsonl", header("abc", "/home/u/a"), 1)
	put(t, c, "-a/2026-05-12T01-02-27-657Z_abcd.jsonl", header("abcd", "/home/u/a"), 2)
	put(t, c, "-a/2026-05-13T01-02-27-657Z_2026f.jsonl", header("2026f", "/home/u/a"), 3)
	put(t, c, "-b/renamed.jsonl", header("zz-1", "/home/u/b"), 4)
	put(t, c, "-b/zz.jsonl", header("other", "/home/u/b"), 5)
	put(t, c, "-b/2026-05-12T01-02-27-657Z_liar.jsonl", header("truth", "/home/u/b"), 6)
	for _, tt := range []struct{ name, arg, want string }{
		{"an exact id beats a longer one", "abc", "abc"},
		{"the beginning of an id beats the beginning of a name", "2026", "2026f"},
		{"an exact name beats the beginning of an id", "zz", "other"},
		{"the beginning of an id in a file called otherwise", "zz-", "zz-1"},
		{"the name of a file whose header says another id", "liar", "truth"},
		{"the id of a header that its file's name hides", "truth", "truth"},
		{"and its beginning", "tru", "truth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if info, err := c.Find(t.Context(), tt.arg); err != nil || info.ID != tt.want {
				t.Errorf("Find(%q) = %q, %v, want %q", tt.arg, info.ID, err, tt.want)
			}
		})
	}
}

func TestAnAmbiguousNameListsTheCandidates(t *testing.T) {
	c := open(t)
	for i := range 12 {
		title := strings.Replace(v3, `"header"`, fmt.Sprintf(`"t\u001b%d"`, i), 1)
		put(t, c, fmt.Sprintf("-a/x%d.jsonl", i), strings.Replace(title, "s1", fmt.Sprintf("ab%d", i), 1)+"\n", i)
	}
	_, err := c.Find(t.Context(), "AB")
	var ambiguous *AmbiguousError
	if !errors.As(err, &ambiguous) || len(ambiguous.Candidates) != 12 || ambiguous.Candidates[0].ID != "ab11" {
		t.Fatalf("%v", err)
	}
	if want := `several sessions begin with "AB": give more of the id, or a path (ab11, ab10, ab9, ab8, ab7 and 7 more)`; err.Error() != want {
		t.Errorf("%s; want %s", err, want)
	}
	t.Run("copies of one session are told apart by path", func(t *testing.T) {
		put(t, c, "-b/copy.jsonl", header("ab3", "/home/u/b"), 0)
		_, err := c.Find(t.Context(), "ab3")
		if err == nil || !strings.HasPrefix(err.Error(), `several sessions are called "ab3": give the path of one (`) || !strings.Contains(err.Error(), "-b/copy.jsonl") || !strings.Contains(err.Error(), "-a/x3.jsonl") {
			t.Errorf("%v", err)
		}
	})
}

func TestFindRefusesAPathThatIsNoSession(t *testing.T) {
	c := open(t)
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	secret := filepath.Join(dir, "secret.jsonl")
	if err := errors.Join(
		os.WriteFile(bad, []byte("hello\n"), 0o600), os.WriteFile(secret, []byte(v3), 0),
		os.Mkdir(dir+"/d.jsonl", 0o700), syscall.Mkfifo(dir+"/fifo.jsonl", 0o600), os.Symlink(bad, dir+"/link.jsonl"),
	); err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		bad: "its first line is no session header", dir: "it is a directory", dir + "/d.jsonl": "it is a directory",
		dir + "/fifo.jsonl": "it is a FIFO", dir + "/link.jsonl": "it is a symbolic link", "/dev/null": "it is a device",
	}
	if os.Geteuid() != 0 {
		cases[secret] = "permission denied"
	}
	for path, want := range cases {
		_, err := c.Find(t.Context(), path)
		var unreadable *Unreadable
		if !errors.As(err, &unreadable) || !strings.HasPrefix(unreadable.Reason, want) || !strings.Contains(err.Error(), path) {
			t.Errorf("Find(%q): %v", path, err)
		}
	}
	if data, err := os.ReadFile(bad); err != nil || string(data) != "hello\n" {
		t.Errorf("%q, %v", data, err)
	}
	put(t, c, "-a/broken.jsonl", "[]", 0)
	var unreadable *Unreadable
	if _, err := c.Find(t.Context(), "broken"); !errors.As(err, &unreadable) {
		t.Errorf("a broken file by name: %v", err)
	}
}

func TestFindTakesAPathInEitherForm(t *testing.T) {
	c := open(t)
	path := put(t, c, "-a/x.jsonl.zst", cold(t, v3+"\n"), 0)
	t.Chdir(filepath.Dir(path))
	for _, arg := range []string{path, PlainPath(path), "./x.jsonl", "x.jsonl", "x.jsonl.zst"} {
		if info, err := c.Find(t.Context(), arg); err != nil || info.Path != path || !info.Compressed {
			t.Errorf("Find(%q) = %+v, %v", arg, info, err)
		}
	}
}
