package modelcall_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
)

// flight is a call that is under way in TestBreakerProperty.
type flight struct {
	probe  bool
	spoken bool
	end    chan *model.Error
	say    chan struct{}
	leave  context.CancelFunc
	done   chan error
}

// failed waits for the end of a call, none of which gets an answer.
func (f *flight) failed(t *rapid.T) {
	if err := <-f.done; err == nil {
		t.Error("a call got an answer that nobody gave")
	}
}

// course is what a circuit has to be by the documentation of Breaker.
type course struct {
	failures int
	until    time.Time // zero: closed
	cool     time.Duration
	probe    *flight
	flights  []*flight
}

// TestBreakerProperty holds a breaker against its documentation, over calls of
// several circuits that begin, speak, end and are left in any order.
func TestBreakerProperty(t *testing.T) {
	const failures, first, most = 3, 10 * time.Second, 50 * time.Second
	names := []string{"a", "b"}
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := make(chan *flight, 1)
			p := breakable{func(ctx context.Context, _, _ string, emit func(model.Delta)) (*model.Response, error) {
				f := &flight{end: make(chan *model.Error), say: make(chan struct{})}
				begun <- f
				for {
					select {
					case <-f.say:
						emit(model.Delta{Text: "hi"})
					case e := <-f.end:
						if e != nil {
							return nil, e
						}
						return nil, &model.Error{Kind: model.KindInvalid, Status: 400} // which is an answer, too
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
			}}
			open := guarded(t, p, modelcall.NewBreaker(modelcall.BreakerConfig{Failures: failures, CoolDown: first, MaxCoolDown: most}, slog.New(slog.DiscardHandler)), modelcall.Retry{Tries: 1})
			courses := map[string]*course{}
			llms := map[string]model.LLM{}
			for _, name := range names {
				courses[name], llms[name] = &course{}, open(name, "")
			}
			defer func() {
				for _, c := range courses {
					for _, f := range c.flights {
						f.leave()
						f.failed(rt)
					}
				}
			}()

			begin := func(c *course, llm model.LLM) {
				ctx, leave := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := llm.Generate(ctx, &model.Request{}, func(model.Delta) {})
					done <- err
				}()
				synctest.Wait()
				closed, due := c.until.IsZero(), !time.Now().Before(c.until)
				select {
				case f := <-begun:
					f.leave, f.done = leave, done
					if !closed && (!due || c.probe != nil) {
						rt.Fatalf("a call was let through, %v before the end of the cool-down, probe %t", time.Until(c.until), c.probe != nil)
					}
					if f.probe = !closed; f.probe {
						c.probe = f
					}
					c.flights = append(c.flights, f)
				case err := <-done:
					leave()
					e, ok := errors.AsType[*model.Error](err)
					if !ok || !e.Suspended || closed || due && c.probe == nil {
						rt.Fatalf("a call was not let through: %v, closed %t, due %t, probe %t", err, closed, due, c.probe != nil)
					}
					if want := max(time.Until(c.until), 0); want > 0 && e.RetryAfter != want || want == 0 && e.RetryAfter != first {
						rt.Fatalf("retry after %v, the cool-down has %v left", e.RetryAfter, want)
					}
				}
			}
			fail := func(c *course, f *flight, wish time.Duration) {
				if !c.until.IsZero() && c.probe != f {
					return // from before
				}
				c.failures++
				if c.probe != f && c.failures < failures && wish <= time.Minute {
					return
				}
				if c.until.IsZero() {
					c.cool = first
				} else {
					c.cool = min(2*c.cool, most)
				}
				c.until, c.probe = time.Now().Add(max(c.cool, min(wish, time.Hour))), nil
			}
			succeed := func(c *course, f *flight) {
				if c.until.IsZero() || c.probe == f {
					c.until, c.failures, c.probe = time.Time{}, 0, nil
				}
			}
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				name := rapid.SampledFrom(names).Draw(rt, "circuit")
				c := courses[name]
				what := rapid.IntRange(0, 9).Draw(rt, "what")
				if what < 3 || len(c.flights) == 0 && what < 9 {
					begin(c, llms[name])
					continue
				}
				if what == 9 {
					time.Sleep(time.Duration(rapid.IntRange(1, 60).Draw(rt, "seconds")) * time.Second)
					continue
				}
				i := rapid.IntRange(0, len(c.flights)-1).Draw(rt, "flight")
				f := c.flights[i]
				if what == 3 {
					f.say <- struct{}{}
					synctest.Wait()
					if f.probe && !f.spoken {
						succeed(c, f)
					}
					f.spoken = true
					continue
				}
				c.flights = append(c.flights[:i], c.flights[i+1:]...)
				switch what {
				case 4, 5:
					wish := time.Duration(rapid.SampledFrom([]int{0, 0, 30, 61, 7200}).Draw(rt, "wish")) * time.Second
					f.end <- &model.Error{Kind: model.KindUnavailable, Provider: "fake", RetryAfter: wish}
					f.failed(rt)
					fail(c, f, wish)
				case 6:
					f.end <- nil
					f.failed(rt)
					succeed(c, f)
				case 7:
					f.end <- &model.Error{Kind: model.KindInvalid}
					f.failed(rt)
					if c.probe == f {
						c.probe = nil
					}
				case 8:
					f.leave()
					f.failed(rt)
					if c.probe == f {
						c.probe = nil
					}
				}
				synctest.Wait()
			}
		})
	})
}
