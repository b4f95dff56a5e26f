package session

import (
	"errors"
	"fmt"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Error is an error that a client may see: its code is the protocol's, its
// message names the place, the rule and what was received. Any other error is
// a fault of ours: it is logged whole and reaches clients as "internal error".
type Error struct {
	// Code is the protocol's code.
	Code agentdv1.ErrorCode
	// Message is for the client.
	Message string
	// Err is the cause, for our logs only; may be nil.
	Err error
}

// Errorf returns an Error. A %w in the format becomes the cause; its text is
// part of the message, so wrap only what the client may read.
func Errorf(code agentdv1.ErrorCode, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// Error returns the message for the client.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable tells whether the same request may succeed later. The protocol
// fixes it for each code.
func (e *Error) Retryable() bool { return Retryable(e.Code) }

// Retryable tells whether an error of this code may pass by itself.
func Retryable(code agentdv1.ErrorCode) bool {
	switch code {
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

// AsError returns err as an Error; one that is none becomes
// ERROR_CODE_INTERNAL with the text "internal error" and err as its cause.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: agentdv1.ErrorCode_ERROR_CODE_INTERNAL, Message: "internal error", Err: err}
}
