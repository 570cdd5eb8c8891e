package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// Place is an entry of a log.
type Place struct {
	Entry  string // its id
	Line   int    // in the file, from 1; 0 for a compressed log that could not be read whole
	Offset int64
	Bytes  int64 // of its line, without the newline
}

// BlobCitation is a blob that a log needs to give back what was appended.
type BlobCitation struct {
	Ref   blobref.Ref
	First Place // of the entries that cite it
	Count int
	// Folded is set for what a compressed log repeats. Without the blob those entries
	// are damaged, and First may know no entry.
	Folded bool
}

// ArtifactCitation is an artifact that entries of a log refer to.
type ArtifactCitation struct {
	ID    int64
	First Place
	// Ended is what the end entry of its run says about it, nil when there is none.
	Ended *ArtifactEnd
}

// ArtifactEnd describes an artifact as it was when its run ended.
type ArtifactEnd struct {
	Bytes  int64
	Lines  int64
	CRC32C uint32
	State  string // "" for a complete one
	Run    string
}

// AgentCitation is an output of an agent that entries of a log refer to: what its tool,
// or the program, said of it. What a person or a model writes about is none.
type AgentCitation struct {
	ID      string // of the agent
	Version int    // 0 for the newest
	First   Place
}

// citing is what one entry of a segment cites.
type citing struct {
	node  int // in the segment
	blobs []blobref.Ref
	ids   []int64
	ended *ArtifactEnd
	// agents are outputs, as agent://<ref> names them.
	agents []string
}

// outside gathers what a log cites, each thing once.
type outside struct {
	blobs     []BlobCitation
	artifacts []ArtifactCitation
	blobAt    map[blobref.Ref]int
	idAt      map[int64]int
	agents    []AgentCitation
	agentAt   map[string]bool
}

func newOutside() *outside {
	return &outside{blobAt: map[blobref.Ref]int{}, idAt: map[int64]int{}, agentAt: map[string]bool{}}
}

func (c *outside) add(from citing, id string, x node) {
	place := Place{Entry: id, Line: int(x.line), Offset: x.off, Bytes: int64(x.size)}
	for _, ref := range from.blobs {
		i, known := c.blobAt[ref]
		if !known {
			i = len(c.blobs)
			c.blobAt[ref] = i
			c.blobs = append(c.blobs, BlobCitation{Ref: ref, First: place})
		}
		c.blobs[i].Count++
	}
	for _, name := range from.agents {
		if c.agentAt[name] {
			continue
		}
		c.agentAt[name] = true
		if id, version, err := artifacts.ParseAgentRef(name); err == nil {
			c.agents = append(c.agents, AgentCitation{id.String(), version, place})
		}
	}
	for _, n := range from.ids {
		i, known := c.idAt[n]
		if !known {
			i = len(c.artifacts)
			c.idAt[n] = i
			c.artifacts = append(c.artifacts, ArtifactCitation{ID: n, First: place})
		}
		if from.ended != nil {
			c.artifacts[i].Ended = from.ended
		}
	}
}

// The words that every citation contains: what a reference to a blob begins with,
// and the name of every member that holds the id of an artifact.
const (
	blobWord     = "blob:sha256:"
	artifactWord = `"artifact`
)

// blobEnd is the rarer end of blobWord.
const blobEnd = "b:sha256:"

// wordSearch finds the first of some words in a fraction of the time of a search for
// each. It looks at four bytes at places so far apart that one of them is always within
// a word. What is found at one place does not decide where the next one is, so the
// processor does not wait.
type wordSearch struct {
	words []string // of four bytes and more; the longer the shortest, the faster

	prepared sync.Once // at the first search: most starts of a program do none
	step     int
	grams    [1 << 12]bool // hashes of all four bytes that are looked for
}

func (w *wordSearch) prepare() {
	w.step = len(w.words[0]) - 3
	for _, word := range w.words {
		w.step = min(w.step, len(word)-3)
	}
	for _, word := range w.words {
		for i := range w.step {
			w.grams[gramHash(binary.LittleEndian.Uint32([]byte(word[i:])))] = true
		}
	}
}

func gramHash(x uint32) uint32 { return x * 2654435761 >> 20 }

// next returns where in b the first word is, or len(b).
func (w *wordSearch) next(b []byte) int {
	w.prepared.Do(w.prepare)
	step := w.step
	for i := 0; i+4 <= len(b); i += step {
		if !w.grams[gramHash(binary.LittleEndian.Uint32(b[i:]))] {
			continue
		}
		for at := max(0, i-step+1); at <= i; at++ {
			for _, word := range w.words {
				if len(b)-at >= len(word) && string(b[at:at+len(word)]) == word {
					return at
				}
			}
		}
	}
	return len(b)
}

// citeWords finds entries that may cite something outside of the log.
var citeWords = &wordSearch{words: []string{blobEnd, artifactWord, agentWords[0], agentWords[1]}}

// cite notes what the last entry of the segment cites.
func (s *segment) cite(raw []byte) {
	c := citing{node: len(s.nodes) - 1}
	if bytes.Contains(raw, []byte(blobWord)) {
		c.blobs = blobsIn(raw)
	}
	if bytes.Contains(raw, artifactKey) {
		c.ids, c.ended = artifactsIn(raw)
	}
	c.agents = agentsIn(raw)
	if len(c.blobs) > 0 || len(c.ids) > 0 || len(c.agents) > 0 {
		s.cites = append(s.cites, c)
	}
}

// agentWords are the ends of what stands before an output that is handed on: a value of
// JSON or an attribute, and a line of its own.
var agentWords = []string{`"agent://`, ` agent://`}

// agentsIn returns the outputs of agents that an entry tells of: the result of a tool
// that runs agents, a message of the program, or that one was read.
func agentsIn(raw []byte) (refs []string) {
	if !bytes.Contains(raw, []byte(agentWords[0][1:])) {
		return nil
	}
	told := gjson.GetBytes(raw, "message")
	if gjson.GetBytes(raw, "type").Str == entry.TypeCustomMessage {
		told = gjson.ParseBytes(raw)
	} else if role := told.Get("role").Str; role != entry.RoleCustom && role != entry.RoleToolResult {
		return nil
	} else if role == entry.RoleToolResult {
		if at := told.Get("details.meta.source.value"); !told.Get("isError").Bool() && at.Type == gjson.String {
			refs = outputsIn(refs, `"`+at.Str)
		}
		if name := told.Get("toolName").Str; name != "task" && name != "subagent" {
			return refs
		}
	}
	content := told.Get("content")
	if content.Type == gjson.String {
		return outputsIn(refs, content.Str)
	}
	for _, text := range content.Get("#.text").Array() {
		refs = outputsIn(refs, text.Str)
	}
	return refs
}

// outputsIn adds the outputs that a text hands on.
func outputsIn(refs []string, text string) []string {
	for {
		before, after, found := strings.Cut(text, agentWords[0][1:])
		if !found {
			return refs
		}
		text = after
		if !strings.HasSuffix(before, `"`) && !strings.HasSuffix(before, "Output: ") {
			continue
		}
		end := 0
		for end < len(after) && end <= artifacts.MaxAgentID && isReference(after[end]) {
			end++
		}
		// Behind a slash there is an agent of another session, or a part.
		if name := strings.TrimRight(after[:end], "."); name != "" && !strings.HasPrefix(after[end:], "/") {
			refs = append(refs, name)
		}
	}
}

var errCited = errors.New("cited")

// blobsIn returns the blobs that an entry needs to be restored, or to restore files,
// not those that its text merely mentions.
func blobsIn(raw []byte) (refs []blobref.Ref) {
	if bytes.Contains(raw, []byte(`"customType"`)) {
		switch gjson.GetBytes(raw, "customType").Str {
		case entry.CustomTypeCheckpoint, entry.CustomTypeState, entry.CustomTypeStateTurn:
			return persist.Refs(raw)
		}
	}
	// An error tells that the line is no JSON in spite of its crc: it cites nothing.
	_, _, _ = persist.Restore(context.Background(), raw, func(_ context.Context, ref blobref.Ref) ([]byte, error) {
		refs = append(refs, ref)
		return nil, errCited
	})
	return refs
}

// artifactsIn returns the artifacts that a message refers to, and what it tells of
// one as the end of its run.
func artifactsIn(raw []byte) (ids []int64, ended *ArtifactEnd) {
	message := gjson.GetBytes(raw, "message")
	for _, path := range artifactPaths {
		if v := message.Get(path); v.Exists() && len(v.String()) <= 15 && isID(v) {
			ids = append(ids, v.Int())
		}
	}
	a := message.Get("details.artifact")
	if len(ids) == 0 || !a.Get("crc32c").Exists() {
		return ids, nil
	}
	sum, err := strconv.ParseUint(a.Get("crc32c").String(), 16, 32)
	if err != nil || a.Get("id").Int() != ids[0] {
		return ids, nil
	}
	return ids, &ArtifactEnd{
		Bytes: a.Get("bytes").Int(), Lines: a.Get("lines").Int(), CRC32C: uint32(sum),
		State: a.Get("state").String(), Run: message.Get("details.run").String(),
	}
}

// isID reports whether a value is the number of an artifact, as a number or, as
// oh-my-pi has it, as a string.
func isID(v gjson.Result) bool {
	n, err := strconv.ParseInt(v.String(), 10, 64)
	return err == nil && n >= 0 && n == v.Int()
}
