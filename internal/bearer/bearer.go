// Package bearer reads bearer tokens, and recognises one in a request. A token is one
// word of printable ASCII of at most MaxLen bytes; no error holds any of it.
package bearer

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// MaxLen is the longest token, in bytes: a header of requests has to take it.
const MaxLen = 8 << 10

// Check is what every token goes through before it is used.
func Check(token string) error {
	switch {
	case token == "":
		return errors.New("it is empty")
	case len(token) > MaxLen:
		return fmt.Errorf("it has %d bytes; %d is the limit", len(token), MaxLen)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return fmt.Errorf("byte %d is no printable ASCII character: it cannot stand in a header; is there a space or a line end in it?", i)
		}
	}
	return nil
}

// FromFile reads a token from a file: its text without the line end. A file that others
// than its owner may read or write is refused.
func FromFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("reading the token file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", fmt.Errorf("reading the token file: others than its owner may use %s (mode %04o); run chmod 600 on it", name, mode)
	}
	const lineEnd = 2
	data, err := durable.ReadFile(nil, name, MaxLen+lineEnd)
	if err != nil {
		return "", fmt.Errorf("reading the token file: %w", err)
	}
	token := strings.TrimRight(string(data), "\r\n")
	if err := Check(token); err != nil {
		return "", fmt.Errorf("reading the token file %s: %w", name, err)
	}
	return token, nil
}

// FromVariable reads a token from a variable of the environment that lookup knows; ""
// where it is not set.
func FromVariable(lookup func(name string) (string, bool), name string) (string, error) {
	token, _ := lookup(name)
	if token == "" {
		return "", nil
	}
	if err := Check(token); err != nil {
		return "", fmt.Errorf("reading the token in %s: %w", name, err)
	}
	return token, nil
}

// In reports whether the header Authorization of a request brings the token. How long it
// takes tells neither the token nor its length.
func In(authorization, token string) bool {
	scheme, given, _ := strings.Cut(authorization, " ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}
