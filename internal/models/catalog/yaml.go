package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	yamlparser "github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes is how large a file may be.
const MaxBytes = 1 << 20

// Bounds of a file. The YAML parser recurses, so depth is bounded before it runs:
// by brackets, by columns, and by dashes in a line.
const (
	maxBrackets = 8
	maxColumn   = 400
	maxDashes   = 4
	maxProblems = 20
)

// problemf keeps what is wrong with a value.
func (p *parser) problemf(n ast.Node, format string, args ...any) {
	p.problemAtf(start(n), format, args...)
}

func (p *parser) problemAtf(t *token.Token, format string, args ...any) {
	if len(p.errs) == maxProblems {
		return
	}
	line, column := 1, 1
	if t != nil && t.Position != nil {
		line, column = max(t.Position.Line, 1), max(t.Position.Column, 1)
	}
	p.errs = append(p.errs, fmt.Errorf("%s:%d:%d: %s", p.name, line, column, fmt.Sprintf(format, args...)))
}

// start is the first token of a value; that of a block mapping in the syntax tree
// is the colon behind its first key.
func start(n ast.Node) *token.Token {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}

// read returns the value of a file; nil when there is none, which it has told.
func (p *parser) read(data []byte) (root ast.Node) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case len(data) > MaxBytes:
		p.problemAtf(nil, "the file has more than %d bytes", MaxBytes)
		return nil
	case !utf8.Valid(data):
		p.problemAtf(nil, "the file is not UTF-8")
		return nil
	}
	defer func() {
		if r := recover(); r != nil { // a fault of the YAML parser is to the user an odd file
			p.problemAtf(nil, "the file cannot be parsed: %v", r)
			root = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if !p.bounded(tokens) {
		return nil
	}
	file, err := yamlparser.Parse(tokens, 0, yamlparser.AllowDuplicateMapKey()) // pairs tells of those
	if err != nil {
		if e, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			p.problemAtf(e.GetToken(), "%s", e.GetMessage())
		} else {
			p.problemAtf(nil, "the file cannot be parsed: %v", err)
		}
		return nil
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case root != nil:
			p.problemf(doc.Body, "a second document begins; a file holds one")
			return nil
		default:
			root = doc.Body
		}
	}
	if root == nil {
		p.problemAtf(nil, "the file is empty; it holds date and providers")
	}
	return root
}

// bounded reports whether the YAML parser can be shown the tokens.
func (p *parser) bounded(tokens token.Tokens) bool {
	brackets, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position != nil && t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType:
			dashes++
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType,
			token.MappingKeyType:
			p.problemAtf(t, "%s is not understood here", t.Value)
			return false
		default: // takes no level
		}
		if brackets > maxBrackets || dashes > maxDashes || brackets == 0 && t.Position != nil &&
			t.Position.Column > maxColumn {
			p.problemAtf(t, "too deep, or too far to the right")
			return false
		}
	}
	return true
}

// pairs are the keys and values of a mapping, each key once.
func (p *parser) pairs(n ast.Node) iter.Seq2[ast.Node, ast.Node] {
	return func(yield func(ast.Node, ast.Node) bool) {
		var values []*ast.MappingValueNode
		switch n := n.(type) {
		case *ast.MappingNode:
			values = n.Values
		case *ast.MappingValueNode:
			values = []*ast.MappingValueNode{n}
		default:
			p.problemf(n, "want a mapping of keys to values, got %s", written(n))
		}
		seen := map[string]bool{}
		for _, v := range values {
			key, _ := scalar(v.Key)
			if seen[key] {
				p.problemf(v.Key, "%q is there twice", key)
				continue
			}
			seen[key] = true
			if !yield(v.Key, v.Value) {
				return
			}
		}
	}
}

// scalar is the text of a value that is no mapping, list or nothing.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// written is a value for people.
func written(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case nil, *ast.NullNode:
		return "nothing"
	}
	if text, ok := scalar(n); ok {
		return fmt.Sprintf("%q", text)
	}
	return "something else"
}
