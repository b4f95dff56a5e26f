package model

import (
	"fmt"
	"time"
)

// Cache asks a provider to keep a prompt, so that the next call with the same beginning costs less.
// Adapters of providers that cache without being asked ignore it, except for a TTL, see Span.
type Cache struct {
	// TTL is how long to keep it at least; 0 is the provider's default. An adapter takes the next
	// longer span of its provider, and refuses more than the longest, see Span.
	TTL time.Duration
	// Key is equal for calls whose prompts have the same beginning, as far as the caller knows; at
	// most 64 bytes of letters and digits, "" for none.
	Key string
}

// Span returns the shortest of a provider's spans, in rising order, that is at least the TTL.
// Without a TTL it returns the first span, 0 if there is none. The error of a TTL longer than all
// of them is of KindInvalid.
func (c *Cache) Span(provider string, spans ...time.Duration) (time.Duration, error) {
	for _, span := range spans {
		if c.TTL <= span {
			return span, nil
		}
	}
	switch {
	case c.TTL == 0:
		return 0, nil
	case len(spans) == 0:
		return 0, &Error{
			Kind: KindInvalid, Provider: provider,
			Message: fmt.Sprintf("cache.ttl is %v: "+
				"this provider caches prompts by itself, for as long as it likes; leave it out", c.TTL),
		}
	default:
		return 0, &Error{
			Kind: KindInvalid, Provider: provider,
			Message: fmt.Sprintf("cache.ttl is %v: this provider keeps prompts for %v at most", c.TTL,
				spans[len(spans)-1]),
		}
	}
}
