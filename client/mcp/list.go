package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/internal/gated"
	"github.com/apzuk3/agentd/client/permit"
)

const (
	// maxListed bounds each list of a server.
	maxListed = 1000
	// maxTools is how many tools the servers of a Build may have that are not deferred.
	maxTools = 100
	// maxDescription is the client's bound.
	maxDescription = 16 << 10
	// maxKnown bounds what the description of read_resource says of the resources there are.
	maxKnown = 4 << 10
	// readResource is the tool of a server that has resources.
	readResource = "read_resource"
)

// listing is what a server has; immutable.
type listing struct {
	tools     []*sdk.Tool
	prompts   []*sdk.Prompt
	resources bool   // there may be some
	known     string // those there are, for a model to read
}

// listAll asks the server what it has.
func (s *Server) listAll(ctx context.Context, c *conn) (listing, error) {
	var l listing
	var err error
	has := c.session.InitializeResult().Capabilities
	if has == nil {
		return l, nil
	}
	if has.Tools != nil {
		if l.tools, err = collect(c.session.Tools(ctx, nil)); err != nil {
			return l, fmt.Errorf("its tools cannot be listed: %w", err)
		}
	}
	if has.Prompts != nil {
		if l.prompts, err = collect(c.session.Prompts(ctx, nil)); err != nil {
			return l, fmt.Errorf("its prompts cannot be listed: %w", err)
		}
	}
	if has.Resources != nil {
		// A list is a convenience: a server may have resources without it.
		l.resources = true
		resources, _ := collect(c.session.Resources(ctx, nil))
		templates, _ := collect(c.session.ResourceTemplates(ctx, nil))
		if c.isLost() || ctx.Err() != nil {
			return l, errors.New("its resources cannot be listed")
		}
		l.known = known(resources, templates)
	}
	return l, nil
}

// collect returns the first maxListed of what there is, without nil.
func collect[T any](all iter.Seq2[*T, error]) ([]*T, error) {
	var out []*T
	for v, err := range all {
		if err != nil {
			return nil, err
		}
		if v != nil {
			out = append(out, v)
		}
		if len(out) == maxListed {
			break
		}
	}
	return out, nil
}

// known lists resources for a model, as far as there is room.
func known(resources []*sdk.Resource, templates []*sdk.ResourceTemplate) string {
	var b strings.Builder
	add := func(uri, about string) bool {
		line := "\n" + oneLine(uri)
		if about = oneLine(about); about != "" {
			line += " " + about
		}
		if b.Len()+len(line) > maxKnown {
			b.WriteString("\n…")
			return false
		}
		b.WriteString(line)
		return true
	}
	for _, t := range templates {
		if !add(t.URITemplate, cmp.Or(t.Description, t.Title, t.Name)) {
			return b.String()
		}
	}
	for _, r := range resources {
		if !add(r.URI, cmp.Or(r.Description, r.Title, r.Name)) {
			return b.String()
		}
	}
	return b.String()
}

func oneLine(s string) string { return clip(strings.Join(strings.Fields(s), " "), 300) }

// clip cuts a text to at most n bytes and makes it UTF-8.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-len("…")], "") + "…"
}

// publish offers what the server has now. When that makes the tools of all servers too many, or few enough again, it
// offers those of the others anew too.
func (b *builder) publish(s *Server) {
	for _, text := range b.publishAll(s) {
		b.notice(text)
	}
}

// publishAll is publish; it returns what is worth a notice, which nobody gets under a lock.
func (b *builder) publishAll(s *Server) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var notices []string
	total := 0
	for _, other := range b.servers {
		total += other.toolCount()
	}
	if defers := total > maxTools; defers != b.defers {
		b.defers = defers
		for _, other := range b.servers {
			if other != s {
				notices = append(notices, other.offer()...)
			}
		}
	}
	return append(notices, s.offer()...)
}

// toolCount is how many tools the server would offer.
func (s *Server) toolCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list.tools)
	if s.list.resources {
		n++
	}
	return n
}

// offer fills the server's set, and returns notices of tools that are left out and were not before. The caller holds
// the builder's mutex.
func (s *Server) offer() []string {
	s.mu.Lock()
	l := s.list
	s.mu.Unlock()
	has := map[string]bool{}
	for _, t := range l.tools {
		has[t.Name] = true
	}
	has[readResource] = has[readResource] || l.resources
	s.b.names.release(s.prefix, has)

	set := client.NewToolSet()
	var offered, notices []string
	seen, told := map[string]bool{}, s.told
	s.told = map[string]bool{}
	for _, t := range l.tools {
		if seen[t.Name] {
			continue // the second of the same name could not be called
		}
		seen[t.Name] = true
		name, err := s.addTool(set, t)
		if err != nil {
			text := fmt.Sprintf("the tool %s of the MCP server %s is left out: %v", clip(t.Name, 100), s.Name, err)
			if s.told[text] = true; !told[text] {
				notices = append(notices, text)
			}
			continue
		}
		offered = append(offered, name)
	}
	if l.resources && !seen[readResource] {
		name := s.b.names.give(s.prefix, s.b.sep, readResource)
		if err := s.addReadResource(set, name, l.known); err == nil {
			offered = append(offered, name)
		}
	}
	slices.Sort(offered)
	s.set.Replace(set)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered = offered
	return notices
}

// addTool adds a tool of the server to a set, or says why it cannot be.
func (s *Server) addTool(set *client.ToolSet, t *sdk.Tool) (string, error) {
	if t.Name == "" {
		return "", errors.New("it has no name")
	}
	opts := s.toolOptions()
	if t.InputSchema != nil {
		schema, err := schemaText(t.InputSchema)
		if err != nil {
			return "", err
		}
		opts = append(opts, client.ToolSchema(schema))
	}
	name := s.b.names.give(s.prefix, s.b.sep, t.Name)
	about := clip(cmp.Or(t.Description, t.Title, t.Name), maxDescription)
	call := func(ctx context.Context, args json.RawMessage) (*client.ToolOutput, error) {
		if err := s.ask(ctx, name); err != nil {
			return nil, err
		}
		if !mayRepeat(t) {
			if err := client.CallFrom(ctx).Begin(); err != nil {
				return nil, err
			}
		}
		res, err := s.callTool(ctx, t, args)
		if err != nil {
			return nil, err
		}
		return s.output(res)
	}
	// An Add that fails would spoil the set.
	if err := client.AddRawTool(client.NewToolSet(), name, about, call, opts...); err != nil {
		return "", err
	}
	return name, client.AddRawTool(set, name, about, call, opts...)
}

// toolOptions are those of all tools.
func (s *Server) toolOptions() []client.ToolOption {
	opts := []client.ToolOption{client.ToolEffect(client.EffectNetwork)}
	if s.b.gate != nil || s.b.elicit != nil {
		// A person may take long to answer; the call itself has a limit of its own.
		opts = append(opts, client.ToolTimeout(maxAnswer))
	}
	if s.b.defers {
		opts = append(opts, client.Deferred())
	}
	return opts
}

// ask asks the gate whether a tool may be called, by the name that models know. Whatever a server says of its tools,
// it is elsewhere.
func (s *Server) ask(ctx context.Context, name string) error {
	if s.b.gate == nil {
		return nil
	}
	ask := permit.Request{Tool: "mcp", Kind: permit.Call, Detail: name, Effect: permit.Network}
	return gated.Check(ctx, s.b.gate, ask)
}

func (s *Server) addReadResource(set *client.ToolSet, name, known string) error {
	about := fmt.Sprintf("Reads a resource of the MCP server %s.", oneLine(s.Name))
	if known != "" {
		about += " These are its resources and templates of them:" + known
	}
	type arguments struct {
		URI string `json:"uri" jsonschema:"the URI of the resource"`
	}
	return client.AddTool(set, name, about, func(ctx context.Context, in arguments) (*client.ToolOutput, error) {
		if err := s.ask(ctx, name); err != nil {
			return nil, err
		}
		var res *sdk.ReadResourceResult
		err := s.request(ctx, true, func(ctx context.Context, c *conn) error {
			ctx, done := s.calling(ctx, c)
			defer done()
			var err error
			res, err = c.session.ReadResource(ctx, &sdk.ReadResourceParams{URI: in.URI})
			if err != nil && errors.Is(context.Cause(ctx), errSlow) {
				return errSlow
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		return s.resource(res), nil
	}, s.toolOptions()...)
}

// schemaText returns the schema of a tool's arguments, or why the daemon would refuse it.
func schemaText(schema any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(schema); err != nil {
		return "", err
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if len(text) > maxSchema {
		return "", fmt.Errorf("its schema has %d bytes, at most %d are allowed", len(text), maxSchema)
	}
	root, ok := schema.(map[string]any)
	if !ok {
		return "", errors.New("its schema is no JSON object")
	}
	if kind, ok := root["type"]; ok && kind != "object" {
		return "", fmt.Errorf(`its schema has the type %v in place of "object"`, kind)
	}
	nodes := 0
	return text, checkSchema(root, 1, &nodes)
}

// Bounds of a schema; the daemon has the same.
const (
	maxSchema      = 32 << 10
	maxSchemaDepth = 16
	maxSchemaNodes = 1000
)

// checkSchema refuses what the daemon refuses: one such tool would fail the run.
func checkSchema(v any, depth int, nodes *int) error {
	if *nodes++; *nodes > maxSchemaNodes {
		return fmt.Errorf("its schema has more than %d values", maxSchemaNodes)
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("its schema nests deeper than %d levels", maxSchemaDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, sub := range v {
			if text, ok := sub.(string); ok {
				switch {
				case key == "$ref" && text != "#" && !strings.HasPrefix(text, "#/"):
					return fmt.Errorf("its schema refers to %q, which is not within it", clip(text, 100))
				case key == "$dynamicRef", key == "$recursiveRef", key == "$id":
					return fmt.Errorf("its schema has %s", key)
				}
			}
			if err := checkSchema(sub, depth+1, nodes); err != nil {
				return err
			}
		}
	case []any:
		for _, sub := range v {
			if err := checkSchema(sub, depth+1, nodes); err != nil {
				return err
			}
		}
	}
	return nil
}
