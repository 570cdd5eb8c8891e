// Package redact replaces secrets in texts and streams before they are kept.
//
// A secret becomes [redacted:<kind>:<n>]. The same secret has the same n wherever one numbering is used
// (Options.Number; package vault keeps one for each session), so that a reader sees where one occurs again, and not what it is.
//
// # What is found
//
// A short list of rules of high precision (see Kinds): keys and tokens of providers, which begin with letters that
// nothing else begins with; JSON Web Tokens; private keys; passwords in URLs; and the values that Options names, of variables that
// were withheld. Nothing is guessed by entropy: what has no such form is not found, and a long random word is left
// alone. Passwords and values of fewer than [MinSecret] characters are not replaced, nor are placeholders (xxxx, EXAMPLE, $PASSWORD).
//
// In 24 MB of recorded transcripts and logs these rules replace nothing that is no secret; BENCHMARKS.md says what these are, and has
// the rate of the rules of gitleaks beside it.
//
// # What is promised
//
//   - How a stream is cut into writes changes nothing: what comes out is a function of the bytes.
//   - A [Stream] holds back only what may become a secret: the beginning of a prefix, or a token that may go on. That is
//     at most 64 KiB, or the length of the longest value with each of its characters escaped.
//   - A token longer than 16 KiB, and a private key longer than 64 KiB, is replaced up to there, and what follows of its
//     characters is dropped: nothing of it is written.
//   - Bytes that are no part of a secret are never changed.
//
// # What is not promised
//
// A value that Options names is also found in base64, whatever stands before it and broken into lines or not, in hexadecimal of one
// case (spaces, colons, ends of lines and \x may stand between the bytes), in UTF-16, with any of
// its characters escaped as in JSON, C or a URL (letters and digits are not), and with sequences for colours within it. It has
// one number in all of them; of base64 the characters stay that a neighbour has a part in. What the rules find is
// found as it is alone, except that a private key may have \n for its line ends. A secret in another form (reversed, a dump with an address on each line,
// compressed, in pieces with something between) is not found. One that is cut in two by another stream is found only
// where each stream has a Stream of its own.
//
// A Redactor may be used concurrently. A Stream belongs to one goroutine at a time.
package redact

import (
	"crypto/rand"
	"crypto/sha256"
	"io"
	"slices"
	"strconv"
	"sync"
)

// MinSecret is the length in bytes from which on a value is a secret: shorter ones are words that occur anyway.
const MinSecret = 8

// Kinds of secrets that are no tokens of a provider. Those are named after it.
const (
	KindVariable   = "variable"     // the value of a variable that is withheld
	KindURL        = "url-password" // what stands between : and @ of a URL
	KindPrivateKey = "private-key"
	KindJWT        = "jwt"
)

// Limits.
const (
	maxToken = 16 << 10
	maxKey   = 64 << 10
	maxURL   = 256 // bytes of a user, and of a password
)

// maxKept is the size up to which the buffer of a Writer is used again, and keptRoom what it has beyond a piece, for what was held back.
const (
	maxKept  = 256 << 10
	keptRoom = 1 << 10
)

// Options say what to replace besides what the rules find.
type Options struct {
	// Values are replaced wherever they stand, if they have MinSecret bytes.
	Values []string
	// Number gives a secret its number, the same one again for the same secret. It may be called concurrently and must not
	// keep the slice. 0 says that there is none to be had. nil numbers within this Redactor.
	Number func(kind string, secret []byte) int64
}

// Redactor replaces secrets. Use [New].
type Redactor struct {
	matcher *matcher
	number  func(kind string, secret []byte) int64
}

// New returns a Redactor.
func New(o Options) *Redactor {
	r := &Redactor{matcher: newMatcher(o.Values), number: o.Number}
	if r.number == nil {
		r.number = Count(0)
	}
	return r
}

// Count returns a numbering in memory, which keeps hashes and no secrets. Its first number is the one behind last.
func Count(last int64) func(kind string, secret []byte) int64 {
	var mu sync.Mutex
	seen := map[[sha256.Size]byte]int64{}
	var key [32]byte
	_, _ = rand.Read(key[:])
	return func(_ string, secret []byte) int64 {
		sum := sha256.Sum256(append(slices.Clone(key[:]), secret...))
		mu.Lock()
		defer mu.Unlock()
		if seen[sum] == 0 {
			seen[sum] = last + int64(len(seen)) + 1
		}
		return seen[sum]
	}
}

// Text replaces the secrets of a whole text. It returns how many there were, and text itself where there were none. It
// does not change text.
func (r *Redactor) Text(text []byte) ([]byte, int) {
	s := Stream{r: r}
	out := s.run(nil, text, true)
	if s.replaced == 0 {
		return text, 0
	}
	return out, int(s.replaced)
}

// Stream returns a way for one stream.
func (r *Redactor) Stream() *Stream { return &Stream{r: r} }

// Writer passes a stream on to another writer.
type Writer struct {
	stream *Stream
	to     io.Writer
	buf    []byte
}

// Writer returns a writer that passes on to w what is left of a stream. Close writes what was held back, and closes nothing.
func (r *Redactor) Writer(w io.Writer) *Writer { return &Writer{stream: r.Stream(), to: w} }

// Write passes b on. Its error is that of the writer behind, to which more may have been given than b is part of.
func (w *Writer) Write(b []byte) (int, error) {
	w.buf = w.stream.Append(slices.Grow(w.buf[:0], len(b)+keptRoom), b)
	if err := w.pass(); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close ends the stream.
func (w *Writer) Close() error {
	w.buf = w.stream.Flush(w.buf[:0])
	return w.pass()
}

func (w *Writer) pass() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.to.Write(w.buf)
	if cap(w.buf) > maxKept {
		w.buf = nil
	}
	return err
}

// Replaced returns how many secrets were replaced so far.
func (w *Writer) Replaced() int64 { return w.stream.Replaced() }

// appendMark appends what takes the place of a secret.
func appendMark(dst []byte, kind string, n int64) []byte {
	dst = append(append(dst, "[redacted:"...), kind...)
	return append(strconv.AppendInt(append(dst, ':'), n, 10), ']')
}
