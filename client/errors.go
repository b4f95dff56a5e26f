package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Code is a kind of error, by the protocol's number: errors.Is(err,
// client.ErrSessionBusy) compares with it. The zero Code is none.
type Code agentdv1.ErrorCode //nolint:errname // it is the protocol's code, made comparable

// The codes of the protocol.
const (
	ErrInternal         = Code(agentdv1.ErrorCode_ERROR_CODE_INTERNAL)
	ErrInvalidAgentTree = Code(agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE)
	ErrRateLimited      = Code(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED)
	ErrAuthFailed       = Code(agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED)
	ErrSessionNotFound  = Code(agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND)
	ErrModelUnavailable = Code(agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE)
	ErrTimeout          = Code(agentdv1.ErrorCode_ERROR_CODE_TIMEOUT)
	ErrSessionBusy      = Code(agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY)
	ErrInvalidRequest   = Code(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST)
	ErrBudgetExhausted  = Code(agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED)
	ErrLimitExceeded    = Code(agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED)
	ErrPermissionDenied = Code(agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED)
	ErrHistoryPurged    = Code(agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED)
	ErrContentBlocked   = Code(agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED)
	ErrContextTooLong   = Code(agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG)
	ErrUnavailable      = Code(agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE)
	ErrConflict         = Code(agentdv1.ErrorCode_ERROR_CODE_CONFLICT)
	ErrPrecondition     = Code(agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION)
	ErrOutputInvalid    = Code(agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID)
	ErrNotFound         = Code(agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND)
	// ErrUnauthenticated is about the caller's credentials for the server, or for a
	// proxy in front of it; ErrAuthFailed is about the key of a model's provider.
	ErrUnauthenticated = Code(agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED)
)

// Error returns the code's name without its prefix, such as SESSION_BUSY.
func (c Code) Error() string {
	return strings.TrimPrefix(agentdv1.ErrorCode(c).String(), "ERROR_CODE_")
}

// retryable is what the protocol fixes for each code.
func (c Code) retryable() bool {
	switch c {
	case ErrRateLimited, ErrModelUnavailable, ErrTimeout, ErrSessionBusy, ErrUnavailable:
		return true
	default:
		return false
	}
}

// Error is why a run failed, or in [Event].Error what the server refused
// without ending the turn. Every error that [Client.Run] yields is one.
type Error struct {
	// Code is the kind of error. It is 0 when the caller's own context was canceled.
	Code Code
	// Message says what was wrong and what would be right.
	Message string
	// Retryable reports whether the same request may succeed later.
	Retryable bool
	// SessionID is the session, once it is known.
	SessionID string
	// TurnID is the turn that the error is about: the one that failed, that runs and
	// makes the session busy, or that was not found. "" for none.
	TurnID string
	// ToolCallID is the tool call whose result was refused; "" for none.
	ToolCallID string
	// RetryAfter is how long the server asks to wait before the same request is sent
	// again; 0 when it does not know. Where this package itself tries again, it waits
	// at least so long, and gives up when its own time is over before.
	RetryAfter time.Duration
	// Violations say what is wrong with which field of the request.
	Violations []Violation
	// Limit is the limit of the server, or the budget, that was exceeded; nil for none.
	Limit *ExceededLimit
	// Usage is what the turn used; nil if the server did not come to say it.
	Usage *Usage
	// Err is the cause on this side of the wire (a connect error, a context
	// error); nil for an error that the server reported.
	Err error
}

// Violation is a field of a request, by its path, and the rule that it breaks: the id
// of a rule of the protos, such as string.max_len, or a word such as required or
// unknown (docs/errors.md has the list, which may grow).
type Violation struct {
	Field string
	Rule  string
}

// ExceededLimit is a limit and what went beyond it. The name has the unit, such as
// prompt_bytes. Received is 0 when the server has not counted so far.
type ExceededLimit struct {
	Name     string
	Value    int64
	Received int64
}

// Error returns the code and the message.
func (e *Error) Error() string {
	if e.Code == 0 {
		return "agentd: " + e.Message
	}
	return "agentd: " + e.Code.Error() + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the [Code] of this error.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && e.Code == code
}

// errorf returns an Error of the given code; a %w in the format becomes its
// cause.
func errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{
		Code:      code,
		Message:   err.Error(),
		Retryable: code.retryable(),
		Err:       errors.Unwrap(err),
	}
}

// fromResponse translates the server's ErrorResponse.
func fromResponse(resp *agentdv1.RunResponse_ErrorResponse) *Error {
	e := &Error{
		Code:       Code(resp.GetCode()),
		Message:    resp.GetMessage(),
		Retryable:  resp.GetRetryable(),
		SessionID:  resp.GetSessionId(),
		TurnID:     resp.GetTurnId(),
		ToolCallID: resp.GetToolCallId(),
		RetryAfter: max(resp.GetRetryAfter().AsDuration(), 0),
	}
	for _, v := range resp.GetViolations() {
		e.Violations = append(e.Violations, Violation{v.GetField(), v.GetRule()})
	}
	if l := resp.GetLimit(); l != nil {
		e.Limit = &ExceededLimit{l.GetName(), l.GetValue(), l.GetReceived()}
	}
	return e
}

// fromContext translates the end of the caller's context. Both the context's
// error and its cause are found by errors.Is.
func fromContext(ctx context.Context) *Error {
	err, cause := ctx.Err(), context.Cause(ctx)
	joined := cause
	if !errors.Is(cause, err) {
		joined = errors.Join(err, cause)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{
			Code:      ErrTimeout,
			Message:   "the run's deadline passed: " + cause.Error(),
			Retryable: true,
			Err:       joined,
		}
	}
	return &Error{Message: "the run was canceled: " + cause.Error(), Err: joined}
}

// fromTransport translates a failed stream. The codes of a connection that
// broke are not reliable, so what is not plainly a reply of the server is
// UNAVAILABLE.
func fromTransport(err error) *Error {
	code := ErrUnavailable
	switch connect.CodeOf(err) {
	case connect.CodeDeadlineExceeded:
		code = ErrTimeout
	case connect.CodeUnauthenticated:
		code = ErrUnauthenticated
	case connect.CodePermissionDenied:
		code = ErrPermissionDenied
	case connect.CodeResourceExhausted:
		code = ErrLimitExceeded
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		if connect.IsWireError(err) { // otherwise it is a torn message
			code = ErrInvalidRequest
		}
	case connect.CodeNotFound:
		code = ErrSessionNotFound
	case connect.CodeUnimplemented:
		return errorf(ErrInvalidRequest,
			"the server does not know the call: it is no agentd, or an older one, or does not speak HTTP/2: %w", err)
	case connect.CodeInternal, connect.CodeUnknown, connect.CodeDataLoss:
		if connect.IsWireError(err) {
			code = ErrInternal
		}
	}
	e := errorf(code, "the stream failed: %w", err)
	if ce, ok := errors.AsType[*connect.Error](err); ok { // of a proxy
		if n, err := strconv.ParseUint(ce.Meta().Get("Retry-After"), 10, 31); err == nil {
			e.RetryAfter = time.Duration(n) * time.Second
		}
	}
	return e
}
