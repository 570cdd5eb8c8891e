package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/provider"
	"github.com/agentrun/agentrun/session"
)

func newModelsCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "models",
		Short: "List the models that run can ask",
		Long: `models lists the models of providers that there is a key for, or a base URL,
with their context window, the longest answer, and prices in US dollars for a
million tokens. Others can be asked by their name too; what they cost is then
unknown, and counted as 0.

  anthropic:NAME  ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
  openai:NAME     OPENAI_API_KEY, OPENAI_BASE_URL; also servers that speak like
                  it, such as llama.cpp, Ollama and vLLM
  script:FILE     plays a script in the place of a model, and needs no key

A key is a variable of the environment, or in the keyring of the desktop
(service agentrun, user name anthropic or openai). Settings in config.json of
the home: models.anthropic.url and models.openai.url, the base URLs;
models.openai.api, responses or chat.

With --json it prints one object a line: model, provider, id, contextWindow,
maxOutput, prices (input, output, cacheRead, cacheWrite; long, those of requests
above so many tokens), thinks, usable, missing (what a model that is not usable
lacks), baseURL (where the provider is, if that is elsewhere: which models are
there is not known).`,
		Example: `  agentrun models
  agentrun models --json | jq -r 'select(.usable) | .model'
  secret-tool store --label agentrun service agentrun username anthropic`,
		Args: positional(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error { return env.listModels() },
	}
}

// listedModel is what models --json prints.
type listedModel struct {
	Model         string        `json:"model"` // as run --model takes it
	Provider      string        `json:"provider"`
	ID            string        `json:"id"`
	ContextWindow int64         `json:"contextWindow"`
	MaxOutput     int64         `json:"maxOutput"`
	Prices        *model.Prices `json:"prices"`
	Thinks        bool          `json:"thinks"`
	Usable        bool          `json:"usable"`
	Missing       string        `json:"missing,omitempty"`
	BaseURL       string        `json:"baseURL,omitempty"`
}

// providers are how models are opened with the settings of the home.
func (e *environment) providers() (provider.Options, error) {
	home, err := session.ResolveHome(e.home)
	if err != nil {
		return provider.Options{}, err
	}
	c, err := e.settings(home)
	if err != nil {
		return provider.Options{}, err
	}
	of := func(p config.Provider) provider.Settings {
		return provider.Settings{BaseURL: string(p.URL), API: string(p.API)}
	}
	return provider.Options{
		Lookup:   withhold.Lookup,
		Settings: map[string]provider.Settings{provider.Anthropic: of(c.Models.Anthropic), provider.OpenAI: of(c.Models.OpenAI)},
	}, nil
}

func (e *environment) listModels() error {
	o, err := e.providers()
	if err != nil {
		return err
	}
	missing, elsewhere := map[string]error{}, map[string]string{}
	for _, name := range []string{provider.Anthropic, provider.OpenAI} {
		if _, missing[name] = provider.Open(name+":x", o); missing[name] == nil {
			elsewhere[name], missing[name] = o.BaseURL(name)
		}
	}
	t := table(e.stdout)
	listed := 0
	for _, i := range provider.Models() {
		l := listedModel{
			Model: i.Provider + ":" + i.ID, Provider: i.Provider, ID: i.ID, ContextWindow: i.ContextWindow, MaxOutput: i.MaxOutput,
			Prices: i.Prices, Thinks: i.Thinks, Usable: missing[i.Provider] == nil, BaseURL: elsewhere[i.Provider],
		}
		if err := missing[i.Provider]; err != nil {
			l.Missing = err.Error()
		}
		switch {
		case e.json:
			if err := printJSON(e.stdout, l); err != nil {
				return err
			}
		case l.Usable && l.BaseURL == "":
			if listed == 0 {
				fmt.Fprintln(t, "MODEL\tCONTEXT\tOUTPUT\tINPUT $\tOUTPUT $\tCACHED $")
			}
			listed++
			p := l.Prices
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\n", l.Model, l.ContextWindow, l.MaxOutput, dollars(p.Input), dollars(p.Output), dollars(p.CacheRead))
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the models: %w", err)
	}
	if e.json {
		return nil
	}
	for _, name := range []string{provider.Anthropic, provider.OpenAI} {
		if at := elsewhere[name]; at != "" {
			e.remark("%s is at %s: give its models by their names there, as %s:NAME", name, at, name)
		}
		if err := missing[name]; errors.Is(err, provider.ErrNoKey) {
			e.remark("%v", err)
		} else if err != nil {
			e.say("%v", err)
		}
	}
	return nil
}

// dollars is a price without zeros that say nothing.
func dollars(price float64) string { return strconv.FormatFloat(price, 'f', -1, 64) }
