package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apzuk3/agentd/internal/yamlfile"
)

// Bounds of values, beyond which they are a slip.
const (
	maxRate   = 1e6
	maxTokens = 1e12
)

// nameRule is what names of providers and families look like.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,255}$`)

// Parse reads a table. name is used in errors. A file looks like this; prices
// are in US dollars per million tokens, and all but provider, family, input and
// output may be left out:
//
//	date: 2026-07-24
//	sources: {acme: the price page of acme.example}
//	providers:
//	  acme:
//	    acme-large:
//	      price:
//	        {input: 2, cached: 0.2, cache_write: 2.5, cache_write_hour: 4, output: 8, thinking: 10,
//	         long_from: 200000, long: {input: 4, output: 16}}
//	      date: 2026-08-01
//	      source: the model's page at acme.example
//	      retires: 2027-02-01
//	      capabilities:
//	        {context_tokens: 400000, output_tokens: 64000, inputs: [image, document],
//	         thinking: true, tools: true, structured_output: true}
//
// The error has a line file:line:column for each problem, up to 20: unknown keys,
// keys that are there twice, numbers below zero, days that are none.
func Parse(name string, data []byte) (*Table, error) {
	root, problems := yamlfile.Parse(data, limits)
	p := &parser{problems: problems}
	t := &Table{entries: map[string]map[string]Entry{}}
	if root != nil {
		p.table(root, t)
	}
	if len(p.problems) > 0 {
		return nil, p.err(name)
	}
	return t, nil
}

// Read reads a table that is a value of another file. It is of no use if there are problems.
func Read(n *yamlfile.Node) (*Table, []yamlfile.Problem) {
	p := &parser{}
	t := &Table{entries: map[string]map[string]Entry{}}
	p.table(n, t)
	return t, p.problems
}

// MustParse is Parse for text that is part of a program; it panics on errors.
func MustParse(name, text string) *Table {
	t, err := Parse(name, []byte(text))
	if err != nil {
		panic(fmt.Sprintf("catalog: %v", err))
	}
	return t
}

// MaxBytes is how large a file may be.
const MaxBytes = 1 << 20

// maxProblems bounds the problems that an error has.
const maxProblems = 20

// limits bounds a file. Its values stand where they belong: no anchors.
var limits = yamlfile.Limits{
	Bytes: MaxBytes, Tokens: MaxBytes, Depth: 8, Values: MaxBytes, Holds: "date and providers",
}

// parser reads one file. Problems do not stop it.
type parser struct{ problems []yamlfile.Problem }

// problemf keeps what is wrong with a value.
func (p *parser) problemf(n *yamlfile.Node, format string, args ...any) {
	p.problemAtf(n.Pos, format, args...)
}

func (p *parser) problemAtf(pos yamlfile.Position, format string, args ...any) {
	p.problems = append(p.problems, yamlfile.Problem{Position: pos, Message: fmt.Sprintf(format, args...)})
}

// err joins the first problems of a file, in its order.
func (p *parser) err(name string) error {
	slices.SortStableFunc(p.problems, func(a, b yamlfile.Problem) int { return a.Compare(b.Position) })
	var errs []error
	for _, problem := range p.problems[:min(len(p.problems), maxProblems)] {
		errs = append(errs, fmt.Errorf("%s:%w", name, problem))
	}
	return errors.Join(errs...)
}

// fields are the keys of a mapping, with what reads their values.
type fields map[string]func(*yamlfile.Node)

func (p *parser) table(root *yamlfile.Node, t *Table) {
	dated, sources := false, map[string]string{}
	p.mapping(root, fields{
		"sources": func(n *yamlfile.Node) {
			p.named(n, "provider", func(provider string, n *yamlfile.Node) { sources[provider] = p.text(n) })
		},
		"date": func(n *yamlfile.Node) { t.Date, dated = p.date(n), true },
		"providers": func(n *yamlfile.Node) {
			p.named(n, "provider", func(provider string, n *yamlfile.Node) {
				families := map[string]Entry{}
				p.named(n, "family", func(family string, n *yamlfile.Node) { families[family] = p.entry(n) })
				t.entries[provider] = families
			})
		},
	})
	for provider, families := range t.entries {
		for family, e := range families {
			e.Source = cmp.Or(e.Source, sources[provider])
			families[family] = e
		}
	}
	if !dated {
		p.problemf(root, "date is missing: the day on which the prices were looked up, as in 2026-07-24")
	}
}

func (p *parser) entry(n *yamlfile.Node) Entry {
	var e Entry
	p.mapping(n, fields{
		"price":        func(n *yamlfile.Node) { e.Price = p.price(n) },
		"date":         func(n *yamlfile.Node) { e.Date = p.date(n) },
		"capabilities": func(n *yamlfile.Node) { e.Capabilities = p.capabilities(n) },
		"source":       func(n *yamlfile.Node) { e.Source = p.text(n) },
		"retires":      func(n *yamlfile.Node) { e.Retires = p.date(n) },
	})
	if e.Date != "" && e.Price == nil {
		p.problemf(n, "a date without a price: it is the day of the price")
	}
	return e
}

func (p *parser) price(n *yamlfile.Node) *Price {
	out, long := &Price{}, false
	out.Rates = p.rates(n, fields{
		"long_from": func(n *yamlfile.Node) { out.LongFrom = p.tokens(n) },
		"long":      func(n *yamlfile.Node) { out.Long, long = p.rates(n, nil), true },
	})
	if long != (out.LongFrom > 0) {
		p.problemf(n, "long_from and long belong together: "+
			"the tokens of the prompt from which on the other rates hold, and these rates")
	}
	return out
}

// rates reads a mapping of rates, and of more fields.
func (p *parser) rates(n *yamlfile.Node, more fields) Rates {
	got := map[string]float64{}
	all := maps.Clone(more)
	if all == nil {
		all = fields{}
	}
	for _, key := range []string{"input", "cached", "cache_write", "cache_write_hour", "output", "thinking"} {
		all[key] = func(n *yamlfile.Node) { got[key] = p.rate(n) }
	}
	p.mapping(n, all)
	or := func(key string, other float64) float64 {
		if rate, ok := got[key]; ok {
			return rate
		}
		return other
	}
	for _, key := range []string{"input", "output"} {
		if _, ok := got[key]; !ok {
			p.problemf(n, "%s is missing: US dollars per million tokens", key)
		}
	}
	r := Rates{Input: got["input"], Output: got["output"]}
	r.Cached, r.Thinking = or("cached", r.Input), or("thinking", r.Output)
	r.CacheWrite = or("cache_write", r.Input)
	r.CacheWriteHour = or("cache_write_hour", r.CacheWrite)
	return r
}

func (p *parser) capabilities(n *yamlfile.Node) *Capabilities {
	c := &Capabilities{}
	p.mapping(n, fields{
		"context_tokens":    func(n *yamlfile.Node) { c.ContextTokens = p.tokens(n) },
		"output_tokens":     func(n *yamlfile.Node) { c.OutputTokens = p.tokens(n) },
		"inputs":            func(n *yamlfile.Node) { c.Inputs = p.inputs(n) },
		"thinking":          func(n *yamlfile.Node) { c.Thinking = p.truth(n) },
		"tools":             func(n *yamlfile.Node) { c.Tools = p.truth(n) },
		"structured_output": func(n *yamlfile.Node) { c.StructuredOutput = p.truth(n) },
	})
	return c
}

func (p *parser) inputs(n *yamlfile.Node) []string {
	if n.Kind != yamlfile.List {
		p.problemf(n, "want a list of kinds of file, as in [image, document]")
		return nil
	}
	var got []string
	for _, item := range n.Items {
		switch {
		case !slices.Contains(Inputs, item.Text):
			p.problemf(item, "want one of %s, got %s", strings.Join(Inputs, ", "), item.Shown())
		case slices.Contains(got, item.Text):
			p.problemf(item, "%q is there twice", item.Text)
		default:
			got = append(got, item.Text)
		}
	}
	return slices.DeleteFunc(slices.Clone(Inputs), func(kind string) bool { return !slices.Contains(got, kind) })
}

func (p *parser) rate(n *yamlfile.Node) float64 {
	v, err := strconv.ParseFloat(n.Text, 64)
	switch {
	case err != nil || math.IsNaN(v):
		p.problemf(n, "want US dollars per million tokens, as in 0.25, got %s", n.Shown())
	case v < 0 || v > maxRate:
		p.problemf(n, "%s is no price: want US dollars per million tokens, from 0 to %d", n.Text, int64(maxRate))
	default:
		return v
	}
	return 0
}

func (p *parser) tokens(n *yamlfile.Node) int64 {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Text, "_", ""), 10, 64)
	if err != nil || v < 1 || v > maxTokens {
		p.problemf(n, "want a number of tokens from 1 to %d, got %s", int64(maxTokens), n.Shown())
		return 0
	}
	return v
}

func (p *parser) truth(n *yamlfile.Node) bool {
	if n.Kind != yamlfile.Bool {
		p.problemf(n, "want true or false, got %s", n.Shown())
	}
	return n.Kind == yamlfile.Bool && n.Text == "true"
}

// maxText bounds a text, in bytes.
const maxText = 500

func (p *parser) text(n *yamlfile.Node) string {
	if n.Text == "" || len(n.Text) > maxText {
		p.problemf(n, "want a text of at most %d bytes, got %s", maxText, n.Shown())
		return ""
	}
	return n.Text
}

func (p *parser) date(n *yamlfile.Node) string {
	if _, err := time.Parse(time.DateOnly, n.Text); err != nil {
		p.problemf(n, "want a day, as in 2026-07-24, got %s", n.Shown())
		return ""
	}
	return n.Text
}

// pairs are the keys and values of a mapping.
func (p *parser) pairs(n *yamlfile.Node) []yamlfile.Pair {
	if n.Kind != yamlfile.Mapping {
		p.problemf(n, "want a mapping of keys to values, got %s", n.Shown())
	}
	return n.Pairs
}

// named reads a mapping whose keys are names.
func (p *parser) named(n *yamlfile.Node, what string, read func(name string, n *yamlfile.Node)) {
	for _, pair := range p.pairs(n) {
		if !nameRule.MatchString(pair.Key) {
			p.problemAtf(pair.Pos, "want the name of a %s, got %q", what, pair.Key)
			continue
		}
		read(pair.Key, pair.Value)
	}
}

// mapping reads a mapping that has these keys and no other.
func (p *parser) mapping(n *yamlfile.Node, known fields) {
	for _, pair := range p.pairs(n) {
		if read := known[pair.Key]; read != nil {
			read(pair.Value)
			continue
		}
		p.problemAtf(pair.Pos, "unknown key %q; known are %s", pair.Key,
			strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
}
