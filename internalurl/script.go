package internalurl

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// inScript finds what may be a URL in a script.
var inScript = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:artifact|agent)://[A-Za-z0-9][A-Za-z0-9._/-]*`) })

// InScript replaces the URLs of whole artifacts and agent outputs in a shell script by paths, which find returns. Those
// with selectors or queries stay, and so do those of which find returns an error; these errors are returned beside the
// script, each with its URL.
//
// A path of letters, digits and "/._+@%-", that does not begin with "-", means itself in every kind of quotes. Any other is refused: find has to
// come up with another name of the file.
func InScript(script string, find func(URL) (string, error)) (string, []error) {
	var errs []error
	var out strings.Builder
	last := 0
	for _, at := range inScript().FindAllStringIndex(script, -1) {
		raw := strings.TrimRight(script[at[0]:at[1]], "./-") // the end of a sentence, in a text that is printed
		end := at[0] + len(raw)
		if at[0] > 0 && partOfWord(script[at[0]-1]) || end < len(script) && strings.IndexByte(":?#%[", script[end]) >= 0 {
			continue
		}
		u, err := Parse(raw)
		if err != nil || !u.Selector.IsZero() || u.Query != "" {
			continue
		}
		path, err := find(u)
		if err == nil && !Plain(path) {
			err = fmt.Errorf("its path has characters that mean something to a shell")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", raw, err))
			continue
		}
		out.WriteString(script[last:at[0]])
		out.WriteString(path)
		last = end
	}
	out.WriteString(script[last:])
	return out.String(), errs
}

// partOfWord reports whether c before a URL makes it the end of another word.
func partOfWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-+./:%", c) >= 0
}

// Plain reports whether a path means itself wherever it stands in a shell script.
func Plain(path string) bool {
	for i := range len(path) {
		c := path[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_-+./@%", c) >= 0) {
			return false
		}
	}
	return strings.HasPrefix(path, "/")
}
