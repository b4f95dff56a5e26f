package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/protorules"
	"github.com/apzuk3/agentd/session/fault"
)

// maxQuoted bounds how much of a refused value an error quotes.
const maxQuoted = 80

// A refused message of at most mostChecked bytes is checked to its end for further
// faults. The first mostViolations are listed.
const (
	mostChecked    = 64 << 10
	mostViolations = 16
)

// check returns the rules that the message breaks, in the words of the first; nil for
// none.
func check(rules *protorules.Rules, msg proto.Message) *fault.Error {
	broken := rules.Broken(msg, 1)
	if len(broken) == 0 {
		return nil
	}
	e := violation(broken[0])
	if proto.Size(msg) > mostChecked {
		return e
	}
	e.Violations = nil
	for _, b := range rules.Broken(msg, mostViolations) {
		e = e.Breaking(b.Path, b.Rule)
	}
	return e
}

// checkResults is check without the rules of single results, which are refused one by
// one.
func checkResults(rules *protorules.Rules, r *agentdv1.SubmitToolResultsRequest) *fault.Error {
	for _, b := range rules.Broken(r, math.MaxInt) {
		if !strings.HasPrefix(b.Path, "results[") {
			return violation(b)
		}
	}
	return nil
}

// violation returns which rule is broken, and by which value.
func violation(first protorules.Violation) *fault.Error {
	code := codeInvalid
	if ofTree(strings.TrimPrefix(first.Path, "execute.")) {
		code = codeInvalidTree
	}
	text := first.String()
	if value := refusedValue(first.Value); value != "" {
		text += " (received " + value + ")"
	}
	e := fault.Errorf(code, "%s", text).Breaking(first.Path, first.Rule)
	if unit, received := sizeOf(first.Rule, first.Value); unit != "" && first.Most <= math.MaxInt64 {
		e.Limit = &fault.Limit{Name: leafOf(first.Path) + "_" + unit, Value: int64(first.Most),
			Received: int64(received)}
	}
	return e
}

// ofTree reports whether a path is that of a tree or of its tools.
func ofTree(path string) bool {
	field, _, _ := strings.Cut(path, ".")
	field, _, _ = strings.Cut(field, "[")
	return field == "agent" || field == "tools"
}

// sizeOf is how large a value is by a rule that bounds its size, and in what; "" for any
// other rule.
func sizeOf(rule string, value protoreflect.Value) (unit string, size int) {
	switch v := value.Interface().(type) {
	case string:
		switch rule {
		case "string.max_len":
			return "characters", utf8.RuneCountInString(v)
		case "string.max_bytes":
			return "bytes", len(v)
		}
	case []byte:
		if rule == "bytes.max_len" {
			return "bytes", len(v)
		}
	case protoreflect.List:
		if rule == "repeated.max_items" {
			return "items", v.Len()
		}
	case protoreflect.Map:
		if rule == "map.max_pairs" {
			return "entries", v.Len()
		}
	}
	return "", 0
}

// leafOf is the last field of a path, without its place in a list or a map.
func leafOf(path string) string {
	path = path[strings.LastIndexByte(path, '.')+1:]
	name, _, _ := strings.Cut(path, "[")
	return name
}

// refusedValue shows a refused value: a scalar, a span of time, or how long a list is.
func refusedValue(value protoreflect.Value) string {
	switch v := value.Interface().(type) {
	case nil:
		return ""
	case string:
		return quote(v)
	case []byte:
		return fmt.Sprintf("%d bytes", len(v))
	case protoreflect.List:
		return strconv.Itoa(v.Len())
	case protoreflect.Map:
		return strconv.Itoa(v.Len())
	case protoreflect.Message:
		if d, ok := v.Interface().(*durationpb.Duration); ok && d.IsValid() {
			return strconv.FormatFloat(d.AsDuration().Seconds(), 'f', -1, 64) + "s"
		}
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// quote shows the beginning of a value and how long it is.
func quote(s string) string {
	if len(s) <= maxQuoted {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… of %d bytes", s[:maxQuoted], len(s))
}
