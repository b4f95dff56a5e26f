package modelcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/model"
)

// Retry says how often, and after which waits, a failed model call is made again. Zero fields take
// the defaults.
//
// The wait before the n-th retry is what the provider asks for or, if it does not ask, a random
// time up to Base times 2 to the power of n-1 ("full jitter"), so that callers that failed together
// do not come back together.
type Retry struct {
	// Tries bounds how often a call is made, including the first time; default 5. 1 means no
	// retries.
	Tries int
	// Base bounds the first wait that the provider does not ask for; default 0.5 s.
	Base time.Duration
	// MaxWait bounds every such wait; default 30 s.
	MaxWait time.Duration
	// MaxRetryAfter is the longest wait that a provider may ask for; default 60 s. If it asks for
	// more the call fails at once, and the error says how long.
	MaxRetryAfter time.Duration
}

// WithDefaults returns r with defaults in place of zeros.
func (r Retry) WithDefaults() Retry {
	r.Tries = cmp.Or(r.Tries, 5)
	r.Base = cmp.Or(r.Base, 500*time.Millisecond)
	r.MaxWait = cmp.Or(r.MaxWait, 30*time.Second)
	r.MaxRetryAfter = cmp.Or(r.MaxRetryAfter, time.Minute)
	return r
}

// WithRetry returns llm with failed calls made again, as retry says: those whose error is
// Temporary, while nothing of the response was passed to emit. Info.OnRetry receives each failed
// try. A suspended call is waited for like any other, unless it is Replaceable.
//
// Response.Failed, or Failed of the last error, counts what failed tries took. When ctx ends after
// a try failed, the error is that try's, with the context's error among its causes and, if it was
// reported, what the try took that the context ended.
func WithRetry(llm model.LLM, retry Retry) model.LLM {
	return &retrying{llm: llm, retry: retry.WithDefaults()}
}

// retrying is immutable.
type retrying struct {
	llm   model.LLM
	retry Retry
}

// Generate implements LLM.
func (r *retrying) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	info := From(ctx)
	var last *model.Error     // of the newest failed try
	var failed []*model.Usage // of each failed try; nil for one that reported nothing
	shown := false
	for try := 1; ; try++ {
		one := info
		one.Try, one.OnRetry = try, nil
		resp, err := r.llm.Generate(With(ctx, one), req, func(d model.Delta) {
			shown = true
			emit(d)
		})
		if err == nil {
			return after(resp, failed), nil
		}
		e, ok := errors.AsType[*model.Error](err)
		switch {
		case ctx.Err() != nil && last != nil && usageOf(err) != nil:
			e := interrupted(last, ctx.Err(), failed)
			e.Usage = usageOf(err)
			return nil, e
		case ctx.Err() != nil && last != nil:
			return nil, interrupted(last, ctx.Err(), failed[:len(failed)-1])
		case ctx.Err() != nil || !ok:
			return nil, err
		case shown || try >= r.retry.Tries || !e.Temporary() || e.RetryAfter > r.retry.MaxRetryAfter,
			e.Suspended && info.Replaceable:
			return nil, afterTries(e, try, failed)
		}
		wait := r.wait(try, e)
		if info.OnRetry != nil {
			if err := info.OnRetry(FailedTry{Try: try, Wait: wait, Err: e}); err != nil {
				cause := &UnreportedError{fmt.Errorf("a retry could not be reported: %w", err)}
				return nil, interrupted(e, cause, failed)
			}
		}
		if err := info.pause(ctx, wait); err != nil {
			return nil, interrupted(e, err, failed)
		}
		last, failed = e, append(failed, e.Usage)
	}
}

// pause waits between two tries.
func (i Info) pause(ctx context.Context, d time.Duration) error {
	wait := func(ctx context.Context) error { return backoff.Wait(ctx, d) }
	if i.Pause == nil {
		return wait(ctx)
	}
	return i.Pause(ctx, wait)
}

// wait returns the time between a try and the next one.
func (r *retrying) wait(try int, e *model.Error) time.Duration {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return backoff.Full(r.retry.Base, r.retry.MaxWait, try-1)
}

// Unreported reports whether a call failed because OnRetry or OnRaw failed: another model would
// not help.
func Unreported(err error) bool {
	_, ok := errors.AsType[*UnreportedError](err)
	return ok
}

// UnreportedError is the cause of a call that ended because OnRetry or OnRaw failed.
type UnreportedError struct {
	// Err is how it failed.
	Err error
}

// Error returns the text of the cause.
func (e *UnreportedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnreportedError) Unwrap() error { return e.Err }

// after returns r as the response to a call whose first tries failed.
func after(r *model.Response, failed []*model.Usage) *model.Response {
	if r == nil || len(failed) == 0 {
		return r
	}
	out := *r
	out.Failed = append(reported(failed), r.Failed...)
	return &out
}

// afterTries returns e as the error of a call's last try.
func afterTries(e *model.Error, tries int, failed []*model.Usage) *model.Error {
	if tries == 1 {
		return e
	}
	out := *e
	out.Tries, out.Failed = tries, append(reported(failed), e.Failed...)
	return &out
}

// interrupted returns the error of a try that another one would have followed.
func interrupted(e *model.Error, cause error, failed []*model.Usage) *model.Error {
	out := *e
	out.Tries, out.Failed = len(failed)+1, reported(failed)
	out.Err = cause
	if e.Err != nil {
		out.Err = errors.Join(cause, e.Err)
	}
	return &out
}

// reported returns the counts that providers reported.
func reported(failed []*model.Usage) []model.Usage {
	var out []model.Usage
	for _, u := range slices.DeleteFunc(slices.Clone(failed), func(u *model.Usage) bool { return u == nil }) {
		out = append(out, *u)
	}
	return out
}

// usageOf returns what the failed try took; nil if that is not known.
func usageOf(err error) *model.Usage {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Usage
	}
	if took := Took(err); len(took) > 0 { // of a context's error, which is of this try alone
		return &took[0]
	}
	return nil
}
