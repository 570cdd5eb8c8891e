package entry

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// glance is what a context is built from, as one look at the line tells it.
type glance struct {
	// role is that of the message the entry contributes, "" if it holds none that
	// can be read.
	role string
	// calls are those of an assistant turn, or the one that a tool result answers.
	calls    []string
	end      outcome // of an assistant turn
	excluded bool    // an execution that is not for models
	none     bool    // the entry contributes nothing, and need not

	// What strict contexts ask, if strict is set.
	strict bool
	empty  bool // the message says nothing
	media  bool // it may have images, or parts that lie in blobs
}

// Prepare looks up in advance what [BuildContext] asks of each entry, so that
// several goroutines can do it for a long path, each for its part. The entries
// are changed in place; without it BuildContext does the same, only later.
func Prepare(entries []Entry) {
	glances := make([]glance, len(entries))
	ids := make([]string, 0, len(entries))
	for i := range entries {
		ids = glances[i].fill(&entries[i], ids)
		entries[i].seen = &glances[i]
	}
}

// PrepareStrict is [Prepare] for contexts that are strict.
func PrepareStrict(entries []Entry) {
	Prepare(entries)
	for i := range entries {
		entries[i].seen.look(&entries[i])
	}
}

// look finds what strict contexts ask.
func (g *glance) look(e *Entry) {
	g.strict = true
	if g.none || g.role == "" {
		return
	}
	g.empty = e.saysNothing(g)
	g.media = bytes.Contains(e.raw, typeMember) || bytes.Contains(e.raw, listMember)
}

// Ends of "mimeType", which every image has, and of "externalized", which lists what was
// taken out of a line: they begin with rare bytes, so looking for them takes no time.
var typeMember, listMember = []byte(`Type"`), []byte(`xternalized"`)

// HasMedia reports whether the message that the entry contributes may have images, or
// parts that lie in the blob store.
func (e Entry) HasMedia() bool {
	g := e.seen
	if g == nil || !g.strict {
		g = new(glance)
		g.fill(&e, nil)
		g.look(&e)
	}
	return g.media
}

// fill looks at e. What it names it cuts from the slab ids, which it returns.
func (g *glance) fill(e *Entry, ids []string) []string {
	start := len(ids)
	switch e.typ {
	case TypeMessage:
		at := messageAt(e.raw)
		switch g.role = roleAt(e.raw, at); g.role {
		case RoleAssistant:
			ids, g.end = scanTurn(e.raw, at, ids)
			g.calls = ids[start:len(ids):len(ids)]
		case RoleToolResult:
			ids = append(ids, stringAt(e.raw, at, "toolCallId"))
			g.calls = ids[start:len(ids):len(ids)]
		case RoleBashExecution, RolePythonExecution:
			g.excluded = e.excluded()
		}
	case TypeCustomMessage:
		if c := gjson.Get(text(e.raw), "content"); c.Type == gjson.String || c.IsArray() {
			g.role = RoleCustom
		}
	case TypeBranchSummary:
		g.role = RoleBranchSummary
		g.none = str(gjson.Get(text(e.raw), "summary")) == ""
	default:
		g.none = true
	}
	return ids
}
