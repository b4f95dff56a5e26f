package model_test

import (
	"math"
	"testing"

	"github.com/apzuk3/agentd/model"
)

func TestCost(t *testing.T) {
	const m = 1_000_000
	for _, c := range []struct {
		name, provider, model string
		usage                 model.Usage
		want                  float64
		known                 bool
	}{
		{"Gemini: cached in the prompt, thoughts apart", "gemini", "gemini-2.5-flash", model.Usage{Prompt: 2 * m, Cached: m, Completion: m, Thoughts: m}, 0.30 + 0.03 + 5, true},
		{"OpenAI: cached in the prompt, thoughts in the completion", "openai", "gpt-5", model.Usage{Prompt: 2 * m, Cached: m, Completion: m, Thoughts: m / 2}, 1.25 + 0.125 + 10, true},
		{"Anthropic: cached apart, thoughts in the completion", "anthropic", "claude-sonnet-4-5", model.Usage{Prompt: m, Cached: m, Completion: m, Thoughts: m / 2}, 3 + 0.30 + 15, true},
		{"long prompt", "gemini", "gemini-2.5-pro", model.Usage{Prompt: 200_001}, 200_001 * 2.50 / m, true},
		{"just not long", "gemini", "gemini-2.5-pro", model.Usage{Prompt: 200_000}, 0.25, true},
		{"long with the cache", "openai", "gpt-5.4", model.Usage{Prompt: 300_000, Cached: 100_000}, 200_000*5.0/m + 100_000*0.50/m, true},
		{"more cached than prompt", "openai", "gpt-5", model.Usage{Prompt: 1, Cached: m}, 0.125, true},
		{"another interface of OpenAI's", "openai-chat", "gpt-5", model.Usage{Prompt: 2 * m, Cached: m}, 1.25 + 0.125, true},
		{"nothing", "openai", "gpt-5", model.Usage{}, 0, true},
		{"echo", "echo", "echo", model.Usage{Prompt: m}, 0, true},
		{"scripted", "scripted", "demo", model.Usage{Prompt: m}, 0, true},
		{"unknown model", "openai", "gpt-99", model.Usage{Prompt: m}, 0, false},
		{"unknown provider", "acme", "gpt-5", model.Usage{Prompt: m}, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, known := model.Cost(c.provider, c.model, c.usage)
			if known != c.known || math.Abs(got-c.want) > 1e-9 {
				t.Errorf("Cost = %v, %v; want %v, %v", got, known, c.want, c.known)
			}
		})
	}
}

// A model belongs to the longest family that its name begins with, unless more
// than a version follows.
func TestCostFindsTheFamily(t *testing.T) {
	for _, c := range []struct {
		provider, model string
		want            float64 // of a million output tokens; 0: unknown
	}{
		{"gemini", "gemini-2.5-flash", 2.50},
		{"gemini", "models/gemini-2.5-flash", 2.50},
		{"gemini", "gemini-2.5-flash-001", 2.50},
		{"gemini", "gemini-2.5-flash-preview-09-2025", 2.50},
		{"gemini", "gemini-2.5-flash-lite", 0.40},
		{"gemini", "gemini-2.5-flash-image", 0},
		{"gemini", "gemini-2.5-pro-preview-tts", 0},
		{"gemini", "gemini-3-pro-preview", 12},
		{"gemini", "gemini-2.5", 0},
		{"anthropic", "claude-opus-4-20250514", 75},
		{"anthropic", "claude-opus-4@20250514", 75},
		{"anthropic", "claude-opus-4-5-20251101", 25},
		{"anthropic", "claude-opus-4-99", 0},
		{"anthropic", "claude-3-5-haiku-latest", 4},
		{"openai", "gpt-4o-2024-08-06", 10},
		{"openai", "gpt-4o-2024-05-13", 15},
		{"openai", "gpt-4o-mini-2024-07-18", 0.60},
		{"openai", "gpt-4o-audio-preview", 0},
		{"openai", "gpt-5-chat-latest", 10},
		{"openai", "gpt-5.4-pro", 0},
		{"openai", "o1-pro", 600},
		{"openai", "o3-deep-research", 0},
		{"openai", "", 0},
	} {
		got, known := model.Cost(c.provider, c.model, model.Usage{Completion: 1_000_000})
		if got != c.want || known != (c.want != 0) {
			t.Errorf("%s/%s: %v, %v; want %v", c.provider, c.model, got, known, c.want)
		}
	}
}

// The list price of a model is what a call of it costs by the token.
func TestListPrice(t *testing.T) {
	const m = 1_000_000
	for _, name := range [][2]string{
		{"gemini", "gemini-2.5-flash"}, {"gemini", "models/gemini-2.5-flash-001"}, {"anthropic", "claude-sonnet-4-5"}, {"openai", "gpt-5"},
		{"openai-chat", "gpt-5"}, {"openai", "gpt-99"}, {"acme", "gpt-5"}, {"echo", "echo"}, {"scripted", "scripted/demo"},
	} {
		p, known := model.ListPrice(name[0], name[1])
		for _, part := range []struct {
			usage model.Usage
			want  float64
		}{
			{model.Usage{Prompt: m / 10}, p.Input / 10},
			{model.Usage{Prompt: m / 10, Cached: m / 10}, p.Cached / 10},
			{model.Usage{Completion: m}, p.Output},
		} {
			if name[0] == "anthropic" && part.usage.Cached > 0 {
				part.usage.Prompt = 0 // it counts them apart
			}
			if got, ok := model.Cost(name[0], name[1], part.usage); ok != known || math.Abs(got-part.want) > 1e-9 {
				t.Errorf("%v: %+v costs %v, %v; the list says %+v, %v", name, part.usage, got, ok, p, known)
			}
		}
	}
	if p, known := model.ListPrice("gemini", "gemini-2.5-pro"); !known || p != (model.Price{Input: 1.25, Cached: 0.125, Output: 10}) {
		t.Errorf("the price with a short prompt is %+v, %v", p, known)
	}
}
