package ssh

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Host is where to run something: a name of the configuration of OpenSSH or of the network, or an address, with a user and
// a port where they are given. It is made by [ParseHost] alone, and is comparable; the zero Host is none.
type Host struct {
	user, name string
	port       int // 0: the configuration says
}

// maxHost bounds a host in bytes: a name of DNS has 253, a user 32.
const maxHost = 320

// errHost says what a host looks like.
var errHost = errors.New("give [USER@]NAME[:PORT], of letters, digits, '.', '-' and '_', as in build or me@build.example.com:2222; " +
	"what else a host needs stands in ~/.ssh/config, under a name like that")

// ParseHost reads a host, as in "build", "me@build.example.com:2222" or "[::1]:22". It takes nothing that ssh could read as
// an option, or that means something in the ProxyCommand or the ControlPath that it becomes a part of.
func ParseHost(s string) (Host, error) {
	h, err := parse(s, "")
	if err != nil {
		return Host{}, fmt.Errorf("the host %.80q: %w", s, err)
	}
	return h, nil
}

// parse reads a host in whose user and name the characters of extra may stand too.
func parse(s, extra string) (Host, error) {
	if len(s) > maxHost {
		return Host{}, errHost
	}
	var h Host
	user, name, ok := strings.Cut(s, "@")
	if !ok {
		user, name = "", s
	} else if !word(user, "+"+extra) {
		return Host{}, errHost
	}
	h.user = user
	port := ""
	if rest, ok := strings.CutPrefix(name, "["); ok {
		if name, port, ok = strings.Cut(rest, "]"); !ok || port != "" && port[0] != ':' {
			return Host{}, errHost
		}
	} else if i := strings.IndexByte(name, ':'); i >= 0 && i == strings.LastIndexByte(name, ':') {
		name, port = name[:i], name[i:]
	}
	if port != "" {
		n, err := strconv.ParseUint(port[1:], 10, 16)
		if err != nil || n == 0 || strings.Trim(port[1:], "0123456789") != "" {
			return Host{}, errHost
		}
		h.port = int(n)
	}
	if !word(name, ":"+extra) {
		return Host{}, errHost
	}
	h.name = name
	return h, nil
}

// word reports whether s has only characters that mean themselves everywhere, and does not look like an option.
func word(s, extra string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0 || strings.IndexByte(extra, c) >= 0) {
			return false
		}
	}
	return s != "" && s[0] != '-' && s[0] != '.'
}

// String is the host as ParseHost reads it.
func (h Host) String() string {
	s := h.name
	if h.port != 0 {
		if strings.Contains(s, ":") {
			s = "[" + s + "]"
		}
		s += ":" + strconv.Itoa(h.port)
	}
	if h.user != "" {
		s = h.user + "@" + s
	}
	return s
}

// args name the host to ssh.
func (h Host) args() []string {
	var a []string
	if h.user != "" {
		a = append(a, "-l", h.user)
	}
	if h.port != 0 {
		a = append(a, "-p", strconv.Itoa(h.port))
	}
	return append(a, "--", h.name)
}

// Patterns are hosts that somebody allows.
type Patterns []Host

// ParsePatterns reads patterns: hosts in which * stands for any characters of a user or of a name, and ? for one. One
// without a user allows hosts that are named without one, so that the configuration says who logs in, and one without a
// port likewise: "*" allows all these, "*@build-*" any user on some.
func ParsePatterns(list []string) (Patterns, error) {
	var p Patterns
	for _, s := range list {
		h, err := parse(s, "*?")
		if err != nil {
			return nil, fmt.Errorf("the pattern %.80q of hosts: %w", s, err)
		}
		p = append(p, h)
	}
	return p, nil
}

// Allow reports whether a host is allowed. No patterns allow none.
func (p Patterns) Allow(h Host) bool {
	for _, pattern := range p {
		if pattern.port == h.port && (pattern.user == "") == (h.user == "") && match(pattern.user, h.user) && match(strings.ToLower(pattern.name), strings.ToLower(h.name)) {
			return true
		}
	}
	return false
}

// match cannot fail: parse lets no bracket and no backslash pass.
func match(pattern, s string) bool {
	ok, err := path.Match(pattern, s)
	return ok && err == nil
}

// String lists the patterns.
func (p Patterns) String() string {
	var all []string
	for _, h := range p {
		all = append(all, h.String())
	}
	return strings.Join(all, ", ")
}
