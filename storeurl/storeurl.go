// Package storeurl opens blob stores that are named by one line of text: a store, and
// the layers around it.
//
//	dir:PATH                      that directory itself: PATH/<hex>, also one that another program made
//	diskkv:FILE                   a database with the table cursorDiskKV
//	kv:http://HOST:PORT           a peer that speaks the key-value stream of agent.v1; or kv:https://
//	http://HOST:PORT/PATH         a server of package httpstore, below /PATH/blobs/; or https://
//	s3://BUCKET/PREFIX            a bucket of an S3-compatible service
//	mem:                          memory, which is gone with the process
//
// Behind a question mark come parameters, between ampersands, each at most once, in any
// order:
//
//	encrypted=passphrase-file:F   blobs are encrypted under the passphrases of the file F
//	form=seed                     and are written in the form of agent.v1 clients
//	cached=64MiB                  blobs are kept in that much memory
//	retry=on                      a remote store is asked again when that may help
//	remote=URL                    blobs go to another store too, from a queue on disk
//	endpoint=URL, region=NAME     where the bucket is (s3 only)
//
// However they are written, the layers stand as
//
//	cached(encrypted(writethrough(store, retry(remote))))
//
// and without remote= as cached(encrypted(retry(store))). The remote is a store URL of
// its own, with its ?, & and % escaped; what is encrypted before it is not encrypted
// again there.
//
// %XX is a byte, in paths and values; + is a plus. Credentials have no place in a store
// URL, since logs and lists of processes show it: see Options.
package storeurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/internal/quantity"
)

// MaxLen is how long a store URL may be, in bytes.
const MaxLen = 16 << 10

// Kind is what a store URL begins with.
type Kind string

// The kinds that there are.
const (
	Dir    Kind = "dir"
	DiskKV Kind = "diskkv"
	KV     Kind = "kv"
	HTTP   Kind = "http"
	HTTPS  Kind = "https"
	S3     Kind = "s3"
	Memory Kind = "mem"
)

var kinds = []Kind{Dir, DiskKV, KV, HTTP, HTTPS, S3, Memory}

// local reports whether a store of that kind keeps blobs on this machine.
func (k Kind) local() bool { return k == Dir || k == DiskKV || k == Memory }

// URL is a store URL that was parsed. Two that are equal name the same.
type URL struct {
	Kind Kind

	// Place is the path of a dir or diskkv, the URL of a peer or server without
	// parameters, the bucket and prefix of s3, and "" for mem.
	Place string

	Endpoint, Region string // s3 only; "" is the default

	PassphraseFile string // of encrypted=; "" is no encryption
	SeedForm       bool   // form=seed
	CachedBytes    int64  // of cached=; 0 is no cache
	Retry          bool   // retry=on
	Remote         *URL   // of remote=; nil is none
}

const passphraseScheme = "passphrase-file:"

// Parse reads a store URL. It opens nothing, and its errors show no more of a URL that
// may have a password in it than how it begins.
func Parse(text string) (URL, error) {
	u, err := parse(text)
	if err != nil {
		return URL{}, fmt.Errorf("reading store URL %s: %w", shown(text), err)
	}
	return u, nil
}

// shown is a store URL in an error.
func shown(text string) string {
	const most = 200
	switch {
	case strings.Contains(text, "@"):
		kind, _, _ := strings.Cut(text, ":")
		return strconv.Quote(kind[:min(len(kind), 10)] + ":…")
	case len(text) > most:
		return strconv.Quote(text[:most] + "…")
	}
	return strconv.Quote(text)
}

func parse(text string) (URL, error) {
	if len(text) > MaxLen {
		return URL{}, fmt.Errorf("it has more than %d bytes", MaxLen)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return URL{}, errors.New("it has control characters; write them as %XX")
	}
	kind, rest, ok := strings.Cut(text, ":")
	u := URL{Kind: Kind(kind)}
	if !ok || !slices.Contains(kinds, u.Kind) {
		return URL{}, fmt.Errorf("it begins with none of %s; a directory is dir:PATH", listed(kinds, ":"))
	}
	place, query, _ := strings.Cut(rest, "?")
	var err error
	if u.Place, err = parsePlace(u.Kind, place); err != nil {
		return URL{}, err
	}
	return u, u.parseParameters(query)
}

// parsePlace reads what stands between the kind and the parameters.
func parsePlace(kind Kind, text string) (string, error) {
	switch kind {
	case Memory:
		if text != "" {
			return "", errors.New("mem: has no place: leave out what stands behind it")
		}
		return "", nil
	case Dir, DiskKV:
		return parsePath(kind, text)
	case S3:
		return parseBucket(text)
	case KV:
		inner, rest, _ := strings.Cut(text, ":")
		if inner != string(HTTP) && inner != string(HTTPS) {
			return "", errors.New("want kv:http://HOST:PORT or kv:https://HOST:PORT")
		}
		place, err := parseServer(inner, rest)
		if err == nil && strings.Count(place, "/") > 2 {
			err = errors.New("want kv:http://HOST:PORT without a path")
		}
		return place, err
	}
	return parseServer(string(kind), text)
}

func parsePath(kind Kind, text string) (string, error) {
	path, err := unescape(text)
	switch {
	case err != nil:
		return "", err
	case path == "":
		return "", fmt.Errorf("%s: wants a path behind it", kind)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return "", fmt.Errorf("%s: has no host: write %s:/PATH or %[1]s:///PATH", kind, kind)
	case strings.ContainsRune(path, 0):
		return "", errors.New("a path has no byte 0 in it")
	}
	return path, nil
}

// parseServer reads the URL of a server, without parameters.
func parseServer(scheme, text string) (string, error) {
	if strings.ContainsAny(text, "#") {
		return "", errors.New("a server has no part behind #")
	}
	u, err := url.Parse(scheme + ":" + text)
	switch {
	case err != nil:
		// The parser's error quotes all of it, a password too.
		return "", fmt.Errorf("want %s://HOST[:PORT]", scheme)
	case u.User != nil:
		return "", errors.New("it has a user or password in it, where logs and lists of processes show it: put a token into the environment")
	case u.Host == "" || u.Hostname() == "" || u.Opaque != "":
		return "", fmt.Errorf("want %s://HOST[:PORT]", scheme)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func parseBucket(text string) (string, error) {
	place, ok := strings.CutPrefix(text, "//")
	if !ok {
		return "", errors.New("want s3://BUCKET or s3://BUCKET/PREFIX")
	}
	if strings.Contains(place, "@") {
		return "", errors.New("it has a user or password in it, where logs and lists of processes show it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	place, err := unescape(place)
	place = strings.TrimRight(place, "/")
	if err == nil && (place == "" || place[0] == '/') {
		err = errors.New("want s3://BUCKET or s3://BUCKET/PREFIX")
	}
	return place, err
}

// parameters are what there is behind the question mark, and of which kind alone; "" is
// all.
var parameters = []struct {
	name string
	only Kind
}{{"endpoint", S3}, {"region", S3}, {"encrypted", ""}, {"form", ""}, {"cached", ""}, {"retry", ""}, {"remote", ""}}

// set reads the value of a parameter that there is.
func (u *URL) set(name, value string) error {
	switch name {
	case "endpoint":
		return u.setEndpoint(value)
	case "region":
		return u.setRegion(value)
	case "encrypted":
		return u.setEncrypted(value)
	case "form":
		return u.setForm(value)
	case "cached":
		return u.setCached(value)
	case "retry":
		return u.setRetry(value)
	default:
		return u.setRemote(value)
	}
}

func (u *URL) parseParameters(query string) error {
	var names []string
	for _, p := range parameters {
		if p.only == "" || p.only == u.Kind {
			names = append(names, p.name)
		}
	}
	seen := map[string]bool{}
	if query == "" {
		return u.check()
	}
	for field := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(field, "=")
		switch {
		case !slices.Contains(names, name):
			return fmt.Errorf("there is no parameter %q for %s:, but %s", name[:min(len(name), 50)], u.Kind, listed(names, "="))
		case seen[name]:
			return fmt.Errorf("the parameter %s stands there twice", name)
		case !ok || value == "":
			return fmt.Errorf("the parameter %s has no value", name)
		}
		seen[name] = true
		value, err := unescape(value)
		if err == nil {
			err = u.set(name, value)
		}
		if err != nil {
			return fmt.Errorf("the parameter %s: %w", name, err)
		}
	}
	return u.check()
}

// check is what holds of all parameters together.
func (u *URL) check() error {
	switch {
	case u.SeedForm && u.PassphraseFile == "":
		return errors.New("form=seed says how blobs are encrypted: it wants encrypted=")
	case u.Remote == nil:
		return nil
	case !u.Kind.local():
		return fmt.Errorf("remote= sends to another store what is kept on this machine: it has no place behind %s:, but behind dir:, diskkv: and mem: alone", u.Kind)
	case u.PassphraseFile != "" && u.Remote.PassphraseFile != "":
		return errors.New("what goes to the remote is encrypted already: leave encrypted= out of one of the two")
	}
	return nil
}

func (u *URL) setEndpoint(value string) error {
	scheme, rest, _ := strings.Cut(value, ":")
	if scheme != string(HTTP) && scheme != string(HTTPS) {
		return errors.New("want https://HOST[:PORT], or http:// for this machine")
	}
	place, err := parseServer(scheme, rest)
	u.Endpoint = place
	return err
}

func (u *URL) setRegion(value string) error {
	u.Region = value
	if strings.ContainsFunc(value, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) || len(value) > 64 {
		return errors.New("a region is lower-case letters, digits and hyphens")
	}
	return nil
}

func (u *URL) setEncrypted(value string) error {
	path, ok := strings.CutPrefix(value, passphraseScheme)
	if !ok || path == "" || strings.ContainsRune(path, 0) {
		return errors.New("want encrypted=passphrase-file:FILE; a passphrase itself is never an argument")
	}
	u.PassphraseFile = path
	return nil
}

func (u *URL) setForm(value string) error {
	if value != "seed" {
		return errors.New(`there is form=seed; without it blobs are in agentrun's own form`)
	}
	u.SeedForm = true
	return nil
}

func (u *URL) setRetry(value string) error {
	if value != "on" {
		return errors.New("there is retry=on; without it nothing is asked again")
	}
	u.Retry = true
	return nil
}

func (u *URL) setCached(value string) (err error) {
	if u.CachedBytes, err = parseSize(value); err != nil {
		return err
	}
	return nil
}

func (u *URL) setRemote(value string) error {
	remote, err := Parse(value)
	switch {
	case err != nil:
		return err
	case remote.Remote != nil:
		return errors.New("a remote has no remote of its own")
	case remote.CachedBytes > 0:
		return errors.New("a remote is behind the cache: put cached= in front of remote=")
	}
	u.Remote = &remote
	return nil
}

// units are what sizes are written in.
var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}, {"", 1}}

// maxCached bounds what a URL may ask for.
const maxCached = 1 << 40

// parseSize reads a size such as 64MiB, as String writes it.
func parseSize(text string) (int64, error) {
	for _, unit := range units {
		number, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 1 || n > maxCached/unit.bytes || number[0] == '+' {
			break
		}
		return n * unit.bytes, nil
	}
	return 0, fmt.Errorf("want a size such as 64MiB, of at most %s", quantity.Size(maxCached))
}

// String is the URL in its canonical form, which Parse reads as the same.
func (u URL) String() string {
	var b strings.Builder
	switch u.Kind {
	case Dir, DiskKV:
		b.WriteString(string(u.Kind) + ":" + escape(u.Place))
	case S3:
		b.WriteString("s3://" + escape(u.Place))
	case KV:
		b.WriteString("kv:" + u.Place)
	case Memory:
		b.WriteString("mem:")
	default:
		b.WriteString(u.Place)
	}
	mark := byte('?')
	write := func(name, value string) {
		if value == "" {
			return
		}
		b.WriteByte(mark)
		b.WriteString(name + "=" + escape(value))
		mark = '&'
	}
	write("endpoint", u.Endpoint)
	write("region", u.Region)
	if u.PassphraseFile != "" {
		write("encrypted", passphraseScheme+u.PassphraseFile)
	}
	if u.SeedForm {
		write("form", "seed")
	}
	if u.CachedBytes > 0 {
		write("cached", quantity.Size(u.CachedBytes))
	}
	if u.Retry {
		write("retry", "on")
	}
	if u.Remote != nil {
		write("remote", u.Remote.String())
	}
	return b.String()
}

// escape writes %XX for what would end a path or a value, and for what a terminal
// would not show.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c <= ' ' || c >= 0x7f || strings.IndexByte("%?&#=\"'\\", c) >= 0:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescape(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", errors.New("a % is not followed by two hexadecimal digits; a percent sign itself is %25")
	}
	return plain, nil
}

// listed is a list of names in a sentence.
func listed[T ~string](names []T, behind string) string {
	var b strings.Builder
	for i, name := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(name) + behind)
	}
	return b.String()
}
