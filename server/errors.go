package server

import (
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/keytext"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	codeInternal     = agentdv1.ErrorCode_ERROR_CODE_INTERNAL
	codeInvalidTree  = agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE
	codeTimeout      = agentdv1.ErrorCode_ERROR_CODE_TIMEOUT
	codePrecondition = agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION
	codeInvalid      = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	codeLimit        = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
	codeRate         = agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED
	codeUnavailable  = agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE
	cancelTurn       = agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL
)

// maxErrorBytes bounds the text of an error: it may quote what a client sent.
const maxErrorBytes = 4 << 10

// errorResponse is the wire form of an error.
func errorResponse(sessionID string, e *fault.Error) *agentdv1.RunResponse {
	msg := e.Response(sessionID)
	msg.GetError().Message = wireText(e.Message)
	return msg
}

// within puts a step before the fields that an error of a session names.
func within(step string, err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && len(e.Violations) > 0 {
		return e.Within(step)
	}
	return err
}

// inExecute is why a turn was not started: its fields are those of ExecuteRequest.
func inExecute(err error) error { return within("execute.", err) }

// wireText bounds a text and makes it one that protobuf accepts.
func wireText(s string) string {
	s = keytext.Hide(s)
	if len(s) > maxErrorBytes {
		s = s[:maxErrorBytes] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// inStep reports whether the next message can be received after this error: the refused
// one was read to its end. If connect could not skip it, the next Receive fails.
func inStep(err error) bool {
	if _, ok := errors.AsType[*decodeError](err); ok {
		return true
	}
	return !errors.Is(err, errSlowMessage) &&
		(errors.Is(err, errCompressed) || connect.CodeOf(err) == connect.CodeResourceExhausted)
}

// receiveError returns why a message could not be received.
func receiveError(err error, limit int) *fault.Error {
	if d, ok := errors.AsType[*decodeError](err); ok {
		return decodeFault(d, "RunRequest")
	}
	switch {
	case errors.Is(err, errCompressed):
		return fault.Errorf(codeInvalid, "%v", errCompressed)
	case errors.Is(err, errSlowMessage):
		return fault.Errorf(codeLimit, "a message was given up after %d bytes: at most %d are allowed",
			skipFactor*limit, limit).
			Over("message_bytes", limit, 0)
	case connect.CodeOf(err) == connect.CodeResourceExhausted:
		return fault.Errorf(codeLimit, "the message is too large: %s; at most %d bytes are allowed", connectText(err),
			limit).
			Over("message_bytes", limit, 0)
	}
	return fault.Errorf(codeInvalid, "the stream cannot be read: %s", connectText(err))
}

// connectText is an error's text without connect's code in front.
func connectText(err error) string {
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		return ce.Message()
	}
	return fmt.Sprint(err)
}
