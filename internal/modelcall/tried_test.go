package modelcall_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
)

type llmFunc func(ctx context.Context) (*model.Response, error)

func (f llmFunc) Generate(ctx context.Context, _ *model.Request, _ func(model.Delta)) (*model.Response, error) {
	return f(ctx)
}

// TestOnTry: each try is reported with its outcome, its time and what it took.
func TestOnTry(t *testing.T) {
	usage := model.Usage{Prompt: 3, Completion: 1, Total: 4}
	ok := &model.Response{FinishReason: genai.FinishReasonStop, Usage: usage}
	fails := func(kind model.Kind) error { return &model.Error{Kind: kind, Provider: "p", Usage: &usage} }
	for name, tt := range map[string]struct {
		answers []error // nil is a response
		leaves  bool    // the caller does, before the model responds
		want    []string
	}{
		"a response":            {[]error{nil}, false, []string{"ok"}},
		"a try that is retried": {[]error{fails(model.KindRateLimited), nil}, false, []string{"rate_limited", "ok"}},
		"suspended":             {[]error{fails(model.KindTimeout), fails(model.KindTimeout)}, false, []string{"timeout", "timeout", "suspended"}},
		"of no retry":           {[]error{fails(model.KindInvalid)}, false, []string{"invalid"}},
		"a fault":               {[]error{errors.New("broken")}, false, []string{"unavailable", "unavailable", "suspended"}},
		"a caller who leaves":   {[]error{nil}, true, []string{"canceled"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				n := 0
				llm := llmFunc(func(ctx context.Context) (*model.Response, error) {
					time.Sleep(time.Second)
					if tt.leaves {
						leave()
						<-ctx.Done()
						return nil, ctx.Err()
					}
					if n++; tt.answers[min(n, len(tt.answers))-1] != nil {
						return nil, tt.answers[min(n, len(tt.answers))-1]
					}
					return ok, nil
				})
				var got []modelcall.Tried
				breaker := modelcall.NewBreaker(modelcall.BreakerConfig{Failures: 2, CoolDown: time.Hour}, slog.New(slog.DiscardHandler))
				circuit := modelcall.Circuit{Provider: "p", Model: "m"}
				wrapped := modelcall.Wrap(llm, circuit, nil, modelcall.Limits{
					Breaker: breaker, Retry: modelcall.Retry{Tries: 3, Base: time.Millisecond},
					OnTry: func(_ context.Context, tried modelcall.Tried) { got = append(got, tried) },
				})
				_, _ = wrapped.Generate(ctx, &model.Request{}, func(model.Delta) {})
				var outcomes []string
				for i, tried := range got {
					outcomes = append(outcomes, tried.Outcome)
					suspended := tried.Outcome == modelcall.OutcomeSuspended
					if tried.Circuit != circuit || tried.Try != i+1 || (tried.Took == time.Second) == suspended {
						t.Errorf("try %d: %+v", i+1, tried)
					}
				}
				if !slices.Equal(outcomes, tt.want) {
					t.Errorf("got %v, want %v", outcomes, tt.want)
				}
				states := map[modelcall.State]int{}
				breaker.Each(func(c modelcall.Circuit, s modelcall.State) { states[s]++ })
				if open := slices.Contains(tt.want, "suspended"); (states[modelcall.Open] == 1) != open {
					t.Errorf("the breaker has %v", states)
				}
			})
		})
	}
}
