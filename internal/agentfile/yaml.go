package agentfile

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of what is parsed. The parser recurses, so that depth is bounded by the
// tokens before it runs.
const (
	maxTokens  = 200_000
	maxDepth   = 64
	maxEntries = 32   // "- - - -" on one line
	maxIndent  = 1024 // each level of a block takes a column
	maxAnchors = 100
)

// kind is what a value is.
type kind int

const (
	mappingKind kind = iota
	listKind
	textKind
	numberKind
	boolKind
	nullKind
)

func (k kind) String() string {
	return [...]string{"a mapping", "a list", "text", "a number", "true or false", "nothing"}[k]
}

// node is a value of a file. Aliases share the node that they stand for.
type node struct {
	kind  kind
	text  string // of a scalar: text without its quotes, a number as it is written
	pairs []pair
	items []*node
	pos   Position
}

// pair is a key with its value.
type pair struct {
	key   string
	pos   Position // of the key
	value *node
}

func (n *node) get(key string) *node {
	for _, p := range n.pairs {
		if p.key == key {
			return p.value
		}
	}
	return nil
}

// reader turns a file into nodes. Problems do not stop it.
type reader struct {
	problem func(Position, string, ...any)
	anchors map[string]*node
}

// read returns the value of a file, nil when it has none that can be read.
func read(data []byte, problem func(Position, string, ...any)) *node {
	file := parse(data, problem)
	if file == nil {
		return nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		problem(Position{1, 1}, "the file is empty; it holds an agent, and perhaps tools")
		return nil
	case len(bodies) > 1:
		problem(position(bodies[1]), "a second document begins; a file holds one")
		return nil
	}
	r := &reader{problem: problem, anchors: map[string]*node{}}
	return r.value(bodies[0], 1)
}

// parse runs the parser on what it can take.
func parse(data []byte, problem func(Position, string, ...any)) (file *ast.File) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > MaxBytes {
		problem(Position{1, 1}, "the file has more than %d bytes", MaxBytes)
		return nil
	}
	if !utf8.Valid(data) {
		line := 1
		for rest := range bytes.Lines(data) {
			if !utf8.Valid(rest) {
				break
			}
			line++
		}
		problem(Position{line, 1}, "the line is not UTF-8")
		return nil
	}
	defer func() {
		if p := recover(); p != nil { // a fault of the parser must look like what it is to the user: an odd file
			problem(Position{1, 1}, "the file cannot be parsed: %v", p)
			file = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if pos, what := tooMuch(tokens); what != "" {
		problem(pos, "%s", what)
		return nil
	}
	// Keys that are there twice are found by the reader, all of them.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		if e, ok := errors.AsType[*yaml.SyntaxError](err); ok && e.GetToken() != nil {
			problem(tokenPosition(e.GetToken()), "%s", e.GetMessage())
		} else {
			problem(Position{1, 1}, "the file cannot be parsed: %v", err)
		}
		return nil
	}
	return file
}

// tooMuch says why the parser is not to be shown the tokens, if it is not.
func tooMuch(tokens token.Tokens) (Position, string) {
	if len(tokens) > maxTokens {
		return Position{1, 1}, fmt.Sprintf("the file has more than %d tokens", maxTokens)
	}
	flow, entries, anchors, line := 0, 0, 0, 0
	for _, t := range tokens {
		pos := tokenPosition(t)
		if pos.Line != line {
			line, entries = pos.Line, 0
			if flow == 0 && pos.Column > maxIndent {
				return pos, fmt.Sprintf("the line is indented by more than %d columns", maxIndent)
			}
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		case token.SequenceEntryType:
			entries++
		case token.AnchorType:
			anchors++
		case token.MappingKeyType:
			return pos, `keys that begin with "?" are not understood`
		case token.TagType:
			return pos, fmt.Sprintf("the tag %s is not understood; none is needed", t.Value)
		case token.DirectiveType:
			return pos, "directives are not understood"
		default: // takes no level
		}
		switch {
		case flow > maxDepth || entries > maxEntries:
			return pos, fmt.Sprintf("the file has more than %d levels", maxDepth)
		case anchors > maxAnchors:
			return pos, fmt.Sprintf("the file has more than %d anchors", maxAnchors)
		}
	}
	return Position{}, ""
}

func tokenPosition(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{1, 1}
	}
	return Position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// position is where a value begins; the token of a block mapping is the colon
// behind its first key.
func position(n ast.Node) Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return tokenPosition(m.Values[0].Key.GetToken())
	}
	return tokenPosition(n.GetToken())
}

// value reads one value; what cannot be read becomes nil.
func (r *reader) value(n ast.Node, depth int) *node {
	if n == nil {
		return nil
	}
	pos := position(n)
	if depth > maxDepth {
		r.problem(pos, "the file has more than %d levels", maxDepth)
		return nil
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(pos, n.Values, depth)
	case *ast.MappingValueNode:
		return r.mapping(tokenPosition(n.Key.GetToken()), []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		out := &node{kind: listKind, pos: pos}
		for _, item := range n.Values {
			if v := r.value(item, depth+1); v != nil {
				out.items = append(out.items, v)
			}
		}
		return out
	case *ast.StringNode:
		return plain(n, pos)
	case *ast.LiteralNode:
		return &node{kind: textKind, text: n.Value.Value, pos: pos}
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return &node{kind: numberKind, text: n.GetToken().Value, pos: pos}
	case *ast.BoolNode:
		return &node{kind: boolKind, text: fmt.Sprint(n.Value), pos: pos}
	case *ast.NullNode:
		return &node{kind: nullKind, pos: pos}
	case *ast.AnchorNode:
		v := r.value(n.Value, depth)
		if v != nil { // known from here on: an alias within its own anchor is not
			r.anchors[n.Name.GetToken().Value] = v
		}
		return v
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		v := r.anchors[name]
		if v == nil {
			r.problem(pos, "the alias *%s stands for nothing: no anchor &%s ends before it", name, name)
		}
		return v
	}
	r.problem(pos, "%s is not understood here", strings.ToLower(n.Type().YAMLName()))
	return nil
}

// plain is a text, or a number that YAML would read as text and JSON would not.
func plain(n *ast.StringNode, pos Position) *node {
	if n.Token.Type == token.StringType && jsonNumber(n.Value) {
		return &node{kind: numberKind, text: n.Value, pos: pos}
	}
	return &node{kind: textKind, text: n.Value, pos: pos}
}

func (r *reader) mapping(pos Position, values []*ast.MappingValueNode, depth int) *node {
	out := &node{kind: mappingKind, pos: pos}
	first := map[string]Position{}
	for _, v := range values {
		at := tokenPosition(v.Key.GetToken())
		var key string
		switch k := v.Key.(type) {
		case *ast.MergeKeyNode:
			r.problem(at, "<< is not understood; an alias may stand for a whole value")
			continue
		case *ast.StringNode:
			key = k.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
			key = v.Key.GetToken().Value
		default:
			r.problem(at, "a key has to be text")
			continue
		}
		if before, ok := first[key]; ok {
			r.problem(at, "%q is there twice, first in line %d", key, before.Line)
			continue
		}
		first[key] = at
		if value := r.value(v.Value, depth+1); value != nil {
			out.pairs = append(out.pairs, pair{key: key, pos: at, value: value})
		}
	}
	return out
}
