package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Unknown is a member of the file that is no setting. It does nothing; whoever keeps or
// removes something because of the settings tells a person of it, once.
type Unknown struct {
	File string `json:"file"` // "" when the text is of no file
	Line int    `json:"line"` // counts from 1
	Key  string `json:"key"`  // with those around it: quota.home.log
	// Like is the setting with the name that is most like it, "" when none is.
	Like string `json:"like,omitempty"`
	may  string // what may stand there
}

func (u Unknown) String() string {
	where := fmt.Sprintf("line %d", u.Line)
	if u.File != "" {
		where = fmt.Sprintf("%s:%d", u.File, u.Line)
	}
	if u.Like != "" {
		return fmt.Sprintf("%s: %q is no setting and does nothing; did you mean %s?", where, u.Key, u.Like)
	}
	return fmt.Sprintf("%s: %q is no setting and does nothing; there may be %s (agentrun help config)", where, u.Key, u.may)
}

// mistakeError is what keeps a file from being used, and where it stands.
type mistakeError struct {
	line int
	err  error
}

func (e *mistakeError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *mistakeError) Unwrap() error { return e.err }

// lineAt is the line of an offset.
func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(max(offset, 0), int64(len(data)))], []byte("\n"))
}

// mistake says where in data an error is, unless it says so already.
func mistake(data []byte, offset int64, err error) error {
	var known *mistakeError
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &mistakeError{lineAt(data, offset), err}
}

// keys are the names of all settings below path, and of what they stand in.
func (m members) keys(path string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		at := strings.TrimPrefix(path+"."+name, ".")
		all = append(all, at)
		if inner, ok := m[name].(members); ok {
			all = append(all, inner.keys(at)...)
		}
	}
	return all
}

// like is the one of known that key most likely stands for, "" when none is near.
func like(key string, known []string) string {
	best, least := "", 1+max(1, len(key)/4)
	for _, k := range known {
		if d := distance(strings.ToLower(key), k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is how many bytes have to be put in, left out or replaced to make b of a
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
