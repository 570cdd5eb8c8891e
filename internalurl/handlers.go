package internalurl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

func (r *Router) openArtifact(ctx context.Context, u URL) (*Resource, error) {
	dir, err := r.dir(ctx, u.Session)
	if err != nil {
		return nil, err
	}
	file, err := dir.Open(ctx, u.Artifact)
	if err != nil {
		return nil, err
	}
	if file.Info().HasCRC {
		// Bytes that changed since the end show when the index is made, which is
		// kept while they have not.
		if _, err := file.Index(ctx); err != nil {
			_ = file.Close() // the error to report is that of the read
			return nil, err
		}
	}
	res := &Resource{Kind: "artifact", ContentType: TypeText, Content: file}
	info := file.Info()
	res.Changed = info.State == artifacts.Changed
	if info.HasCRC {
		res.Kept = &Kept{info.Bytes, info.CRC32C}
	}
	if note := stateNote(info); note != "" {
		res.Notes = append(res.Notes, note)
	}
	return res, nil
}

func (r *Router) openAgent(ctx context.Context, u URL) (*Resource, error) {
	dir, err := r.dir(ctx, u.Session)
	if err != nil {
		return nil, err
	}
	id, version, steps := u.Agent, u.Version, pathSteps(u.Path)
	if u.Query != "" {
		if steps, err = parseQuery(u.Query); err != nil {
			return nil, err
		}
	} else if nested, ok := nestedAgent(u); ok {
		switch _, err := dir.LookupAgent(ctx, nested, 0); {
		case err == nil:
			id, steps = nested, nil
		case !errors.Is(err, artifacts.ErrNotFound):
			return nil, err
		}
	}
	if u.Query != "" || len(steps) > 0 {
		res, err := extract(ctx, dir, id, version, steps, u.Query != "")
		if text := r.unanswered(ctx, dir, id, version, err); text != "" {
			return nil, sentence("Nothing can be extracted: " + text)
		}
		return res, err
	}
	file, agent, err := dir.OpenAgent(ctx, id, version)
	if text := r.unanswered(ctx, dir, id, version, err); text != "" {
		return &Resource{Kind: "agent output", ContentType: TypeMarkdown, Content: newLoaded([]byte("(" + text + ")\n"))}, nil
	}
	if of, ok := strings.CutSuffix(id.String(), transcriptSuffix); ok && errors.Is(err, artifacts.ErrNotFound) {
		return openTranscript(ctx, dir, of, err)
	}
	if err != nil {
		return nil, err
	}
	res := &Resource{Kind: "agent output", ContentType: TypeMarkdown, Content: file}
	if n := len(agent.Versions); n > 1 {
		res.Notes = append(res.Notes, fmt.Sprintf("Version %d of %s; all: %s", agent.Version, id, versionURLs(agent)))
	}
	return res, nil
}

// transcriptSuffix behind the id of an agent is its session: agent://0-Review.jsonl.
const transcriptSuffix = ".jsonl"

// unanswered says of an agent without an output what it does, and where its transcript is; "" of any other, and of one that
// is not known.
func (r *Router) unanswered(ctx context.Context, dir *artifacts.Dir, id artifacts.AgentID, version int, err error) string {
	var none *artifacts.AgentNotFoundError
	if version != 0 || !errors.As(err, &none) || none.Reason == "" {
		return ""
	}
	status := none.Reason
	if r.src.AgentStatus != nil {
		told, err := r.src.AgentStatus(ctx, dir.Path(), id)
		if err != nil {
			told = "its status cannot be told: " + err.Error()
		}
		status = told + "; " + status
	}
	if log, err := dir.OpenAgentLog(ctx, id); err == nil {
		_ = log.Close() // nothing was read
		return fmt.Sprintf("%s is %s; its transcript is agent://%s%s", id, status, id, transcriptSuffix)
	}
	return fmt.Sprintf("%s is %s; it has no transcript yet", id, status)
}

// openTranscript opens the log of an agent.
func openTranscript(ctx context.Context, dir *artifacts.Dir, of string, notFound error) (*Resource, error) {
	id, err := artifacts.ParseAgentID(of)
	if err != nil {
		return nil, notFound
	}
	log, err := dir.OpenAgentLog(ctx, id)
	if errors.Is(err, artifacts.ErrNotFound) {
		return nil, notFound
	}
	if err != nil {
		return nil, err
	}
	return &Resource{Kind: "transcript", ContentType: TypeText, Content: log}, nil
}

func versionURLs(a artifacts.Agent) string {
	urls := make([]string, len(a.Versions))
	for i, v := range a.Versions {
		urls[i] = fmt.Sprintf("agent://%s.v%d", a.ID, v)
	}
	return strings.Join(urls, ", ")
}

// nestedAgent is the agent that agent://<id>/a/b would be: <id>.a.b, as in
// oh-my-pi.
func nestedAgent(u URL) (artifacts.AgentID, bool) {
	if len(u.Path) == 0 || u.Version != 0 {
		return artifacts.AgentID{}, false
	}
	id, err := u.Agent, error(nil)
	for _, name := range u.Path {
		if strings.Contains(name, ".") {
			return artifacts.AgentID{}, false
		}
		if id, err = id.Child(name); err != nil {
			return artifacts.AgentID{}, false
		}
	}
	return id, true
}

// extract opens a part of an agent's structured output. A string is its text,
// everything else is indented JSON. What a query asks for and is not there is null, as in oh-my-pi,
// with a note; a path to nothing is an error that says what there is.
func extract(ctx context.Context, dir *artifacts.Dir, id artifacts.AgentID, version int, steps []step, asked bool) (*Resource, error) {
	doc, source, err := dir.AgentJSON(ctx, id, version)
	if err != nil {
		return nil, err
	}
	if !ecmajson.Valid(doc) {
		return nil, sentence(fmt.Sprintf("Output %s is not valid JSON: %v%s", id, syntaxError(doc), otherJSON(ctx, dir, id, version)))
	}
	res := &Resource{Kind: "agent output", Extracted: true, ContentType: TypeJSON}
	res.Notes = append(res.Notes, "Extracted: "+formatSteps(steps))
	if strings.HasSuffix(source, ".json") {
		res.Notes = append(res.Notes, "Source: "+source)
	}
	value, done := follow(doc, steps)
	switch {
	case done < len(steps) && !asked:
		return nil, sentence(fmt.Sprintf("Output %s has nothing at %s: %s", id, formatSteps(steps[:done+1]), holding(doc, steps[:done])))
	case done < len(steps):
		res.Notes = append(res.Notes, "There is nothing at "+formatSteps(steps[:done+1]))
		res.Content = newLoaded([]byte("null"))
	case value.Kind() == '"':
		text, err := ecmajson.Unquote(value)
		if err != nil {
			return nil, fmt.Errorf("reading a string of output %s: %w", id, err)
		}
		res.ContentType, res.Content = TypeMarkdown, newLoaded(text)
	default:
		res.Content = newLoaded(indent(value))
	}
	return res, nil
}

// maxNamed is how many members a sentence names.
const maxNamed = 20

// holding says what there is at steps, which lead somewhere.
func holding(doc []byte, steps []step) string {
	value, _ := follow(doc, steps)
	where := "the whole output"
	if len(steps) > 0 {
		where = formatSteps(steps)
	}
	switch value.Kind() {
	case '{':
		var names []string
		n := 0
		for k := range ecmajson.Object(value) {
			if n++; n > maxNamed {
				continue
			}
			if name, err := ecmajson.Unquote(k); err == nil {
				names = append(names, fmt.Sprintf("%.60q", name))
			}
		}
		if n > maxNamed {
			names = append(names, fmt.Sprintf("%d more", n-maxNamed))
		}
		if n == 0 {
			return where + " is an object without members"
		}
		return where + " is an object with " + strings.Join(names, ", ")
	case '[':
		n := 0
		for range ecmajson.Array(value) {
			n++
		}
		if n == 0 {
			return where + " is an empty array"
		}
		return fmt.Sprintf("%s is an array with the elements 0 to %d", where, n-1)
	}
	return where + " is a single value"
}

// otherJSON names the newest other version of an output that is JSON.
func otherJSON(ctx context.Context, dir *artifacts.Dir, id artifacts.AgentID, version int) string {
	a, err := dir.LookupAgent(ctx, id, version)
	if err != nil {
		return ""
	}
	for _, v := range slices.Backward(a.Versions) {
		if v == a.Version {
			continue
		}
		if doc, _, err := dir.AgentJSON(ctx, id, v); err == nil && ecmajson.Valid(doc) {
			return fmt.Sprintf("; version %d is: agent://%s.v%[1]d", v, id)
		}
	}
	return ""
}

// syntaxError says where doc stops being JSON.
func syntaxError(doc []byte) error {
	var any json.RawMessage
	if err := json.Unmarshal(doc, &any); err != nil {
		return err
	}
	return errors.New("it cannot be parsed")
}

// maxIndentDepth is how deep JSON is indented: the white space of deeply nested
// JSON would be the square of its size.
const maxIndentDepth = 64

// indent writes valid JSON for reading, two spaces a level.
func indent(value []byte) []byte {
	var b bytes.Buffer
	if depth(value) > maxIndentDepth || json.Indent(&b, value, "", "  ") != nil {
		return value
	}
	return b.Bytes()
}

// depth is how deep valid JSON is nested.
func depth(value []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

func (r *Router) openSession(ctx context.Context, u URL) (*Resource, error) {
	s, err := r.session(ctx, u.Session)
	if err != nil {
		return nil, err
	}
	if u.Entry == "" {
		data, err := s.Metadata(ctx)
		if err != nil {
			return nil, fmt.Errorf("describing session %s: %w", u.Session, err)
		}
		return &Resource{Kind: "session", ContentType: TypeJSON, Content: newLoaded(indent(data))}, nil
	}
	data, err := s.EntryJSON(ctx, u.Entry)
	if errors.Is(err, ErrNoEntry) {
		return nil, sentence(fmt.Sprintf("Entry %s not found in session %s: see agentrun sessions tree %[2]s", u.Entry, u.Session))
	}
	if err != nil {
		return nil, fmt.Errorf("reading entry %s of session %s: %w", u.Entry, u.Session, err)
	}
	return &Resource{Kind: "entry", ContentType: TypeJSON, Content: newLoaded(indent(data))}, nil
}

func (r *Router) openJob(ctx context.Context, u URL) (*Resource, error) {
	if r.src.Job == nil {
		return nil, sentence("No session: job:// URLs cannot be read here")
	}
	data, err := r.src.Job(ctx, u.Artifact)
	if err != nil {
		return nil, err
	}
	return &Resource{Kind: "job", ContentType: TypeJSON, Content: newLoaded(indent(data))}, nil
}

func (r *Router) openBlob(ctx context.Context, u URL) (*Resource, error) {
	if r.src.Blobs == nil {
		return nil, sentence("No blob store: blob:// URLs cannot be read here")
	}
	content, err := r.blob(ctx, u)
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
		return nil, sentence(fmt.Sprintf("Blob %s not found: it was never stored in this home, or was removed", u.Ref.Hex()))
	case errors.Is(err, blobstore.ErrCorrupt):
		return nil, sentence(fmt.Sprintf("Blob %s is corrupt: its bytes are not those that its name says; storing the same content again heals it", u.Ref.Hex()))
	case err != nil:
		return nil, fmt.Errorf("opening blob %s: %w", u.Ref.Hex(), err)
	}
	typ, err := Sniff(content)
	if err != nil {
		_ = content.Close() // the error to report is that of the read
		return nil, fmt.Errorf("opening blob %s: %w", u.Ref.Hex(), err)
	}
	return &Resource{Kind: "blob", ContentType: typ, Content: content}, nil
}

func (r *Router) blob(ctx context.Context, u URL) (Content, error) {
	if o, ok := blobstore.As[blobstore.Opener](r.src.Blobs); ok {
		b, err := o.Open(ctx, u.Ref)
		if err != nil {
			return nil, err
		}
		return &streamed{ReaderAt: b, size: b.Size(), close: b.Close}, nil
	}
	data, err := r.src.Blobs.Get(ctx, u.Ref)
	if err != nil {
		return nil, err
	}
	return newLoaded(data), nil
}
