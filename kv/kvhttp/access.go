package kvhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

// TokenEnv is the environment variable that TokenFromEnv reads.
const TokenEnv = "AGENTRUN_KV_TOKEN"

// maxToken bounds a token, in bytes.
const maxToken = 4 << 10

// TokenFromFile reads a bearer token from a file: its text without the line end. Errors
// never hold the token.
func TokenFromFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token, err := checkToken(strings.TrimRight(string(data), "\r\n"))
	if err != nil {
		return "", fmt.Errorf("reading the token from %s: %w", path, err)
	}
	return token, nil
}

// TokenFromEnv reads a bearer token from the environment; empty when there is none.
func TokenFromEnv() (string, error) { return TokenFrom(os.LookupEnv) }

// TokenFrom is TokenFromEnv for an environment that lookup knows.
func TokenFrom(lookup func(name string) (string, bool)) (string, error) {
	token, _ := lookup(TokenEnv)
	if token == "" {
		return "", nil
	}
	token, err := checkToken(token)
	if err != nil {
		return "", fmt.Errorf("reading the token from %s: %w", TokenEnv, err)
	}
	return token, nil
}

func checkToken(token string) (string, error) {
	switch {
	case token == "":
		return "", errors.New("it is empty")
	case len(token) > maxToken:
		return "", fmt.Errorf("it has %d bytes; %d is the limit", len(token), maxToken)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", fmt.Errorf("byte %d is no printable ASCII character: it cannot stand in a header", i)
		}
	}
	return token, nil
}

// bears compares in a time that tells neither the token nor its length.
func bears(h http.Header, token string) bool {
	scheme, given, _ := strings.Cut(h.Get("Authorization"), " ")
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// loopback reports whether an address can be reached from this machine alone. A name
// other than localhost is not looked up: it may mean something else the next time.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

func loopbackAddr(addr net.Addr) bool {
	if addr.Network() == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(addr.String())
	return err == nil && loopback(host)
}
