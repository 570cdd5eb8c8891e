// Package persist holds the persistence rules: what happens to an entry on its
// way into a line of the log, and how it comes back. It works on the JSON text
// of one entry, without decoding it, and does no I/O but the put and get
// functions it is handed.
//
// # What is promised
//
//   - [Restore] undoes [Prepare]: the entry comes back byte for byte, if it was
//     in normal form (see ecmajson) and all its blobs are there. Only the
//     members that rule 2 names are gone.
//   - An entry that the rules do not touch comes back as the very slice that
//     was passed in. No slice passed in is ever changed.
//   - A blob that is missing or corrupt costs its own string: the reference
//     stays in place, [Missing] names it, and its way back stays listed.
//   - All functions may be called concurrently. They need memory for the entry
//     and the blobs it cites, and do not recurse, however deep an entry nests.
//
// # The rules
//
//  1. A string of more than 500,000 UTF-16 units is cut to 500,000 (one less
//     where a surrogate pair would be split) and ends with
//     "\n\n[Session persistence truncated large content]". The whole string, as
//     WTF-8, is a blob. A number lineCount beside a string content that was cut
//     counts the lines of what is left.
//  2. Members partialJson and jsonlEvents are dropped anywhere within the
//     entry's message, content and details, but not from within the arguments
//     of a tool call.
//  3. The base64 of an image, from 1,024 characters on, becomes a blob of the
//     decoded bytes, and a data URL under the key image_url a blob of the URL.
//  4. Signed and encrypted content is not touched, whatever it holds: thinking
//     with a thinkingSignature, text with a textSignature, a toolCall with a
//     thoughtSignature, redactedThinking, reasoning with encrypted_content,
//     anthropicServerTool blocks, and strings under those keys.
//  5. What looks like the work of these rules already, a reference or an
//     externalized member, is marked, so that it comes back as it was.
//
// What only a JSON pointer of more than 64 KiB could name stays as it is.
//
// # What is written
//
// oh-my-pi (18.1) writes images the same way and resolves references at certain
// places only: in an image block under the key content, in an object with image
// data under images or frames, in the result of an image_generation_call, and in
// image_url. There the reference stands in place of the data, and where the data
// was plain base64 that is all:
//
//	"data":"blob:sha256:<64 hex>"
//
// Everything else needs an instruction for the way back. They are in a member
// that the entry gains, its last one:
//
//	"externalized":[ITEM,...]
//
//	{"path":"/message/content/0/text","ref":"blob:sha256:...","bytes":900000}
//	    a string that was cut; "lineCount":N gives the original one back
//	{"path":...,"ref":...,"bytes":...,"form":"base64","alphabet":"url","padding":false,"wrap":76,"newline":"\r\n","trailing":true}
//	    base64 that is not canonical (each field only where it differs from the
//	    standard alphabet, padded, on one line), or that stands where oh-my-pi
//	    resolves nothing. In the latter places the line holds a picture of one
//	    pixel of the same type: programs that hand the block to a model would get
//	    a request refused over a reference, and with it every later one.
//	{"path":...,"form":"literal"}
//	    a string that only looks like a reference
//	{"form":"own","value":VALUE}
//	    the entry has a member externalized of its own, with this value. The list
//	    then stands in its place.
//
// path is a JSON pointer (RFC 6901) into the entry as it will be again. An item
// is carried out only if the string it names is exactly what Prepare would have
// left there; a string that some program has edited since is left alone. A
// member externalized of any other shape is not ours.
//
// Base64 that does not decode, or that could not be written again exactly, stays
// in the line, and above 500,000 units rule 1 holds for it.
package persist

import (
	"bytes"
	"context"
	"errors"

	"github.com/agentrun/agentrun/blobref"
)

// Put stores data and returns its reference. Prepare calls it for one blob after
// the other and does not keep or change data afterwards.
type Put = func(ctx context.Context, data []byte) (blobref.Ref, error)

// Get returns the bytes of a blob, verified. Restore calls it once for each
// reference, one after the other: whoever wants several reads at once fetches
// what [Refs] lists first.
type Get = func(ctx context.Context, ref blobref.Ref) ([]byte, error)

// ErrChanged means that a string is not what the rules left in its place, so it
// was not replaced by the blob that is listed for it.
var ErrChanged = errors.New("the string was changed after it was written")

// limits are the sizes from which content leaves the line.
type limits struct {
	text  int // UTF-16 units that a string may have
	image int // UTF-16 units from which base64 becomes a blob
}

// standard are the limits of the session format (oh-my-pi 18.1, MAX_PERSIST_CHARS
// and BLOB_EXTERNALIZE_THRESHOLD).
var standard = limits{text: 500_000, image: 1024}

const (
	notice        = "\n\n[Session persistence truncated large content]"
	noticeLiteral = `\n\n[Session persistence truncated large content]`
)

// Plain reports whether the rules surely leave the entry as it is. It costs a
// few passes at the speed of memory, for the many entries that are short text.
// False means that Prepare has to look. A part of an entry may be given too, if
// it holds whole members.
func Plain(entry []byte) bool { return standard.plain(entry) }

func (l limits) plain(b []byte) bool {
	return len(b) <= l.text && !hasRun(b, &base64Char, l.image) &&
		!partialJSON.in(b) && !jsonlEvents.in(b) && !imageURL.in(b) && !mayCite(b)
}

// mayCite reports whether b may hold a reference. Whatever Prepare moved out of
// a line, a reference is left in it; so this decides whether Restore has to look.
func mayCite(b []byte) bool {
	return hasRun(b, &hexChar, blobref.HexLen) && bytes.Contains(b, []byte(blobref.Prefix))
}

// Refs returns every reference that occurs in the entry, each once, in order of
// appearance: in place of data, in the list, or merely in some text.
func Refs(entry []byte) []blobref.Ref {
	if !mayCite(entry) {
		return nil
	}
	var refs []blobref.Ref
	seen := make(map[blobref.Ref]bool)
	for b := entry; ; {
		i := bytes.Index(b, []byte(blobref.Prefix))
		if i < 0 {
			return refs
		}
		b = b[i:]
		if len(b) >= blobref.TextLen {
			if ref, err := blobref.Parse(string(b[:blobref.TextLen])); err == nil && !seen[ref] {
				seen[ref] = true
				refs = append(refs, ref)
			}
		}
		b = b[len(blobref.Prefix):]
	}
}

// charSet marks bytes.
type charSet [256]bool

func newCharSet(chars string) (s charSet) {
	for i := range len(chars) {
		s[chars[i]] = true
	}
	return s
}

var (
	hexChar = newCharSet("0123456789abcdef")
	// A literal of base64 in any alphabet, line ends written as escapes included.
	base64Char = newCharSet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\\")
)

// hasRun reports whether b has n bytes of set in a row. Like Boyer-Moore it
// looks at the last byte of a window first, so it reads about one byte in n.
func hasRun(b []byte, set *charSet, n int) bool {
	for last := n - 1; last < len(b); {
		i := last
		for i > last-n && set[b[i]] {
			i--
		}
		if i == last-n {
			return true
		}
		last = i + n
	}
	return false
}

// word is the end of a member name, and the index of its byte that text has
// most seldom. Looking for that byte costs one pass at the speed of memory;
// bytes.Contains would stop at each of the many quotes or common letters.
type word struct {
	text string
	rare int
}

var (
	partialJSON = word{`partialJson"`, len(`partial`)}
	jsonlEvents = word{`jsonlEvents"`, 0}
	imageURL    = word{`image_url"`, len(`image`)}
)

// in reports whether the word occurs in b.
func (w *word) in(b []byte) bool {
	for rare, i := w.text[w.rare], 0; ; i++ {
		n := bytes.IndexByte(b[i:], rare)
		if n < 0 {
			return false
		}
		i += n
		if from := i - w.rare; from >= 0 && len(b)-from >= len(w.text) && string(b[from:from+len(w.text)]) == w.text {
			return true
		}
	}
}
