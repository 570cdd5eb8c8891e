package kvhttp

import (
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/agentrun/agentrun/internal/bearer"
)

// TokenEnv is the environment variable that TokenFromEnv reads.
const TokenEnv = "AGENTRUN_KV_TOKEN"

// TokenFromFile reads a bearer token from a file: its text without the line end. A file
// that others than its owner may read or write is refused. Errors never hold the token.
func TokenFromFile(name string) (string, error) { return bearer.FromFile(name) }

// TokenFromEnv reads a bearer token from the environment; empty when there is none.
func TokenFromEnv() (string, error) { return TokenFrom(os.LookupEnv) }

// TokenFrom is TokenFromEnv for an environment that lookup knows.
func TokenFrom(lookup func(name string) (string, bool)) (string, error) {
	return bearer.FromVariable(lookup, TokenEnv)
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
