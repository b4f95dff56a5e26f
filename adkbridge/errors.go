package adkbridge

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	codeInternal = agentdv1.ErrorCode_ERROR_CODE_INTERNAL
	codeTree     = agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE
	codeTimeout  = agentdv1.ErrorCode_ERROR_CODE_TIMEOUT
	codeInvalid  = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	codeLimit    = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
	codeOutput   = agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID
)

// diverged is the error of a turn that cannot resume: another version of the engine
// wrote its log.
func diverged(format string, args ...any) error {
	return fault.Errorf(codeInternal,
		"the turn cannot continue, it differs from its log: "+format+"; its session can", args...)
}

// codes maps what went wrong with a model call to the protocol.
var codes = map[model.Kind]agentdv1.ErrorCode{
	model.KindRateLimited:    agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED,
	model.KindAuth:           agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED,
	model.KindUnavailable:    agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE,
	model.KindTimeout:        codeTimeout,
	model.KindInvalid:        agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST,
	model.KindBlocked:        agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED,
	model.KindContextTooLong: agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG,
}

// modelError returns the error of an agent's model with the agent's path.
func modelError(n *node, err error) error {
	at := fmt.Sprintf("%s: model %q", n.at(), n.modelName)
	if e, ok := errors.AsType[*model.Error](err); ok {
		code, ok := codes[e.Kind]
		if !ok {
			return fmt.Errorf("%s: error of unknown kind %q: %w", at, e.Kind, err)
		}
		return fault.Errorf(code, "%s: %w%s", at, err, waitText(e)).After(e.RetryAfter)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &fault.Error{Code: codeTimeout, Message: at + ": no response in time", Err: err}
	}
	return fmt.Errorf("%s: %w", at, err)
}

// waitText names the time that a provider asks to wait, if it asks.
func waitText(e *model.Error) string {
	if e.RetryAfter <= 0 {
		return ""
	}
	return fmt.Sprintf("; retry after %v", e.RetryAfter.Round(time.Millisecond))
}

// isContextError reports whether err only says that a context has ended.
func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// panicError is a recovered panic. The stack is for our logs.
func panicError(where string, p any) error {
	return fmt.Errorf("%s panicked: %v\n%s", where, p, debug.Stack())
}

// pathString renders an agent's path, the one way it appears in errors. Names
// that break the rules are quoted and cut.
func pathString(path []string) string {
	parts := make([]string, len(path))
	for i, name := range path {
		if nameOK(name) {
			parts[i] = name
		} else {
			parts[i] = strconv.Quote(cut(name, 64))
		}
	}
	return strings.Join(parts, "/")
}

// cut shortens text for an error message.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
