package catalog

// Price is the standard price of a model, for text.
type Price struct {
	Rates
	// LongFrom: with a prompt of more tokens than this, Long holds for the whole
	// call; 0 is no such step.
	LongFrom int64
	Long     Rates
}

// Rates are what tokens cost, in US dollars per million. All of them are set:
// where a file leaves one out, it is the one that its comment names.
type Rates struct {
	// Input is of prompts.
	Input float64
	// Cached is of what the provider had cached of a prompt; default Input.
	Cached float64
	// CacheWrite is of what the provider writes into its cache; default Input.
	CacheWrite float64
	// CacheWriteHour is the same where it is kept for an hour; default CacheWrite.
	CacheWriteHour float64
	// Output is of answers.
	Output float64
	// Thinking is of what the model thinks; default Output.
	Thinking float64
}

// Tokens are the counts of a call, none of which is part of another one.
type Tokens struct {
	// Input is the part of the prompt that none of the next three has.
	Input int64
	// Cached was read from the provider's cache; CacheWrite was written into it, and
	// CacheWriteHour so that it is kept for an hour.
	Cached, CacheWrite, CacheWriteHour int64
	// Output is the answer without Thinking.
	Output, Thinking int64
}

// Prompt is all of the prompt.
func (t Tokens) Prompt() int64 { return t.Input + t.Cached + t.CacheWrite + t.CacheWriteHour }

// Cost returns the price of a call in US dollars. Counts below zero count as
// zero. What a provider bills beside tokens (searches, storage, running code) is
// not in it.
func (p *Price) Cost(t Tokens) float64 {
	t = Tokens{
		Input: max(t.Input, 0), Cached: max(t.Cached, 0), CacheWrite: max(t.CacheWrite, 0), CacheWriteHour: max(t.CacheWriteHour, 0),
		Output: max(t.Output, 0), Thinking: max(t.Thinking, 0),
	}
	r := p.Rates
	if p.LongFrom > 0 && t.Prompt() > p.LongFrom {
		r = p.Long
	}
	const million = 1e6
	return (float64(t.Input)*r.Input + float64(t.Cached)*r.Cached +
		float64(t.CacheWrite)*r.CacheWrite + float64(t.CacheWriteHour)*r.CacheWriteHour +
		float64(t.Output)*r.Output + float64(t.Thinking)*r.Thinking) / million
}
