package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/provider"
	"github.com/agentrun/agentrun/session"
)

// modelsPatience is how long a server may take to tell which models it has.
const modelsPatience = 5 * time.Second

// openModel opens a model by its name on the command line.
func (e *environment) openModel(name string) (model.Model, error) {
	if name == "" {
		return nil, usagef("no model is named: give --model, as in --model script:FILE; agentrun models lists names")
	}
	o, err := e.providers()
	if err != nil {
		return nil, err
	}
	m, err := provider.Open(name, o)
	if errors.Is(err, provider.ErrName) {
		return nil, &usageError{err}
	}
	return m, err
}

// modelsCommand is the verb models with its flags.
type modelsCommand struct {
	*environment
	all bool
}

func newModelsCommand(env *environment) *cobra.Command {
	c := &modelsCommand{environment: env}
	cmd := &cobra.Command{
		Use:   "models [flags]",
		Short: "List the models that run can ask",
		Long: `models lists the models of providers that there is a key for, with their
context window, the longest answer, and prices in US dollars for a million
tokens. Others can be asked by their name too; what they cost is then unknown,
and counted as 0.

  anthropic:NAME  ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
  openai:NAME     OPENAI_API_KEY, OPENAI_BASE_URL; also servers that speak like
                  it, such as llama.cpp, Ollama and vLLM
  script:FILE     plays a script in the place of a model, and needs no key

A key is a variable of the environment, or in the keyring of the desktop
(service agentrun, user name anthropic or openai). Settings in config.json of
the home: models.anthropic.url and models.openai.url, the base URLs;
models.openai.api, responses or chat. A server at another base URL needs no key,
and is asked for its models.

With --json it prints one object a line: model, provider, id, contextWindow,
maxOutput, prices (input, output, cacheRead, cacheWrite; long, those of requests
above so many tokens; null when they are unknown), thinks, usable. With --all
there are those too that cannot be asked, with missing, which says what they
lack.`,
		Example: `  agentrun models
  agentrun models --json | jq -r .model
  secret-tool store --label agentrun service agentrun username anthropic`,
		Args: positional(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&c.all, "all", false, "also list models that lack a key")
	return cmd
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

func (c *modelsCommand) run(ctx context.Context) error {
	o, err := c.providers()
	if err != nil {
		return err
	}
	var found []listedModel
	for _, name := range []string{provider.Anthropic, provider.OpenAI} {
		models, missing := c.modelsOf(ctx, name, o)
		if missing != nil {
			c.remark("%v", missing)
		}
		for _, i := range models {
			l := listedModel{
				Model: name + ":" + i.ID, Provider: name, ID: i.ID, ContextWindow: i.ContextWindow, MaxOutput: i.MaxOutput,
				Prices: i.Prices, Thinks: i.Thinks, Usable: missing == nil,
			}
			if missing != nil {
				l.Missing = missing.Error()
			}
			if l.Usable || c.all {
				found = append(found, l)
			}
		}
	}
	t := table(c.stdout)
	if len(found) > 0 && !c.json {
		fmt.Fprintln(t, "MODEL\tCONTEXT\tOUTPUT\tINPUT $\tOUTPUT $\tCACHED $")
	}
	for _, l := range found {
		if c.json {
			if err := printJSON(c.stdout, l); err != nil {
				return err
			}
			continue
		}
		input, output, cached := "-", "-", "-"
		if p := l.Prices; p != nil {
			input, output, cached = dollars(p.Input), dollars(p.Output), dollars(p.CacheRead)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", visible(l.Model), tokens(l.ContextWindow), tokens(l.MaxOutput), input, output, cached)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the models: %w", err)
	}
	return nil
}

// modelsOf are the models of a provider, and why they cannot be asked, if they cannot.
func (c *modelsCommand) modelsOf(ctx context.Context, name string, o provider.Options) (models []model.Info, missing error) {
	base, err := o.BaseURL(name)
	if err == nil {
		_, err = provider.Open(name+":any", o)
	}
	if err == nil && base != "" {
		ctx, cancel := context.WithTimeout(ctx, modelsPatience)
		defer cancel()
		models, err := provider.Ask(ctx, name, o)
		if err != nil {
			c.remark("%v; name its models as %s:NAME", err, name)
		}
		return models, nil
	}
	for _, i := range provider.Models() {
		if i.Provider == name {
			models = append(models, i)
		}
	}
	return models, err
}

// tokens is a number of tokens, - where nobody knows it.
func tokens(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// dollars is a price without zeros that say nothing.
func dollars(price float64) string { return strconv.FormatFloat(price, 'f', -1, 64) }
