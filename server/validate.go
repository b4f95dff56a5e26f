package server

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// maxQuoted bounds how much of a refused value an error quotes.
const maxQuoted = 80

// validator checks messages against the rules in the protocol's own text.
type validator struct{ rules protovalidate.Validator }

// sharedValidator returns the validator of all servers of the process. Compiling the
// rules takes longer than everything else that a server starts with; a validator does
// not change, and any goroutine may use it.
var sharedValidator = sync.OnceValues(newValidator)

func newValidator() (*validator, error) {
	rules, err := protovalidate.New(protovalidate.WithMessages(
		&agentdv1.RunRequest{}, &agentdv1.CreateTurnRequest{}, &agentdv1.GetTurnRequest{},
		&agentdv1.ListTurnsRequest{}, &agentdv1.CancelTurnRequest{}, &agentdv1.CancelToolCallRequest{},
		&agentdv1.ListTurnEventsRequest{}, &agentdv1.WatchTurnRequest{}, &agentdv1.SubmitToolResultsRequest{},
		&agentdv1.GetInteractionRequest{}, &agentdv1.ListInteractionsRequest{}, &agentdv1.ResolveInteractionRequest{},
	))
	if err != nil {
		return nil, fmt.Errorf("server: compile the protocol's rules: %w", err)
	}
	return &validator{rules: rules}, nil
}

// A refused message of at most mostChecked bytes is checked to its end for further
// faults. The first mostViolations are listed.
const (
	mostChecked    = 64 << 10
	mostViolations = 16
)

// check returns the rules that the message breaks, in the words of the first; nil for
// none.
func (v *validator) check(msg proto.Message) *fault.Error {
	broken, err := v.broken(msg, protovalidate.WithFailFast())
	if len(broken) == 0 {
		return err
	}
	e := violation(broken[0])
	if proto.Size(msg) > mostChecked {
		return e
	}
	all, err := v.broken(msg)
	if err != nil {
		return e
	}
	e.Violations = nil
	for _, b := range all[:min(len(all), mostViolations)] {
		e = e.Breaking(protovalidate.FieldPathString(b.Proto.GetField()), b.Proto.GetRuleId())
	}
	return e
}

// checkResults is check without the rules of single results, which are refused one by
// one.
func (v *validator) checkResults(r *agentdv1.SubmitToolResultsRequest) *fault.Error {
	broken, err := v.broken(r)
	for _, b := range broken {
		if !strings.HasPrefix(protovalidate.FieldPathString(b.Proto.GetField()), "results[") {
			return violation(b)
		}
	}
	return err
}

func (v *validator) broken(
	msg proto.Message, opts ...protovalidate.ValidationOption,
) ([]*protovalidate.Violation, *fault.Error) {
	err := v.rules.Validate(msg, opts...)
	if err == nil {
		return nil, nil
	}
	broken, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok || len(broken.Violations) == 0 {
		return nil, fault.As(fmt.Errorf("validate request: %w", err))
	}
	return broken.Violations, nil
}

// violation returns which rule is broken, and by which value.
func violation(first *protovalidate.Violation) *fault.Error {
	path := protovalidate.FieldPathString(first.Proto.GetField())
	code := codeInvalid
	if strings.HasPrefix(path, "execute.agent") || strings.HasPrefix(path, "execute.tools") {
		code = codeInvalidTree
	}
	rule := first.Proto.GetMessage()
	if rule == "" {
		rule = first.Proto.GetRuleId()
	}
	text := path + ": " + rule
	if value := refusedValue(first.FieldValue); value != "" {
		text += " (received " + value + ")"
	}
	e := fault.Errorf(code, "%s", text).Breaking(path, first.Proto.GetRuleId())
	if unit, received := sizeOf(first.Proto.GetRuleId(), first.FieldValue); unit != "" {
		if most, ok := first.RuleValue.Interface().(uint64); ok && most <= math.MaxInt64 {
			e.Limit = &fault.Limit{Name: leafOf(path) + "_" + unit, Value: int64(most),
				Received: int64(received)}
		}
	}
	return e
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
