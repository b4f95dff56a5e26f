package protorules

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// rulesOfValue compiles the rules of single values of a field.
func rulesOfValue(d protoreflect.FieldDescriptor, of *options) ([]rule, error) {
	kind := d.Kind().String()
	if m := d.Message(); m != nil {
		kind = strings.ToLower(string(m.Name()))
	}
	o, ok := of.within(kind)
	if !ok {
		return nil, nil
	}
	compile := map[string]func(*options) ([]rule, error){
		"string": ofString, "bytes": ofBytes, "int32": ofInt, "int64": ofInt, "double": ofDouble,
		"duration": ofDuration, "enum": func(o *options) ([]rule, error) { return ofEnum(o, d.Enum()), nil },
	}[kind]
	if compile == nil {
		return nil, fmt.Errorf("rules of the kind %s are unknown", kind)
	}
	rules, err := compile(o)
	return rules, errors.Join(err, o.rest())
}

// size is the size of a value, and what the rules that bound it are called and say.
type size struct {
	least, most     string
	atLeast, atMost string // with a %d
	of              func(protoreflect.Value) int
}

// sizes are the rules that bound a size from below and above.
func sizes(o *options, s size) []rule {
	var rules []rule
	if n, ok := o.get(s.least); ok {
		rules = append(rules, rule{id: o.id(s.least), text: fmt.Sprintf(s.atLeast, n.Uint()),
			breaks: func(v protoreflect.Value) bool { return uint64(s.of(v)) < n.Uint() }})
	}
	if n, ok := o.get(s.most); ok {
		rules = append(rules, rule{id: o.id(s.most), text: fmt.Sprintf(s.atMost, n.Uint()), most: n.Uint(),
			breaks: func(v protoreflect.Value) bool { return uint64(s.of(v)) > n.Uint() }})
	}
	return rules
}

// id is that of a rule of these options.
func (o *options) id(names ...string) string { return o.kind + "." + strings.Join(names, "_") }

var (
	characters = size{"min_len", "max_len", "must be at least %d characters", "must be at most %d characters",
		func(v protoreflect.Value) int { return utf8.RuneCountInString(v.String()) }}
	bytesOfString = size{"min_bytes", "max_bytes", "must be at least %d bytes", "must be at most %d bytes",
		func(v protoreflect.Value) int { return len(v.String()) }}
	bytesOfBytes = size{"min_len", "max_len", "must be at least %d bytes", "must be at most %d bytes",
		func(v protoreflect.Value) int { return len(v.Bytes()) }}
	items = size{"min_items", "max_items", "must contain at least %d item(s)", "must contain no more than %d item(s)",
		func(v protoreflect.Value) int { return v.List().Len() }}
	entries = size{"min_pairs", "max_pairs", "map must be at least %d entries", "map must be at most %d entries",
		func(v protoreflect.Value) int { return v.Map().Len() }}
)

func ofString(o *options) ([]rule, error) {
	rules := slices.Concat(sizes(o, characters), sizes(o, bytesOfString))
	pattern, ok := o.get("pattern")
	if !ok {
		return rules, nil
	}
	re, err := regexp.Compile(pattern.String())
	if err != nil {
		return nil, err
	}
	return append(rules, rule{id: o.id("pattern"), text: "does not match regex pattern `" + re.String() + "`",
		breaks: func(v protoreflect.Value) bool { return !re.MatchString(v.String()) }}), nil
}

func ofBytes(o *options) ([]rule, error) {
	return sizes(o, bytesOfBytes), nil
}

func ofEnum(o *options, enum protoreflect.EnumDescriptor) []rule {
	var rules []rule
	if list, ok := o.get("not_in"); ok {
		var refused []protoreflect.EnumNumber
		var texts []string
		for i := range list.List().Len() {
			n := list.List().Get(i).Int()
			refused, texts = append(refused, protoreflect.EnumNumber(n)), append(texts, strconv.FormatInt(n, 10))
		}
		rules = append(rules, rule{id: o.id("not_in"),
			text:   "must not be in list [" + strings.Join(texts, ", ") + "]",
			breaks: func(v protoreflect.Value) bool { return slices.Contains(refused, v.Enum()) }})
	}
	if defined, ok := o.get("defined_only"); ok && defined.Bool() {
		rules = append(rules, rule{id: o.id("defined_only"), text: "value must be one of the defined enum values",
			breaks: func(v protoreflect.Value) bool { return enum.Values().ByNumber(v.Enum()) == nil }})
	}
	return rules
}

func ofInt(o *options) ([]rule, error) {
	return between(o, protoreflect.Value.Int, func(n int64) string { return strconv.FormatInt(n, 10) })
}

func ofDouble(o *options) ([]rule, error) {
	var rules []rule
	if finite, ok := o.get("finite"); ok && finite.Bool() {
		rules = append(rules, rule{id: o.id("finite"), text: "must be finite",
			breaks: func(v protoreflect.Value) bool { return math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) }})
	}
	bounds, err := between(o, protoreflect.Value.Float,
		func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) })
	return append(rules, bounds...), err
}

func ofDuration(o *options) ([]rule, error) {
	return between(o, duration,
		func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s" })
}

// duration returns a span of time, or the longest one where it is longer.
func duration(v protoreflect.Value) time.Duration {
	d, _ := v.Message().Interface().(*durationpb.Duration)
	return d.AsDuration()
}

// bound is a bound of numbers.
type bound[T number] struct {
	id   string
	text string
	n    T
	met  func(v, n T) bool
}

type number interface {
	int64 | float64 | time.Duration
}

// between is the one rule of numbers that have a lower bound, an upper one, or both. NaN
// breaks each.
func between[T number](o *options, value func(protoreflect.Value) T, text func(T) string) ([]rule, error) {
	bounds := []bound[T]{
		{id: "gt", text: "greater than ", met: func(v, n T) bool { return v > n }},
		{id: "gte", text: "greater than or equal to ", met: func(v, n T) bool { return v >= n }},
		{id: "lt", text: "less than ", met: func(v, n T) bool { return v < n }},
		{id: "lte", text: "less than or equal to ", met: func(v, n T) bool { return v <= n }},
	}
	var ids, texts []string
	bounds = slices.DeleteFunc(bounds, func(b bound[T]) bool { _, ok := o.get(b.id); return !ok })
	for i := range bounds {
		n, _ := o.get(bounds[i].id)
		bounds[i].n = value(n)
		ids, texts = append(ids, bounds[i].id), append(texts, bounds[i].text+text(bounds[i].n))
	}
	switch {
	case len(bounds) == 0:
		return nil, nil
	case bounds[len(bounds)-1].n < bounds[0].n:
		return nil, fmt.Errorf("%s: the upper bound is below the lower one", o.id(ids...))
	}
	return []rule{{id: o.id(ids...), text: "must be " + strings.Join(texts, " and "),
		breaks: func(v protoreflect.Value) bool {
			got := value(v)
			return slices.ContainsFunc(bounds, func(b bound[T]) bool { return !b.met(got, b.n) })
		}}}, nil
}
