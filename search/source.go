package search

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// kind says how the text of a file is read. The numbers stand in the index.
type kind int64

const (
	kindLog    kind = 1 // a session: its entries
	kindOutput kind = 2 // an artifact or the output of an agent: its lines
)

// source is a file that is searched.
type source struct {
	kind    kind
	path    string
	owner   *owner // of the session that it belongs to
	session string // id of the session for URLs: a subagent's own for its log
	url     string // of an output, without a line
	tool    string // that wrote an artifact
	role    string // of an output's lines
	order   int64  // number of an artifact
	stat    durable.Identity
}

// owner is a session of the home with its files, in the order in which they are
// searched: outputs before the entries that cite them.
type owner struct {
	info    session.Info
	sources []source
}

// walk lists the files of sessions. What can not be looked at is told to problem.
func (x *Searcher) walk(ctx context.Context, sessions []session.Info, problem func(error)) ([]*owner, error) {
	owners := make([]*owner, 0, len(sessions))
	for _, info := range sessions {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if info.ID == "" {
			continue // nothing in it yet
		}
		o := &owner{info: info}
		if dir := session.ArtifactsPath(info.Path); dir != "" {
			if err := x.addDir(o, dir); err != nil {
				problem(err)
			}
		}
		slices.SortStableFunc(o.sources, func(a, b source) int {
			if a.kind != b.kind {
				return int(b.kind - a.kind)
			}
			if a.order != b.order {
				return int(max(-1, min(1, b.order-a.order)))
			}
			return strings.Compare(a.path, b.path)
		})
		log := source{kind: kindLog, path: info.Path, owner: o, session: info.ID}
		var err error
		if log.stat, err = x.fs.Identify(info.Path); err == nil {
			o.sources = append(o.sources, log)
		} else if !errors.Is(err, fs.ErrNotExist) {
			problem(fmt.Errorf("searching session %s: %w", info.ID, err))
		}
		owners = append(owners, o)
	}
	return owners, nil
}

// addDir adds what is in a directory of artifacts.
func (x *Searcher) addDir(o *owner, dir string) error {
	list, err := x.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("searching the artifacts of session %s: %w", o.info.ID, err)
	}
	names := make(map[string]bool, len(list))
	for _, e := range list {
		names[e.Name()] = true
	}
	var failed error
	for _, e := range list {
		name := e.Name()
		if name[0] == '.' || !e.Type().IsRegular() {
			continue
		}
		s, ok := outputSource(o, name)
		if !ok {
			continue
		}
		if s.kind == kindLog && strings.HasSuffix(name, ".zst") && names[strings.TrimSuffix(name, ".zst")] {
			continue // the plain one counts
		}
		s.path, s.owner = filepath.Join(dir, name), o
		if s.stat, err = x.fs.Identify(s.path); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				failed = err
			}
			continue
		}
		if s.stat.Mode&unix.S_IFMT == unix.S_IFREG {
			o.sources = append(o.sources, s)
		}
	}
	return failed
}

// outputSource says what a file beside a session is by its name.
func outputSource(o *owner, name string) (source, bool) {
	if stem, ok := strings.CutSuffix(name, ".log"); ok {
		number, tool, _ := strings.Cut(stem, ".")
		id, ok := artifacts.ParseID(number)
		if !ok || tool == "" || artifacts.CleanTool(tool) != tool {
			return source{}, false
		}
		return source{
			kind: kindOutput, url: fmt.Sprintf("artifact://%s/%d", o.info.ID, id), session: o.info.ID,
			tool: tool, role: RoleArtifact, order: id,
		}, true
	}
	for _, ext := range []string{".md", ".json", ".jsonl", ".jsonl.zst"} {
		stem, ok := strings.CutSuffix(name, ext)
		if !ok {
			continue
		}
		if _, _, err := artifacts.ParseAgentRef(stem); err != nil {
			return source{}, false
		}
		s := source{kind: kindOutput, url: "agent://" + o.info.ID + "/" + stem, session: o.info.ID, role: RoleAgent, order: -1}
		switch ext {
		case ".json":
			s.url += "?q=."
		case ".jsonl", ".jsonl.zst":
			s.kind, s.role, s.session = kindLog, "", ""
		}
		return s, true
	}
	return source{}, false
}

// Roles of lines that are not entries.
const (
	RoleArtifact = "artifact" // a line of artifact://<session>/<n>
	RoleAgent    = "agent"    // a line of agent://<session>/<id>
	RoleTitle    = "title"    // the title of a session
)
