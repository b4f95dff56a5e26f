package adkbridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Bounds of a tool's input schema. They hold before the schema is compiled: a
// small one can expand to a huge one through its references.
const (
	maxSchemaBytes    = 32 << 10
	maxSchemaDepth    = 16
	maxSchemaNodes    = 1000
	maxSchemaExpanded = 10_000
)

// checkSchema returns a schema as requests hold it. Left out, it is that of an
// object without properties.
func checkSchema(text *string) (map[string]any, error) {
	if text == nil || strings.TrimSpace(*text) == "" {
		return map[string]any{"type": "object", "properties": map[string]any{}}, nil
	}
	if n := len(*text); n > maxSchemaBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are allowed", n, maxSchemaBytes)
	}
	var v any
	dec := json.NewDecoder(strings.NewReader(*text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New(`not a JSON object; the schema of a tool's arguments looks like {"type":"object","properties":{…}}`)
	}
	switch t := root["type"].(type) {
	case nil:
		root["type"] = "object"
	case string:
		if t != "object" {
			return nil, fmt.Errorf(`"type" is %q; a tool's arguments are an "object"`, cut(t, maxName))
		}
	default:
		return nil, errors.New(`"type" must be "object"`)
	}
	b := &bounds{root: root, sizes: map[string]int{}}
	if err := b.walk(root, 1, true); err != nil {
		return nil, err
	}
	if n, err := b.expanded(root); err != nil {
		return nil, err
	} else if n > maxSchemaExpanded {
		return nil, fmt.Errorf("more than %d nodes once its references are followed", maxSchemaExpanded)
	}
	schema := &jsonschema.Schema{}
	if err := json.Unmarshal([]byte(*text), schema); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	if _, err := schema.Resolve(nil); err != nil {
		return nil, fmt.Errorf("not a valid JSON Schema: %w", err)
	}
	return root, nil
}

// bounds measures a schema.
type bounds struct {
	root  map[string]any
	nodes int
	sizes map[string]int // expanded size by reference; 1 while being measured
}

// literals are keywords whose values are data, not schemas.
func isLiteral(keyword string) bool {
	switch keyword {
	case "const", "enum", "default", "examples":
		return true
	}
	return false
}

// walk counts and checks the text of the schema. refs is false within data.
func (b *bounds) walk(v any, depth int, refs bool) error {
	if b.nodes++; b.nodes > maxSchemaNodes {
		return fmt.Errorf("more than %d values", maxSchemaNodes)
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("nests deeper than %d levels", maxSchemaDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for k, sub := range v {
			if ref, ok := sub.(string); ok && refs {
				if err := checkRef(k, ref); err != nil {
					return err
				}
			}
			if err := b.walk(sub, depth+1, refs && !isLiteral(k)); err != nil {
				return err
			}
		}
	case []any:
		for _, sub := range v {
			if err := b.walk(sub, depth+1, refs); err != nil {
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
			return fmt.Errorf("$ref %q: only references within the schema are followed, such as #/$defs/name", cut(ref, maxName))
		}
	case "$dynamicRef", "$recursiveRef", "$id":
		return fmt.Errorf("%s is not supported; use $ref with #/$defs/name", keyword)
	}
	return nil
}

// expanded counts the nodes with every reference replaced by its target, and
// stops counting above the bound. A reference that leads back to where it stands
// counts as one node: recursive arguments are as long as a model makes them.
func (b *bounds) expanded(v any) (int, error) {
	n := 1
	add := func(sub any) error {
		m, err := b.expanded(sub)
		n = min(n+m, maxSchemaExpanded+1)
		return err
	}
	switch v := v.(type) {
	case map[string]any:
		// In a fixed order, since it decides which reference leads back.
		for _, k := range slices.Sorted(maps.Keys(v)) {
			sub := v[k]
			if isLiteral(k) {
				continue
			}
			if ref, ok := sub.(string); ok && k == "$ref" {
				m, err := b.target(ref)
				if err != nil {
					return 0, err
				}
				n = min(n+m, maxSchemaExpanded+1)
				continue
			}
			if err := add(sub); err != nil {
				return 0, err
			}
		}
	case []any:
		for _, sub := range v {
			if err := add(sub); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// target is the expanded size of what a reference points to.
func (b *bounds) target(ref string) (int, error) {
	if n, ok := b.sizes[ref]; ok {
		return n, nil
	}
	v, err := b.lookup(ref)
	if err != nil {
		return 0, err
	}
	b.sizes[ref] = 1
	n, err := b.expanded(v)
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
