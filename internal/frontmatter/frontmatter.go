// Package frontmatter splits Markdown files that begin with YAML between lines of ---, as many programs write them. Files
// are hostile. Functions may be called concurrently.
package frontmatter

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// Split splits a file. Without front matter ok is false, and all of the file is body. Line ends are \n in what it returns.
func Split(data []byte) (head, body []byte, ok bool) {
	data = bytes.ReplaceAll(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(data, []byte("---\n"))
	if !ok {
		return nil, data, false
	}
	if body, ok := bytes.CutPrefix(rest, []byte("---\n")); ok {
		return nil, body, true
	}
	if head, body, ok = bytes.Cut(rest, []byte("\n---\n")); ok {
		return head, body, true
	}
	if head, ok = bytes.CutSuffix(bytes.TrimRight(rest, "\n"), []byte("\n---")); ok {
		return head, nil, true
	}
	return nil, data, false
}

// Decode reads a head. Members that into does not have are passed over: other programs have more of them.
func Decode(head []byte, into any) (err error) {
	defer func() {
		if p := recover(); p != nil { // YAML is large
			err = errors.New("the front matter cannot be read")
		}
	}()
	if err := yaml.Unmarshal(head, into); err != nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return fmt.Errorf("the front matter cannot be read: %s", first)
	}
	return nil
}
