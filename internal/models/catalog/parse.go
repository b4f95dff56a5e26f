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

	"github.com/goccy/go-yaml/ast"
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
// What is wrong is told with file:line:column, all of it at once: unknown keys,
// keys that are there twice, numbers below zero, days that are none.
func Parse(name string, data []byte) (*Table, error) {
	p := &parser{name: name}
	t := &Table{entries: map[string]map[string]Entry{}}
	if root := p.read(data); root != nil {
		p.table(root, t)
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return t, nil
}

// MustParse is Parse for text that is part of a program; it panics on errors.
func MustParse(name, text string) *Table {
	t, err := Parse(name, []byte(text))
	if err != nil {
		panic(fmt.Sprintf("catalog: %v", err))
	}
	return t
}

// parser reads one file. Problems do not stop it.
type parser struct {
	name string
	errs []error
}

// fields are the keys of a mapping, with what reads their values.
type fields map[string]func(ast.Node)

func (p *parser) table(root ast.Node, t *Table) {
	dated, sources := false, map[string]string{}
	p.mapping(root, fields{
		"sources": func(n ast.Node) {
			p.named(n, "provider", func(provider string, n ast.Node) { sources[provider] = p.text(n) })
		},
		"date": func(n ast.Node) { t.Date, dated = p.date(n), true },
		"providers": func(n ast.Node) {
			p.named(n, "provider", func(provider string, n ast.Node) {
				families := map[string]Entry{}
				p.named(n, "family", func(family string, n ast.Node) { families[family] = p.entry(n) })
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

func (p *parser) entry(n ast.Node) Entry {
	var e Entry
	p.mapping(n, fields{
		"price":        func(n ast.Node) { e.Price = p.price(n) },
		"date":         func(n ast.Node) { e.Date = p.date(n) },
		"capabilities": func(n ast.Node) { e.Capabilities = p.capabilities(n) },
		"source":       func(n ast.Node) { e.Source = p.text(n) },
		"retires":      func(n ast.Node) { e.Retires = p.date(n) },
	})
	if e.Date != "" && e.Price == nil {
		p.problemf(n, "a date without a price: it is the day of the price")
	}
	return e
}

func (p *parser) price(n ast.Node) *Price {
	out, long := &Price{}, false
	out.Rates = p.rates(n, fields{
		"long_from": func(n ast.Node) { out.LongFrom = p.tokens(n) },
		"long":      func(n ast.Node) { out.Long, long = p.rates(n, nil), true },
	})
	if long != (out.LongFrom > 0) {
		p.problemf(n, "long_from and long belong together: "+
			"the tokens of the prompt from which on the other rates hold, and these rates")
	}
	return out
}

// rates reads a mapping of rates, and of more fields.
func (p *parser) rates(n ast.Node, more fields) Rates {
	got := map[string]float64{}
	all := maps.Clone(more)
	if all == nil {
		all = fields{}
	}
	for _, key := range []string{"input", "cached", "cache_write", "cache_write_hour", "output", "thinking"} {
		all[key] = func(n ast.Node) { got[key] = p.rate(n) }
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

func (p *parser) capabilities(n ast.Node) *Capabilities {
	c := &Capabilities{}
	p.mapping(n, fields{
		"context_tokens":    func(n ast.Node) { c.ContextTokens = p.tokens(n) },
		"output_tokens":     func(n ast.Node) { c.OutputTokens = p.tokens(n) },
		"inputs":            func(n ast.Node) { c.Inputs = p.inputs(n) },
		"thinking":          func(n ast.Node) { c.Thinking = p.truth(n) },
		"tools":             func(n ast.Node) { c.Tools = p.truth(n) },
		"structured_output": func(n ast.Node) { c.StructuredOutput = p.truth(n) },
	})
	return c
}

func (p *parser) inputs(n ast.Node) []string {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		p.problemf(n, "want a list of kinds of file, as in [image, document]")
		return nil
	}
	var got []string
	for _, item := range list.Values {
		switch text, ok := scalar(item); {
		case !ok || !slices.Contains(Inputs, text):
			p.problemf(item, "want one of %s, got %s", strings.Join(Inputs, ", "), written(item))
		case slices.Contains(got, text):
			p.problemf(item, "%q is there twice", text)
		default:
			got = append(got, text)
		}
	}
	return slices.DeleteFunc(slices.Clone(Inputs), func(kind string) bool { return !slices.Contains(got, kind) })
}

func (p *parser) rate(n ast.Node) float64 {
	text, _ := scalar(n)
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(v):
		p.problemf(n, "want US dollars per million tokens, as in 0.25, got %s", written(n))
	case v < 0 || v > maxRate:
		p.problemf(n, "%s is no price: want US dollars per million tokens, from 0 to %d", text, int64(maxRate))
	default:
		return v
	}
	return 0
}

func (p *parser) tokens(n ast.Node) int64 {
	text, _ := scalar(n)
	v, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if err != nil || v < 1 || v > maxTokens {
		p.problemf(n, "want a number of tokens from 1 to %d, got %s", int64(maxTokens), written(n))
		return 0
	}
	return v
}

func (p *parser) truth(n ast.Node) bool {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		p.problemf(n, "want true or false, got %s", written(n))
		return false
	}
	return b.Value
}

// maxText bounds a text, in bytes.
const maxText = 500

func (p *parser) text(n ast.Node) string {
	text, ok := scalar(n)
	if !ok || text == "" || len(text) > maxText {
		p.problemf(n, "want a text of at most %d bytes, got %s", maxText, written(n))
		return ""
	}
	return text
}

func (p *parser) date(n ast.Node) string {
	text, _ := scalar(n)
	if _, err := time.Parse(time.DateOnly, text); err != nil {
		p.problemf(n, "want a day, as in 2026-07-24, got %s", written(n))
		return ""
	}
	return text
}

// named reads a mapping whose keys are names.
func (p *parser) named(n ast.Node, what string, read func(name string, n ast.Node)) {
	for key, value := range p.pairs(n) {
		name, ok := scalar(key)
		if !ok || !nameRule.MatchString(name) {
			p.problemf(key, "want the name of a %s, got %s", what, written(key))
			continue
		}
		read(name, value)
	}
}

// mapping reads a mapping that has these keys and no other.
func (p *parser) mapping(n ast.Node, known fields) {
	for key, value := range p.pairs(n) {
		name, _ := scalar(key)
		if read := known[name]; read != nil {
			read(value)
			continue
		}
		p.problemf(key, "unknown key %s; known are %s", written(key),
			strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
}
