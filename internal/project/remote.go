package project

import (
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// remoteOf returns the address of a repository's remote in its shortest form, "" when
// the configuration names none.
func remoteOf(config string) string {
	data, err := durable.ReadFile(durable.OS, config, maxFile)
	if err != nil {
		return ""
	}
	urls := remotes(string(data))
	if at, ok := urls["origin"]; ok {
		return Address(at)
	}
	names := make([]string, 0, len(urls))
	for name := range urls {
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	return Address(urls[slices.Min(names)])
}

// remotes reads the first url of each remote from the text of a git configuration, as
// far as that says it without including other files.
func remotes(config string) map[string]string {
	urls := map[string]string{}
	remote, in := "", false
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "["); ok {
			section, after, _ := strings.Cut(rest, "]")
			word, name, _ := strings.Cut(section, " ")
			in = strings.EqualFold(word, "remote")
			remote = unquote(strings.TrimSpace(name))
			line = strings.TrimSpace(after) // a member may stand behind it
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || !in || !strings.EqualFold(strings.TrimSpace(key), "url") {
			continue
		}
		if _, have := urls[remote]; !have {
			urls[remote] = unquote(strings.TrimSpace(value))
		}
	}
	return urls
}

// unquote takes away quotes, what a backslash escapes, and a comment behind a value.
func unquote(s string) string {
	var out strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 < len(s):
			i++
			out.WriteByte(s[i])
		case (c == '#' || c == ';') && !quoted:
			return strings.TrimSpace(out.String())
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// Address is the shortest form of a remote's address: host and path without scheme,
// user, password, port and ".git". A path of this machine stays one.
func Address(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	switch {
	case ok && strings.EqualFold(scheme, "file"):
		return strip(rest)
	case ok:
		host, path, _ := strings.Cut(rest, "/")
		return hostOf(host) + "/" + strip(path)
	}
	// user@host:path, unless a slash comes before the colon.
	host, path, ok := strings.Cut(url, ":")
	if ok && !strings.Contains(host, "/") {
		return hostOf(host) + "/" + strip(path)
	}
	return strip(url)
}

// hostOf leaves out user, password and port, and what depends on how it is written.
func hostOf(host string) string {
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:]
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.Trim(host[i+1:], "0123456789") == "" {
		host = host[:i]
	}
	return strings.ToLower(host)
}

func strip(path string) string {
	if path != "/" {
		path = strings.TrimRight(path, "/")
	}
	path = strings.TrimSuffix(path, ".git")
	if strings.HasPrefix(path, "//") {
		path = "/" + strings.TrimLeft(path, "/")
	}
	return path
}
