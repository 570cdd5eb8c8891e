package ssh

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/tool/bash"
)

// boot is what the login shell of the host is asked to run, whatever shell that is: it has no character that one of them
// reads in another way. The program comes through the standard input, where neither ps shows it nor execve bounds it. It
// is read by read, which takes one line of a pipe and not a byte more.
const boot = `exec sh -c 'IFS= read -r a && eval "$(printf %b "$a")"'`

//go:embed remote.sh
var remote string

// program is remote.sh without what is for readers.
var program = sync.OnceValue(func() string {
	var b strings.Builder
	for line := range strings.Lines(remote) {
		if line = strings.TrimLeft(line, "\t "); line != "\n" && line[0] != '#' {
			b.WriteString(line)
		}
	}
	return b.String()
})

// protocol makes the three lines that begin a run: the program, what goes before the script, and the script.
func protocol(nonce, mark string, separate bool, before, script string) []byte {
	s := 0
	if separate {
		s = 1
	}
	var b bytes.Buffer
	for _, text := range []string{fmt.Sprintf("n=%s m=%s s=%d\n", nonce, mark, s) + program(), before, script} {
		encode(&b, text)
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// encode writes a text as one line of ASCII, of which printf %b makes the text again. What is no ASCII is escaped too:
// some shells use such bytes for themselves.
func encode(b *bytes.Buffer, text string) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '\\' {
			fmt.Fprintf(b, `\0%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
}

// before is what runs in the script's shell before the script: variables and the directory.
func before(env []string, dir string) (string, error) {
	var b strings.Builder
	for _, kv := range env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || !identifier(k) || strings.Contains(v, "\x00") {
			return "", fmt.Errorf("environment variable %.80q: write it as KEY=VALUE, with letters, digits and _ in KEY", kv)
		}
		b.WriteString("export " + k + "=" + bash.Quote([]string{v}) + "\n")
	}
	if dir == "" {
		return b.String(), nil
	}
	at := bash.Quote([]string{dir})
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		at = `"$HOME"` + bash.Quote([]string{rest + "/"})
	}
	b.WriteString("cd -- " + at + " 2>/dev/null || { echo cwd >&5; exit " + strconv.Itoa(bash.CodeFailure) + "; }\n")
	return b.String(), nil
}

func identifier(s string) bool {
	return s != "" && (s[0] < '0' || s[0] > '9') && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// secret returns 128 random bits that nobody else knows.
func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return hex.EncodeToString(b[:])
}

// events are what the program on the host told, in the order in which each becomes known.
type events struct {
	mu       sync.Mutex // also orders what is delivered of both streams
	status   int
	words    []string // behind the status
	left     []string // processes that could not be ended
	begun    chan struct{}
	ended    chan struct{} // the script has, and status is known
	complete chan struct{} // all of its standard output is here
	finished chan struct{} // what had to be ended is, but for left
	ending   chan struct{} // gets one each time that the host tells that it is at it
}

func newEvents() *events {
	return &events{begun: make(chan struct{}), ended: make(chan struct{}), complete: make(chan struct{}), finished: make(chan struct{}), ending: make(chan struct{}, 1)}
}

// told takes a line of the program. The caller holds mu.
func (e *events) told(line string) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	var c chan struct{}
	switch words[0] {
	case "begun":
		c = e.begun
	case "eof":
		c = e.complete
	case "ending":
		select {
		case e.ending <- struct{}{}:
		default: // it was told, and nobody has looked yet
		}
		return
	case "left":
		if c = e.finished; !is(c) {
			e.left = words[1:]
		}
	case "end":
		if len(words) < 2 || is(e.ended) {
			return
		}
		n, err := strconv.ParseUint(words[1], 10, 8)
		if err != nil {
			return
		}
		e.status, e.words, c = int(n), words[2:], e.ended
	}
	if c != nil && !is(c) {
		close(c)
	}
}

// is reports whether something has happened.
func is(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// maxTold bounds a line of the program, in bytes.
const maxTold = 4096

// stream is one stream of the host, from which the lines of the program are taken out. What looks like the beginning
// of one is held until more is known.
type stream struct {
	events *events
	marker []byte
	to     func([]byte) error
	held   []byte
}

func (s *stream) Write(b []byte) (int, error) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	data := b
	if len(s.held) > 0 {
		data = append(s.held, b...)
		s.held = nil
	}
	for len(data) > 0 {
		i := bytes.Index(data, s.marker)
		if i < 0 {
			i = len(data) - tail(data, s.marker)
			s.held = bytes.Clone(data[i:])
		}
		if i > 0 {
			if err := s.to(data[:i]); err != nil {
				return 0, err
			}
		}
		if data = data[i+len(s.held):]; len(data) == 0 {
			break
		}
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			if len(data) < maxTold {
				s.held = bytes.Clone(data)
			}
			break
		}
		s.events.told(string(data[len(s.marker):end]))
		data = data[end+1:]
	}
	return len(b), nil
}

// tail is how many bytes at the end of data begin the marker.
func tail(data, marker []byte) int {
	for n := min(len(data), len(marker)-1); n > 0; n-- {
		if bytes.HasPrefix(marker, data[len(data)-n:]) {
			return n
		}
	}
	return 0
}

// flush delivers what was held: a line that was cut off.
func (s *stream) flush() error {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	held := s.held
	s.held = nil
	if len(held) == 0 || len(held) >= len(s.marker) { // the program's, not the script's
		return nil
	}
	return s.to(held)
}
