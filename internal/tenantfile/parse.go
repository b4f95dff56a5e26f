package tenantfile

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apzuk3/agentd/internal/configfile"
	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// Bounds of values, beyond which they are a slip.
const (
	maxCost   = 1e12
	maxModels = 1000
	maxKey    = 64 << 10
)

// patternRule is what the names of models look like, with *.
var patternRule = regexp.MustCompile(`^[A-Za-z0-9._:/@+*-]{1,256}$`)

// parser reads one file. Problems do not stop it.
type parser struct {
	file     string
	around   Around
	env      configfile.Environment
	problems []yamlfile.Problem
}

func (p *parser) problemf(at yamlfile.Position, format string, args ...any) {
	p.problems = append(p.problems, yamlfile.Problem{Position: at, Message: fmt.Sprintf(format, args...)})
}

// fields are the keys of a mapping, with what reads their values.
type fields map[string]func(*yamlfile.Node)

// pairs returns the keys and values of a mapping. What is there in its place may be a key: no message shows it.
func (p *parser) pairs(n *yamlfile.Node) []yamlfile.Pair {
	if n.Kind != yamlfile.Mapping {
		p.problemf(n.Pos, "want a mapping of keys to values, got %s", n.Kind)
	}
	return n.Pairs
}

// mapping reads a mapping that has these keys and no other.
func (p *parser) mapping(n *yamlfile.Node, known fields) {
	for _, pair := range p.pairs(n) {
		if read := known[pair.Key]; read != nil {
			read(pair.Value)
			continue
		}
		p.unknown(pair, "key", slices.Sorted(maps.Keys(known)))
	}
}

// unknown reports a key that is none of names. It may be a secret at a wrong place, so that only one is shown that is
// like a name.
func (p *parser) unknown(pair yamlfile.Pair, what string, names []string) {
	if near := yamlfile.Nearest(pair.Key, names); near != "" {
		p.problemf(pair.Pos, "unknown %s %q: did you mean %s?", what, pair.Key, near)
		return
	}
	p.problemf(pair.Pos, "unknown %s: known are %s", what, strings.Join(names, ", "))
}

func (p *parser) tenant(n *yamlfile.Node) (t Tenant) {
	if n.Kind == yamlfile.Null {
		return t
	}
	p.mapping(n, fields{
		"day_budget":   func(n *yamlfile.Node) { t.Day = p.amount(n) },
		"month_budget": func(n *yamlfile.Node) { t.Month = p.amount(n) },
		"own_keys":     func(n *yamlfile.Node) { t.OwnKeys = p.truth(n) },
		"models":       func(n *yamlfile.Node) { t.Models = p.models(n) },
		"prices":       func(n *yamlfile.Node) { t.Prices, t.PricesAt = p.prices(n) },
		"providers":    func(n *yamlfile.Node) { t.Providers = p.providers(n) },
	})
	return t
}

func (p *parser) amount(n *yamlfile.Node) *Amount {
	out := &Amount{}
	p.mapping(n, fields{
		"tokens": func(n *yamlfile.Node) {
			v, err := strconv.ParseInt(strings.ReplaceAll(n.Text, "_", ""), 10, 64)
			if out.Tokens = v; err != nil || v < 0 {
				p.problemf(n.Pos, "want a number of tokens of at least 0, got %s", n.Shown())
			}
		},
		"cost": func(n *yamlfile.Node) {
			v, err := strconv.ParseFloat(n.Text, 64)
			if out.Cost = v; err != nil || !(v >= 0 && v < maxCost) {
				p.problemf(n.Pos, "want US dollars of at least 0, as in 2.5, got %s", n.Shown())
			}
		},
	})
	return out
}

func (p *parser) truth(n *yamlfile.Node) bool {
	if n.Kind != yamlfile.Bool {
		p.problemf(n.Pos, "want true or false, got %s", n.Kind)
	}
	return n.Kind == yamlfile.Bool && n.Text == "true"
}

func (p *parser) models(n *yamlfile.Node) []string {
	if n.Kind != yamlfile.List {
		p.problemf(n.Pos, "want a list of names of models, as in [gemini-*, gpt-4o]; without the key all may be used")
		return nil
	}
	if len(n.Items) > maxModels {
		p.problemf(n.Pos, "there are %d models, at most %d are allowed: use *, which is any text", len(n.Items),
			maxModels)
		return nil
	}
	out := []string{}
	for _, item := range n.Items {
		switch {
		case item.Kind != yamlfile.Text || !patternRule.MatchString(item.Text):
			p.problemf(item.Pos, "want the name of a model, in which * is any text, as in gemini-*, got %s",
				item.Shown())
		case slices.Contains(out, item.Text):
			p.problemf(item.Pos, "%q is there twice", item.Text)
		default:
			out = append(out, item.Text)
		}
	}
	return out
}

func (p *parser) prices(n *yamlfile.Node) (*catalog.Table, string) {
	if n.Kind == yamlfile.Mapping {
		table, problems := catalog.Read(n)
		p.problems = append(p.problems, problems...)
		return table, fmt.Sprintf("%s:%d:%d", p.file, n.Pos.Line, n.Pos.Column)
	}
	file := p.text(n, "a table of prices, or the name of a file that holds one")
	if file == "" {
		return nil, ""
	}
	table, err := p.around.ReadPrices(file)
	if err != nil {
		p.problemf(n.Pos, "%v", err)
	}
	return table, file
}

func (p *parser) providers(n *yamlfile.Node) map[string]Provider {
	out := map[string]Provider{}
	for _, pair := range p.pairs(n) {
		if _, ok := p.around.Providers[pair.Key]; !ok {
			p.unknown(pair, "provider", slices.Sorted(maps.Keys(p.around.Providers)))
			continue
		}
		out[pair.Key] = p.provider(pair)
	}
	return out
}

func (p *parser) provider(of yamlfile.Pair) (out Provider) {
	var key, file string
	p.mapping(of.Value, fields{
		"api_key":      func(n *yamlfile.Node) { key = p.key(n, p.text(n, "a key")) },
		"api_key_file": func(n *yamlfile.Node) { file = p.keyFile(n) },
		"base_url":     func(n *yamlfile.Node) { out.BaseURL = p.address(n, of.Key) },
	})
	has := func(name string) bool { return of.Value.Get(name) != nil }
	switch {
	case has("api_key") && has("api_key_file"):
		p.problemf(of.Value.Pos, "api_key and api_key_file are both there: want one of them")
	case of.Value.Kind == yamlfile.Mapping && len(of.Value.Pairs) == 0:
		p.problemf(of.Value.Pos,
			"want api_key, api_key_file or base_url; own_keys: true keeps the server's keys from the tenant")
	}
	out.Key = Secret(key + file)
	return out
}

// key checks a key, which is text.
func (p *parser) key(n *yamlfile.Node, text string) string {
	text = strings.TrimSpace(text)
	if len(text) > maxKey || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		p.problemf(n.Pos, "want a key: at most %d letters, digits and signs, on one line", maxKey)
		return ""
	}
	return text
}

func (p *parser) keyFile(n *yamlfile.Node) string {
	name := p.text(n, "the name of a file that holds a key")
	if name == "" {
		return ""
	}
	text, err := p.around.ReadKey(name)
	if err != nil {
		p.problemf(n.Pos, "api_key_file: %v", err)
		return ""
	}
	return p.key(n, text)
}

// address reads a URL. It may hold a password, so that no message shows it.
func (p *parser) address(n *yamlfile.Node, provider string) string {
	if !p.around.Providers[provider] {
		p.problemf(n.Pos, "the address of %s cannot be set: a program that hosts agentd serves it", provider)
		return ""
	}
	text := p.text(n, "a URL")
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		p.problemf(n.Pos, "want an http or https URL, as in https://models.example/v1")
	}
	return text
}

// text returns a text that is not empty, with values of the environment. What is there in its place may be a key, so
// that no message shows it.
func (p *parser) text(n *yamlfile.Node, want string) string {
	switch {
	case n.Kind == yamlfile.Number || n.Kind == yamlfile.Bool:
		p.problemf(n.Pos, "want %s, got %s: put it in quotes if it is one", want, n.Kind)
		return ""
	case n.Kind != yamlfile.Text || strings.TrimSpace(n.Text) == "":
		p.problemf(n.Pos, "want %s", want)
		return ""
	}
	return p.env.Expand(n.Text, func(message string) { p.problemf(n.Pos, "%s", message) })
}
