package model

import (
	"fmt"
	"time"
)

// Cache asks a provider to keep a prompt, so that the next call that begins in the
// same way costs less. A provider that does so by itself has nothing to be asked.
type Cache struct {
	// TTL is how long at least; 0 is as the provider does. An adapter takes the next
	// longer span that its provider has, and refuses more than the longest, see
	// Span.
	TTL time.Duration
	// Key is the same for all calls whose prompts begin in the same way, as far as
	// the caller knows; at most 64 bytes of letters and digits, "" if it knows none.
	Key string
}

// Span returns the shortest of a provider's spans, which are in rising order, that
// is at least the TTL. Without a TTL that is the first one, 0 if there is none. The
// error of a TTL that is longer than all of them is of KindInvalid.
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
