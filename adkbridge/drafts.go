package adkbridge

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Providers accept JSON Schema 2020-12, and some check a tool's schema against it. This
// file translates what older drafts, which MCP servers still use, express in another
// way. It does so at any depth and loses nothing:
//
//   - items as a list, with additionalItems (to draft 2019-09): prefixItems and items;
//   - exclusiveMinimum and exclusiveMaximum as booleans (draft-04): the bound itself;
//   - dependencies (to draft-07): dependentRequired and dependentSchemas;
//   - required as a boolean of a property, type "any" (draft-03): a name in the list of
//     the object's, and no type.
//
// Schemas under definitions stay there, since references lead to them.

// modernize says a schema in the words of 2020-12, and reports whether that has changed
// it. It is a schema that decodes as JSON does.
func modernize(root map[string]any) (changed bool) {
	changed = modern(root, inSchema)
	if changed {
		delete(root, "$schema") // of a draft that it is not of any more
		redirect(&bounds{root: root}, root, inSchema)
	}
	return changed
}

func modern(v any, at place) (changed bool) {
	if at == inData {
		return false
	}
	if list, ok := v.([]any); ok {
		for _, sub := range list {
			changed = modern(sub, at) || changed
		}
		return changed
	}
	m, ok := v.(map[string]any)
	if !ok {
		return false
	}
	if at == inSchema {
		changed = requiredLists(m)
	}
	for key, sub := range m {
		changed = modern(sub, at.below(key)) || changed
	}
	if at != inSchema {
		return changed
	}
	for _, rewrite := range []func(map[string]any) bool{tupleItems, exclusiveBound("exclusiveMinimum", "minimum"),
		exclusiveBound("exclusiveMaximum", "maximum"), dependencies, anyType} {
		changed = rewrite(m) || changed
	}
	return changed
}

// requiredLists moves required of properties to the object that has them.
func requiredLists(m map[string]any) (changed bool) {
	properties, _ := m["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, _ := properties[name].(map[string]any)
		is, old := p["required"].(bool)
		if !old {
			continue
		}
		changed = true
		delete(p, "required")
		list, _ := m["required"].([]any)
		if is && !slices.Contains(list, any(name)) {
			m["required"] = append(slices.Clip(list), name)
		}
	}
	if _, old := m["required"].(bool); old { // of what is no property
		delete(m, "required")
		changed = true
	}
	return changed
}

func tupleItems(m map[string]any) bool {
	list, old := m["items"].([]any)
	if !old {
		return false
	}
	rest, has := m["additionalItems"]
	if !has {
		rest = map[string]any{} // OpenAI demands items of each array
	}
	delete(m, "additionalItems")
	m["items"] = rest
	if len(list) > 0 { // an empty prefixItems is none
		m["prefixItems"] = list
	}
	return true
}

func exclusiveBound(exclusive, inclusive string) func(map[string]any) bool {
	return func(m map[string]any) bool {
		is, old := m[exclusive].(bool)
		if !old {
			return false
		}
		delete(m, exclusive)
		if limit, has := m[inclusive]; is && has {
			delete(m, inclusive)
			m[exclusive] = limit
		}
		return true
	}
}

func dependencies(m map[string]any) bool {
	all, old := m["dependencies"].(map[string]any)
	if !old {
		return false
	}
	delete(m, "dependencies")
	for name, needs := range all {
		key := "dependentSchemas"
		switch needs.(type) {
		case string:
			key, needs = "dependentRequired", []any{needs}
		case []any:
			key = "dependentRequired"
		}
		to, _ := m[key].(map[string]any)
		if to == nil {
			to = map[string]any{}
			m[key] = to
		}
		if _, has := to[name]; !has {
			to[name] = needs
		}
	}
	return true
}

func anyType(m map[string]any) bool {
	list, _ := m["type"].([]any)
	if m["type"] != "any" && !slices.Contains(list, any("any")) {
		return false
	}
	delete(m, "type")
	return true
}

// redirect has references follow what was moved.
func redirect(b *bounds, v any, at place) {
	switch v := v.(type) {
	case []any:
		for _, sub := range v {
			redirect(b, sub, at)
		}
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok && at == inSchema {
			if to := movedRef(ref); to != ref {
				_, err := b.lookup(ref)
				if _, found := b.lookup(to); err != nil && found == nil {
					v["$ref"] = to
				}
			}
		}
		for key, sub := range v {
			if below := at.below(key); below != inData {
				redirect(b, sub, below)
			}
		}
	}
}

// movedRef is where a reference leads after modernise.
func movedRef(ref string) string {
	tokens := strings.Split(ref, "/")
	at := inSchema
	for i, token := range tokens {
		below := at.below(token)
		if at == inSchema {
			switch token {
			case "items":
				if i+1 < len(tokens) && isIndex(tokens[i+1]) {
					tokens[i] = "prefixItems"
				}
			case "additionalItems":
				tokens[i] = "items"
			case "dependencies":
				tokens[i] = "dependentSchemas"
			}
		}
		at = below
	}
	return strings.Join(tokens, "/")
}

func isIndex(token string) bool {
	_, err := strconv.ParseUint(token, 10, 31)
	return err == nil
}
