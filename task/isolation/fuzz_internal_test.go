package isolation

import (
	"path/filepath"
	"strings"
	"testing"
)

func FuzzParsePatch(f *testing.F) {
	f.Add("diff --git a/x b/x\nindex " + strings.Repeat("1", 40) + ".." + strings.Repeat("2", 40) + " 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
	f.Add("diff --git \"a/\\303\\274\" \"b/\\303\\274\"\nold mode 100644\nnew mode 100755\n")
	f.Add("diff --git a/../x b/../x\n")
	f.Fuzz(func(t *testing.T, s string) {
		files, err := parsePatch(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, d := range files {
			if !filepath.IsLocal(d.path) || hasGit(d.path) {
				t.Errorf("it leads to %q", d.path)
			}
			for _, at := range d.sections {
				if at.from < 0 || at.to < at.from || at.to > int64(len(s)) {
					t.Errorf("%q stands at %v of %d", d.path, at, len(s))
				}
			}
		}
	})
}

func FuzzQuotePath(f *testing.F) {
	f.Add("a\n\"b\\\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if got, rest, ok := unquotePath(quotePath(s)); !ok || got != s || rest != "" {
			t.Errorf("%q became %q, %q, %v", s, got, rest, ok)
		}
	})
}

func TestAPatchThatLeadsElsewhereIsRefused(t *testing.T) {
	for _, path := range []string{"../x", "/etc/x", "a/../../x", ".git/hooks/x", "sub/.GIT/config", "a//b", "."} {
		_, err := parsePatch(strings.NewReader("diff --git a/" + path + " b/" + path + "\nold mode 100644\nnew mode 100755\n"))
		if err == nil {
			t.Errorf("%s is taken", path)
		}
	}
}
