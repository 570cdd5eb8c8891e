package provider_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/provider"
	"github.com/agentrun/agentrun/session/entry"
)

const key = "sk-test-0123456789"

// environ looks up in a list of KEY=VALUE. There is no keyring in it but with a bus.
func environ(list ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range append(list, "XDG_RUNTIME_DIR=/nowhere") {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

func TestModelsAreOpenedByName(t *testing.T) {
	script := filepath.Join(t.TempDir(), "demo.jsonl")
	if err := os.WriteFile(script, []byte(`{"agent":"main","say":[{"text":"hi"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	both := []string{"ANTHROPIC_API_KEY=" + key, "OPENAI_API_KEY= " + key + "\n"}
	for _, c := range []struct {
		name     string
		env      []string
		settings map[string]provider.Settings
		model    string // provider/id api
		err      string
	}{
		{"script:" + script, nil, nil, "script/demo.jsonl script", ""},
		{"anthropic:claude-sonnet-5-5", both, nil, "anthropic/claude-sonnet-5-5 anthropic-messages", ""},
		{"openai:gpt-5.5", both, nil, "openai/gpt-5.5 openai-responses", ""},
		{"openai:some:model", both, nil, "openai/some:model openai-responses", ""},
		{"openai:llama", []string{"OPENAI_BASE_URL=http://localhost:8080/v1"}, nil, "openai/llama openai-completions", ""},
		{"openai:llama", nil, map[string]provider.Settings{"openai": {BaseURL: "http://box:8080/v1/", API: "responses"}}, "openai/llama openai-responses", ""},
		{"openai:gpt-5.5", both, map[string]provider.Settings{"openai": {API: "chat"}}, "openai/gpt-5.5 openai-completions", ""},
		{"anthropic:x", append(both, "ANTHROPIC_BASE_URL=https://proxy.example/v1"), nil, "anthropic/x anthropic-messages", ""},

		{"claude", nil, nil, "", `"claude" names no model: give script:FILE`},
		{"script:", nil, nil, "", `names no model`},
		{"google:gemini", nil, nil, "", `there is no provider "google"`},
		{"script:/nowhere/x.jsonl", nil, nil, "", `opening the script /nowhere/x.jsonl: no such file`},
		{"script:" + filepath.Dir(script), nil, nil, "", `it is a directory`},
		{"anthropic:x", nil, nil, "", `there is no key for anthropic: set ANTHROPIC_API_KEY, or keep it in the keyring`},
		{"openai:x", append(both, "OPENAI_BASE_URL=http://models.example.com/v1"), nil, "", `in the clear: give a base URL with https`},
		{"openai:x", append(both, "OPENAI_BASE_URL=ftp://x"), nil, "", `OPENAI_BASE_URL is no base URL`},
		{"openai:x", append(both, "OPENAI_BASE_URL=https://me:"+key+"@host"), nil, "", `without a user`},
		{"openai:x", both, map[string]provider.Settings{"openai": {API: "soap"}}, "", `give responses or chat`},
		{"openai:x", []string{"OPENAI_API_KEY=" + key + "\x00x"}, nil, "", `characters that no key has`},
	} {
		m, err := provider.Open(c.name, provider.Options{Lookup: environ(c.env...), Settings: c.settings})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %q: %v", c.name, c.env, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if i := m.Info(); i.Name()+" "+i.API != c.model {
			t.Errorf("%s is %s %s", c.name, i.Name(), i.API)
		}
	}
}

func TestKeysComeFromTheEnvironmentThenTheKeyring(t *testing.T) {
	keyring.MockInit()
	bus := "DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere"
	if _, err := provider.Key("anthropic", environ(bus)); !errors.Is(err, provider.ErrNoKey) {
		t.Error(err)
	}
	if err := keyring.Set(provider.Service, "anthropic", key); err != nil {
		t.Fatal(err)
	}
	if got, err := provider.Key("anthropic", environ(bus)); err != nil || got != key {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := provider.Key("anthropic", environ(bus, "ANTHROPIC_API_KEY=sk-other")); err != nil || got != "sk-other" {
		t.Errorf("%q, %v", got, err)
	}
	// Without a bus nobody is asked.
	if _, err := provider.Key("anthropic", environ()); !errors.Is(err, provider.ErrNoKey) || !strings.Contains(err.Error(), "there is none in this environment") {
		t.Error(err)
	}
	keyring.MockInitWithError(errors.New("locked"))
	if _, err := provider.Key("anthropic", environ(bus)); !errors.Is(err, provider.ErrNoKey) || !strings.Contains(err.Error(), "locked") {
		t.Error(err)
	}
	if _, err := provider.Key("script", environ()); err == nil {
		t.Error("a script has a key")
	}
}

func TestTheTableIsPlausible(t *testing.T) {
	seen := map[string]bool{}
	for _, i := range provider.Models() {
		if seen[i.Name()] || i.Prices == nil || i.Prices.Input <= 0 || i.Prices.Output <= i.Prices.Input || i.Prices.CacheRead >= i.Prices.Input ||
			i.ContextWindow < i.MaxOutput || i.MaxOutput <= 0 || (i.Prices.Long == nil) != (i.Prices.Above == 0) {
			t.Errorf("%+v", i)
		}
		seen[i.Name()] = true
	}
	for id, want := range map[string]bool{
		"claude-sonnet-4-5-20250929": true, "claude-opus-5-5": true, "claude-opus-5-6": false, "claude-2": false, "claude-sonnet-4-5-x": false,
	} {
		if i, ok := provider.Known("anthropic", id); ok != want || i.ID != id || ok && i.Prices == nil {
			t.Errorf("%s: %v, %+v", id, ok, i)
		}
	}
	if i, ok := provider.Known("openai", "gpt-5.5-2026-04-23"); !ok || i.ContextWindow == 0 {
		t.Errorf("%+v", i)
	}
	long := model.Prices{Input: 1, Above: 10, Long: &model.Prices{Input: 2}}
	for input, want := range map[int64]float64{10: 10e-6, 11: 22e-6} {
		u := entry.Usage{Input: input}
		if got := long.Cost(u).Total; got < want*0.999 || got > want*1.001 {
			t.Errorf("%d tokens cost %v", input, got)
		}
	}
}

func TestAServerIsAskedForItsModels(t *testing.T) {
	answer, status := `{"object":"list","data":[{"id":"llama-4"},{"id":"gpt-5.5"},{"id":""},{"id":"llama-4"}]}`, http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Header.Get("Authorization")+r.Header.Get("X-Api-Key") == "" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer s.Close()
	for name, base := range map[string]string{"openai": s.URL + "/v1", "anthropic": s.URL} {
		upper := strings.ToUpper(name)
		o := provider.Options{Lookup: environ(upper+"_BASE_URL="+base, upper+"_API_KEY="+key)}
		answer, status = `{"object":"list","data":[{"id":"llama-4"},{"id":"gpt-5.5"},{"id":""},{"id":"llama-4"}]}`, http.StatusOK
		models, err := provider.Ask(t.Context(), name, o)
		if err != nil || len(models) != 2 || models[0].ID != "llama-4" || name == "openai" && models[1].Prices == nil {
			t.Errorf("%s: %+v, %v", name, models, err)
		}
		for _, answer = range []string{"<html>", "[]", strings.Repeat(" ", 5<<20)} {
			if _, err := provider.Ask(t.Context(), name, o); err == nil || strings.Contains(err.Error(), key) {
				t.Errorf("%s: %.20q: %v", name, answer, err)
			}
		}
		status = http.StatusInternalServerError
		if _, err := provider.Ask(t.Context(), name, o); err == nil || !strings.Contains(err.Error(), "HTTP 500") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := provider.Ask(t.Context(), "openai", provider.Options{Lookup: environ()}); !errors.Is(err, provider.ErrNoKey) {
		t.Error(err)
	}
}
