// Package backendfile is a part of agentd, not an API: it reads the file in which an operator names backends, the
// servers that may run agents of a tree.
//
//	desk: {kind: managed-agents, url: "https://agents.example", key_env: DESK_KEY}
//	lab: {kind: agentd, url: "https://agentd.lab.example", key_env: LAB_KEY}
//	claims: {kind: agentcore, arn: "arn:aws:bedrock-agentcore:eu-central-1:123456789012:harness/claims"}
//
// It knows neither what backends speak, nor agents. No error holds a key.
package backendfile

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/yamlfile"
)

// MaxBytes is the size of the largest file.
const MaxBytes = 256 << 10

// maxProblems bounds the problems that an error has, maxBackends the backends of a file.
const (
	maxProblems = 50
	maxBackends = 256
)

var limits = yamlfile.Limits{
	Bytes: MaxBytes, Tokens: 20_000, Depth: 4, Values: 5_000,
	Holds: `names of backends, as in "desk: {kind: agentd, url: https://agentd.example, key_env: DESK_KEY}"`,
}

// The kinds of backends.
const (
	Managed   = "managed-agents"
	AgentCore = "agentcore"
	Agentd    = "agentd"
)

var kinds = []string{AgentCore, Agentd, Managed}

// nameRule is what the name of a backend looks like, variableRule that of a variable of the environment.
var (
	nameRule     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	variableRule = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)
)

// Backend is a backend of a file.
type Backend struct {
	// Kind is one of the kinds.
	Kind string
	// URL is where it is; of a harness of AgentCore it may be empty.
	URL string
	// ARN names a harness of AgentCore.
	ARN string
	// Key is the value of the variable that the file names; empty where it names none.
	Key string
}

// parser reads one file. Problems do not stop it.
type parser struct {
	getenv   func(string) string
	problems []yamlfile.Problem
}

func (p *parser) problemf(at yamlfile.Position, format string, args ...any) {
	p.problems = append(p.problems, yamlfile.Problem{Position: at, Message: fmt.Sprintf(format, args...)})
}

// Parse returns the backends of a file by their names. getenv reads the environment. The error has a line
// file:line:column for each problem, up to 50.
func Parse(name string, data []byte, getenv func(string) string) (map[string]Backend, error) {
	root, problems := yamlfile.Parse(data, limits)
	p := &parser{getenv: getenv, problems: problems}
	out := map[string]Backend{}
	switch {
	case root == nil:
	case root.Kind != yamlfile.Mapping:
		p.problemf(root.Pos, "want %s, got %s", limits.Holds, root.Kind)
	case len(root.Pairs) > maxBackends:
		p.problemf(root.Pos, "there are %d backends, at most %d are allowed", len(root.Pairs), maxBackends)
	default:
		for _, pair := range root.Pairs {
			if !nameRule.MatchString(pair.Key) {
				p.problemf(pair.Pos, "name %.64q: must be 1 to 64 of A-Z, a-z, 0-9, . _ and -, no sign first",
					pair.Key)
			}
			out[pair.Key] = p.backend(pair)
		}
	}
	if len(p.problems) == 0 {
		return out, nil
	}
	slices.SortStableFunc(p.problems, func(a, b yamlfile.Problem) int { return a.Compare(b.Position) })
	var errs []error
	for _, problem := range p.problems[:min(len(p.problems), maxProblems)] {
		errs = append(errs, fmt.Errorf("%s:%w", name, problem))
	}
	return nil, errors.Join(errs...)
}

func (p *parser) backend(of yamlfile.Pair) (out Backend) {
	n := of.Value
	if n.Kind != yamlfile.Mapping {
		p.problemf(n.Pos, "backend %.64q: want kind, url or arn, and key_env, got %s", of.Key, n.Kind)
		return out
	}
	read := map[string]func(*yamlfile.Node){
		"kind": func(n *yamlfile.Node) { out.Kind = p.kind(n) },
		"url":  func(n *yamlfile.Node) { out.URL = p.url(n) },
		"arn":  func(n *yamlfile.Node) { out.ARN = p.text(n, "the ARN of a harness") },
		"key_env": func(n *yamlfile.Node) {
			out.Key = p.key(n)
		},
	}
	known := slices.Sorted(maps.Keys(read))
	for _, pair := range n.Pairs {
		if f := read[pair.Key]; f != nil {
			f(pair.Value)
		} else if near := yamlfile.Nearest(pair.Key, known); near != "" {
			p.problemf(pair.Pos, "unknown key %.64q: did you mean %s?", pair.Key, near)
		} else {
			p.problemf(pair.Pos, "unknown key: known are %s", strings.Join(known, ", "))
		}
	}
	has := func(key string) bool { return n.Get(key) != nil }
	switch {
	case !has("kind"):
		p.problemf(n.Pos, "backend %.64q: kind is missing: want one of %s", of.Key, strings.Join(kinds, ", "))
	case out.Kind == AgentCore && !has("arn"):
		p.problemf(n.Pos, "backend %.64q: arn is missing: it names the harness", of.Key)
	case out.Kind != AgentCore && out.Kind != "" && has("arn"):
		p.problemf(n.Get("arn").Pos, "a backend of kind %s has a url, no arn", out.Kind)
	case out.Kind != AgentCore && out.Kind != "" && !has("url"):
		p.problemf(n.Pos, "backend %.64q: url is missing", of.Key)
	}
	return out
}

// text returns a text that is not empty. What is there in its place may be a key, so that no message shows it.
func (p *parser) text(n *yamlfile.Node, want string) string {
	if n.Kind != yamlfile.Text || strings.TrimSpace(n.Text) == "" {
		p.problemf(n.Pos, "want %s", want)
		return ""
	}
	return strings.TrimSpace(n.Text)
}

func (p *parser) kind(n *yamlfile.Node) string {
	text := p.text(n, "one of "+strings.Join(kinds, ", "))
	if text != "" && !slices.Contains(kinds, text) {
		p.problemf(n.Pos, "want one of %s, got %s", strings.Join(kinds, ", "), n.Shown())
		return ""
	}
	return text
}

// url reads a URL. It may hold a password, so that no message shows it.
func (p *parser) url(n *yamlfile.Node) string {
	text := p.text(n, "an https URL, as in https://agents.example")
	u, err := url.Parse(text)
	switch {
	case text == "":
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		p.problemf(n.Pos, "want an https URL, as in https://agents.example")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		p.problemf(n.Pos,
			"want a URL without a user, a query and a fragment: the key is in the variable that key_env names")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		p.problemf(n.Pos, "want https, or http at a loopback address: the key and the conversation go there")
	}
	return text
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

// key returns the value of the variable that holds the key. The name may be a key by mistake, so that no message shows
// it unless it looks like a name.
func (p *parser) key(n *yamlfile.Node) string {
	name := p.text(n, "the name of an environment variable that holds the key")
	switch {
	case name == "":
		return ""
	case !variableRule.MatchString(name):
		p.problemf(n.Pos, "want the name of an environment variable that holds the key: letters, digits and _")
		return ""
	}
	value := strings.TrimSpace(p.getenv(name))
	switch {
	case value == "":
		p.problemf(n.Pos, "the environment variable is not set, or is empty")
	case len(value) > 64<<10 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		p.problemf(n.Pos, "the variable's value is no key: want letters, digits and signs, on one line")
		return ""
	}
	return value
}
