package modelcall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// plan is an LLM whose tries go as planned; it counts them.
type plan struct {
	t     *testing.T
	tries []fake
	made  int
	at    []time.Time // when each try began
}

func (p *plan) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	p.at = append(p.at, time.Now())
	try := p.tries[min(p.made, len(p.tries)-1)]
	p.made++
	if info := modelcall.From(ctx); info.Try != p.made || info.OnRetry != nil {
		p.t.Errorf("try %d has number %d, OnRetry set: %t", p.made, info.Try, info.OnRetry != nil)
	}
	return try(ctx, emit)
}

// fails is a try that fails with a copy of e.
func fails(e model.Error) fake {
	return func(context.Context, func(model.Delta)) (*model.Response, error) {
		e := e
		return nil, &e
	}
}

// says is a try that answers.
func says(text string) fake {
	return func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
		emit(model.Delta{Text: text})
		return respond(&genai.Part{Text: text}), nil
	}
}

// unavailable is a failure that passes.
var unavailable = model.Error{Kind: model.KindUnavailable, Provider: "fake", Status: 503, Message: "overloaded"}

// retried makes one call with retries and returns the tries that OnRetry received.
func retried(ctx context.Context, p *plan, retry modelcall.Retry) (resp *model.Response, seen []modelcall.FailedTry, err error) {
	ctx = modelcall.With(ctx, modelcall.Info{OnRetry: func(f modelcall.FailedTry) error {
		seen = append(seen, f)
		return nil
	}})
	resp, err = modelcall.WithRetry(p, retry).Generate(ctx, &model.Request{}, func(model.Delta) {})
	return resp, seen, err
}

func asError(t *testing.T, err error) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		t.Fatalf("error %v (%T), want a *model.Error", err, err)
	}
	return e
}

// TestTemporary names the failures after which a call is made again (F26), and
// those after which it is not (F27).
func TestTemporary(t *testing.T) {
	failure := func(status int) *model.Error { return adapter.Failure{Provider: "p", Status: status}.Error() }
	for _, status := range []int{408, 409, 425, 429, 500, 502, 503, 504, 520, 529} {
		if !failure(status).Temporary() {
			t.Errorf("status %d is not temporary", status)
		}
	}
	for _, status := range []int{307, 400, 401, 402, 403, 404, 413, 422, 501} {
		if failure(status).Temporary() {
			t.Errorf("status %d is temporary", status)
		}
	}
	for _, c := range []struct {
		err  *model.Error
		want bool
	}{
		{adapter.Truncated("p"), true},
		{asError(t, adapter.TransportError(t.Context(), "p", io.ErrUnexpectedEOF)), true},
		{asError(t, adapter.TransportError(t.Context(), "p", timeout{})), true},
		{adapter.Failure{Provider: "p", Message: "an error within a stream"}.Error(), true},
		{adapter.Failure{Provider: "p", Status: 429, Header: map[string][]string{"X-Should-Retry": {"false"}}}.Error(), false},
		{adapter.Failure{Provider: "p", Status: 400, Code: "content_filter"}.Error(), false},
		{adapter.Failure{Provider: "p", Status: 400, Code: "context_length_exceeded"}.Error(), false},
		{model.Description{Name: "p"}.MissingKey(), false},
		{&model.Error{Kind: model.KindUnavailable, Final: true}, false},
	} {
		if got := c.err.Temporary(); got != c.want {
			t.Errorf("%v: temporary %t, want %t", c.err, got, c.want)
		}
	}
}

// TestAgain makes a failing call again up to the limit, with waits that grow and
// differ (F26).
func TestWithRetry(t *testing.T) {
	bounds := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
	sums := map[time.Duration]bool{}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			p := &plan{t: t, tries: []fake{fails(unavailable)}}
			resp, failed, err := retried(t.Context(), p, modelcall.Retry{})
			e := asError(t, err)
			if resp != nil || p.made != 5 || e.Tries != 5 || e.Kind != model.KindUnavailable || e.Status != 503 || !strings.HasSuffix(e.Error(), "overloaded (status 503) after 5 tries") {
				t.Errorf("%d tries, %v", p.made, err)
			}
			var waited time.Duration
			for i, f := range failed {
				if f.Try != i+1 || f.Err.Status != 503 || f.Wait < 0 || f.Wait > bounds[i] {
					t.Errorf("told %+v, want number %d and a wait of up to %v", f, i+1, bounds[i])
				}
				waited += f.Wait
			}
			if len(failed) != 4 || time.Since(start) != waited {
				t.Errorf("told %d times of %v, waited %v", len(failed), waited, time.Since(start))
			}
			sums[waited] = true
		})
	}
	if len(sums) < 10 {
		t.Errorf("20 callers waited %d different times", len(sums))
	}
}

// TestAgainAnswers shows the answer of the first try that succeeds, and adds
// what the others took.
func TestRetryReturnsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := unavailable
		first.Usage = &model.Usage{Prompt: 7, Total: 7}
		second := model.Error{Kind: model.KindTimeout, Provider: "fake", Message: "nothing came"}
		p := &plan{t: t, tries: []fake{fails(first), fails(second), says("hi")}}
		resp, failed, err := retried(t.Context(), p, modelcall.Retry{})
		if err != nil || resp.Content.Parts[0].Text != "hi" || !reflect.DeepEqual(resp.Failed, []model.Usage{{Prompt: 7, Total: 7}}) || resp.Usage != (model.Usage{}) {
			t.Errorf("%+v, %v", resp, err)
		}
		if len(failed) != 2 || failed[0].Err.Status != 503 || failed[1].Err.Kind != model.KindTimeout {
			t.Errorf("told %v", failed)
		}
	})
}

// TestAgainEnds ends a call without another try: upon failures that would repeat
// (F27), once something was shown, and when there is nobody to tell.
func TestRetryEnds(t *testing.T) {
	closed := errors.New("nobody listens")
	cut := func(d model.Delta) fake {
		return func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
			emit(d)
			return nil, adapter.Truncated("fake")
		}
	}
	for name, c := range map[string]struct {
		try    fake
		report error
		want   string
	}{
		"a refusal":    {fails(model.Error{Kind: model.KindInvalid, Status: 400, Message: "bad field"}), nil, "bad field"},
		"final":        {fails(model.Error{Kind: model.KindRateLimited, Status: 429, Message: "pay", Final: true}), nil, "pay"},
		"text shown":   {cut(model.Delta{Text: "Hel"}), nil, "ended before"},
		"a thought":    {cut(model.Delta{Text: "Hm", Thought: true}), nil, "ended before"},
		"not ours":     {func(context.Context, func(model.Delta)) (*model.Response, error) { return nil, io.EOF }, nil, "EOF"},
		"nobody there": {fails(unavailable), closed, "overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				p := &plan{t: t, tries: []fake{c.try}}
				ctx := modelcall.With(t.Context(), modelcall.Info{OnRetry: func(modelcall.FailedTry) error {
					if c.report == nil {
						t.Error("OnRetry was called")
					}
					return c.report
				}})
				_, err := modelcall.WithRetry(p, modelcall.Retry{}).Generate(ctx, &model.Request{}, func(model.Delta) {})
				if p.made != 1 || !strings.Contains(fmt.Sprint(err), c.want) || c.report != nil && (!errors.Is(err, c.report) || !modelcall.Unreported(err)) || time.Since(start) != 0 {
					t.Errorf("%d tries, %v", p.made, err)
				}
			})
		})
	}
}

// TestAgainRetryAfter waits as long as the provider asks, and not at all when
// that is too long (F26).
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		ask   time.Duration
		retry modelcall.Retry
		tries int
	}{
		{time.Millisecond, modelcall.Retry{}, 2},
		{7 * time.Second, modelcall.Retry{}, 2},
		{time.Minute, modelcall.Retry{}, 2},
		{time.Minute + 1, modelcall.Retry{}, 1},
		{10 * time.Minute, modelcall.Retry{MaxRetryAfter: time.Hour, Tries: 2}, 2},
		{2 * time.Second, modelcall.Retry{MaxRetryAfter: time.Second}, 1},
		{time.Second, modelcall.Retry{Tries: 1}, 1},
	} {
		t.Run(c.ask.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := model.Error{Kind: model.KindRateLimited, Provider: "fake", Status: 429, Message: "slow down", RetryAfter: c.ask}
				p := &plan{t: t, tries: []fake{fails(slow), says("hi")}}
				resp, failed, err := retried(t.Context(), p, c.retry)
				if p.made != c.tries || len(failed) != c.tries-1 {
					t.Errorf("%d tries, told %v", p.made, failed)
				}
				switch {
				case c.tries == 1 && (err == nil || asError(t, err).RetryAfter != c.ask):
					t.Errorf("%+v, %v, want the error with its time", resp, err)
				case c.tries == 2 && (err != nil || failed[0].Wait != c.ask || p.at[1].Sub(p.at[0]) != c.ask):
					t.Errorf("told %v, tried after %v, %v", failed, p.at, err)
				}
			})
		})
	}
}

// TestAgainInterrupted ends with the context, in a wait and in a later try, and
// keeps what the tries before took.
func TestRetryInterrupted(t *testing.T) {
	hang := func(ctx context.Context, _ func(model.Delta)) (*model.Response, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	costly := unavailable
	costly.Usage, costly.RetryAfter = &model.Usage{Prompt: 3, Total: 3}, 10*time.Second
	for name, c := range map[string]struct {
		after  time.Duration
		tries  int
		failed int
	}{
		"in the first wait":  {time.Second, 1, 0},
		"in the second wait": {11 * time.Second, 2, 1},
		"in the third try":   {21 * time.Second, 3, 1},
		"in one that cost":   {21 * time.Second, 3, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.after)
				defer cancel()
				want := slices.Repeat([]model.Usage{*costly.Usage}, c.failed+1)
				last := fake(hang)
				if c.failed == 2 {
					want[2] = model.Usage{Prompt: 5, Total: 5}
					last = func(ctx context.Context, emit func(model.Delta)) (*model.Response, error) {
						_, err := hang(ctx, emit)
						return nil, want[2].Spent(err)
					}
				}
				p := &plan{t: t, tries: []fake{fails(costly), fails(costly), last}}
				start := time.Now()
				_, _, err := retried(ctx, p, modelcall.Retry{})
				e := asError(t, err)
				if !errors.Is(err, context.DeadlineExceeded) || p.made != c.tries || time.Since(start) != c.after {
					t.Errorf("%d tries, %v after %v", p.made, err, time.Since(start))
				}
				if got := modelcall.Took(err); !slices.Equal(got, want) || e.Kind != model.KindUnavailable {
					t.Errorf("%+v took %v, want %v", e, got, want)
				}
			})
		})
	}
	t.Run("in the first try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			p := &plan{t: t, tries: []fake{hang}}
			if _, tries, err := retried(ctx, p, modelcall.Retry{}); err != context.DeadlineExceeded || len(tries) != 0 { //nolint:errorlint // it must be the context's own
				t.Errorf("told %v, %v", tries, err)
			}
		})
	})
}

// TestAgainFailedTries sums up what failed tries took in the last error.
func TestRetryFailedTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costly := unavailable
		costly.Usage = &model.Usage{Prompt: 5, Total: 5}
		p := &plan{t: t, tries: []fake{fails(costly), fails(unavailable), fails(costly)}}
		_, _, err := retried(t.Context(), p, modelcall.Retry{Tries: 3})
		e := asError(t, err)
		if e.Tries != 3 || *e.Usage != *costly.Usage || !reflect.DeepEqual(e.Failed, []model.Usage{*costly.Usage}) {
			t.Errorf("%+v", e)
		}
	})
}

// TestAgainGuarded makes tries behind a guard again: a stalled one and one that
// breaks the contract, but not one that panics or is too much (F28).
func TestRetryGuarded(t *testing.T) {
	for name, c := range map[string]struct {
		try   fake
		tries int
		kind  model.Kind
	}{
		"silent": {func(ctx context.Context, _ func(model.Delta)) (*model.Response, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 5, model.KindTimeout},
		"cut short": {func(context.Context, func(model.Delta)) (*model.Response, error) { return &model.Response{}, nil }, 5, model.KindUnavailable},
		"panics":    {func(context.Context, func(model.Delta)) (*model.Response, error) { panic("oh") }, 1, model.KindUnavailable},
		"too long": {func(context.Context, func(model.Delta)) (*model.Response, error) {
			return respond(&genai.Part{Text: "far too long"}), nil
		}, 1, model.KindUnavailable},
		"too many calls": {func(context.Context, func(model.Delta)) (*model.Response, error) {
			return respond(adapter.NewCall("", "f", ""), adapter.NewCall("", "f", "")), nil
		}, 1, model.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made := 0
				counting := fake(func(ctx context.Context, emit func(model.Delta)) (*model.Response, error) {
					made++
					return c.try(ctx, emit)
				})
				ref := models.Ref{Provider: "fake", LLM: counting}
				_, err := ref.Guarded(modelcall.Limits{ResponseBytes: 10, Calls: 1}).Generate(t.Context(), &model.Request{}, func(model.Delta) {})
				if made != c.tries {
					t.Errorf("%d tries, want %d", made, c.tries)
				}
				wantKind(t, err, c.kind, "")
			})
		})
	}
}

// TestRetryDefaults: a zero Retry is that of the fault matrix.
func TestRetryDefaults(t *testing.T) {
	want := modelcall.Retry{Tries: 5, Base: 500 * time.Millisecond, MaxWait: 30 * time.Second, MaxRetryAfter: time.Minute}
	if got := (modelcall.Retry{}).WithDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	odd := modelcall.Retry{Tries: 70, Base: time.Hour, MaxWait: time.Second, MaxRetryAfter: 1}
	if got := odd.WithDefaults(); got != odd {
		t.Errorf("%+v, want %+v", got, odd)
	}
	synctest.Test(t, func(t *testing.T) {
		p := &plan{t: t, tries: []fake{fails(unavailable)}}
		_, failed, err := retried(t.Context(), p, odd)
		for _, f := range failed {
			if f.Wait > time.Second {
				t.Errorf("try %d was followed by a wait of %v", f.Try, f.Wait)
			}
		}
		if len(failed) != 69 || err == nil {
			t.Errorf("told %d times, %v", len(failed), err)
		}
	})
}

// TestAgainFailedInOrder tells what tries took in their order, also where the last one
// is itself several: who was told of the first ones counts the rest.
func TestRetryFailedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		costly := unavailable
		costly.Usage = &model.Usage{Prompt: 5, Total: 5}
		inner := model.Usage{Prompt: 7, Total: 7}
		several := func(context.Context, func(model.Delta)) (*model.Response, error) {
			resp := respond(&genai.Part{Text: "hi"})
			resp.Failed = []model.Usage{inner}
			return resp, nil
		}
		resp, failed, err := retried(t.Context(), &plan{t: t, tries: []fake{fails(costly), several}}, modelcall.Retry{})
		if want := []model.Usage{*costly.Usage, inner}; err != nil || len(failed) != 1 || !reflect.DeepEqual(resp.Failed, want) {
			t.Errorf("told %v, %+v, %v, want %v", failed, resp, err, want)
		}
		last := unavailable
		last.Final, last.Failed = true, []model.Usage{inner}
		_, _, err = retried(t.Context(), &plan{t: t, tries: []fake{fails(costly), fails(last)}}, modelcall.Retry{})
		if e := asError(t, err); !reflect.DeepEqual(e.Failed, []model.Usage{*costly.Usage, inner}) {
			t.Errorf("%+v", e)
		}
	})
}

type timeout struct{}

func (timeout) Error() string { return "timeout" }
func (timeout) Timeout() bool { return true }
