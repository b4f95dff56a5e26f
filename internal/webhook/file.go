package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/internal/configfile"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// MaxBytes is the size of the largest file of hooks.
const MaxBytes = 256 << 10

// Bounds of a file.
const (
	maxProblems = 50
	maxHooks    = 64
	maxItems    = 1000

	defaultTimeout, mostTimeout = 10 * time.Second, 30 * time.Second
)

var fileLimits = yamlfile.Limits{
	Bytes: MaxBytes, Tokens: 20_000, Depth: 6, Values: 10_000,
	Holds: `webhooks by their names, as in "webhooks: {phone: {url: https://push.example, secret_file: phone.secret, ` +
		`events: [interaction.requested]}}"`,
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Around is what a file refers to.
type Around struct {
	// Getenv reads the environment, ReadKey a file that holds a secret alone.
	Getenv  func(name string) string
	ReadKey func(file string) (string, error)
}

// parser reads one file. Problems do not stop it. No message shows a value that may be a secret.
type parser struct {
	around   Around
	env      configfile.Environment
	problems []yamlfile.Problem
}

func (p *parser) problemf(at yamlfile.Position, format string, args ...any) {
	p.problems = append(p.problems, yamlfile.Problem{Position: at, Message: fmt.Sprintf(format, args...)})
}

// Parse returns the hooks of a file, by their names. The error has a line file:line:column for each problem, up to 50,
// and no secret.
func Parse(name string, content []byte, around Around) ([]Hook, error) {
	root, problems := yamlfile.Parse(content, fileLimits)
	p := &parser{around: around, problems: problems, env: configfile.Environment{Getenv: around.Getenv, Most: MaxBytes}}
	var out []Hook
	if root != nil {
		p.mapping(root, fields{"webhooks": func(n *yamlfile.Node) {
			for _, pair := range p.pairs(n) {
				out = append(out, p.hook(pair))
			}
			if len(out) > maxHooks {
				p.problemf(n.Pos, "there are %d webhooks, at most %d are allowed", len(out), maxHooks)
			}
		}})
	}
	if len(p.problems) == 0 {
		slices.SortFunc(out, func(a, b Hook) int { return cmp.Compare(a.Name, b.Name) })
		return out, nil
	}
	slices.SortStableFunc(p.problems, func(a, b yamlfile.Problem) int { return a.Compare(b.Position) })
	var errs []error
	for _, problem := range p.problems[:min(len(p.problems), maxProblems)] {
		errs = append(errs, fmt.Errorf("%s:%w", name, problem))
	}
	return nil, errors.Join(errs...)
}

// fields are the keys of a mapping, with what reads their values.
type fields map[string]func(*yamlfile.Node)

func (p *parser) pairs(n *yamlfile.Node) []yamlfile.Pair {
	if n.Kind != yamlfile.Mapping {
		p.problemf(n.Pos, "want a mapping of keys to values, got %s", n.Kind)
	}
	return n.Pairs
}

// mapping reads a mapping that has these keys and no other.
func (p *parser) mapping(n *yamlfile.Node, known fields) {
	names := slices.Sorted(maps.Keys(known))
	for _, pair := range p.pairs(n) {
		if read := known[pair.Key]; read != nil {
			read(pair.Value)
		} else if near := yamlfile.Nearest(pair.Key, names); near != "" {
			p.problemf(pair.Pos, "unknown key %.64q: did you mean %s?", pair.Key, near)
		} else {
			p.problemf(pair.Pos, "unknown key: known are %s", strings.Join(names, ", "))
		}
	}
}

// hook reads one hook.
func (p *parser) hook(of yamlfile.Pair) Hook {
	h := Hook{Name: of.Key, Timeout: defaultTimeout}
	if !nameRule.MatchString(of.Key) {
		p.problemf(of.Pos, "name %.64q: must be 1 to 64 of A-Z, a-z, 0-9, . _ and -, no sign first", of.Key)
	}
	n := of.Value
	var present, before []Key
	p.mapping(n, fields{
		"url":             func(n *yamlfile.Node) { h.URL = Secret(p.text(n, "a URL")) },
		"secret":          func(n *yamlfile.Node) { present = append(present, p.key(n, p.text(n, "a secret"))) },
		"secret_file":     func(n *yamlfile.Node) { present = append(present, p.keyFile(n)) },
		"old_secret":      func(n *yamlfile.Node) { before = append(before, p.key(n, p.text(n, "a secret"))) },
		"old_secret_file": func(n *yamlfile.Node) { before = append(before, p.keyFile(n)) },
		"events":          func(n *yamlfile.Node) { h.Events = p.events(n) },
		"tenants":         func(n *yamlfile.Node) { h.Tenants = p.texts(n, "the name of a tenant, or \"\" for none") },
		"labels":          func(n *yamlfile.Node) { h.Labels = p.labels(n) },
		"content":         func(n *yamlfile.Node) { h.Content = p.truth(n) },
		"allow":           func(n *yamlfile.Node) { h.Allow = p.networks(n) },
		"timeout":         func(n *yamlfile.Node) { h.Timeout = p.timeout(n) },
	})
	if n.Kind != yamlfile.Mapping {
		return h
	}
	switch {
	case len(present) == 0:
		p.problemf(n.Pos, "webhook %.64q: want secret or secret_file: requests are signed with it", of.Key)
	case len(present) > 1 || len(before) > 1:
		p.problemf(n.Pos, "webhook %.64q: a secret and a file of it are both there: want one of them", of.Key)
	}
	if n.Get("events") == nil {
		p.problemf(n.Pos, "webhook %.64q: events is missing: want some of %s", of.Key, eventNames())
	}
	if at := n.Get("url"); at == nil {
		p.problemf(n.Pos, "webhook %.64q: url is missing", of.Key)
	} else {
		p.checkURL(at.Pos, string(h.URL), len(h.Allow) > 0)
	}
	h.Keys = slices.Concat(present, before)
	return h
}

// checkURL refuses what is no address of a receiver. It may hold a secret, so that no message shows it.
func (p *parser) checkURL(at yamlfile.Position, text string, allows bool) {
	u, err := url.Parse(text)
	switch {
	case text == "":
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		p.problemf(at, "want an https URL, as in https://push.example/agentd")
	case u.User != nil || u.Fragment != "":
		p.problemf(at, "want a URL without a user and a fragment: requests are signed with the secret")
	case u.Scheme == "http" && !allows:
		p.problemf(at, "want https; http is for addresses that are not public, which allow lists")
	}
}

func eventNames() string {
	var names []string
	for _, e := range events {
		names = append(names, string(e))
	}
	return strings.Join(names, ", ")
}

// text returns a text that is not empty, with values of the environment.
func (p *parser) text(n *yamlfile.Node, want string) string {
	if n.Kind != yamlfile.Text || strings.TrimSpace(n.Text) == "" {
		p.problemf(n.Pos, "want %s", want)
		return ""
	}
	return strings.TrimSpace(p.env.Expand(n.Text, func(message string) { p.problemf(n.Pos, "%s", message) }))
}

func (p *parser) key(n *yamlfile.Node, text string) Key {
	if text == "" {
		return ""
	}
	key, err := ParseKey(text)
	if err != nil {
		p.problemf(n.Pos, "%v", err)
	}
	return key
}

func (p *parser) keyFile(n *yamlfile.Node) Key {
	name := p.text(n, "the name of a file that holds a secret")
	if name == "" {
		return ""
	}
	text, err := p.around.ReadKey(name)
	if err != nil {
		p.problemf(n.Pos, "%v", err)
		return ""
	}
	return p.key(n, text)
}

// texts reads a list of texts, which may be empty.
func (p *parser) texts(n *yamlfile.Node, want string) []string {
	if n.Kind != yamlfile.List || len(n.Items) == 0 || len(n.Items) > maxItems {
		p.problemf(n.Pos, "want a list, each of which is %s", want)
		return nil
	}
	var out []string
	for _, item := range n.Items {
		if item.Kind != yamlfile.Text {
			p.problemf(item.Pos, "want %s, got %s", want, item.Shown())
			continue
		}
		out = append(out, item.Text)
	}
	return out
}

func (p *parser) events(n *yamlfile.Node) (out []Event) {
	for _, text := range p.texts(n, "an event") {
		if !slices.Contains(events, Event(text)) {
			p.problemf(n.Pos, "there is no event %.64q: want some of %s", text, eventNames())
			continue
		}
		out = append(out, Event(text))
	}
	return out
}

func (p *parser) labels(n *yamlfile.Node) map[string]string {
	out := map[string]string{}
	for _, pair := range p.pairs(n) {
		if pair.Value.Kind != yamlfile.Text {
			p.problemf(pair.Value.Pos, "want the value of a label, got %s: put it in quotes", pair.Value.Shown())
		}
		out[pair.Key] = pair.Value.Text
	}
	return out
}

func (p *parser) truth(n *yamlfile.Node) bool {
	if n.Kind != yamlfile.Bool {
		p.problemf(n.Pos, "want true or false, got %s", n.Shown())
	}
	return n.Kind == yamlfile.Bool && n.Text == "true"
}

func (p *parser) networks(n *yamlfile.Node) (out []netip.Prefix) {
	for _, text := range p.texts(n, "a network or an address") {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			var addr netip.Addr
			if addr, err = netip.ParseAddr(text); err == nil {
				network = netip.PrefixFrom(addr, addr.BitLen())
			}
		}
		if err != nil {
			p.problemf(n.Pos, "want networks or addresses, as in 10.0.0.0/8 or 127.0.0.1, got %.64q", text)
			continue
		}
		out = append(out, network.Masked())
	}
	return out
}

func (p *parser) timeout(n *yamlfile.Node) time.Duration {
	d, err := time.ParseDuration(n.Text)
	if n.Kind != yamlfile.Text || err != nil || d < time.Second || d > mostTimeout {
		p.problemf(n.Pos, "want a time from 1s to %v, as in 10s, got %s", mostTimeout, n.Shown())
		return defaultTimeout
	}
	return d
}
