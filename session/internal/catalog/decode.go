package catalog

import (
	"os"
	"path/filepath"
	"strings"
)

// Fits reports whether base is a name of the directory that holds the sessions of
// cwd, by today's rules or the older one.
func (r Roots) Fits(base, cwd string) bool {
	resolved, err := Resolve(cwd)
	return err == nil && filepath.IsAbs(cwd) &&
		(base == r.Encode(resolved) || base == r.Encode(cwd) || base == absoluteName(resolved) || base == absoluteName(cwd))
}

// maxDecodeDirs bounds how many directories are listed to decode one name.
const maxDecodeDirs = 1000

// Decode returns the working directory that the name of a directory of sessions
// stands for. The encoding does not tell "/" from "-", so directories that exist are
// looked for; found is false when there is none, and cwd is then the one with "/"
// for every "-", or "" for a name that is no encoding.
func (r Roots) Decode(base string) (cwd string, found bool) {
	root, rest := "", ""
	if inner, ok := strings.CutPrefix(base, "--"); ok && strings.HasSuffix(inner, "--") {
		root, rest = "/", strings.TrimSuffix(inner, "--")
	} else if base == "-tmp" || strings.HasPrefix(base, "-tmp-") {
		root, rest = r.Temp, strings.TrimPrefix(strings.TrimPrefix(base, "-tmp"), "-")
	} else if inner, ok := strings.CutPrefix(base, "-"); ok {
		root, rest = r.Home, inner
	}
	if root == "" {
		return "", false
	}
	budget := maxDecodeDirs
	if dir, ok := decodeBelow(root, rest, &budget); ok {
		return dir, true
	}
	return filepath.Join(root, strings.ReplaceAll(rest, "-", "/")), false
}

// decodeBelow finds the directory below dir whose relative path is encoded as rest.
func decodeBelow(dir, rest string, budget *int) (string, bool) {
	if rest == "" {
		return dir, true
	}
	if *budget--; *budget < 0 {
		return "", false
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		after, ok := strings.CutPrefix(rest, cwdReplacer.Replace(e.Name()))
		if !ok || after != "" && after[0] != '-' || !e.IsDir() {
			continue
		}
		if found, ok := decodeBelow(filepath.Join(dir, e.Name()), strings.TrimPrefix(after, "-"), budget); ok {
			return found, true
		}
	}
	return "", false
}
