package provider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/zalando/go-keyring"
)

// ErrNoKey is returned where there is no key for a provider.
var ErrNoKey = errors.New("there is no key")

// Service is the name under which the keyring has keys, each under the name of its
// provider: secret-tool store --label 'agentrun' service agentrun username anthropic
const Service = "agentrun"

// keyVariables are where keys are in the environment.
var keyVariables = map[string]string{Anthropic: "ANTHROPIC_API_KEY", OpenAI: "OPENAI_API_KEY"}

// patience is how long the keyring may take: a locked one asks its user, who may be away.
const patience = 30 * time.Second

// Key returns the key of a provider: that of the environment, as lookup (nil is
// os.LookupEnv) returns it, else that of the keyring of the desktop, which is asked only
// where there is one. Without any the error is [ErrNoKey], and its sentence says where to put it. No
// error holds a key.
func Key(provider string, lookup func(string) (string, bool)) (string, error) {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	variable, ok := keyVariables[provider]
	if !ok {
		return "", fmt.Errorf("provider %.40q has no keys", provider)
	}
	if key, ok := lookup(variable); ok && strings.TrimSpace(key) != "" {
		return valid(key, variable)
	}
	put := fmt.Sprintf("set %s, or keep it in the keyring (service %s, user name %s)", variable, Service, provider)
	if !hasKeyring(lookup) {
		return "", fmt.Errorf("%w for %s: %s, of which there is none in this environment", ErrNoKey, provider, put)
	}
	type found struct {
		key string
		err error
	}
	answer := make(chan found, 1)
	go func() {
		key, err := keyring.Get(Service, provider)
		answer <- found{key, err}
	}()
	select {
	case f := <-answer:
		switch {
		case errors.Is(f.err, keyring.ErrNotFound):
			return "", fmt.Errorf("%w for %s: %s", ErrNoKey, provider, put)
		case f.err != nil:
			return "", fmt.Errorf("%w for %s: %s; the keyring does not answer: %w", ErrNoKey, provider, put, f.err)
		}
		return valid(f.key, "the keyring")
	case <-time.After(patience):
		// What asks the keyring ends with the process: there is no way to stop it.
		return "", fmt.Errorf("%w for %s: the keyring did not answer for %v; unlock it, or set %s", ErrNoKey, provider, patience, variable)
	}
}

// valid refuses what cannot be sent in a header.
func valid(key, from string) (string, error) {
	key = strings.TrimSpace(key)
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("the key in %s has characters that no key has: see whether something else got into it", from)
		}
	}
	return key, nil
}

// hasKeyring reports whether there is a session bus to ask. The library would start one.
func hasKeyring(lookup func(string) (string, bool)) bool {
	if address, ok := lookup("DBUS_SESSION_BUS_ADDRESS"); ok && address != "" {
		return true
	}
	runtime, ok := lookup("XDG_RUNTIME_DIR")
	if !ok || runtime == "" {
		runtime = filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
	}
	_, err := os.Stat(filepath.Join(runtime, "bus"))
	return err == nil
}
