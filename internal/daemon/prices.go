package daemon

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/catalog"
)

// withPrices lays the table of a file over that of the registry.
func withPrices(reg *models.Registry, file string) (*models.Registry, error) {
	if file == "" {
		return reg, nil
	}
	table, err := readPrices(file)
	if err != nil {
		return nil, fmt.Errorf("daemon: prices: %w", err)
	}
	if reg, err = reg.WithCatalog(table); err != nil {
		return nil, fmt.Errorf("daemon: prices: %s: %w", file, err)
	}
	return reg, nil
}

// listPrice is the protocol's form of a price; nil when it is not known.
func listPrice(e catalog.Entry) *agentdv1.ModelPrice {
	if e.Price == nil {
		return nil
	}
	out := &agentdv1.ModelPrice{Tiers: []*agentdv1.PriceTier{tier(0, e.Price.Rates)}, Date: e.Date}
	if e.Price.LongFrom > 0 {
		out.Tiers = append(out.Tiers, tier(e.Price.LongFrom, e.Price.Long))
	}
	return out
}

// tier leaves out the rates that are no others than the ones they fall back on.
func tier(above int64, r catalog.Rates) *agentdv1.PriceTier {
	out := &agentdv1.PriceTier{AbovePromptTokens: above, Input: r.Input, Cached: r.Cached, Output: r.Output}
	if r.CacheWrite != r.Input {
		out.CacheWrites = append(out.CacheWrites, &agentdv1.CacheWritePrice{Price: r.CacheWrite})
	}
	if r.CacheWriteHour != r.CacheWrite {
		hour := &agentdv1.CacheWritePrice{Ttl: durationpb.New(time.Hour), Price: r.CacheWriteHour}
		out.CacheWrites = append(out.CacheWrites, hour)
	}
	if r.Thinking != r.Output {
		out.Thinking = &r.Thinking
	}
	return out
}

func modelCapabilities(c *catalog.Capabilities) *agentdv1.ModelCapabilities {
	if c == nil {
		return nil
	}
	return &agentdv1.ModelCapabilities{
		ContextTokens: c.ContextTokens, OutputTokens: c.OutputTokens, Inputs: c.Inputs,
		Thinking: c.Thinking, Tools: c.Tools, StructuredOutput: c.StructuredOutput,
	}
}
