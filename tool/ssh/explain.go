package ssh

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/tool/bash"
)

// What keeps a script from being run on a host; errors.Is tells by these.
var (
	ErrNoClient       = errors.New("there is no client of OpenSSH")
	ErrUnknownHost    = errors.New("the key of the host is not known")
	ErrHostKeyChanged = errors.New("the key of the host has changed")
	ErrLogin          = errors.New("the host refuses the login")
	ErrUnreachable    = errors.New("the host cannot be reached")
	ErrDirectory      = errors.New("the directory is not there on the host")
	ErrNoShell        = errors.New("the host did not run the script")
)

// Error says why a script was not run on a host. It is what a bash.Exit has as Start.
type Error struct {
	Host Host
	Kind error  // one of the above
	Code int    // the exit code of the run
	Text string // the sentence
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Unwrap() error { return e.Kind }

const (
	keyChanged = "REMOTE HOST IDENTIFICATION HAS CHANGED"
	badOption  = "Bad configuration option"
)

// failures are words of OpenSSH, which says what is wrong in no other way than in words, and always in English. The first
// that is found counts.
var failures = []struct {
	words string
	kind  error
	text  string // with the host, what ssh said, ssh as a person calls it, and its configuration
}{
	{keyChanged, ErrHostKeyChanged, "%[1]s has another key than the known one: it was installed anew, or somebody is in between. " +
		"Only when you know why, forget the old key (%[2]s) and accept the new one with: %[3]s"},
	{badOption, ErrUnreachable, "%[1]s cannot be reached, because the configuration of ssh is wrong: %[2]s"},
	{"is revoked", ErrHostKeyChanged, "the key of %[1]s is revoked: %[2]s"},
	{"host key is known for", ErrUnknownHost, "%[1]s is not a known host: compare its key and accept it, once, by hand with: %[3]s"},
	{"Host key verification failed", ErrUnknownHost, "the key of %[1]s is not accepted (%[2]s): compare it and accept it, once, by hand with: %[3]s"},
	{"Permission denied", ErrLogin, "%[1]s refuses the login (%[2]s): agentrun gives no passwords, so load a key that it takes into ssh-agent, " +
		"or name it in %[4]s; %[3]s tells more, with -v"},
	{"Too many authentication failures", ErrLogin, "%[1]s refuses the login (%[2]s): name the key that it takes in %[4]s, with IdentitiesOnly yes"},
}

// explain makes an error of what ssh said before it gave up.
func (c *Client) explain(h Host, log string) *Error {
	e := &Error{Host: h, Code: bash.CodeFailure}
	for _, f := range failures {
		if !strings.Contains(log, f.words) {
			continue
		}
		what := last(log)
		switch f.words {
		case keyChanged:
			what = line(log, "ssh-keygen -f", what)
		case badOption:
			what = line(log, badOption, what)
		}
		e.Kind, e.Text = f.kind, fmt.Sprintf(f.text, h, what, c.hand(h), c.configured())
		return e
	}
	e.Kind, e.Text = ErrUnreachable, fmt.Sprintf("%s cannot be reached: %s", h, last(log))
	return e
}

// hand is how a person connects to the host with the same client and configuration.
func (c *Client) hand(h Host) string {
	argv := []string{"ssh"}
	if c.o.Program != "" {
		argv[0] = c.o.Program
	}
	if c.o.Config != "" {
		argv = append(argv, "-F", c.o.Config)
	}
	if h.port != 0 {
		argv = append(argv, "-p", strconv.Itoa(int(h.port)))
		h.port = 0
	}
	return bash.Quote(append(argv, h.String()))
}

// configured is the file in which a person says more about a host.
func (c *Client) configured() string {
	if c.o.Config != "" {
		return c.o.Config
	}
	return "~/.ssh/config"
}

// behindJump is what a client says whose way through another host (ProxyJump, ProxyCommand) has ended: why, that way has said before.
var behindJump = []string{"kex_exchange_identification: ", "Connection closed by UNKNOWN port "}

// last is the last line of what ssh said that says why.
func last(log string) string {
	text, jumped := "", ""
	for l := range strings.Lines(log) {
		l = clean(l)
		follows := func(words string) bool { return strings.HasPrefix(l, words) }
		switch {
		case l == "":
		case slices.ContainsFunc(behindJump, follows):
			jumped = l
		default:
			text = l
		}
	}
	text = cmp.Or(text, jumped)
	if text == "" {
		return "ssh did not say why"
	}
	return text
}

// line is the first line with some words, else otherwise.
func line(log, words, otherwise string) string {
	for l := range strings.Lines(log) {
		if strings.Contains(l, words) {
			return clean(l)
		}
	}
	return otherwise
}

// clean makes a line of what may be the host's words fit into a sentence.
func clean(l string) string {
	l = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r <= 0x9f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(l, ""))
	l = strings.TrimSpace(l)
	if r := []rune(l); len(r) > 300 {
		l = string(r[:300]) + "…"
	}
	return strings.TrimSuffix(l, ".")
}
