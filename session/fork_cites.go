package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
)

// besideWords finds entries that may cite what lies beside the log: the words are
// parts of all that citeBeside looks for.
var besideWords = &wordSearch{words: []string{"artifact", "agent:", `"run"`, `"details"`, blobEnd}}

// citesOfPath returns what entries of a path, which lie in spans, cite of what lies
// beside the log.
func (s *Session) citesOfPath(ctx context.Context, t *Tree, path []int, spans []stretch) (*artifacts.Selection, error) {
	used, err := s.MaxArtifactID(ctx)
	if err != nil {
		return nil, err
	}
	sel := &artifacts.Selection{Numbers: map[int64]bool{}, Agents: map[artifacts.AgentID]bool{}, Runs: map[string]bool{}, Used: used}
	for _, span := range spans {
		// An entry is a line of its span.
		var lerr error
		err := eachPassing(ctx, t.src, span.from, span.to, func(line []byte, at int64) bool {
			if len(path) == 0 {
				lerr = fmt.Errorf("%s changed meanwhile", s.Path())
				return false
			}
			x := &t.nodes.list[path[0]]
			path = path[1:]
			if besideWords.next(line) < len(line) {
				lerr = s.citeEntry(ctx, sel, x, line)
			}
			return lerr == nil
		})
		if err := errors.Join(err, lerr); err != nil {
			return nil, err
		}
	}
	return sel, nil
}

// citeEntry adds what the entry cites whose line is raw.
func (s *Session) citeEntry(ctx context.Context, sel *artifacts.Selection, x *node, raw []byte) error {
	if !bytes.Contains(raw, []byte(blobWord)) {
		citeBeside(sel, raw)
		return nil
	}
	e, err := x.parse(bytes.Clone(raw))
	if err != nil {
		return err
	}
	// A long string may cite too. What cannot be read cites nothing that the fork
	// could show.
	one := []entry.Entry{e}
	if _, err := s.RestoreAll(ctx, one); err != nil {
		return err
	}
	citeBeside(sel, one[0].Raw())
	return nil
}

// citeBeside adds what one entry cites.
func citeBeside(sel *artifacts.Selection, raw []byte) {
	citeURLs(sel, raw)
	if bytes.Contains(raw, artifactKey) {
		ids, _ := artifactsIn(raw)
		for _, id := range ids {
			sel.Numbers[id] = true
		}
	}
	for _, path := range []string{"message.details.run", "data.run"} {
		if run := gjson.GetBytes(raw, path); run.Type == gjson.String && run.Str != "" {
			sel.Runs[run.Str] = true
		}
	}
	if details := gjson.GetBytes(raw, "message.details"); details.IsObject() && gjson.GetBytes(raw, "message.role").Str == entry.RoleToolResult {
		citeStrings(sel, details, 0)
	}
}

// maxDetails bounds how deep the details of a result are looked into.
const maxDetails = 16

// citeStrings adds the agents that the details of a result name, by id or by file.
func citeStrings(sel *artifacts.Selection, v gjson.Result, depth int) {
	if v.Type == gjson.String {
		name := v.Str
		if strings.Contains(name, "/") {
			name = path.Base(name)
			for _, ext := range []string{".md", ".jsonl", ".json"} {
				name = strings.TrimSuffix(name, ext)
			}
		}
		if id, _, err := artifacts.ParseAgentRef(name); err == nil {
			sel.Agents[id] = true
		}
		return
	}
	if depth < maxDetails && (v.IsObject() || v.IsArray()) {
		v.ForEach(func(_, v gjson.Result) bool {
			citeStrings(sel, v, depth+1)
			return true
		})
	}
}

// citeURLs adds what artifact:// and agent:// in a text name. JSON may have
// backslashes before the slashes.
func citeURLs(sel *artifacts.Selection, text []byte) {
	for _, scheme := range []string{"artifact:", "agent:"} {
		for rest := text; ; {
			_, after, found := bytes.Cut(rest, []byte(scheme))
			if !found {
				break
			}
			rest = after
			after = bytes.TrimLeft(after[:min(len(after), artifacts.MaxAgentID+16)], `\/`)
			end := 0
			for end < len(after) && isReference(after[end]) {
				end++
			}
			name := strings.TrimRight(string(after[:end]), ".")
			if scheme == "artifact:" {
				number, _, _ := strings.Cut(name, ".")
				if id, err := strconv.ParseInt(number, 10, 64); err == nil && id >= 0 {
					sel.Numbers[id] = true
				}
			} else if id, _, err := artifacts.ParseAgentRef(name); err == nil {
				sel.Agents[id] = true
			}
		}
	}
}

// isReference reports whether a byte may stand in the number of an artifact or the
// id of an agent.
func isReference(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '_' || b == '.'
}

// maxCiting bounds what is read of an output or log of an agent, in bytes.
const maxCiting = 64 << 20

// followAgents adds what the outputs and logs of the chosen agents cite: those agents
// wrote to the same directory, unless they have one of their own with that number.
func (s *Session) followAgents(ctx context.Context, dir string, sel *artifacts.Selection) error {
	entries, err := s.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listing %s: %w", dir, err)
	}
	for followed := map[string]bool{}; ; {
		before := len(followed)
		for _, e := range entries {
			name := e.Name()
			id, ok := agentOf(name)
			if !ok || !e.Type().IsRegular() || followed[name] || !chosen(sel, id) {
				continue
			}
			followed[name] = true
			if err := ctx.Err(); err != nil {
				return err
			}
			data, err := durable.ReadFile(s.fs, filepath.Join(dir, name), maxCiting)
			if err != nil {
				continue // the clone says what is wrong with it
			}
			its := &artifacts.Selection{Numbers: map[int64]bool{}, Agents: sel.Agents, Runs: map[string]bool{}}
			for line := range bytes.Lines(data) {
				citeBeside(its, line)
			}
			own, _ := artifacts.Open(filepath.Join(dir, id.String()), artifacts.Options{FS: s.fs}).Numbers(ctx)
			for _, n := range own {
				delete(its.Numbers, n)
			}
			for n := range its.Numbers {
				sel.Numbers[n] = true
			}
		}
		if len(followed) == before {
			return nil
		}
	}
}

// agentOf returns the agent that a file of outputs or a log belongs to.
func agentOf(name string) (artifacts.AgentID, bool) {
	for _, ext := range []string{".md", ".json", ".jsonl"} {
		if stem, ok := strings.CutSuffix(name, ext); ok {
			id, _, err := artifacts.ParseAgentRef(stem)
			return id, err == nil
		}
	}
	return artifacts.AgentID{}, false
}

// chosen reports whether an agent, or one above it, is selected.
func chosen(sel *artifacts.Selection, id artifacts.AgentID) bool {
	for ; !id.IsZero(); id = id.Parent() {
		if sel.Agents[id] {
			return true
		}
	}
	return false
}
