package httpstore

import (
	"os"

	"github.com/agentrun/agentrun/internal/bearer"
)

// The environment variables that TokenFromEnv reads.
const (
	TokenEnv     = "AGENTRUN_STORE_TOKEN"
	TokenFileEnv = "AGENTRUN_STORE_TOKEN_FILE" // the name of a file
)

// TokenFromEnv returns the bearer token of the environment, or of the file that it
// names; "" where there is none.
func TokenFromEnv() (string, error) { return TokenFrom(os.LookupEnv) }

// TokenFrom is TokenFromEnv for an environment that lookup knows.
func TokenFrom(lookup func(name string) (string, bool)) (string, error) {
	token, err := bearer.FromVariable(lookup, TokenEnv)
	if name, _ := lookup(TokenFileEnv); token == "" && err == nil && name != "" {
		return TokenFromFile(name)
	}
	return token, err
}

// TokenFromFile reads a bearer token from a file: its text without the line end. A file
// that others than its owner may read or write is refused. Errors never hold the token.
func TokenFromFile(name string) (string, error) { return bearer.FromFile(name) }
