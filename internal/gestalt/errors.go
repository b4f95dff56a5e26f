package gestalt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

func invalidf(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

func notFoundf(format string, args ...any) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf(format, args...))
}

func existsf(format string, args ...any) error {
	return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf(format, args...))
}

func preconditionf(format string, args ...any) error {
	return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf(format, args...))
}

func exhaustedf(format string, args ...any) error {
	return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf(format, args...))
}

var (
	errStopping     = errors.New("agentd is stopping: ask again when it has started")
	errUnconfigured = errors.New("agentd is not configured yet: call ConfigureProvider first")
)

// codes are what the host reads for the errors of SessionService; for others it is CodeInternal.
var codes = map[agentdv1.ErrorCode]connect.Code{
	agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND:   connect.CodeNotFound,
	agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND:           connect.CodeNotFound,
	agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST:     connect.CodeInvalidArgument,
	agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE:  connect.CodeInvalidArgument,
	agentdv1.ErrorCode_ERROR_CODE_CONFLICT:            connect.CodeAlreadyExists,
	agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION: connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED:    connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED:      connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY:        connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED:      connect.CodeResourceExhausted,
	agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED:        connect.CodeResourceExhausted,
	agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE:         connect.CodeUnavailable,
	agentdv1.ErrorCode_ERROR_CODE_TIMEOUT:             connect.CodeUnavailable,
}

// codeOf is the code of an error of SessionService, unspecified for one of another kind.
func codeOf(err error) agentdv1.ErrorCode {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED
	}
	for _, d := range ce.Details() {
		v, err := d.Value()
		if e, ok := v.(*agentdv1.RunResponse_ErrorResponse); ok && err == nil {
			return e.GetCode()
		}
	}
	return agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED
}

// missing reports whether SessionService has no such object.
func missing(err error) bool { return err != nil && codes[codeOf(err)] == connect.CodeNotFound }

// textOf is what an error of SessionService says, without its code.
func textOf(err error) string {
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		return ce.Message()
	}
	return err.Error()
}

// passed is what the host reads for an error of SessionService.
func (p *Provider) passed(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil { // the host does not wait any more
		return ended(cause)
	}
	if code, ok := codes[codeOf(err)]; ok {
		return connect.NewError(code, errors.New(textOf(err)))
	}
	if connect.CodeOf(err) == connect.CodeUnavailable {
		return connect.NewError(connect.CodeUnavailable, errors.New("agentd cannot serve this now: ask again"))
	}
	p.log.Error("a request of the host has failed", slog.String("error", err.Error()))
	return connect.NewError(connect.CodeInternal, errors.New("agentd has failed: its log says why"))
}

// stored is what the host reads for an error of the Store.
func (p *Provider) stored(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return ended(cause)
	}
	p.log.Error("the store has failed", slog.String("error", err.Error()))
	return connect.NewError(connect.CodeUnavailable, errors.New("the store cannot be used now: ask again"))
}

// ended is what is said to a host that does not wait any more.
func ended(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, cause)
	}
	return connect.NewError(connect.CodeCanceled, cause)
}
