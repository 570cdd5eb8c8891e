package gitignore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ignores is what our rules say of a path, with the directories above it.
func ignores(rules map[string]*Rules, exclude *Rules, path string, isDir bool) bool {
	d := Top(exclude, nil).With("", rules[""])
	parts := strings.Split(path, "/")
	at := ""
	for i, name := range parts {
		at = strings.TrimPrefix(at+"/"+name, "/")
		last := i == len(parts)-1
		if d.Ignored(at, isDir || !last) {
			return true
		}
		if !last && rules[at] != nil {
			d = d.With(at, rules[at])
		}
	}
	return false
}

func TestRulesAreThoseOfGit(t *testing.T) {
	for _, c := range []struct{ rules, path, want string }{
		{"*.o", "a.o", "ignored"},
		{"*.o", "dir/a.o", "ignored"},
		{"/*.o", "dir/a.o", ""},
		{"dir/", "dir", ""},
		{"dir/", "dir/", "ignored"},
		{"dir/", "dir/a", "ignored"},
		{"*\n!a", "a", ""},
		{"dir/\n!dir/a", "dir/a", "ignored"},
		{"dir/*\n!dir/a", "dir/a", ""},
		{"a/**/b", "a/b", "ignored"},
		{"a/**/b", "a/x/y/b", "ignored"},
		{"**/b", "x/b", "ignored"},
		{"a/**", "a/x", "ignored"},
		{"a/**", "a/", ""},
		{"a ", "a", "ignored"},
		{"a\\ ", "a ", "ignored"},
		{"\\#a", "#a", "ignored"},
		{"#a", "#a", ""},
		{"\\!a", "!a", "ignored"},
		{"[!a]b", "cb", "ignored"},
		{"[!a]b", "ab", ""},
		{"[[:digit:]]", "5", "ignored"},
		{"[a-", "a", ""},
		{"a\r\n", "a", "ignored"},
		{"a?c", "a/c", ""},
		{"foo/*", "foo/a/b", "ignored"},
		{"\xef\xbb\xbfa", "a", "ignored"},
	} {
		isDir := strings.HasSuffix(c.path, "/")
		got := ignores(map[string]*Rules{"": Parse([]byte(c.rules))}, nil, strings.TrimSuffix(c.path, "/"), isDir)
		if got != (c.want == "ignored") {
			t.Errorf("%q, %q: ignored is %t", c.rules, c.path, got)
		}
	}
}

// Random rules and random paths: git says the same of all.
func TestRandomRulesAreThoseOfGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a", "b", "ab", "a b", "a.o", ".x", "-", "ä", "A1", "]"}
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	atoms := append(names, "*", "**", "?", "/", "/", "/", "[ab]", "[!a]", "[^b]", "[a-c]", "[[:alpha:]]", "[[:x:]]", "[]a]", "[a", "\\a", "\\*", "\\", "*.o", "**/", "/**", " ", "\\ ", "!", "#", "[a\\]]", "[--0]", "[[:]]")
	rule := func() string {
		var b strings.Builder
		if r.IntN(4) == 0 {
			b.WriteByte('!')
		}
		if r.IntN(4) == 0 {
			b.WriteByte('/')
		}
		for range 1 + r.IntN(4) {
			b.WriteString(pick(atoms))
		}
		if r.IntN(4) == 0 {
			b.WriteByte('/')
		}
		return b.String()
	}
	for range rounds {
		dir := t.TempDir()
		run := func(in string, args ...string) string {
			cmd := exec.Command(git, args...)
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(in)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "XDG_CONFIG_HOME="+dir)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 1 {
				t.Fatalf("git %v: %v: %s", args, err, out.String())
			}
			return out.String()
		}
		run("", "init", "-q")
		rules := map[string]*Rules{}
		var exclude *Rules
		var paths []string
		for range 60 {
			depth := 1 + r.IntN(4)
			var parts []string
			for range depth {
				parts = append(parts, pick(names))
			}
			path := strings.Join(parts, "/")
			full := filepath.Join(dir, path)
			if os.MkdirAll(filepath.Dir(full), 0o700) != nil {
				continue
			}
			if r.IntN(3) == 0 {
				if os.MkdirAll(full, 0o700) != nil {
					continue
				}
			} else if info, err := os.Lstat(full); err == nil && info.IsDir() || os.WriteFile(full, nil, 0o600) != nil {
				continue
			}
			paths = append(paths, path)
		}
		var texts []string
		write := func(name string) *Rules {
			var list []string
			for range 1 + r.IntN(6) {
				list = append(list, rule())
			}
			text := strings.Join(list, "\n")
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			texts = append(texts, fmt.Sprintf("%s: %q", name, text))
			return Parse([]byte(text))
		}
		rules[""] = write(".gitignore")
		exclude = write(".git/info/exclude")
		for _, path := range paths {
			if info, err := os.Lstat(filepath.Join(dir, path)); err == nil && info.IsDir() && r.IntN(4) == 0 {
				rules[path] = write(path + "/.gitignore")
			}
		}
		// check-ignore answers with source, line, pattern, path; a negated pattern is
		// one that includes.
		out := run(strings.Join(paths, "\x00")+"\x00", "check-ignore", "--no-index", "-z", "-v", "-n", "--stdin")
		fields := strings.Split(out, "\x00")
		if len(fields) < 4*len(paths) {
			t.Fatalf("seed %d: git said %q", seed, out)
		}
		for i, path := range paths {
			pattern := fields[4*i+2]
			want := pattern != "" && pattern[0] != '!'
			info, err := os.Lstat(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			if got := ignores(rules, exclude, path, info.IsDir()); got != want {
				t.Errorf("seed %d: %q is ignored: %t, git says %t by %q of %s\n%s", seed, path, got, want, pattern, fields[4*i], strings.Join(texts, "\n"))
			}
		}
		if t.Failed() {
			return
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("*.o\n!a\n/b/\n**/c\n[[:alpha:]-\\"), "a/b/c")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		if len(data) > 200 || len(path) > 100 || strings.Contains(path, "\x00") {
			return // stars upon stars take their time
		}
		ignores(map[string]*Rules{"": Parse(data)}, nil, path, false)
	})
}
