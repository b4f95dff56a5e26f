// Package catalog knows what the models of the providers cost and what they can
// do. A table is a YAML file of facts by provider and family of models; one is
// built in, others are laid over it, see Parse and Table.With.
//
// It knows neither providers' code, nor how they count: callers hand it counts
// that do not overlap, see Tokens. What is not known is left out, never guessed,
// and never zero. The package imports yamlfile and the standard library.
package catalog

import (
	"cmp"
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Table holds what is known of models; the zero value knows of none. It is immutable.
type Table struct {
	// Date is the day on which the prices were last compared with those of the
	// providers, YYYY-MM-DD.
	Date string
	// entries are by provider, then family.
	entries map[string]map[string]Entry
}

// Entry is what is known of a family of models. It must not be changed.
type Entry struct {
	// Price is nil when it is not known.
	Price *Price
	// Date is the day of Price, YYYY-MM-DD, when it is another than the table's;
	// else "".
	Date string
	// Capabilities is nil when they are not known.
	Capabilities *Capabilities
	// Source says where the entry was read.
	Source string
	// Retires is the day from which on the provider serves the model no more,
	// YYYY-MM-DD, past or to come; "" when none is known.
	Retires string
}

// Or returns e with what other knows beyond it.
func (e Entry) Or(other Entry) Entry {
	if e.Price == nil {
		e.Price, e.Date, e.Source = other.Price, other.Date, cmp.Or(other.Source, e.Source)
	}
	e.Capabilities = cmp.Or(e.Capabilities, other.Capabilities)
	e.Retires = cmp.Or(e.Retires, other.Retires)
	return e
}

// Capabilities are what a model can do.
type Capabilities struct {
	// ContextTokens are those of prompt and response together, or of the prompt alone
	// where the provider gives them so; 0 is not known.
	ContextTokens int64
	// OutputTokens is the longest response; 0 is not known.
	OutputTokens int64
	// Inputs are kinds of file that it reads, of Inputs, in that order.
	Inputs []string
	// Thinking: it can think before it responds.
	Thinking bool
	// Tools: it calls tools.
	Tools bool
	// StructuredOutput: it responds by a schema in its provider's native way.
	StructuredOutput bool
}

// Inputs are the kinds of file that models may read.
var Inputs = []string{"image", "audio", "video", "document"}

//go:embed catalog.yaml
var builtin []byte

var builtinTable = sync.OnceValue(func() *Table { return MustParse("catalog.yaml", string(builtin)) })

// Builtin is the table that comes with agentd.
func Builtin() *Table { return builtinTable() }

// With returns t with what over says laid over it: prices and capabilities that
// over has for a family take the place of those of t, all others stay.
func (t *Table) With(over *Table) *Table {
	out := &Table{Date: t.Date, entries: make(map[string]map[string]Entry, len(t.entries)+len(over.entries))}
	maps.Copy(out.entries, t.entries)
	for provider, families := range over.entries {
		all := maps.Clone(out.entries[provider])
		if all == nil {
			all = map[string]Entry{}
		}
		for family, e := range families {
			if e.Price != nil {
				if e.Date = cmp.Or(e.Date, over.Date); e.Date == t.Date {
					e.Date = ""
				}
			}
			all[family] = e.Or(all[family])
		}
		out.entries[provider] = all
	}
	return out
}

// Providers are those of which the table says anything, sorted.
func (t *Table) Providers() []string { return slices.Sorted(maps.Keys(t.entries)) }

// Families are the families of a provider, sorted.
func (t *Table) Families(provider string) []string {
	return slices.Sorted(maps.Keys(t.entries[provider]))
}

// versionSuffix is what may follow a family in the name of one of its models: a
// date or a revision, a preview, an alias. Anything else is another family.
var versionSuffix = regexp.MustCompile(`^([-@]\d{3,}[-\d]*|[-@](latest|preview|exp)(-\d\d-\d{2,4})?)?$`)

// Find returns what is known of a model: its price and its capabilities, each
// from the longest family that has one and that the model belongs to. A family
// matches its own name and that name with a version behind it.
func (t *Table) Find(provider, model string) Entry {
	families := t.entries[provider]
	model = strings.TrimPrefix(model, "models/")
	var out Entry
	for n := len(model); n > 0; n-- {
		if e, ok := families[model[:n]]; ok && versionSuffix.MatchString(model[n:]) {
			out = out.Or(e)
		}
	}
	return out
}

// ContextTokens is the context window of a model, see Capabilities; 0 when it is
// not known.
func (t *Table) ContextTokens(provider, model string) int64 {
	if c := t.Find(provider, model).Capabilities; c != nil {
		return c.ContextTokens
	}
	return 0
}
