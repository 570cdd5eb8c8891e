package read

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/tool"
	"github.com/agentrun/agentrun/tool/workspace"
)

// maxNames bounds how many names of a directory are looked at for one that may be meant, and maxMeant how many are told.
const (
	maxNames = 10_000
	maxMeant = 3
)

// meant ends the sentence about a file that is not there with names beside it that may be meant; "" for none.
func meant(ctx context.Context, w *workspace.Workspace, name string) string {
	if strings.HasPrefix(name, "~") {
		return "; ~ stands for no directory here: write it out"
	}
	if tool.HiddenOf(ctx) != nil {
		return "" // not every name is for everybody
	}
	parent, base := filepath.Split(name)
	d, err := directory(w, filepath.Join(parent, "."))
	if err != nil {
		return ""
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxNames) // a hint needs not all
	slices.Sort(names)
	var like []string
	for _, n := range names {
		if len(like) < maxMeant && resembles(n, base) {
			like = append(like, oneLine(parent+n))
		}
	}
	if len(like) == 0 {
		return ""
	}
	return "; there is " + strings.Join(like, ", ")
}

// resembles reports whether two names of files differ in case, in what follows the last dot, or in one letter that is
// missing, too many, another one or changed places with the next.
func resembles(a, b string) bool {
	stem := func(s string) string { return strings.TrimSuffix(s, filepath.Ext(s)) }
	if strings.EqualFold(a, b) || len(stem(a)) > 1 && stem(a) == stem(b) {
		return true
	}
	if min(len(a), len(b)) < 3 {
		return false
	}
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return len(a) <= 1 && len(b) <= 1 || len(a) == 2 && len(b) == 2 && a[0] == b[1] && a[1] == b[0]
}
