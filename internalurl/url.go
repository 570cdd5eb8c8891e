package internalurl

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
)

// Schemes of URLs.
const (
	Artifact = "artifact"
	Agent    = "agent"
	Session  = "session"
	Blob     = "blob"
	Job      = "job"
)

// schemes in the order errors list them.
var schemes = []string{Agent, Artifact, Blob, Job, Session}

// MaxLen is the longest URL that Parse reads, in bytes.
const MaxLen = 8 << 10

// URL is a parsed address. Which of the fields below Session mean something
// depends on the scheme.
type URL struct {
	Scheme  string
	Session string // id of the session, with the scheme session maybe its beginning; "" is the session at hand

	Artifact int64 // artifact; job, whose number is that of its artifact

	Agent   artifacts.AgentID // agent
	Version int               // agent: 0 is the newest
	Path    []string          // agent: a nested agent or keys of its output, decoded
	Query   string            // agent: ?q=, decoded; "" is none

	Entry string // session: an id, its beginning or a label; "" is the session itself

	Ref blobref.Ref // blob

	// Member names what is meant within an archive, or what is compressed; "" is the whole.
	Member string // artifact, blob

	Selector Selector
}

// reference begins a blob as logs and JSON name it: blob:sha256:<hex> is read as blob://sha256/<hex>.
const reference = "blob:sha256:"

// Is reports whether s looks like a URL rather than a file name, whatever its
// scheme: a letter, then letters, digits, '+', '.' or '-', then "://"; or a reference to
// a blob, blob:sha256:<hex>.
func Is(s string) bool {
	if strings.HasPrefix(s, reference) {
		return true
	}
	scheme, _, ok := strings.Cut(s, "://")
	if !ok || scheme == "" {
		return false
	}
	for i, c := range []byte(scheme) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '+' || c == '.' || c == '-')) {
			return false
		}
	}
	return true
}

// Parse reads a URL. Every error is a sentence that says what would be right.
func Parse(raw string) (URL, error) {
	if len(raw) > MaxLen {
		return URL{}, fmt.Errorf("URL of %d bytes is too long: at most %d are allowed", len(raw), MaxLen)
	}
	if i := strings.IndexFunc(raw, func(r rune) bool { return r < 0x20 || r == 0x7f }); i >= 0 {
		return URL{}, fmt.Errorf("URL %q has a control character at byte %d: remove it or write it as %%%02X in a query", raw, i, raw[i])
	}
	if !Is(raw) {
		return URL{}, fmt.Errorf("%q is not a URL: use one such as artifact://0 or agent://<id>", raw)
	}
	if hex, ok := strings.CutPrefix(raw, reference); ok {
		raw = "blob://sha256/" + hex
	}
	scheme, rest, _ := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !slices.Contains(schemes, scheme) {
		return URL{}, unknownScheme(scheme)
	}
	u := URL{Scheme: scheme}
	if scheme == Artifact || scheme == Blob {
		var err error
		if rest, u.Member, err = cutMember(rest); err != nil {
			return URL{}, err
		}
	}
	body, sel, err := cutSelector(scheme, rest)
	if err != nil {
		return URL{}, err
	}
	u.Selector = sel
	if strings.Contains(body, "#") {
		return URL{}, fmt.Errorf("%s has a fragment: lines are selected as in %s://...:10-20", raw, scheme)
	}
	path, query, hasQuery := strings.Cut(body, "?")
	if hasQuery && scheme != Agent {
		return URL{}, fmt.Errorf("%s:// URL takes no query: only agent://<id>?q= does", scheme)
	}
	segments, err := split(path)
	if err != nil {
		return URL{}, fmt.Errorf("%s://%s: %w", scheme, path, err)
	}
	switch scheme {
	case Artifact:
		err = u.parseArtifact(segments)
	case Agent:
		err = u.parseAgent(segments, query)
	case Session:
		err = u.parseSession(segments)
	case Blob:
		err = u.parseBlob(segments)
	case Job:
		err = u.parseJob(segments)
	}
	if err != nil {
		return URL{}, err
	}
	return u, nil
}

// cutMember takes the name within an archive out of a URL: it begins at ":/" and ends where
// a selector begins.
func cutMember(rest string) (without, member string, err error) {
	at := strings.Index(rest, ":/")
	if at < 0 {
		return rest, "", nil
	}
	member, _, err = CutSelector(rest[at+2:])
	if err != nil {
		return "", "", err
	}
	if member == "" {
		return "", "", sentence("the name behind :/ is empty: name what to read within the archive")
	}
	return rest[:at] + rest[at+2+len(member):], member, nil
}

func unknownScheme(scheme string) error {
	hint := ""
	if scheme == "file" {
		hint = "\nName a file by its path alone"
	}
	return sentence(fmt.Sprintf("Unknown protocol: %s://\nSupported: %s://%s", scheme, strings.Join(schemes, "://, "), hint))
}

// split takes a path apart and decodes its segments. One '/' at the end is
// ignored.
func split(path string) ([]string, error) {
	segments := strings.Split(strings.TrimSuffix(path, "/"), "/")
	for i, s := range segments {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not percent-encoded right: write %%25 for a percent sign", s)
		}
		switch {
		case s == "" && i > 0:
			return nil, sentence("a part between two slashes is empty")
		case strings.ContainsAny(decoded, "/\\\x00"):
			return nil, fmt.Errorf("an encoded slash, a backslash or NUL is not allowed in %q", s)
		case decoded == ".." || decoded == ".":
			return nil, sentence("Path traversal (..) is not allowed")
		}
		segments[i] = decoded
	}
	return segments, nil
}

func (u *URL) parseArtifact(segments []string) error {
	id := segments[0]
	switch {
	case id == "":
		return sentence("artifact:// URL requires a numeric ID: artifact://0")
	case len(segments) == 2:
		if err := u.setSession(segments[0], "artifact://<sessionId>/0"); err != nil {
			return err
		}
		id = segments[1]
	case len(segments) > 2:
		return sentence("artifact:// URL has too many parts: use artifact://0 or artifact://<sessionId>/0")
	}
	if n, ok := artifacts.ParseID(id); ok {
		u.Artifact = n
		return nil
	}
	if id != "" && strings.Trim(id, "0123456789") == "" {
		if id[0] == '0' {
			return sentence(fmt.Sprintf("artifact:// ID must have no leading zeros, got: %.40s", id))
		}
		return sentence(fmt.Sprintf("artifact:// ID is too large, got: %.40s", id))
	}
	return sentence(fmt.Sprintf("artifact:// ID must be numeric, got: %.80s", id))
}

func (u *URL) parseAgent(segments []string, query string) error {
	if isUUID(strings.ToLower(segments[0])) {
		if err := u.setSession(segments[0], "agent://<sessionId>/<id>"); err != nil {
			return err
		}
		segments = segments[1:]
	}
	if len(segments) == 0 || segments[0] == "" {
		return sentence("agent:// URL requires an output ID: agent://<id>")
	}
	var err error
	if u.Agent, u.Version, err = artifacts.ParseAgentRef(segments[0]); err != nil {
		return err
	}
	if len(segments) > 1 {
		u.Path = segments[1:]
	}
	if query == "" {
		return nil
	}
	value, ok := strings.CutPrefix(query, "q=")
	if !ok || strings.Contains(value, "&") {
		return sentence("agent:// URL takes one query parameter: agent://<id>?q=<query>")
	}
	if u.Query, err = url.QueryUnescape(value); err != nil {
		return fmt.Errorf("query %q is not percent-encoded right: write %%25 for a percent sign", value)
	}
	switch {
	case u.Query == "":
		return nil
	case strings.Contains(u.Query, "\x00"):
		return sentence("Invalid query: NUL is not allowed")
	}
	if u.Path != nil {
		return sentence("agent:// URL cannot combine path extraction with ?q=")
	}
	_, err = parseQuery(u.Query)
	return err
}

func (u *URL) parseSession(segments []string) error {
	if segments[0] == "" || len(segments) > 2 {
		return sentence("session:// URL requires a session ID: session://<sessionId> or session://<sessionId>/<entryId>")
	}
	if err := u.setSessionIf(beginsID, segments[0], "session://<sessionId>"); err != nil {
		return err
	}
	if len(segments) == 2 {
		if err := checkEntry(segments[1]); err != nil {
			return err
		}
		u.Entry = segments[1]
	}
	return nil
}

func (u *URL) parseJob(segments []string) error {
	n, ok := artifacts.ParseID(segments[0])
	if !ok || len(segments) > 1 {
		return sentence("job:// URL requires the number of a job: job://0")
	}
	u.Artifact = n
	return nil
}

func (u *URL) parseBlob(segments []string) error {
	if len(segments) != 2 || segments[0] != "sha256" {
		return sentence("blob:// URL requires a SHA-256: blob://sha256/<64 lower-case hex digits>")
	}
	ref, err := blobref.ParseHex(segments[1])
	if err != nil {
		return sentence(fmt.Sprintf("blob:// URL requires 64 lower-case hex digits, got %d characters: %.80s", len(segments[1]), segments[1]))
	}
	u.Ref = ref
	return nil
}

// setSession takes the id of a session: a UUID, or the 16 hexadecimal digits that
// oh-my-pi used before 15; in lower case, as they stand in file names.
func (u *URL) setSession(id, form string) error {
	return u.setSessionIf(func(id string) bool { return isUUID(id) || len(id) == 16 && beginsID(id) }, id, form)
}

// setSessionIf takes the id of a session if it is right.
func (u *URL) setSessionIf(right func(string) bool, id, form string) error {
	switch {
	case right(id):
		u.Session = id
		return nil
	case right(strings.ToLower(id)):
		return fmt.Errorf("session id %s is not in lower case: use %s with the id as the session has it", id, form)
	default:
		return fmt.Errorf("session id %.40q is not a UUID in lower case: use %s", id, form)
	}
}

// beginsID reports whether s has the form of the id of a session, or of its beginning.
func beginsID(s string) bool {
	if s == "" || len(s) > 36 {
		return false
	}
	return len(s) <= 16 && strings.Trim(s, hexDigits) == "" || isUUID(s+"00000000-0000-0000-0000-000000000000"[len(s):])
}

const hexDigits = "0123456789abcdef"

// isUUID reports whether s has the form of a UUID in lower case.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (s[i] == '-') || !dash && strings.IndexByte(hexDigits, s[i]) < 0 {
			return false
		}
	}
	return true
}

// maxEntry is the longest name of an entry in a URL, in bytes: labels have up to 200. pi
// and oh-my-pi take ids of any length and make ones of 8 to 36.
const maxEntry = 200

// checkEntry checks the name of an entry: an id, the beginning of one, or a label.
func checkEntry(name string) error {
	if len(name) > maxEntry {
		return fmt.Errorf("entry %.20q... is %d bytes long, at most %d are allowed", name, len(name), maxEntry)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("entry %q may hold only visible characters and spaces", name)
	}
	if strings.TrimSpace(name) == "" {
		return sentence("session:// URL has an empty entry ID: use session://<sessionId>/<entryId>")
	}
	return nil
}

// Extracts reports whether u may ask for a part of structured output.
func (u URL) Extracts() bool { return u.Query != "" || len(u.Path) > 0 }

// String is the canonical form: Parse gives an equal URL.
func (u URL) String() string {
	if u.Member != "" {
		return u.Resource() + ":/" + u.Member + u.Selector.String()
	}
	return u.Resource() + u.Selector.String()
}

// Resource is String without the member and the selector.
func (u URL) Resource() string {
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.Session != "" {
		b.WriteString(u.Session)
		if u.Scheme != Session || u.Entry != "" {
			b.WriteByte('/')
		}
	}
	switch u.Scheme {
	case Artifact, Job:
		b.WriteString(strconv.FormatInt(u.Artifact, 10))
	case Agent:
		b.WriteString(u.Agent.String())
		if u.Version != 0 {
			b.WriteString(".v" + strconv.Itoa(u.Version))
		}
		for _, s := range u.Path {
			b.WriteString("/" + escape(s))
		}
		if u.Query != "" {
			b.WriteString("?q=" + url.QueryEscape(u.Query))
		}
	case Session:
		b.WriteString(escape(u.Entry))
	case Blob:
		b.WriteString("sha256/" + u.Ref.Hex())
	}
	return b.String()
}

// escape encodes a segment, ':' included: it would begin a selector.
func escape(segment string) string {
	return strings.ReplaceAll(url.PathEscape(segment), ":", "%3A")
}
