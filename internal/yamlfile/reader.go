package yamlfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// reader turns a file into nodes. Problems do not stop it.
type reader struct {
	limits   Limits
	problems []Problem
	anchors  map[string]*Node
}

func (r *reader) problemf(pos Position, format string, args ...any) {
	r.problems = append(r.problems, Problem{pos, fmt.Sprintf(format, args...)})
}

// failed reports an error of the library, at its place if it has one.
func (r *reader) failed(prefix string, err error) {
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
		r.problemf(tokenPosition(e.GetToken()), "%s", e.GetMessage())
		return
	}
	r.problemf(Position{1, 1}, "%s%v", prefix, err)
}

// read returns the value of a file, as the library has it and as a node; nil when
// there is none that can be read.
func (r *reader) read(data []byte) (ast.Node, *Node) {
	file := r.parse(data)
	if file == nil {
		return nil, nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		r.problemf(Position{1, 1}, "the file is empty; it holds %s", r.limits.Holds)
		return nil, nil
	case len(bodies) > 1:
		r.problemf(position(bodies[1]), "a second document begins; a file holds one")
		return nil, nil
	}
	r.anchors = map[string]*Node{}
	root := r.value(bodies[0], 1)
	if root != nil && root.values > r.limits.Values {
		r.problemf(root.surplus(r.limits.Values),
			"the file has more than %d values; an alias counts as all that it stands for", r.limits.Values)
		return nil, nil
	}
	return bodies[0], root
}

// parse runs the library's parser on what it can take.
func (r *reader) parse(data []byte) (file *ast.File) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if len(data) > r.limits.Bytes {
		r.problemf(Position{1, 1}, "the file has more than %d bytes", r.limits.Bytes)
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
		r.problemf(Position{line, 1}, "the line is not UTF-8")
		return nil
	}
	defer func() {
		if p := recover(); p != nil { // a fault of the library is an odd file to the user
			r.problemf(Position{1, 1}, "the file cannot be parsed: %v", p)
			file = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if pos, what := r.tooMuch(tokens); what != "" {
		r.problemf(pos, "%s", what)
		return nil
	}
	// mapping reports all keys that are there twice.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.failed("the file cannot be parsed: ", err)
		return nil
	}
	return file
}

// fill sets v to a value of the file.
func (r *reader) fill(body ast.Node, v any) {
	defer func() {
		if p := recover(); p != nil {
			r.problemf(Position{1, 1}, "the file cannot be read: %v", p)
		}
	}()
	if err := yaml.NodeToValue(body, v, yaml.Strict()); err != nil {
		r.failed("", err)
	}
}

// tooMuch says why the library's parser must not see the tokens, if so.
func (r *reader) tooMuch(tokens token.Tokens) (Position, string) {
	if len(tokens) > r.limits.Tokens {
		return Position{1, 1}, fmt.Sprintf("the file has more than %d tokens", r.limits.Tokens)
	}
	flow, dashes, anchors, line := 0, 0, 0, 0
	for _, t := range tokens {
		pos := tokenPosition(t)
		if pos.Line != line {
			line, dashes = pos.Line, 0
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
			dashes++
		case token.AnchorType:
			anchors++
		default:
			if what := notUnderstood(t); what != "" {
				return pos, what
			}
		}
		switch {
		case flow > r.limits.Depth || dashes > min(r.limits.Depth, maxDashes):
			return pos, fmt.Sprintf("the file has more than %d levels", r.limits.Depth)
		case anchors > 0 && r.limits.Anchors == 0:
			return pos, "anchors are not understood here"
		case anchors > r.limits.Anchors:
			return pos, fmt.Sprintf("the file has more than %d anchors", r.limits.Anchors)
		}
	}
	return Position{}, ""
}

// notUnderstood says why a token is none of those that files may have, if so.
func notUnderstood(t *token.Token) string {
	switch t.Type {
	case token.MappingKeyType:
		return `keys that begin with "?" are not understood`
	case token.TagType:
		return fmt.Sprintf("the tag %s is not understood; none is needed", t.Value)
	case token.DirectiveType:
		return "directives are not understood"
	default:
		return ""
	}
}

func tokenPosition(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{1, 1}
	}
	return Position{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// position is where a value begins; the library's token of a block mapping is the
// colon behind its first key.
func position(n ast.Node) Position {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return tokenPosition(m.Values[0].Key.GetToken())
	}
	return tokenPosition(n.GetToken())
}

// value reads one value, with its count of values; nil when it cannot be read.
func (r *reader) value(n ast.Node, depth int) *Node {
	if n == nil {
		return nil
	}
	pos := position(n)
	if depth > r.limits.Depth {
		r.problemf(pos, "the file has more than %d levels", r.limits.Depth)
		return nil
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return r.mapping(pos, n.Values, depth)
	case *ast.MappingValueNode:
		return r.mapping(tokenPosition(n.Key.GetToken()), []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		return r.list(pos, n.Values, depth)
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
			r.problemf(pos, "the alias *%s stands for nothing: no anchor &%s ends before it", name, name)
		}
		return v
	}
	if v := scalar(n, pos); v != nil {
		return v
	}
	r.problemf(pos, "%s is not understood here", strings.ToLower(n.Type().YAMLName()))
	return nil
}

// scalar reads a value that has no values below it, nil if it is none.
func scalar(n ast.Node, pos Position) *Node {
	v := &Node{Pos: pos, values: 1}
	switch n := n.(type) {
	case *ast.StringNode:
		v.Kind, v.Text = Text, n.Value
		if n.Token.Type == token.StringType && JSONNumber(n.Value) { // YAML reads 1e3 as text
			v.Kind = Number
		}
	case *ast.LiteralNode:
		v.Kind, v.Text = Text, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		v.Kind, v.Text = Number, n.GetToken().Value
	case *ast.BoolNode:
		v.Kind, v.Text = Bool, fmt.Sprint(n.Value)
	case *ast.NullNode:
		v.Kind = Null
	default:
		return nil
	}
	return v
}

// JSONNumber reports whether a text is a number as JSON writes it.
func JSONNumber(s string) bool {
	return s != "" && (s[0] == '-' || s[0] >= '0' && s[0] <= '9') && json.Valid([]byte(s))
}

func (r *reader) list(pos Position, items []ast.Node, depth int) *Node {
	out := &Node{Kind: List, Pos: pos, values: 1}
	for _, item := range items {
		if v := r.value(item, depth+1); v != nil {
			out.Items = append(out.Items, v)
			out.add(v)
		}
	}
	return out
}

func (r *reader) mapping(pos Position, values []*ast.MappingValueNode, depth int) *Node {
	out := &Node{Kind: Mapping, Pos: pos, values: 1}
	first := map[string]Position{}
	for _, v := range values {
		at := tokenPosition(v.Key.GetToken())
		var key string
		switch k := v.Key.(type) {
		case *ast.MergeKeyNode:
			r.problemf(at, "<< is not understood; an alias may stand for a whole value")
			continue
		case *ast.StringNode:
			key = k.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
			key = v.Key.GetToken().Value
		default:
			r.problemf(at, "a key has to be text")
			continue
		}
		if before, ok := first[key]; ok {
			r.problemf(at, "%q is there twice, first in line %d", key, before.Line)
			continue
		}
		first[key] = at
		if value := r.value(v.Value, depth+1); value != nil {
			out.Pairs = append(out.Pairs, Pair{Key: key, Pos: at, Value: value})
			out.add(value)
		}
	}
	return out
}

// add counts the values of one below n. Aliases of aliases would overflow.
func (n *Node) add(child *Node) {
	if n.values > math.MaxInt-child.values {
		n.values = math.MaxInt
		return
	}
	n.values += child.values
}
