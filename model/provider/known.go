package provider

import (
	"slices"
	"strings"

	"github.com/agentrun/agentrun/model"
)

// Limits of images. Anthropic: documentation of vision ("Image size", "Request limits"): 100
// images a request, 8,000 pixels, 5 MB. OpenAI: guide on images and vision: 500 images and
// 50 MB a request, of which one image may have all; larger ones are scaled down there.
var (
	anthropicImages = model.ImageLimits{MaxCount: 100, MaxEdge: 8000, MaxBytes: 5_000_000}
	openaiImages    = model.ImageLimits{MaxCount: 500, MaxBytes: 20_000_000}
)

// known are the models of which something is known. Anthropic: pages of the models at
// platform.claude.com/docs, November 2026, prices of the cache for five minutes. OpenAI:
// prices and their thresholds as GitHub passes them on (docs.github.com, models and
// pricing of Copilot, November 2026); windows and limits of output of developers.openai.com.
var known = slices.Concat(
	claude(1_000_000, 128_000, flat(10, 50), "claude-fable-5-1", "claude-fable-5"),
	claude(1_000_000, 128_000, flat(4, 20), "claude-opus-5-5"),
	claude(1_000_000, 128_000, flat(5, 25), "claude-opus-5"),
	claude(1_000_000, 128_000, flat(2, 10), "claude-sonnet-5-5", "claude-sonnet-5"),
	claude(1_000_000, 128_000, &model.Prices{
		Input: 0.10, Output: 0.50, CacheRead: 0.01, CacheWrite: 0.125, Above: 100_000,
		Long: &model.Prices{Input: 0.50, Output: 2.50, CacheRead: 0.05, CacheWrite: 0.625},
	}, "claude-haiku-5-5"),
	claude(1_000_000, 128_000, flat(5, 25), "claude-opus-4-8", "claude-opus-4-7", "claude-opus-4-6"),
	claude(1_000_000, 64_000, flat(3, 15), "claude-sonnet-4-6"),
	claude(200_000, 64_000, flat(5, 25), "claude-opus-4-5"),
	claude(200_000, 64_000, flat(3, 15), "claude-sonnet-4-5"),
	claude(200_000, 64_000, flat(1, 5), "claude-haiku-4-5"),
	gpt(1_050_000, long(5, 0.5, 30, 6.25, 272_000), "gpt-5.6-sol", "gpt-5.6"),
	gpt(1_050_000, long(2, 0.2, 12, 2.5, 272_000), "gpt-5.6-terra"),
	gpt(1_050_000, long(0.2, 0.02, 1.2, 0.25, 200_000), "gpt-5.6-luna"),
	gpt(1_050_000, long(5, 0.5, 30, 0, 272_000), "gpt-5.5"),
	gpt(1_050_000, long(2.5, 0.25, 15, 0, 272_000), "gpt-5.4"),
	gpt(400_000, &model.Prices{Input: 0.75, CacheRead: 0.075, Output: 4.50}, "gpt-5.4-mini"),
	gpt(400_000, &model.Prices{Input: 0.20, CacheRead: 0.02, Output: 1.25}, "gpt-5.4-nano"),
	gpt(400_000, &model.Prices{Input: 1.75, CacheRead: 0.175, Output: 14}, "gpt-5.3-codex"),
	gpt(400_000, &model.Prices{Input: 0.25, CacheRead: 0.025, Output: 2}, "gpt-5-mini"),
)

// flat are Anthropic's prices: a cache is read for a tenth of the input's price and written for a
// quarter more.
func flat(input, output float64) *model.Prices {
	return &model.Prices{Input: input, Output: output, CacheRead: input / 10, CacheWrite: input * 5 / 4}
}

// long are OpenAI's prices with a threshold: above it input costs twice as much, output half as
// much again.
func long(input, cached, output, write float64, above int64) *model.Prices {
	return &model.Prices{
		Input: input, CacheRead: cached, Output: output, CacheWrite: write, Above: above,
		Long: &model.Prices{Input: 2 * input, CacheRead: 2 * cached, Output: output * 3 / 2, CacheWrite: 2 * write},
	}
}

func claude(window, output int64, p *model.Prices, ids ...string) []model.Info {
	var all []model.Info
	for _, id := range ids {
		all = append(all, model.Info{
			Provider: Anthropic, API: model.APIAnthropic, ID: id, ContextWindow: window, MaxOutput: output,
			Prices: p, Images: anthropicImages, Thinks: true,
		})
	}
	return all
}

func gpt(window int64, p *model.Prices, ids ...string) []model.Info {
	var all []model.Info
	for _, id := range ids {
		all = append(all, model.Info{
			Provider: OpenAI, ID: id, ContextWindow: window, MaxOutput: 128_000,
			Prices: p, Images: openaiImages, Thinks: true,
		})
	}
	return all
}

// Models are the models of which something is known, by provider, the newest first. Others
// can be opened too.
func Models() []model.Info { return slices.Clone(known) }

// Known returns what is known of a model, also by the name of one of its snapshots
// (claude-sonnet-4-5-20250929, gpt-5.5-2026-04-23). ok is false for a model of which nothing
// is: its window, its limits and its prices are 0, and it counts as one that thinks where its
// name says so.
func Known(provider, id string) (info model.Info, ok bool) {
	for _, i := range known {
		if i.Provider == provider && (i.ID == id || snapshotOf(id, i.ID)) {
			i.ID = id
			return i, true
		}
	}
	info = model.Info{Provider: provider, ID: id}
	switch provider {
	case Anthropic:
		info.API, info.Images = model.APIAnthropic, anthropicImages
		info.Thinks = strings.HasPrefix(id, "claude-") && !strings.HasPrefix(id, "claude-3-")
	case OpenAI:
		info.Images = openaiImages
		info.Thinks = strings.HasPrefix(id, "gpt-5") || strings.HasPrefix(id, "gpt-6") || strings.HasPrefix(id, "o3") || strings.HasPrefix(id, "o4")
	}
	return info, false
}

// snapshotOf reports whether id is name and a date.
func snapshotOf(id, name string) bool {
	date, ok := strings.CutPrefix(id, name+"-")
	return ok && len(date) >= 8 && len(date) <= 10 && strings.Trim(date, "0123456789-") == ""
}
