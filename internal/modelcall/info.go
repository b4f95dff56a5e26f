package modelcall

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
)

// Info is what the server knows of a model call beside its request. Adapters never look at it;
// it travels in the call's context, see With. The zero value is a call of which nothing is known.
type Info struct {
	// Session and Turn are ids.
	Session, Turn string
	// Path leads from the root of the tree to the agent that calls. It must not be changed.
	Path []string
	// MessageID is the id of the response to come.
	MessageID string
	// Try is the number of the try, from 1; 0 when nobody counts. WithRetry sets it.
	Try int
	// Replaceable says that another model takes the call when this one fails: a suspended
	// model is then not waited for.
	Replaceable bool
	// OnRetry, when not nil, receives each try that failed, before the wait for the next one.
	// It runs on the calling goroutine; its error ends the call.
	OnRetry func(FailedTry) error
	// Pause, when not nil, calls wait, which waits for the time between two tries. It runs on the
	// calling goroutine; its error ends the call.
	Pause func(ctx context.Context, wait func(context.Context) error) error
	// OnRaw, when not nil, receives the provider's HTTP responses to each try, after the try
	// and before OnRetry. It runs on the calling goroutine; its error ends the call.
	OnRaw func(Raw) error
}

// infoKey is the context key of Info.
type infoKey struct{}

// With returns a context in which a model call has this info.
func With(ctx context.Context, info Info) context.Context {
	return context.WithValue(ctx, infoKey{}, info)
}

// From returns the info of a call's context; zero if it has none.
func From(ctx context.Context) Info {
	info, _ := ctx.Value(infoKey{}).(Info)
	return info
}

// FailedTry is a try that failed and is followed by another one.
type FailedTry struct {
	// Try is its number, from 1.
	Try int
	// Wait is the time until the next one.
	Wait time.Duration
	// Err is how it failed; not nil.
	Err *model.Error
}

// MaxRaw bounds the body of one Raw, in bytes.
const MaxRaw = wiretap.MaxBody

// Raw is a provider's HTTP response as it came, without the keys of the request, which some
// providers repeat.
type Raw struct {
	// Attempt is the number of the try, from 1. A try may have several responses, in order,
	// such as those of a model that pauses.
	Attempt int
	// Provider sent the response, with Status and ContentType.
	Provider    string
	Status      int
	ContentType string
	// Body is what was read of it, at most MaxRaw bytes; Truncated is true when there was more.
	Body      []byte
	Truncated bool
}
