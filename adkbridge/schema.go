package adkbridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Bounds of a schema. They hold before it is compiled: a small one can expand to
// a huge one through its references.
const (
	maxSchemaBytes    = 32 << 10
	maxSchemaDepth    = 16
	maxSchemaNodes    = 1000
	maxSchemaExpanded = 10_000
)

// checkSchema returns the schema of a tool's arguments as requests hold it. Left
// out, it is that of an object without properties.
func checkSchema(text *string) (map[string]any, error) {
	if text == nil || strings.TrimSpace(*text) == "" {
		return map[string]any{"type": "object", "properties": map[string]any{}}, nil
	}
	root, _, err := toolSchema(*text)
	return root, err
}

// toolSchema returns the schema of a tool's arguments in the words of 2020-12, as it
// is and compiled.
func toolSchema(text string) (root map[string]any, compiled *jsonschema.Resolved, err error) {
	if root, err = readSchema(text, "a tool's arguments are"); err != nil {
		return nil, nil, err
	}
	if root["type"] == nil {
		root["type"] = "object"
	}
	if modernize(root) {
		data, err := json.Marshal(root)
		if err != nil {
			return nil, nil, err
		}
		text = string(data)
	}
	b := &bounds{root: root, sizes: map[string]int{}}
	if _, err := b.measure(); err != nil {
		return nil, nil, err
	}
	compiled, err = compileSchema(text)
	return root, compiled, err
}

// readSchema decodes the schema of an object; are names its owner in errors.
func readSchema(text, are string) (map[string]any, error) {
	if n := len(text); n > maxSchemaBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed", n, maxSchemaBytes)
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf(`not a JSON object but %s; a schema looks like {"type":"object","properties":{…}}`,
			cut(strings.TrimSpace(text), maxName))
	}
	switch t := root["type"].(type) {
	case nil:
	case string:
		if t != "object" {
			return nil, fmt.Errorf(`"type" is %q; %s an "object"`, cut(t, maxName), are)
		}
	default:
		return nil, errors.New(`"type" must be "object"`)
	}
	return root, nil
}

// compileSchema compiles a schema that has been measured.
func compileSchema(text string) (*jsonschema.Resolved, error) {
	schema := &jsonschema.Schema{}
	if err := json.Unmarshal([]byte(text), schema); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	compiled, err := schema.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("not a valid JSON Schema: %w", err)
	}
	return compiled, nil
}

// bounds measures a schema.
type bounds struct {
	root map[string]any
	// checks is set when values are checked by the schema here: it must not be
	// recursive then, and its data and patterns count, since each costs time.
	checks bool

	nodes int
	anyOf bool           // there is one
	sizes map[string]int // expanded size by reference; 0 while being measured
}

// measure returns how many nodes the schema has with its references followed.
func (b *bounds) measure() (int, error) {
	if err := b.walk(b.root, 1, inSchema); err != nil {
		return 0, err
	}
	n, err := b.expanded(b.root, inSchema)
	if err == nil && n > maxSchemaExpanded {
		err = fmt.Errorf("more than %d nodes once its references are followed", maxSchemaExpanded)
	}
	return n, err
}

// place is what a value within a schema is.
type place int

const (
	inSchema place = iota // a schema, or a list of them
	inNames               // schemas by names, such as those of properties
	inData                // a value to compare with
)

// below returns the place of a value at a key.
func (p place) below(key string) place {
	switch p {
	case inData:
		return inData
	case inNames:
		return inSchema
	case inSchema:
	}
	switch key {
	case "const", "enum", "default", "examples":
		return inData
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
		return inNames
	}
	return inSchema
}

// walk counts and checks the text of the schema.
func (b *bounds) walk(v any, depth int, at place) error {
	if b.nodes++; b.nodes > maxSchemaNodes {
		return fmt.Errorf("more than %d values", maxSchemaNodes)
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("nests deeper than %d levels", maxSchemaDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for k, sub := range v {
			b.anyOf = b.anyOf || k == "anyOf" && at == inSchema
			if ref, ok := sub.(string); ok && at == inSchema {
				if err := checkRef(k, ref); err != nil {
					return err
				}
			}
			if err := b.walk(sub, depth+1, at.below(k)); err != nil {
				return err
			}
		}
	case []any:
		for _, sub := range v {
			if err := b.walk(sub, depth+1, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRef allows references into the schema itself, by pointer.
func checkRef(keyword, ref string) error {
	switch keyword {
	case "$ref":
		if ref != "#" && !strings.HasPrefix(ref, "#/") {
			return fmt.Errorf("$ref %q: only references within the schema are followed, such as #/$defs/name",
				cut(ref, maxName))
		}
	case "$dynamicRef", "$recursiveRef", "$id":
		return fmt.Errorf("%s is not supported; use $ref with #/$defs/name", keyword)
	}
	return nil
}

// expanded counts the nodes with every reference replaced by its target, and stops
// above the bound. A reference that leads back to its own place counts as one node: a
// model decides how long recursive arguments are.
func (b *bounds) expanded(v any, at place) (int, error) {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		// In a fixed order, since it decides which reference leads back.
		for _, k := range slices.Sorted(maps.Keys(v)) {
			m, err := b.keyword(k, v[k], at)
			if err != nil {
				return 0, err
			}
			n = min(n+m, maxSchemaExpanded+1)
		}
	case []any:
		for _, sub := range v {
			m, err := b.expanded(sub, at)
			if err != nil {
				return 0, err
			}
			n = min(n+m, maxSchemaExpanded+1)
		}
	}
	return n, nil
}

// keyword counts the value at a key.
func (b *bounds) keyword(key string, v any, at place) (int, error) {
	text, isText := v.(string)
	below := at.below(key)
	switch {
	case at == inSchema && key == "$ref" && isText:
		return b.target(text)
	case below == inData && !b.checks:
		return 0, nil
	case b.checks && at == inSchema && key == "pattern" && isText:
		return patternSize(text)
	}
	n, err := b.expanded(v, below)
	if named, ok := v.(map[string]any); ok && err == nil && b.checks && key == "patternProperties" {
		for pattern := range named {
			m, err := patternSize(pattern)
			if err != nil {
				return 0, err
			}
			n = min(n+m, maxSchemaExpanded+1)
		}
	}
	return n, err
}

// patternSize is about how many steps a pattern takes for each character.
func patternSize(pattern string) (int, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, fmt.Errorf("not a valid JSON Schema: pattern %q: %w", cut(pattern, maxName), err)
	}
	return stepsOf(re), nil
}

func stepsOf(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = max(1, len(re.Rune))
	}
	for _, sub := range re.Sub {
		n = min(n+stepsOf(sub), maxSchemaExpanded+1)
	}
	if re.Op == syntax.OpRepeat {
		n = min(n*max(re.Min, re.Max, 1), maxSchemaExpanded+1)
	}
	return n
}

// target returns the expanded size of what a reference points to.
func (b *bounds) target(ref string) (int, error) {
	if n, ok := b.sizes[ref]; ok {
		if n == 0 && b.checks {
			return 0, fmt.Errorf("$ref %q is recursive, which values cannot be checked by", cut(ref, maxName))
		}
		return max(n, 1), nil
	}
	v, err := b.lookup(ref)
	if err != nil {
		return 0, err
	}
	b.sizes[ref] = 0
	n, err := b.expanded(v, inSchema)
	if err != nil {
		return 0, err
	}
	b.sizes[ref] = n
	return n, nil
}

// lookup follows a JSON pointer.
func (b *bounds) lookup(ref string) (any, error) {
	var v any = b.root
	pointer, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil {
		return nil, fmt.Errorf("$ref %q: %w", cut(ref, maxName), err)
	}
	if pointer == "" {
		return v, nil
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		ok := false
		switch at := v.(type) {
		case map[string]any:
			v, ok = at[token]
		case []any:
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(at) {
				v, ok = at[i], true
			}
		}
		if !ok {
			return nil, fmt.Errorf("$ref %q points to nothing", cut(ref, maxName))
		}
	}
	return v, nil
}
