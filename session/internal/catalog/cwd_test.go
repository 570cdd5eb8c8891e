package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestEncodeFollowsTheRulesOfOhMyPi(t *testing.T) {
	roots := Roots{Home: "/home/u", Temp: "/tmp"}
	for _, tt := range []struct{ name, cwd, want string }{
		{"inside home, the relative path follows a dash", "/home/u/proj/x", "-proj-x"},
		{"home itself is a dash", "/home/u", "-"},
		{"spaces are kept", "/home/u/other proj", "-other proj"},
		{"backslashes and colons become dashes", `/home/u/a\b:c`, "-a-b-c"},
		{"a sibling that begins like home is outside", "/home/user/x", "--home-user-x--"},
		{"a directory called ..x is inside", "/home/u/..x", "-..x"},
		{"the temp dir itself", "/tmp", "-tmp"},
		{"inside the temp dir", "/tmp/as/b", "-tmp-as-b"},
		{"anywhere else, the absolute path stands between double dashes", "/srv/app", "--srv-app--"},
		{"the root", "/", "----"},
		{"two directories may share a name", "/home/u/proj-x", "-proj-x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := roots.Encode(tt.cwd); got != tt.want {
				t.Errorf("Encode(%q) = %q, want %q", tt.cwd, got, tt.want)
			}
		})
	}
	t.Run("home wins over a temp dir inside it", func(t *testing.T) {
		if got := (Roots{Home: "/home/u", Temp: "/home/u/tmp"}).Encode("/home/u/tmp/x"); got != "-tmp-x" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a temp dir that holds home leaves home its own rule", func(t *testing.T) {
		if got := (Roots{Home: "/tmp/u", Temp: "/tmp"}).Encode("/tmp/u/x"); got != "-x" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("without roots everything is absolute", func(t *testing.T) {
		if got := (Roots{}).Encode("/home/u"); got != "--home-u--" {
			t.Errorf("got %q", got)
		}
	})
}

func checkEncoded(t interface{ Fatalf(string, ...any) }, name, cwd string) {
	switch {
	case name == "" || len(name) > maxNameBytes:
		t.Fatalf("Encode(%q) has %d bytes", cwd, len(name))
	case name[0] != '-':
		t.Fatalf("Encode(%q) = %q begins like a path element of its own", cwd, name)
	case strings.ContainsAny(name, "/\\:"):
		t.Fatalf("Encode(%q) = %q holds a separator", cwd, name)
	case utf8.ValidString(cwd) && !utf8.ValidString(name):
		t.Fatalf("Encode(%q) = %q is cut inside a character", cwd, name)
	}
}

func TestEncodedNamesAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.StringMatching(`[a-z.:\\ é漢-]{1,90}`)
		path := func(label string) string {
			return filepath.Clean("/" + strings.Join(rapid.SliceOfN(segment, 0, 6).Draw(t, label), "/"))
		}
		roots := Roots{Home: path("home"), Temp: path("temp")}
		for _, cwd := range []string{path("cwd"), filepath.Join(roots.Home, path("below home")), filepath.Join(roots.Temp, path("below temp"))} {
			checkEncoded(t, roots.Encode(cwd), cwd)
		}
	})
}

func TestOverlongNamesStayDistinct(t *testing.T) {
	long := "/srv/" + strings.Repeat("é", 200)
	a, b := Roots{}.Encode(long+"/a"), Roots{}.Encode(long+"/b")
	if a == b {
		t.Errorf("both are %q", a)
	}
	if err := os.Mkdir(filepath.Join(t.TempDir(), a), 0o700); err != nil {
		t.Errorf("the file system refuses the name: %v", err)
	}
	fits := "/" + strings.Repeat("a", maxNameBytes-4)
	if got := (Roots{}).Encode(fits); got != "--"+fits[1:]+"--" {
		t.Errorf("a name of exactly %d bytes was shortened to %q", maxNameBytes, got)
	}
}

func TestResolveFollowsLinks(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real := filepath.Join(root, "real")
	link := filepath.Join(root, "link")
	if err := os.MkdirAll(filepath.Join(real, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, in, want string }{
		{"a link", link, real},
		{"below a link", link + "/sub", real + "/sub"},
		{"a deleted directory below a link", link + "/gone/deeper", real + "/gone/deeper"},
		{"a trailing slash", real + "/", real},
		{"nothing of it exists", "/no such root/x", "/no such root/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := Resolve(tt.in); err != nil || got != tt.want {
				t.Errorf("Resolve(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
	if _, err := Resolve("a\x00b"); err == nil {
		t.Error("a NUL was accepted")
	}
	t.Run("symlinked roots are resolved", func(t *testing.T) {
		t.Setenv("HOME", link)
		t.Setenv("TMPDIR", filepath.Join(link, "sub")+"/")
		want := Roots{Home: real, Temp: filepath.Join(real, "sub")}
		if got := SystemRoots(); got != want {
			t.Errorf("SystemRoots() = %v, want %v", got, want)
		}
	})
}

func FuzzEncode(f *testing.F) {
	f.Add("/home/u", "/tmp", "/home/u/proj/x")
	f.Add("", "", "/")
	f.Add("/", "/", "/..")
	f.Add("/home/u", "/home/u/tmp", "/home/u/..")
	f.Add("/h", "/t", "/"+strings.Repeat("漢/", 200))
	f.Fuzz(func(t *testing.T, home, temp, cwd string) {
		clean := func(p string) string { return filepath.Clean("/" + strings.ReplaceAll(p, "\x00", "")) }
		cwd = clean(cwd)
		checkEncoded(t, Roots{Home: clean(home), Temp: clean(temp)}.Encode(cwd), cwd)
	})
}
