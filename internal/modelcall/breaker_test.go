package modelcall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// breakable serves models that do what a test says.
type breakable struct {
	do func(ctx context.Context, name, key string, emit func(model.Delta)) (*model.Response, error)
}

func (breakable) Describe() model.Description { return model.Description{Name: "fake"} }

func (p breakable) Open(name, key string) (model.Model, error) {
	return model.Model{LLM: fake(func(ctx context.Context, emit func(model.Delta)) (*model.Response, error) {
		return p.do(ctx, name, key, emit)
	})}, nil
}

// guarded opens a model of a provider behind a breaker.
func guarded(t testing.TB, p model.Provider, b *modelcall.Breaker, retry modelcall.Retry) func(name, key string) model.LLM {
	t.Helper()
	reg, err := models.NewRegistry(p)
	if err != nil {
		t.Fatal(err)
	}
	return func(name, key string) model.LLM {
		ref, err := reg.Resolve("fake/"+name, map[string]string{"fake": key})
		if err != nil {
			t.Fatal(err)
		}
		return ref.Guarded(modelcall.Limits{Breaker: b, Retry: retry, Idle: -1, Total: -1})
	}
}

// steady is a model whose calls end as the test says at the time.
type steady struct {
	err   *model.Error // nil: it answers
	made  int
	llm   model.LLM
	log   bytes.Buffer
	calls func(name, key string) model.LLM
}

func newSteady(t *testing.T, cfg modelcall.BreakerConfig) *steady {
	t.Helper()
	s := &steady{}
	p := breakable{func(context.Context, string, string, func(model.Delta)) (*model.Response, error) {
		s.made++
		if s.err != nil {
			e := *s.err
			return nil, &e
		}
		return respond(), nil
	}}
	s.calls = guarded(t, p, modelcall.NewBreaker(cfg, slog.New(slog.NewTextHandler(&s.log, nil))), modelcall.Retry{Tries: 1})
	s.llm = s.calls("m", "")
	return s
}

// call makes a call, and reports whether it reached the model.
func (s *steady) call(llm model.LLM) (made bool, err error) {
	before := s.made
	_, err = llm.Generate(context.Background(), &model.Request{}, func(model.Delta) {})
	return s.made > before, err
}

// until makes calls until the breaker has opened, at most n.
func (s *steady) until(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if made, _ := s.call(s.llm); !made {
			t.Fatalf("call %d was not made", i)
		}
	}
	made, err := s.call(s.llm)
	if e := asError(t, err); made || !e.Suspended {
		t.Fatalf("after %d failures a call is made, or not suspended: %v", n, err)
	}
}

// TestBreakerOpens holds the course of a circuit: closed, open for the cool-down,
// half open, open for twice as long up to the cap, closed.
func TestBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSteady(t, modelcall.BreakerConfig{Failures: 3, CoolDown: 10 * time.Second, MaxCoolDown: 35 * time.Second})
		s.err = &unavailable
		s.until(t, 3)
		for i, seconds := range []int{10, 20, 35, 35} {
			cool := time.Duration(seconds) * time.Second
			time.Sleep(cool - time.Second)
			made, err := s.call(s.llm)
			if e := asError(t, err); made || !e.Suspended || e.Kind != model.KindUnavailable || e.RetryAfter != time.Second || !e.Temporary() ||
				e.Error() != fmt.Sprintf("fake: not called: the model is suspended (failures in a row: %d, the last one: unavailable with status 503)", 3+i) {
				t.Errorf("after %v of %v: made %t, %v, retry after %v", cool-time.Second, cool, made, err, e.RetryAfter)
			}
			time.Sleep(time.Second)
			if made, _ := s.call(s.llm); !made {
				t.Errorf("after %v no call is let through", cool)
			}
		}
		time.Sleep(35 * time.Second)
		s.err = nil
		if made, err := s.call(s.llm); !made || err != nil {
			t.Errorf("the last probe: made %t, %v", made, err)
		}
		// Closed again, it counts from the beginning, and cools down from the beginning.
		s.err = &unavailable
		s.until(t, 3)
		time.Sleep(10 * time.Second)
		if made, _ := s.call(s.llm); !made {
			t.Error("the cool-down did not begin anew")
		}
		if log := s.log.String(); strings.Count(log, "level=WARN") != 9 || strings.Count(log, "its calls resume") != 1 || strings.Contains(log, "overloaded") ||
			!strings.Contains(log, "provider=fake model=m callers_key=false for=10s failures=3 last=unavailable status=503") {
			t.Errorf("log\n%s", log)
		}
	})
}

// TestBreakerCounts says which errors count: those that pass, in a row.
func TestBreakerCounts(t *testing.T) {
	status := func(n int) *model.Error { return adapter.Failure{Provider: "fake", Status: n}.Error() }
	for name, c := range map[string]struct {
		err    *model.Error
		counts bool // as a failure
		clears bool // what was counted before
	}{
		"500":                      {status(500), true, false},
		"529":                      {status(529), true, false},
		"429":                      {status(429), true, false},
		"a timeout":                {&model.Error{Kind: model.KindTimeout}, true, false},
		"a broken stream":          {adapter.Truncated("fake"), true, false},
		"400":                      {status(400), false, true},
		"401":                      {status(401), false, true},
		"403":                      {status(403), false, true},
		"404":                      {status(404), false, true},
		"blocked":                  {&model.Error{Kind: model.KindBlocked, Status: 400}, false, true},
		"refused by the adapter":   {&model.Error{Kind: model.KindInvalid}, false, false},
		"501":                      {status(501), false, false},
		"a final limit":            {&model.Error{Kind: model.KindRateLimited, Status: 429, Final: true}, false, false},
		"an answer":                {nil, false, true},
		"an answer that is no one": {&model.Error{Kind: model.KindUnavailable, Final: true}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSteady(t, modelcall.BreakerConfig{Failures: 4})
				s.err = &unavailable
				for range 2 {
					_, _ = s.call(s.llm)
				}
				s.err = c.err
				_, _ = s.call(s.llm)
				s.err = &unavailable
				left := 2
				if c.counts {
					left = 1
				} else if c.clears {
					left = 4
				}
				s.until(t, left)
			})
		})
	}
}

// TestBreakerRetryAfter opens for as long as a provider asks, at once when that is
// too long to be waited for, and at most for an hour.
func TestBreakerRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		kind  model.Kind
		asks  time.Duration
		calls int
		opens time.Duration
	}{
		"short":         {model.KindRateLimited, 5 * time.Second, 3, 10 * time.Second},
		"longer":        {model.KindRateLimited, 40 * time.Second, 3, 40 * time.Second},
		"just bearable": {model.KindUnavailable, time.Minute, 3, time.Minute},
		"too long":      {model.KindRateLimited, 61 * time.Second, 1, 61 * time.Second},
		"much too long": {model.KindUnavailable, 20 * time.Hour, 1, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSteady(t, modelcall.BreakerConfig{Failures: 3})
				s.err = &model.Error{Kind: c.kind, Provider: "fake", RetryAfter: c.asks}
				s.until(t, c.calls)
				_, err := s.call(s.llm)
				if e := asError(t, err); e.Kind != c.kind || e.RetryAfter != c.opens {
					t.Errorf("%v, retry after %v, want %v", err, e.RetryAfter, c.opens)
				}
				time.Sleep(c.opens)
				if made, _ := s.call(s.llm); !made {
					t.Error("no call is let through")
				}
			})
		})
	}
}

// TestBreakerKeys keeps circuits apart by model and key, tells no key, and forgets
// the circuit that was not used for the longest time.
func TestBreakerKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSteady(t, modelcall.BreakerConfig{Failures: 2, Circuits: 3})
		s.err = &unavailable
		bad := s.calls("m", "canary-key")
		for range 2 {
			_, _ = s.call(bad)
		}
		if made, _ := s.call(bad); made {
			t.Fatal("the circuit did not open")
		}
		s.err = nil
		for _, other := range []model.LLM{s.calls("m", ""), s.calls("m", "another-key"), s.calls("n", "canary-key")} {
			if made, err := s.call(other); !made || err != nil {
				t.Errorf("another circuit: made %t, %v", made, err)
			}
		}
		if made, _ := s.call(s.calls("m", "canary-key")); made {
			t.Error("the same model opened again has another circuit")
		}
		if log := s.log.String(); strings.Contains(log, "canary-key") || !strings.Contains(log, "callers_key=true") {
			t.Errorf("log\n%s", log)
		}

		// A used circuit outlives those that come later.
		s.err = &unavailable
		for i := range 5 {
			_, _ = s.call(s.calls(fmt.Sprint("other", i), ""))
			if made, _ := s.call(bad); made {
				t.Fatalf("the circuit in use was forgotten for other number %d", i)
			}
		}
		for i := range 3 {
			_, _ = s.call(s.calls(fmt.Sprint("new", i), ""))
		}
		if made, _ := s.call(bad); !made {
			t.Error("more circuits are kept than configured")
		}
	})
}

// TestBreakerProbe lets one call through, whose first text closes the circuit; one
// that its caller leaves, or that says nothing of the provider, makes way for the
// next.
func TestBreakerProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made atomic.Int32
		down := true
		speak, finish := make(chan struct{}), make(chan struct{})
		p := breakable{func(ctx context.Context, _, _ string, emit func(model.Delta)) (*model.Response, error) {
			made.Add(1)
			if down {
				e := unavailable
				return nil, &e
			}
			select {
			case <-speak:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			emit(model.Delta{Text: "hi"})
			<-finish
			return nil, adapter.Truncated("fake")
		}}
		llm := guarded(t, p, modelcall.NewBreaker(modelcall.BreakerConfig{Failures: 1}, slog.New(slog.DiscardHandler)), modelcall.Retry{Tries: 1})("m", "")
		call := func(ctx context.Context) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := llm.Generate(ctx, &model.Request{}, func(model.Delta) {})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		if err := <-call(t.Context()); err == nil {
			t.Fatal("the model is not down")
		}
		down = false
		time.Sleep(10 * time.Second)

		ctx, leave := context.WithCancel(t.Context())
		first := call(ctx)
		if e := asError(t, <-call(t.Context())); made.Load() != 2 || !e.Suspended || e.RetryAfter != 10*time.Second ||
			!strings.Contains(e.Message, "another call finds out") {
			t.Errorf("beside the probe: %d calls made, %v, retry after %v", made.Load(), e, e.RetryAfter)
		}
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the probe ended with %v", err)
		}

		second := call(t.Context())
		if e := asError(t, <-call(t.Context())); made.Load() != 3 || !e.Suspended {
			t.Errorf("beside the second probe: %d calls made, %v", made.Load(), e)
		}
		speak <- struct{}{}
		synctest.Wait()
		third := call(t.Context())
		if made.Load() != 4 {
			t.Error("a probe that speaks has not closed the circuit")
		}
		speak <- struct{}{}
		finish <- struct{}{}
		finish <- struct{}{}
		for _, done := range []chan error{second, third} {
			if e := asError(t, <-done); e.Suspended {
				t.Errorf("got %v", e)
			}
		}
		if e := asError(t, <-call(t.Context())); !e.Suspended || made.Load() != 4 {
			t.Errorf("after answers that broke: %v", e)
		}
	})
}

// TestBreakerPanic does not keep a circuit half open for an adapter that panics.
func TestBreakerPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		p := breakable{func(context.Context, string, string, func(model.Delta)) (*model.Response, error) {
			switch made++; made {
			case 1:
				e := unavailable
				return nil, &e
			case 2:
				panic("a fault of the adapter")
			default:
				return respond(), nil
			}
		}}
		llm := guarded(t, p, modelcall.NewBreaker(modelcall.BreakerConfig{Failures: 1}, slog.New(slog.DiscardHandler)), modelcall.Retry{Tries: 1})("m", "")
		for i, want := range []string{"overloaded", "panicked", ""} {
			_, err := llm.Generate(t.Context(), &model.Request{}, func(model.Delta) {})
			if want == "" && err != nil || want != "" && !strings.Contains(asError(t, err).Message, want) {
				t.Errorf("call %d: %v, want %q", i, err, want)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// TestBreakerWaits: without a replacement a suspended call is waited for as the
// error says, with one it fails at once.
func TestBreakerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down, made := true, 0
		p := breakable{func(context.Context, string, string, func(model.Delta)) (*model.Response, error) {
			made++
			if down {
				e := unavailable
				return nil, &e
			}
			return respond(), nil
		}}
		llm := guarded(t, p, modelcall.NewBreaker(modelcall.BreakerConfig{Failures: 5}, slog.New(slog.DiscardHandler)), modelcall.Retry{})("m", "")
		call := func(replaceable bool) (failed []modelcall.FailedTry, err error) {
			ctx := modelcall.With(t.Context(), modelcall.Info{Replaceable: replaceable, OnRetry: func(f modelcall.FailedTry) error {
				failed = append(failed, f)
				return nil
			}})
			_, err = llm.Generate(ctx, &model.Request{}, func(model.Delta) {})
			return failed, err
		}
		if failed, err := call(true); len(failed) != 4 || asError(t, err).Suspended {
			t.Fatalf("told %v, %v", failed, err)
		}
		down = false
		begin := time.Now()
		if failed, err := call(true); len(failed) != 0 || !asError(t, err).Suspended || time.Since(begin) != 0 || made != 5 {
			t.Errorf("replaceable: told %v, %v after %v, %d made", failed, err, time.Since(begin), made)
		}
		if failed, err := call(false); err != nil || len(failed) != 1 || failed[0].Wait != 10*time.Second || time.Since(begin) != 10*time.Second || made != 6 {
			t.Errorf("told %v, %v after %v, %d made", failed, err, time.Since(begin), made)
		}
	})
}

// TestBreakerOff: no breaker leaves all calls through, and what runs here has none.
func TestBreakerOff(t *testing.T) {
	if b := modelcall.NewBreaker(modelcall.BreakerConfig{Failures: -1}, slog.New(slog.DiscardHandler)); b != nil {
		t.Error("a breaker that is off")
	}
	s := newSteady(t, modelcall.BreakerConfig{Failures: -1})
	s.err = &unavailable
	for range 50 {
		if made, _ := s.call(s.llm); !made {
			t.Fatal("a call was not made")
		}
	}
}

// TestBreakerConcurrent has callers on many goroutines: of a circuit that is not
// closed one call is made at a time, and once the model answers all go through.
func TestBreakerConcurrent(t *testing.T) {
	const circuits, callers = 3, 8
	var now [circuits]atomic.Int32 // calls under way
	var works atomic.Bool
	p := breakable{func(_ context.Context, name, _ string, _ func(model.Delta)) (*model.Response, error) {
		i := int(name[0] - '0')
		if n := now[i].Add(1); n > 1 && !works.Load() {
			t.Errorf("%d calls at once", n)
		}
		defer now[i].Add(-1)
		if works.Load() {
			return respond(), nil
		}
		e := unavailable
		return nil, &e
	}}
	cfg := modelcall.BreakerConfig{Failures: 1, CoolDown: time.Microsecond, MaxCoolDown: 50 * time.Microsecond, Circuits: circuits}
	open := guarded(t, p, modelcall.NewBreaker(cfg, slog.New(slog.DiscardHandler)), modelcall.Retry{Tries: 1})
	call := func(llm model.LLM) error {
		_, err := llm.Generate(t.Context(), &model.Request{}, func(model.Delta) {})
		return err
	}
	var wg sync.WaitGroup
	for i := range circuits {
		llm := open(fmt.Sprint(i), "")
		_ = call(llm) // opens the circuit
		for range callers {
			wg.Go(func() {
				for range 200 {
					_ = call(llm)
				}
			})
		}
	}
	wg.Wait()
	works.Store(true)
	for i := range circuits {
		llm := open(fmt.Sprint(i), "")
		for call(llm) != nil { // until the cool-down is over
			time.Sleep(time.Millisecond)
		}
		if err := call(llm); err != nil {
			t.Errorf("circuit %d is not closed: %v", i, err)
		}
	}
}

// An operator sees the beginning of an outage with its first failure, and its end, also when it is too short to
// suspend calls. Errors that are the caller's are no outage.
func TestBreakerLogsTheBeginningOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSteady(t, modelcall.BreakerConfig{Failures: 5})
		for _, err := range []*model.Error{
			nil, {Kind: model.KindInvalid, Status: 400}, {Kind: model.KindUnavailable, Status: 503, Message: "overloaded"},
			{Kind: model.KindRateLimited, Status: 429}, nil, nil,
		} {
			s.err = err
			_, _ = s.llm.Generate(t.Context(), &model.Request{}, func(model.Delta) {})
		}
		var lines []string
		for line := range strings.Lines(s.log.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), "level=")
			lines = append(lines, line)
		}
		want := []string{
			`WARN msg="a model fails" provider=fake model=m callers_key=false last=unavailable status=503`,
			`INFO msg="a model responds again" provider=fake model=m callers_key=false failures=2`,
		}
		if !slices.Equal(lines, want) {
			t.Errorf("log\n%s", strings.Join(lines, "\n"))
		}
	})
}
