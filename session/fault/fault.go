package fault

import (
	"errors"
	"fmt"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Error is an error that a client may see: its code is the protocol's, its
// message names the place, the rule and what was received.
type Error struct {
	// Code is the protocol's code.
	Code agentdv1.ErrorCode
	// Message is for the client.
	Message string
	// TurnID is the turn that the error is about, "" for none.
	TurnID string
	// RetryAfter is how long to wait, at least, before the same request is sent again;
	// 0 when that is not known.
	RetryAfter time.Duration
	// Violations say what is wrong with which field of the request.
	Violations []violation
	// Limit is the limit that was exceeded, nil for none.
	Limit *Limit
	// Err is the cause, for our logs only; may be nil.
	Err error
}

// Errorf returns an Error. A %w in the format becomes the cause; its text is
// part of the message, so wrap only what the client may read.
func Errorf(code agentdv1.ErrorCode, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// violation is a field of a request, by its path, and the rule that it breaks: the id
// of one of the protos' rules, or one of the Rule constants.
type violation struct {
	Field string
	Rule  string
}

// The rules that no proto states.
const (
	RuleRequired = "required" // it must be set
	RuleUnknown  = "unknown"  // the server does not know the field
	RuleExcluded = "excluded" // another field rules it out
	RuleFormat   = "format"   // its text, or JSON, cannot be read, or has another form
	RuleRange    = "range"    // the value is none of those that are allowed
	RuleConflict = "conflict" // something of that name is there, and is another one
)

// Limit is a limit, by a name that has its unit, and what went beyond it; 0
// when that was not counted so far.
type Limit struct {
	Name     string `json:"name"`
	Value    int64  `json:"value"`
	Received int64  `json:"received,omitempty"`
}

// OfTurn returns the error with the turn that it is about.
func (e *Error) OfTurn(id string) *Error {
	with := *e
	with.TurnID = id
	return &with
}

// After returns the error with how long to wait before the request is sent again.
func (e *Error) After(wait time.Duration) *Error {
	with := *e
	with.RetryAfter = max(wait, 0)
	return &with
}

// Breaking returns the error with one more field that breaks a rule.
func (e *Error) Breaking(field, rule string) *Error {
	with := *e
	with.Violations = append(slices.Clip(e.Violations), violation{field, rule})
	return &with
}

// Over returns the error with the limit that was exceeded; received is 0 when what came
// was not counted so far.
func (e *Error) Over(name string, value, received int) *Error {
	with := *e
	with.Limit = &Limit{Name: name, Value: int64(value), Received: int64(received)}
	return &with
}

// Within returns the error with a step before the fields that break a rule: what is
// user_prompt here may be execute.user_prompt in a request.
func (e *Error) Within(step string) *Error {
	with := *e
	with.Violations = slices.Clone(e.Violations)
	for i := range with.Violations {
		with.Violations[i].Field = step + with.Violations[i].Field
	}
	return &with
}

// Error returns the message for the client.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable tells whether the same request may succeed later. The protocol
// fixes it for each code.
func (e *Error) Retryable() bool {
	switch e.Code {
	case agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED,
		agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
		agentdv1.ErrorCode_ERROR_CODE_TIMEOUT,
		agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY,
		agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE:
		return true
	default:
		return false
	}
}

// As returns err as an Error. Any other error becomes an Error with code INTERNAL, the
// text "internal error" and err as its cause.
func As(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: agentdv1.ErrorCode_ERROR_CODE_INTERNAL, Message: "internal error", Err: err}
}
