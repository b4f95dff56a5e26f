package models

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

// Retry says how often, and after which waits, a failed model call is made
// again. Zero fields take the defaults.
//
// Before the n-th retry the wait is what the provider asked for or, if it did
// not, a random time of up to Base times 2 to the power of n-1 ("full jitter"),
// so that callers who failed together do not come back together.
type Retry struct {
	// Tries is how often a call is made at most, the first time included; default
	// 5, and 1 means no retries.
	Tries int
	// Base bounds the first wait of ours; default 0.5 s.
	Base time.Duration
	// MaxWait bounds every wait of ours; default 30 s.
	MaxWait time.Duration
	// MaxRetryAfter is the longest wait that a provider may ask for; default 60 s.
	// When it asks for more the call fails at once, and the error says how long.
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

// Again returns llm with failed calls made again, as retry says: those whose
// error is Temporary, while nothing of the answer has been passed to emit. It
// tells Request.OnRetry of each. A call that is Suspended is waited for like any
// other, unless it is Replaceable.
//
// What failed tries took is in Response.Failed, or in the Failed of the last
// error. When ctx ends after a try has failed, the error is that try's, with the
// context's error among its causes and, if it was reported, what the try took that the
// context has ended.
func Again(llm model.LLM, retry Retry) model.LLM {
	return &again{llm: llm, retry: retry.WithDefaults()}
}

// again is immutable.
type again struct {
	llm   model.LLM
	retry Retry
}

// Generate implements LLM.
func (a *again) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	var last *model.Error     // of the newest try that failed
	var failed []*model.Usage // what tries took that have failed
	shown := false
	for try := 1; ; try++ {
		one := *req
		one.Try, one.OnRetry = try, nil
		resp, err := a.llm.Generate(ctx, &one, func(d model.Delta) {
			shown = true
			emit(d)
		})
		if err == nil {
			return after(resp, failed), nil
		}
		e, ok := errors.AsType[*model.Error](err)
		switch {
		case ctx.Err() != nil && last != nil && spent(err) != nil:
			e := interrupted(last, ctx.Err(), failed)
			e.Usage = spent(err)
			return nil, e
		case ctx.Err() != nil && last != nil:
			return nil, interrupted(last, ctx.Err(), failed[:len(failed)-1])
		case ctx.Err() != nil || !ok:
			return nil, err
		case shown || try >= a.retry.Tries || !e.Temporary() || e.RetryAfter > a.retry.MaxRetryAfter,
			e.Suspended && req.Replaceable:
			return nil, afterTries(e, try, failed)
		}
		wait := a.wait(try, e)
		if req.OnRetry != nil {
			if err := req.OnRetry(model.Failed{Try: try, Wait: wait, Err: e}); err != nil {
				untold := interrupted(e, fmt.Errorf("a retry could not be told: %w", err), failed)
				untold.Untold = true
				return nil, untold
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, interrupted(e, err, failed)
		}
		last, failed = e, append(failed, e.Usage)
	}
}

// wait is the time between a try and the next one.
func (a *again) wait(try int, e *model.Error) time.Duration {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return backoff.Full(a.retry.Base, a.retry.MaxWait, try-1)
}

// sleep waits for d, or for the end of ctx, which is its error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// after returns the response as that of a call whose first tries failed.
func after(r *model.Response, failed []*model.Usage) *model.Response {
	if r == nil || len(failed) == 0 {
		return r
	}
	out := *r
	out.Failed = append(reported(failed), r.Failed...)
	return &out
}

// afterTries returns the error as that of a call's last try.
func afterTries(e *model.Error, tries int, failed []*model.Usage) *model.Error {
	if tries == 1 {
		return e
	}
	out := *e
	out.Tries, out.Failed = tries, append(reported(failed), e.Failed...)
	return &out
}

// interrupted returns the error of a try that would have been followed by
// another one.
func interrupted(e *model.Error, cause error, failed []*model.Usage) *model.Error {
	out := *e
	out.Tries, out.Failed = len(failed)+1, reported(failed)
	out.Err = cause
	if e.Err != nil {
		out.Err = errors.Join(cause, e.Err)
	}
	return &out
}

// reported are the counts that providers gave.
func reported(failed []*model.Usage) []model.Usage {
	var out []model.Usage
	for _, u := range slices.DeleteFunc(slices.Clone(failed), func(u *model.Usage) bool { return u == nil }) {
		out = append(out, *u)
	}
	return out
}

// spent is what a try took that has failed so; nil if it is not known.
func spent(err error) *model.Usage {
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e.Usage
	}
	if took := model.Took(err); len(took) > 0 { // of a context's error, which is of this try alone
		return &took[0]
	}
	return nil
}
