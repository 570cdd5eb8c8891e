package floors_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPackageDocs: the package comment is the contract of a package, so each has
// one, in one file.
func TestPackageDocs(t *testing.T) {
	for _, p := range sorted(packages(t)) {
		if !p.ours() {
			continue
		}
		files := p.GoFiles
		if !p.code() {
			files = slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		}
		var in []string
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Error(err)
				continue
			}
			if f.Doc == nil {
				continue
			}
			in = append(in, name)
			if begin := beginning(p, f); !strings.HasPrefix(f.Doc.Text(), begin) {
				t.Errorf("%s/%s: the package comment does not begin with %q", p.name(), name, begin)
			}
		}
		if len(in) != 1 {
			t.Errorf("%s has %d package comments %v, want one", p.name(), len(in), in)
		}
	}
}

// beginning is how go doc wants a package comment to begin.
func beginning(p pkg, f *ast.File) string {
	if p.Name == "main" {
		return "Command " + filepath.Base(p.ImportPath) + " "
	}
	return "Package " + f.Name.Name + " "
}
