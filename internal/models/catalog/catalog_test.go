package catalog_test

import (
	"cmp"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/models/catalog"
)

const small = `
date: 2026-01-02
providers:
  acme:
    acme-1:
      price: {input: 2, cached: 0.5, output: 8}
      capabilities: {context_tokens: 1000, output_tokens: 100, inputs: [document, image], thinking: true, tools: true, structured_output: true}
    acme-1-mini:
      price:
        {input: 1, cache_write: 2, cache_write_hour: 3, output: 4, thinking: 5,
         long_from: 200_000, long: {input: 10, output: 40}}
      date: 2026-03-04
    acme-1-2026-02-02:
      price: {input: 3, output: 9}
    acme-2:
      capabilities: {context_tokens: 5}
`

// An entry says where it was read, itself or by its provider, and what lies over it
// says so in its place.
func TestSources(t *testing.T) {
	table := catalog.MustParse("a", `
date: 2026-01-02
sources: {acme: a list}
providers:
  acme:
    one: {price: {input: 1, output: 2}, retires: 2026-05-06}
    two: {price: {input: 1, output: 2}, source: its page}
`)
	if one, two := table.Find("acme", "one"), table.Find("acme", "two"); one.Source != "a list" || one.Retires != "2026-05-06" || two.Source != "its page" || two.Retires != "" {
		t.Errorf("%+v, %+v", one, two)
	}
	over := table.With(catalog.MustParse("b", "{date: 2026-02-03, providers: {acme: {one: {price: {input: 3, output: 4}, source: a contract}}}}"))
	if one := over.Find("acme", "one"); one.Source != "a contract" || one.Retires != "2026-05-06" || one.Price.Input != 3 {
		t.Errorf("%+v", one)
	}
	if _, err := catalog.Parse("c", []byte("{date: 2026-02-03, sources: {acme: [1]}, providers: {acme: {one: {retires: soon}}}}")); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("what is no text and no day: %v", err)
	}
}

// The newest models have a price, and what is no more says so.
func TestBuiltinNewAndRetired(t *testing.T) {
	table := catalog.Builtin()
	for provider, models := range map[string][]string{"anthropic": {"claude-fable-5-2"}, "openai": {"gpt-6.2-sol"}} {
		for _, name := range models {
			if e := table.Find(provider, name); e.Price == nil || e.Capabilities == nil || e.Retires != "" {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	for provider, models := range map[string][]string{
		"anthropic": {"claude-3-haiku-20240307", "claude-opus-4-1"}, "openai": {"o1", "o4-mini", "gpt-4o-2024-05-13"}, "gemini": {"gemini-2.0-flash"},
	} {
		for _, name := range models {
			if day := table.Find(provider, name).Retires; day == "" || day > "2026-11-23" {
				t.Errorf("%s: retires on %q", name, day)
			}
		}
	}
}

// Every built-in entry is plausible, whatever its numbers are.
func TestBuiltinIsSane(t *testing.T) {
	table := catalog.Builtin()
	if day, err := time.Parse(time.DateOnly, table.Date); err != nil || day.Year() < 2026 {
		t.Errorf("date %q", table.Date)
	}
	if got, want := table.Providers(), []string{"anthropic", "gemini", "openai"}; !gocmp.Equal(got, want) {
		t.Errorf("providers %q, want %q", got, want)
	}
	for _, provider := range table.Providers() {
		for _, family := range table.Families(provider) {
			e := table.Find(provider, family)
			if e.Price == nil && e.Capabilities == nil {
				t.Errorf("%s: nothing is known", family)
			}
			if day, err := time.Parse(time.DateOnly, cmp.Or(e.Date, table.Date)); err != nil || day.Format(time.DateOnly) > table.Date {
				t.Errorf("%s: of %s, after the table's day %s", family, e.Date, table.Date)
			}
			if e.Source == "" {
				t.Errorf("%s: nobody knows where it was read", family)
			}
			if _, err := time.Parse(time.DateOnly, e.Retires); e.Retires != "" && err != nil {
				t.Errorf("%s: retires on %q", family, e.Retires)
			}
			if p := e.Price; p != nil {
				sanePrice(t, family, p)
				if provider == "anthropic" && (p.CacheWrite <= p.Input || p.CacheWriteHour <= p.CacheWrite) {
					t.Errorf("%s: writing the cache costs %v, for an hour %v, input %v", family, p.CacheWrite, p.CacheWriteHour, p.Input)
				}
			}
			if c := e.Capabilities; c != nil {
				if c.ContextTokens < 100_000 || c.ContextTokens > 2_000_000 || c.OutputTokens != 0 && c.OutputTokens < 4_000 || c.OutputTokens >= c.ContextTokens || !c.Tools {
					t.Errorf("%s: %+v", family, c)
				}
				if e.Price != nil && e.Price.LongFrom >= c.ContextTokens {
					t.Errorf("%s: long from %d tokens on, context %d", family, e.Price.LongFrom, c.ContextTokens)
				}
			}
		}
	}
}

func sanePrice(t *testing.T, name string, p *catalog.Price) {
	t.Helper()
	saneRates(t, name, p.Rates)
	if p.LongFrom == 0 {
		return
	}
	saneRates(t, name+", long", p.Long)
	if p.Long.Input < p.Input || p.Long.Cached < p.Cached || p.Long.CacheWrite < p.CacheWrite || p.Long.Output < p.Output || p.LongFrom < 100_000 {
		t.Errorf("%s: from %d tokens %+v, before %+v", name, p.LongFrom, p.Long, p.Rates)
	}
}

func saneRates(t *testing.T, name string, r catalog.Rates) {
	t.Helper()
	if r.Input < 0.01 || r.Input > 200 || r.Cached <= 0 || r.Cached > r.Input || r.Output < 2*r.Input || r.Output > 10*r.Input || r.Thinking != r.Output || r.CacheWrite < r.Input || r.CacheWriteHour < r.CacheWrite {
		t.Errorf("%s: %+v", name, r)
	}
}

// A file says what it says, and what it leaves out has its default.
func TestParse(t *testing.T) {
	table := parse(t, small)
	for name, want := range map[string]catalog.Entry{
		"acme-1": {
			Price: &catalog.Price{Rates: catalog.Rates{Input: 2, Cached: 0.5, CacheWrite: 2, CacheWriteHour: 2, Output: 8, Thinking: 8}},
			Capabilities: &catalog.Capabilities{
				ContextTokens: 1000, OutputTokens: 100, Inputs: []string{"image", "document"}, Thinking: true, Tools: true, StructuredOutput: true,
			},
		},
		"acme-1-mini": {
			Price: &catalog.Price{
				Rates:    catalog.Rates{Input: 1, Cached: 1, CacheWrite: 2, CacheWriteHour: 3, Output: 4, Thinking: 5},
				LongFrom: 200_000, Long: catalog.Rates{Input: 10, Cached: 10, CacheWrite: 10, CacheWriteHour: 10, Output: 40, Thinking: 40},
			},
			Date: "2026-03-04",
		},
		"acme-2": {Capabilities: &catalog.Capabilities{ContextTokens: 5}},
		"acme-3": {},
	} {
		if diff := gocmp.Diff(want, table.Find("acme", name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if table.Date != "2026-01-02" || table.ContextTokens("acme", "acme-1") != 1000 || table.ContextTokens("acme", "acme-1-mini") != 0 || table.ContextTokens("", "acme-1") != 0 {
		t.Errorf("date %q, contexts %d and %d", table.Date, table.ContextTokens("acme", "acme-1"), table.ContextTokens("acme", "acme-1-mini"))
	}
	// A version with a price of its own can do what its family can.
	if e := table.Find("acme", "acme-1-2026-02-02"); e.Price.Input != 3 || e.Capabilities == nil || e.Capabilities.ContextTokens != 1000 {
		t.Errorf("a version: %+v", e)
	}
}

// A model belongs to the longest family that its name begins with, unless more
// than a version follows.
func TestFind(t *testing.T) {
	for _, c := range []struct {
		provider, model string
		want            float64 // of a million output tokens; 0: unknown
	}{
		{"gemini", "gemini-2.5-flash", 2.50},
		{"gemini", "models/gemini-2.5-flash", 2.50},
		{"gemini", "gemini-2.5-flash-001", 2.50},
		{"gemini", "gemini-2.5-flash-preview-09-2025", 2.50},
		{"gemini", "gemini-2.5-flash-lite", 0.40},
		{"gemini", "gemini-2.5-flash-image", 0},
		{"gemini", "gemini-2.5-pro-preview-tts", 0},
		{"gemini", "gemini-3-pro-preview", 12},
		{"gemini", "gemini-2.5", 0},
		{"anthropic", "claude-opus-4-20250514", 75},
		{"anthropic", "claude-opus-4@20250514", 75},
		{"anthropic", "claude-opus-4-5-20251101", 25},
		{"anthropic", "claude-opus-4-99", 0},
		{"anthropic", "claude-3-5-haiku-latest", 4},
		{"anthropic", "claude-opus-5", 25},
		{"anthropic", "claude-opus-5-5", 20},
		{"anthropic", "claude-fable-5-9", 0},
		{"openai", "gpt-4o-2024-08-06", 10},
		{"openai", "gpt-4o-2024-05-13", 15},
		{"openai", "gpt-4o-mini-2024-07-18", 0.60},
		{"openai", "gpt-4o-audio-preview", 0},
		{"openai", "gpt-5-chat-latest", 10},
		{"openai", "gpt-5.4-pro", 0},
		{"openai", "gpt-6.1-sol", 10},
		{"openai", "gpt-6.1", 0},
		{"openai", "o1-pro", 600},
		{"openai", "o3-deep-research", 0},
		{"openai", "ft:gpt-4o-mini-2024-07-18:acme::abc", 0},
		{"openai", "", 0},
		{"acme", "gpt-5", 0},
	} {
		e := catalog.Builtin().Find(c.provider, c.model)
		if c.want == 0 {
			if e.Price != nil || e.Capabilities != nil {
				t.Errorf("%s/%s: %+v, want nothing", c.provider, c.model, e)
			}
			continue
		}
		if e.Price == nil || e.Price.Output != c.want {
			t.Errorf("%s/%s: %+v, want an output price of %v", c.provider, c.model, e, c.want)
		}
	}
}

// A table laid over another one wins where it says something, and only there.
func TestWith(t *testing.T) {
	base, over := parse(t, small), parse(t, `
date: 2026-05-05
providers:
  acme:
    acme-1: {price: {input: 1, output: 1}}
    acme-2: {price: {input: 7, output: 7}, date: 2026-01-02}
    acme-1-mini: {capabilities: {context_tokens: 77}}
  other:
    o: {price: {input: 0, output: 0}, date: 2026-06-06}
`)
	got := base.With(over)
	for _, c := range []struct {
		provider, model string
		input           float64
		date            string
		context         int64
	}{
		{"acme", "acme-1", 1, "2026-05-05", 1000},
		{"acme", "acme-2", 7, "", 5},
		{"acme", "acme-1-mini", 1, "2026-03-04", 77},
		{"acme", "acme-1-2026-02-02", 3, "", 1000},
		{"other", "o", 0, "2026-06-06", 0},
	} {
		e := got.Find(c.provider, c.model)
		if e.Price == nil || e.Price.Input != c.input || e.Date != c.date || got.ContextTokens(c.provider, c.model) != c.context {
			t.Errorf("%s: %+v of %q, context %d; want %+v", c.model, e.Price, e.Date, got.ContextTokens(c.provider, c.model), c)
		}
	}
	if got.Date != "2026-01-02" {
		t.Errorf("date %q", got.Date)
	}
	if e := base.Find("acme", "acme-1"); e.Price.Input != 2 || len(base.Providers()) != 1 || len(over.Families("acme")) != 3 {
		t.Errorf("the tables themselves have changed: %+v, %q", e.Price, base.Providers())
	}
}

func TestCost(t *testing.T) {
	p := &catalog.Price{
		Rates:    catalog.Rates{Input: 1, Cached: 0.1, CacheWrite: 1.25, CacheWriteHour: 2, Output: 4, Thinking: 5},
		LongFrom: 1000, Long: catalog.Rates{Input: 10, Cached: 1, CacheWrite: 12.5, CacheWriteHour: 20, Output: 40, Thinking: 50},
	}
	for name, c := range map[string]struct {
		tokens catalog.Tokens
		want   int64 // millionths of a dollar
	}{
		"nothing":        {catalog.Tokens{}, 0},
		"each":           {catalog.Tokens{Input: 100, Cached: 100, CacheWrite: 100, CacheWriteHour: 100, Output: 100, Thinking: 100}, 100 + 10 + 125 + 200 + 400 + 500},
		"just not long":  {catalog.Tokens{Input: 400, Cached: 300, CacheWrite: 200, CacheWriteHour: 100, Output: 5000}, 400 + 30 + 250 + 200 + 20_000},
		"long":           {catalog.Tokens{Input: 401, Cached: 300, CacheWrite: 200, CacheWriteHour: 100, Output: 1, Thinking: 1}, 4010 + 300 + 2500 + 2000 + 40 + 50},
		"below zero":     {catalog.Tokens{Input: -5, Cached: -5, CacheWrite: -5, CacheWriteHour: -5, Output: -5, Thinking: -5}, 0},
		"not compounded": {catalog.Tokens{Input: 10, Cached: -5}, 10},
	} {
		if got := p.Cost(c.tokens); got != c.want*1000 {
			t.Errorf("%s: %v, want %v", name, got, c.want*1000)
		}
	}
}

// What no int64 holds is the greatest one; a fraction of a billionth is rounded.
func TestCostIsExact(t *testing.T) {
	dear := &catalog.Price{Rates: catalog.Rates{
		Input: 1e6, Cached: 1e6, CacheWrite: 1e6, CacheWriteHour: 1e6, Output: 1e6, Thinking: 1e6,
	}}
	const most = math.MaxInt64
	if got := dear.Cost(catalog.Tokens{Input: most, Cached: most, Output: most, Thinking: most}); got != most {
		t.Errorf("all that can be costs %d", got)
	}
	if got := dear.Cost(catalog.Tokens{Input: 9_223_372_035, Thinking: 1}); got != 9_223_372_036_000_000_000 {
		t.Errorf("nearly that costs %d", got)
	}
	for rate, want := range map[float64]int64{0.1: 100, 0.07: 70, 1e-3: 1, 0.0004: 0, 0.0005: 1, 0.123456789: 123} {
		p := &catalog.Price{Rates: catalog.Rates{Input: rate}}
		if got := p.Cost(catalog.Tokens{Input: 1}); got != want {
			t.Errorf("a token at %v costs %d, want %d", rate, got, want)
		}
	}
}

// A call never costs less than nothing, nor less than one with fewer tokens.
func TestCostIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(0, 1000)
		rates := func(least catalog.Rates) catalog.Rates {
			return catalog.Rates{
				Input: least.Input + rate.Draw(t, "input"), Cached: least.Cached + rate.Draw(t, "cached"),
				CacheWrite: least.CacheWrite + rate.Draw(t, "write"), CacheWriteHour: least.CacheWriteHour + rate.Draw(t, "hour"),
				Output: least.Output + rate.Draw(t, "output"), Thinking: least.Thinking + rate.Draw(t, "thinking"),
			}
		}
		p := &catalog.Price{Rates: rates(catalog.Rates{})}
		if rapid.Bool().Draw(t, "steps") {
			p.LongFrom, p.Long = rapid.Int64Range(1, 2e6).Draw(t, "from"), rates(p.Rates)
		}
		count := rapid.Int64Range(-10, 2e6)
		tokens := catalog.Tokens{
			Input: count.Draw(t, "i"), Cached: count.Draw(t, "c"), CacheWrite: count.Draw(t, "w"), CacheWriteHour: count.Draw(t, "h"),
			Output: count.Draw(t, "o"), Thinking: count.Draw(t, "t"),
		}
		before := p.Cost(tokens)
		if before < 0 {
			t.Fatalf("%+v costs %v", tokens, before)
		}
		counts := []*int64{&tokens.Input, &tokens.Cached, &tokens.CacheWrite, &tokens.CacheWriteHour, &tokens.Output, &tokens.Thinking}
		*rapid.SampledFrom(counts).Draw(t, "which") += rapid.Int64Range(0, 1e6).Draw(t, "more")
		if after := p.Cost(tokens); after < before {
			t.Fatalf("%+v costs %v, less than %v with fewer tokens", tokens, after, before)
		}
	})
}

// What is wrong with a file is told with its place.
func TestParseRefuses(t *testing.T) {
	const head = "date: 2026-01-02\nproviders:\n  acme:\n    a:\n"
	const price = "      price: {input: 1, output: 2"
	for name, c := range map[string]struct{ text, want string }{
		"empty":                   {"", "f.yaml:1:1: the file is empty"},
		"only a comment":          {"# no\n", "f.yaml:1:1: the file is empty"},
		"no date":                 {"providers: {}\n", "f.yaml:1:1: date is missing"},
		"bad date":                {"date: 2026-02-30\n", `f.yaml:1:7: want a day, as in 2026-07-24, got the text "2026-02-30"`},
		"date that is a list":     {"date: [1]\n", `f.yaml:1:7: want a day, as in 2026-07-24, got a list`},
		"unknown key":             {"date: 2026-01-02\nprice: 3\n", `f.yaml:2:1: unknown key "price"; known are date, providers`},
		"unknown key of an entry": {head + "      prices: {}\n", `f.yaml:5:7: unknown key "prices"; known are capabilities, date, price`},
		"unknown rate":            {head + price + ", outputs: 3}\n", `f.yaml:5:36: unknown key "outputs"`},
		"unknown ability":         {head + "      capabilities: {vision: true}\n", `f.yaml:5:22: unknown key "vision"`},
		"twice":                   {"date: 2026-01-02\ndate: 2026-01-03\n", `f.yaml:2:1: "date" is there twice`},
		"a family twice":          {head + price + "}\n    a:\n" + price + "}\n", `f.yaml:6:5: "a" is there twice`},
		"no list of families":     {"date: 2026-01-02\nproviders:\n  acme: [a]\n", `f.yaml:3:9: want a mapping of keys to values, got a list`},
		"nothing":                 {head, `f.yaml:4:`},
		"name":                    {"date: 2026-01-02\nproviders:\n  'a b': {}\n", `f.yaml:3:3: want the name of a provider, got "a b"`},
		"negative":                {head + "      price: {input: -1, output: 2}\n", `f.yaml:5:22: -1 is no price`},
		"no number":               {head + "      price: {input: cheap, output: 2}\n", `f.yaml:5:22: want US dollars per million tokens, as in 0.25, got the text "cheap"`},
		"not a number":            {head + "      price: {input: .nan, output: 2}\n", `f.yaml:5:22: want US dollars per million tokens`},
		"infinite":                {head + "      price: {input: inf, output: 2}\n", `f.yaml:5:22: inf is no price`},
		"no input":                {head + "      price: {output: 2}\n", `f.yaml:5:14: input is missing`},
		"long alone":              {head + price + ", long_from: 5}\n", `long_from and long belong together`},
		"no long_from":            {head + price + ", long: {input: 1, output: 1}}\n", `long_from and long belong together`},
		"long without output":     {head + price + ", long_from: 5, long: {input: 1}}\n", `output is missing`},
		"long within long":        {head + price + ", long_from: 5, long: {input: 1, output: 1, long_from: 5}}\n", `unknown key "long_from"`},
		"date without price":      {head + "      date: 2026-01-02\n", `f.yaml:5:7: a date without a price`},
		"no tokens":               {head + "      capabilities: {context_tokens: 0}\n", `f.yaml:5:38: want a number of tokens from 1 to`},
		"half a token":            {head + "      capabilities: {context_tokens: 1.5}\n", `want a number of tokens`},
		"yes":                     {head + "      capabilities: {tools: yes}\n", `f.yaml:5:29: want true or false, got the text "yes"`},
		"unknown input":           {head + "      capabilities: {inputs: [image, smell]}\n", `f.yaml:5:38: want one of image, audio, video, document, got the text "smell"`},
		"input twice":             {head + "      capabilities: {inputs: [image, image]}\n", `"image" is there twice`},
		"inputs are text":         {head + "      capabilities: {inputs: image}\n", `want a list of kinds of file`},
		"anchor":                  {head + "      price: &p {input: 1, output: 2}\n", `f.yaml:5:14: anchors are not understood here`},
		"two documents":           {"date: 2026-01-02\n---\ndate: 2026-01-02\n", `a second document begins`},
		"syntax":                  {"date: [1\n", `f.yaml:1:7:`},
		"tabs":                    {"date:\t2026\n\tx: y\n", `f.yaml:`},
		"deep":                    {"date: " + strings.Repeat("[", 1000) + "\n", `f.yaml:1:15: the file has more than 8 levels`},
		"dashes":                  {strings.Repeat("- ", 1000) + "\n", `f.yaml:1:17: the file has more than 8 levels`},
		"far":                     {strings.Repeat(" ", 2000) + "a: 1\n", `f.yaml:1:2001: the line is indented by more than 1024 columns`},
		"not text":                {"date: \xff\n", "f.yaml:1:1: the line is not UTF-8"},
		"large":                   {strings.Repeat("#\n", 1<<20), "f.yaml:1:1: the file has more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := catalog.Parse("f.yaml", []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

// All that is wrong is told at once, up to a bound.
func TestParseReportsAllErrors(t *testing.T) {
	_, err := catalog.Parse("f", []byte("date: x\nprice: 3\nproviders: 3\n"))
	if err == nil || len(strings.Split(err.Error(), "\n")) != 3 {
		t.Errorf("%v", err)
	}
	_, err = catalog.Parse("f", []byte("providers:\n  a:\n"+strings.Repeat("    x: 3\n", 1000)))
	if lines := len(strings.Split(err.Error(), "\n")); lines > 20 {
		t.Errorf("%d lines", lines)
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(p.(string), "f:1:1") {
			t.Errorf("MustParse: %v", p)
		}
	}()
	catalog.MustParse("f", "")
}

// Parsing ends, and what it takes can be asked.
func FuzzParse(f *testing.F) {
	f.Add(small)
	f.Add("date: 2026-01-02\nproviders: {a: {b: {price: {input: 1e3, output: 0x10}}}}")
	f.Add("? a\n: b\n--- \n- - -\n")
	f.Add("a: &x [*x]\n<<: {}\n!!t y: |\n  z\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := catalog.Parse("f", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("no place: %v", err)
			}
			return
		}
		over := catalog.Builtin().With(table)
		for _, provider := range table.Providers() {
			for _, family := range table.Families(provider) {
				e := over.Find(provider, family)
				if e.Price == nil {
					continue
				}
				if nanos := e.Price.Cost(catalog.Tokens{Input: 1e9, Cached: 1, CacheWrite: 1, CacheWriteHour: 1, Output: 1, Thinking: 1}); nanos < 0 {
					t.Errorf("%s costs %v", family, nanos)
				}
			}
		}
	})
}

func parse(t *testing.T, text string) *catalog.Table {
	t.Helper()
	table, err := catalog.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// The file that the documentation shows is one.
func TestDocumentedFile(t *testing.T) {
	page, err := os.ReadFile("../../../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n```yaml\n")
	text, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatal("docs/providers.md shows no file")
	}
	e := parse(t, text).Find("acme", "rocket-1")
	want := catalog.Price{
		Rates:    catalog.Rates{Input: 2, Cached: 0.5, CacheWrite: 2.5, CacheWriteHour: 4, Output: 8, Thinking: 10},
		LongFrom: 200_000, Long: catalog.Rates{Input: 4, Cached: 4, CacheWrite: 4, CacheWriteHour: 4, Output: 12, Thinking: 12},
	}
	if e.Price == nil || *e.Price != want || e.Capabilities == nil || len(e.Capabilities.Inputs) != 2 {
		t.Errorf("%+v, want %+v", e, want)
	}
}
