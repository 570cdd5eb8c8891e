package httpstore

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
)

// The environment variables that TokenFromEnv reads.
const (
	TokenEnv     = "AGENTRUN_STORE_TOKEN"
	TokenFileEnv = "AGENTRUN_STORE_TOKEN_FILE" // the name of a file
)

// maxToken is the longest token, in bytes.
const maxToken = 8 << 10

// TokenFromEnv returns the bearer token of the environment, or of the file that it
// names; "" where there is none.
func TokenFromEnv() (string, error) { return TokenFrom(os.LookupEnv) }

// TokenFrom is TokenFromEnv for an environment that lookup knows.
func TokenFrom(lookup func(name string) (string, bool)) (string, error) {
	if token, _ := lookup(TokenEnv); token != "" {
		for _, c := range []byte(token) {
			if c <= ' ' || c > '~' {
				return "", fmt.Errorf("the token in %s has a character that cannot be sent: it has to be one word of ASCII", TokenEnv)
			}
		}
		return token, nil
	}
	if name, _ := lookup(TokenFileEnv); name != "" {
		return TokenFromFile(name)
	}
	return "", nil
}

// TokenFromFile reads a bearer token from a file: its text without the line end. A file
// that others than its owner may read or write is refused. Errors never hold the token.
func TokenFromFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("reading the token file: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("reading the token file: others than its owner may use %s (mode %04o); run chmod 600 on it", name, info.Mode().Perm())
	}
	data, err := durable.ReadFile(nil, name, maxToken)
	if err != nil {
		return "", fmt.Errorf("reading the token file: %w", err)
	}
	token := strings.TrimRight(string(data), "\r\n")
	if token == "" {
		return "", fmt.Errorf("reading the token file %s: %w", name, errors.New("it is empty"))
	}
	return token, nil
}
