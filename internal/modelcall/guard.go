package modelcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
)

// maxWaiting is how many deltas may wait for the caller's goroutine.
const maxWaiting = 64

// abortGrace is how long a guard waits for an adapter to return after its context ended, before it
// abandons the adapter.
const abortGrace = 250 * time.Millisecond

// Limits bound one model call. Zero fields take the defaults.
type Limits struct {
	// Provider names the provider in errors; default "model".
	Provider string
	// Idle is how long a call may go without a sign of life; default 5 min, since a model may think
	// in silence. A delta is a sign of life, and so is each byte of a response that comes over
	// adapter.HTTPClient, also of comments and pings; Total bounds a provider that sends nothing
	// else. Negative means no limit.
	Idle time.Duration
	// Total is how long one try of a call may take; default 10 min. Negative means no limit.
	Total time.Duration
	// ResponseBytes bounds a response: text, thoughts, arguments, signatures and inline data
	// together; default 16 MiB.
	ResponseBytes int
	// Calls bounds the function calls of one response; default 128.
	Calls int
	// Counters, when not nil, counts what the guard had to contain.
	Counters *Counters
	// Breaker, when not nil, suspends the calls of a model that keeps failing; see Wrap.
	Breaker *Breaker
	// OnTry, when not nil, receives each try of a call of Wrap after its end, on the calling goroutine.
	OnTry func(context.Context, Tried)
	// Retry says when Wrap makes a failed call again. A guard alone makes one try.
	Retry Retry
}

// Counters counts what guards had to contain; safe for concurrent use.
type Counters struct {
	// Abandoned is the number of adapter goroutines that still run although their call is over.
	Abandoned atomic.Int64
	// LateDeltas is the number of deltas that came after the end of their call.
	LateDeltas atomic.Int64
	// Panics is the number of adapter panics.
	Panics atomic.Int64
}

// PanicError is the cause of an error of an adapter that panicked. It is for logs only.
type PanicError struct {
	// Value is what the adapter panicked with.
	Value any
	// Stack is the adapter's stack.
	Stack []byte
}

// Error hides the value, which may hold anything.
func (e *PanicError) Error() string { return "adapter panicked" }

// Guard returns llm with its contract enforced. Panics become errors; silence and endless responses
// end; a response that breaks the contract becomes an error (KindUnavailable); text that an adapter
// returned but did not emit is emitted. When ctx ends, Generate returns promptly even if the
// adapter hangs: the guard then abandons the adapter and drops what it still emits. If the adapter
// returns in time, the error has the usage that its provider reported.
func Guard(llm model.LLM, limits Limits) model.LLM {
	limits.Provider = cmp.Or(limits.Provider, "model")
	limits.Idle = cmp.Or(limits.Idle, 5*time.Minute)
	limits.Total = cmp.Or(limits.Total, 10*time.Minute)
	limits.ResponseBytes = cmp.Or(limits.ResponseBytes, 16<<20)
	limits.Calls = cmp.Or(limits.Calls, 128)
	if limits.Counters == nil {
		limits.Counters = new(Counters)
	}
	return &guard{llm: llm, limits: limits}
}

// guard is immutable.
type guard struct {
	llm    model.LLM
	limits Limits
}

// outcome is what an adapter returned.
type outcome struct {
	resp *model.Response
	err  error
}

// usage returns what the provider reported that the call took, zero for nothing.
func (o outcome) usage() model.Usage {
	if o.resp != nil {
		return o.resp.Usage
	}
	if u := usageOf(o.err); u != nil {
		return *u
	}
	return model.Usage{}
}

// Generate implements LLM.
func (g *guard) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	info := From(ctx)
	if info.OnRaw == nil {
		return g.generate(ctx, req, emit)
	}
	tapCtx, tap := wiretap.New(ctx)
	resp, err := g.generate(tapCtx, req, emit)
	for _, a := range tap.Close() {
		raw := Raw{
			Attempt: max(info.Try, 1), Provider: g.limits.Provider, Status: a.Status, ContentType: a.ContentType,
			Body: a.Body, Truncated: a.Truncated,
		}
		if cause := info.OnRaw(raw); cause != nil {
			return nil, g.unreported(ctx, cause, outcome{resp, err}.usage())
		}
	}
	return resp, err
}

// unreported returns the error of a try whose raw payload OnRaw refused, whatever came of the try.
// It is not made again.
func (g *guard) unreported(ctx context.Context, cause error, usage model.Usage) error {
	if ctx.Err() != nil {
		return usage.Spent(ctx.Err())
	}
	e := g.errorf(model.KindUnavailable, "a raw payload could not be reported")
	e.Final, e.Err = true, &UnreportedError{cause}
	return usage.Spent(e)
}

// growStack makes room for what an adapter needs while there is next to nothing on the stack: else it grows in four
// steps, each of which moves all frames of the adapter and of what it calls.
//
//go:noinline
func growStack() byte {
	var frame [12 << 10]byte
	return frame[runtime.NumCPU()&1]
}

// generate makes the call. The adapter runs on a goroutine of its own, which this call owns and its
// context ends. emit runs on the caller's goroutine; of the deltas that wait for it, which are few and
// together no longer than a response, it takes all at once.
func (g *guard) generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	listening, heard := wiretap.Listen(ctx)
	callCtx, cancel := context.WithCancel(listening)
	from := sources{
		heard: heard, deltas: make(chan model.Delta, maxWaiting), done: make(chan outcome, 1),
		over: make(chan struct{}), stop: callCtx.Done(),
	}
	from.left.Store(int64(g.limits.ResponseBytes))
	running := new(atomic.Int32) // 0 running, 1 returned, 2 abandoned
	defer cancel()
	defer func() { g.limits.Counters.LateDeltas.Add(from.end()) }()

	go func() {
		var out outcome
		defer func() {
			if v := recover(); v != nil {
				g.limits.Counters.Panics.Add(1)
				out = outcome{err: &model.Error{
					Kind: model.KindUnavailable, Provider: g.limits.Provider, Message: "the adapter panicked",
					Final: true,
					Err:   &PanicError{Value: v, Stack: debug.Stack()},
				}}
			}
			from.done <- out
			if !running.CompareAndSwap(0, 1) {
				g.limits.Counters.Abandoned.Add(-1)
			}
		}()
		growStack()
		out.resp, out.err = g.llm.Generate(callCtx, req, func(d model.Delta) {
			if !from.send(d) {
				g.limits.Counters.LateDeltas.Add(1)
			}
		})
	}()

	check := newChecker(g.limits)
	out, err := g.drive(ctx, &from, func(d model.Delta) error {
		if d.Text == "" {
			return nil
		}
		if err := check.delta(d); err != nil {
			return err
		}
		emit(d)
		return nil
	})
	if err != nil {
		cancel()
		return nil, g.abandon(&from, running).usage().Spent(err)
	}
	if out.err != nil {
		return nil, out.usage().Spent(g.adapterError(ctx, out.err))
	}
	rest, err := check.response(out.resp)
	if err != nil {
		return nil, out.usage().Spent(err)
	}
	for _, d := range rest {
		emit(d)
	}
	return bounded(out.resp), nil
}

// sources is what comes of a call that is under way.
type sources struct {
	heard  *wiretap.Heard
	deltas chan model.Delta
	done   chan outcome
	over   chan struct{}   // closed when nobody receives deltas any more
	stop   <-chan struct{} // closed when the adapter is to return
	left   atomic.Int64    // bytes that the adapter may still emit
}

// send passes a delta on, on the adapter's goroutine, and reports whether the call still takes deltas. Behind
// a response that is too long nothing more waits: the caller refuses it when it comes to its end.
func (s *sources) send(d model.Delta) bool {
	select {
	case <-s.over:
		return false
	default:
	}
	tooLong := s.left.Add(-int64(len(d.Text))) < 0
	select {
	case s.deltas <- d:
	default:
		select {
		case s.deltas <- d:
		case <-s.over:
			return false
		}
	}
	if tooLong {
		<-s.stop
	}
	return true
}

// waiting calls emit for the deltas that wait, as many as there can be.
func (s *sources) waiting(emit func(model.Delta) error) error {
	for range maxWaiting {
		select {
		case d := <-s.deltas:
			if err := emit(d); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// end takes no more deltas, and returns how many have waited for nobody.
func (s *sources) end() (late int64) {
	close(s.over)
	_ = s.waiting(func(model.Delta) error { // fails for none
		late++
		return nil
	})
	return late
}

// drive passes deltas to emit until the adapter returns, or until it gives up the call and returns
// why.
func (g *guard) drive(ctx context.Context, from *sources, emit func(model.Delta) error) (outcome, error) {
	idle, total := newTimer(g.limits.Idle), newTimer(g.limits.Total)
	defer idle.stop()
	defer total.stop()
	for {
		select {
		case d := <-from.deltas:
			err := emit(d)
			if err == nil {
				err = from.waiting(emit)
			}
			if err != nil {
				return outcome{}, err
			}
			from.heard.Note()
		case out := <-from.done:
			if err := from.waiting(emit); err != nil {
				from.done <- out
				return outcome{}, err
			}
			return out, nil
		case <-ctx.Done():
			return outcome{}, ctx.Err()
		case <-idle.c:
			if left := g.limits.Idle - from.heard.Silence(); left > 0 {
				idle.t.Reset(left)
				continue
			}
			return outcome{}, g.errorf(model.KindTimeout, "the model sent nothing for %v", g.limits.Idle)
		case <-total.c:
			return outcome{}, g.errorf(model.KindTimeout, "the model did not finish within %v", g.limits.Total)
		}
	}
}

// abandon gives an adapter whose context has ended a moment to return. If the adapter does not
// return, abandon counts it as abandoned, and the outcome is empty.
func (g *guard) abandon(from *sources, running *atomic.Int32) outcome {
	grace := time.NewTimer(abortGrace)
	defer grace.Stop()
	for {
		select {
		case out := <-from.done:
			return out
		case <-from.deltas:
			g.limits.Counters.LateDeltas.Add(1)
		case <-grace.C:
			g.limits.Counters.Abandoned.Add(1)
			if !running.CompareAndSwap(0, 2) {
				g.limits.Counters.Abandoned.Add(-1)
			}
			return outcome{}
		}
	}
}

// adapterError turns an adapter's error into one that the contract allows.
func (g *guard) adapterError(ctx context.Context, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e
	}
	return &model.Error{Kind: model.KindUnavailable, Provider: g.limits.Provider, Message: "the model call failed",
		Err: err}
}

// errorf returns an Error of this guard's provider.
func (g *guard) errorf(kind model.Kind, format string, args ...any) *model.Error {
	return &model.Error{Kind: kind, Provider: g.limits.Provider, Message: fmt.Sprintf(format, args...)}
}

// timer is a timer that never fires when its duration is negative.
type timer struct {
	t *time.Timer
	c <-chan time.Time
}

func newTimer(d time.Duration) *timer {
	if d < 0 {
		return &timer{}
	}
	t := time.NewTimer(d)
	return &timer{t: t, c: t.C}
}

func (t *timer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
}

// validText reports whether s may enter the log and the wire, which take UTF-8 only.
func validText(s string) bool { return utf8.ValidString(s) }
