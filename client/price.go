package client

import (
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// ModelPrice is the list price of a model, for text.
type ModelPrice struct {
	// Tiers are by the length of the request, with rising AbovePromptTokens, of which the
	// first is 0. The last one whose AbovePromptTokens is less than the tokens of a
	// request holds for the whole call.
	Tiers []PriceTier
	// Date is the day on which the price was last compared with that of the provider,
	// YYYY-MM-DD.
	Date string
}

// PriceTier is what calls cost with requests of a length, in US dollars per million
// tokens.
type PriceTier struct {
	// AbovePromptTokens is exceeded by the requests for which the tier holds.
	AbovePromptTokens int64
	// Input is for tokens of the request, and Cached for those that the provider had in
	// its cache.
	Input, Cached float64
	// Output is for tokens of the response.
	Output float64
	// Thinking is for tokens of the model's thinking; nil where it costs what the response
	// does.
	Thinking *float64
	// CacheWrites are for tokens that the provider writes into its cache: with rising
	// TTL, of which the last one that is not longer than the cache is kept holds. A write
	// for which none holds costs what Input does.
	CacheWrites []CacheWritePrice
}

// CacheWritePrice is what a provider takes for writing into its cache.
type CacheWritePrice struct {
	// TTL is for how long it is kept at least; 0 is however long.
	TTL time.Duration
	// Price is in US dollars per million tokens.
	Price float64
}

// modelPriceOf returns nil for none.
func modelPriceOf(m *agentdv1.ModelPrice) *ModelPrice {
	if m == nil {
		return nil
	}
	return &ModelPrice{Date: m.GetDate(), Tiers: mapped(m.GetTiers(), priceTierOf)}
}

func priceTierOf(m *agentdv1.PriceTier) PriceTier {
	return PriceTier{
		AbovePromptTokens: m.GetAbovePromptTokens(), Input: m.GetInput(), Cached: m.GetCached(), Output: m.GetOutput(),
		Thinking: m.Thinking, CacheWrites: mapped(m.GetCacheWrites(), cacheWriteOf),
	}
}

func cacheWriteOf(m *agentdv1.CacheWritePrice) CacheWritePrice {
	return CacheWritePrice{TTL: m.GetTtl().AsDuration(), Price: m.GetPrice()}
}
