// Package provider opens models by name: it knows which providers there are, which models
// they have and what these cost, and where keys are.
//
//	m, err := provider.Open("anthropic:claude-sonnet-5-5", provider.Options{})
//
// A name is script:FILE, anthropic:NAME or openai:NAME. The provider's own name of a
// model follows the colon; one that is not in the table here works too, with its prices
// and its context window unknown.
//
// Keys come from the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY) or from the keyring
// of the desktop, from nowhere else: see [Key]. They are handed to the adapter and stand
// in no error.
//
// The base URL of a provider is that of the settings, else that of the environment
// (ANTHROPIC_BASE_URL, OPENAI_BASE_URL), else the provider's own. With another one no key
// is needed, so that local servers work; a key goes to other machines only over https.
package provider

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/anthropic"
	"github.com/agentrun/agentrun/model/openai"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

// Names of the providers, as they stand before the colon.
const (
	Script    = "script"
	Anthropic = "anthropic"
	OpenAI    = "openai"
)

// ErrName is returned for a name that names no model, whatever there is.
var ErrName = errors.New("names no model")

// Settings are those of one provider.
type Settings struct {
	BaseURL string // "" is that of the environment, or the provider's own
	API     string // of OpenAI: responses, chat, or "" for what fits the base URL
}

// Options are how models are opened. The zero value is good.
type Options struct {
	// Lookup returns a variable of the environment; nil is os.LookupEnv. A program that takes
	// keys out of its environment at its start gives what it kept.
	Lookup func(name string) (string, bool)

	Settings map[string]Settings // by the name of the provider
	Resize   model.Resize        // of images that are too large; nil is one that keeps their proportions
	HTTP     *http.Client        // nil: one for each model
}

func (o Options) lookup(name string) string {
	lookup := o.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	value, _ := lookup(name)
	return strings.TrimSpace(value)
}

// Open opens a model. Nothing is asked of it yet. The errors are sentences that say what to
// do: a name that is none, a script that cannot be read, a key that is missing.
func Open(name string, o Options) (model.Model, error) {
	provider, id, ok := strings.Cut(name, ":")
	if !ok || id == "" {
		return nil, fmt.Errorf("%.100q %w: give script:FILE, anthropic:NAME or openai:NAME; agentrun models lists names", name, ErrName)
	}
	switch provider {
	case Script:
		return openScript(id)
	case Anthropic, OpenAI:
	default:
		return nil, fmt.Errorf("%.100q %w: there is no provider %.40q; give script:FILE, anthropic:NAME or openai:NAME", name, ErrName, provider)
	}
	base, err := o.BaseURL(provider)
	if err != nil {
		return nil, err
	}
	key, err := Key(provider, o.Lookup)
	switch {
	case errors.Is(err, ErrNoKey) && base != "":
		key = "" // a server that is not the provider's may want none
	case err != nil:
		return nil, err
	}
	if err := keepsKey(provider, base, key); err != nil {
		return nil, err
	}
	if o.Resize == nil {
		o.Resize = shrink
	}
	info, _ := Known(provider, id)
	if provider == Anthropic {
		return anthropic.New(anthropic.Options{Info: info, BaseURL: base, Key: key, Resize: o.Resize, HTTP: o.HTTP}), nil
	}
	switch api := o.Settings[provider].API; api {
	case "":
	case "responses":
		info.API = model.APIOpenAIResponses
	case "chat":
		info.API = model.APIOpenAIChat
	default:
		return nil, fmt.Errorf("the setting models.openai.api is %.40q: give responses or chat", api)
	}
	return openai.New(openai.Options{Info: info, BaseURL: base, Key: key, Resize: o.Resize, HTTP: o.HTTP}), nil
}

// shrink makes an image smaller. What it makes is within the limits of all providers.
func shrink(image entry.ImageBlock, _ model.ImageLimits) (entry.ImageBlock, error) {
	data, err := base64.StdEncoding.DecodeString(image.Data)
	if err != nil {
		return image, fmt.Errorf("reading an image: %w", err)
	}
	p, err := picture.Fit(data, image.MIMEType)
	if err != nil {
		return image, fmt.Errorf("making an image smaller: %w", err)
	}
	image.Data, image.MIMEType = base64.StdEncoding.EncodeToString(p.Data), p.MIMEType
	return image, nil
}

// openScript opens a script.
func openScript(path string) (model.Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the script %s: %w", path, errors.Unwrap(err)) // os.Open gives a PathError
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, fmt.Errorf("opening the script %s: it is a directory; give a file of JSON lines", path)
	}
	m, err := script.New(path, f)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// BaseURL is where a provider is, "" where it is where it always is.
func (o Options) BaseURL(provider string) (string, error) {
	base, from := o.Settings[provider].BaseURL, "the setting models."+provider+".url"
	if base == "" {
		from = strings.ToUpper(provider) + "_BASE_URL"
		base = o.lookup(from)
	}
	if base == "" {
		return "", nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// What stands there may have a password in it.
		return "", fmt.Errorf("%s is no base URL: give one such as https://host/v1, without a user, a query and a fragment", from)
	}
	base = strings.TrimSuffix(base, "/")
	if provider == Anthropic {
		base = strings.TrimSuffix(base, "/v1") // some write it, and the adapter does
	}
	return base, nil
}

// keepsKey refuses to send a key where others can read it.
func keepsKey(provider, base, key string) error {
	u, err := url.Parse(base)
	if err != nil || key == "" || u.Scheme != "http" || isNear(u.Hostname()) {
		return nil
	}
	return fmt.Errorf("the key of %s would go to %s in the clear: give a base URL with https, or take the key out of the environment", provider, u.Hostname())
}

// isNear reports whether a host is this machine, or in its own network.
func isNear(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	return host == "localhost" || !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".local")
}
