package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// maxNesting is how deep the sessions of agents of agents are looked into.
const maxNesting = 16

// untracedNested returns the artifacts that logs of nested sessions in a directory of
// artifacts cite and that are neither there nor in a folder of those sessions. A log
// that cannot be read cites none.
func (s *Session) untracedNested(ctx context.Context, dir string) ([]artifacts.Untraced, error) {
	n := nestedLosses{s: s, root: dir, found: map[artifacts.Untraced]bool{}}
	if err := n.folder(ctx, []string{""}); err != nil {
		return nil, fmt.Errorf("reading which artifacts the sessions in %s cite: %w", dir, err)
	}
	return slices.SortedFunc(maps.Keys(n.found), artifacts.Untraced.Compare), nil
}

// nestedLosses looks through the nested sessions of one directory.
type nestedLosses struct {
	s     *Session
	root  string
	found map[artifacts.Untraced]bool
}

// folder looks at the logs in the last of some folders, each of which lies in the one
// before it.
func (n *nestedLosses) folder(ctx context.Context, folders []string) error {
	within := folders[len(folders)-1]
	entries, err := n.s.fs.ReadDir(filepath.Join(n.root, within))
	if err != nil {
		return ignoreAbsent(err)
	}
	for _, e := range entries {
		stem, isLog := catalog.Stem(e.Name())
		if !isLog || !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		below := append(slices.Clone(folders), filepath.Join(within, stem))
		if err := n.log(ctx, filepath.Join(n.root, within, e.Name()), below); err != nil {
			return err
		}
		if len(below) > maxNesting {
			continue
		}
		if err := n.folder(ctx, below); err != nil {
			return err
		}
	}
	return nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// log adds what the log at path cites and none of the folders has. An agent writes to
// the innermost folder in which there is an artifact at all.
func (n *nestedLosses) log(ctx context.Context, path string, folders []string) error {
	log, err := n.s.manager.OpenLog(path)
	if err != nil {
		return ctx.Err()
	}
	defer log.Close()
	cited := map[int64]bool{}
	if err := citedIn(ctx, log.st.src, stretch{log.st.end, log.st.src.size}, nil, cited); err != nil || len(cited) == 0 {
		return ctx.Err()
	}
	// Behind the look at the log: what it cites by then is there.
	its := artifacts.Untraced{}
	for _, folder := range folders {
		used, err := artifacts.Open(filepath.Join(n.root, folder), artifacts.Options{FS: n.s.fs}).Used()
		if err != nil {
			return ctx.Err() // what cannot be read may have them
		}
		if len(used) > 0 {
			its.Dir = folder
		}
		maps.DeleteFunc(cited, func(id int64, _ bool) bool { return used[id] })
	}
	for its.ID = range cited {
		n.found[its] = true
	}
	return nil
}
