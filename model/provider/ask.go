package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/anthropic"
	"github.com/agentrun/agentrun/model/openai"
)

// Bounds of a list of models.
const (
	maxList   = 4 << 20 // in bytes
	maxModels = 10_000
)

// Ask asks a provider which models it has, which local servers tell too: GET /v1/models. What is
// known of them is in the table or not at all.
func Ask(ctx context.Context, provider string, o Options) ([]model.Info, error) {
	if provider != Anthropic && provider != OpenAI {
		return nil, fmt.Errorf("provider %.40q has no list of models", provider)
	}
	base, err := o.BaseURL(provider)
	if err != nil {
		return nil, err
	}
	key, err := Key(provider, o.Lookup)
	if err != nil && !(errors.Is(err, ErrNoKey) && base != "") {
		return nil, err
	}
	if err := keepsKey(provider, base, key); err != nil {
		return nil, err
	}
	header := http.Header{}
	switch provider {
	case Anthropic:
		if base == "" {
			base = anthropic.BaseURL
		}
		base += "/v1"
		header.Set("Anthropic-Version", anthropic.Version)
		if key != "" {
			header.Set("X-Api-Key", key)
		}
	case OpenAI:
		if base == "" {
			base = openai.BaseURL
		}
		if key != "" {
			header.Set("Authorization", "Bearer "+key)
		}
	}
	ids, err := list(ctx, base+"/models", header, o.HTTP)
	if err != nil {
		return nil, fmt.Errorf("asking %s at %s for its models: %w", provider, base, err)
	}
	var models []model.Info
	for _, id := range ids {
		info, _ := Known(provider, id)
		models = append(models, info)
	}
	return models, nil
}

// list reads a list of models.
func list(ctx context.Context, at string, header http.Header, client *http.Client) ([]string, error) {
	if client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		defer transport.CloseIdleConnections()
		client = &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, errors.New("its base URL is none")
	}
	req.Header = header
	res, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest is the address, which is told
		}
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers with HTTP %d", res.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxList+1))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if len(data) > maxList || json.Unmarshal(data, &answer) != nil {
		return nil, errors.New("what it answers is no list of models")
	}
	var ids []string
	for _, m := range answer.Data {
		if m.ID != "" && len(m.ID) <= 256 && len(ids) < maxModels && !slices.Contains(ids, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids, nil
}
