package catalog

import (
	"math"
	"math/bits"
)

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
	// Output is of responses.
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
	// Output is the response without Thinking.
	Output, Thinking int64
}

// Prompt is all of the prompt.
func (t Tokens) Prompt() int64 { return t.Input + t.Cached + t.CacheWrite + t.CacheWriteHour }

// Cost returns the price of a call in billionths of a US dollar, rounded to the nearest
// one; what is beyond int64 stays there. Counts below zero count as zero. What a provider
// bills beside tokens (searches, storage, running code) is not in it.
func (p *Price) Cost(t Tokens) int64 {
	t = Tokens{
		Input: max(t.Input, 0), Cached: max(t.Cached, 0), CacheWrite: max(t.CacheWrite, 0),
		CacheWriteHour: max(t.CacheWriteHour, 0),
		Output:         max(t.Output, 0), Thinking: max(t.Thinking, 0),
	}
	r := p.Rates
	if p.LongFrom > 0 && t.Prompt() > p.LongFrom {
		r = p.Long
	}
	var sum bill
	sum.add(t.Input, r.Input)
	sum.add(t.Cached, r.Cached)
	sum.add(t.CacheWrite, r.CacheWrite)
	sum.add(t.CacheWriteHour, r.CacheWriteHour)
	sum.add(t.Output, r.Output)
	sum.add(t.Thinking, r.Thinking)
	return sum.total()
}

// bill sums up tokens times rates in billionths of a dollar per million tokens, exactly
// and without an overflow: six products of 63 and 60 bits.
type bill struct{ hi, lo uint64 }

func (b *bill) add(tokens int64, rate float64) {
	hi, lo := bits.Mul64(uint64(tokens), uint64(math.Round(min(max(rate, 0), maxRate)*1e9)))
	var carry uint64
	b.lo, carry = bits.Add64(b.lo, lo, 0)
	b.hi, _ = bits.Add64(b.hi, hi, carry)
}

// total is in billionths of a dollar.
func (b *bill) total() int64 {
	const million = 1_000_000
	lo, carry := bits.Add64(b.lo, million/2, 0)
	hi := b.hi + carry
	if hi >= million/2 { // the quotient has more than 63 bits
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, million)
	return int64(min(quotient, math.MaxInt64))
}
