package openai

import (
	"time"

	"github.com/apzuk3/agentd/model"
)

// promptCache is what a request says about OpenAI's cache, which it has in any case.
type promptCache struct {
	// Key brings requests with the same beginning to the same machine.
	Key string `json:"prompt_cache_key,omitempty"`
	// Retention is "24h", or "" for the default, which is five minutes at least.
	Retention string `json:"prompt_cache_retention,omitempty"`
}

// cache translates what is asked of the provider's cache. Servers that only speak
// OpenAI's API may refuse fields of OpenAI's own, and cache as they like.
func (l *llm) cache(c *model.Cache) (promptCache, error) {
	if c == nil {
		return promptCache{}, nil
	}
	if !isFirstParty(l.cfg.BaseURL) {
		_, err := c.Span(l.cfg.Name)
		return promptCache{}, err
	}
	const long = 24 * time.Hour
	span, err := c.Span(l.cfg.Name, versionOf(l.model).spans()...)
	if err != nil {
		return promptCache{}, err
	}
	out := promptCache{Key: c.Key}
	if span == long {
		out.Retention = "24h"
	}
	return out, nil
}
