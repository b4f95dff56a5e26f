package modelcall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// fake is an LLM that does what the test says.
type fake func(ctx context.Context, emit func(model.Delta)) (*model.Response, error)

func (f fake) Generate(ctx context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
	return f(ctx, emit)
}

// respond is a complete response with the given parts.
func respond(parts ...*genai.Part) *model.Response {
	return &model.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: parts}, FinishReason: genai.FinishReasonStop}
}

// run makes one guarded call.
func run(ctx context.Context, limits modelcall.Limits, f fake) (*model.Response, []model.Delta, error) {
	var deltas []model.Delta
	limits.Provider = "fake"
	resp, err := modelcall.Guard(f, limits).Generate(ctx, &model.Request{}, func(d model.Delta) { deltas = append(deltas, d) })
	return resp, deltas, err
}

func wantKind(t *testing.T, err error, kind model.Kind, text string) {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != kind || e.Provider != "fake" || !strings.Contains(e.Message, text) {
		t.Fatalf("error %#v, want kind %s of provider fake with %q", err, kind, text)
	}
}

func TestGuardPassesResponsesThrough(t *testing.T) {
	want := respond(&genai.Part{Text: "hm", Thought: true}, &genai.Part{Text: "Hello"}, adapter.NewCall("1", "f", "{}"))
	resp, deltas, err := run(t.Context(), modelcall.Limits{}, func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
		emit(model.Delta{Text: "h", Thought: true})
		emit(model.Delta{Text: "m", Thought: true})
		emit(model.Delta{Text: "Hel"})
		emit(model.Delta{})
		emit(model.Delta{Text: "lo"})
		return want, nil
	})
	if err != nil || resp != want {
		t.Fatalf("got %v, %v", resp, err)
	}
	wantDeltas := []model.Delta{{Text: "h", Thought: true}, {Text: "m", Thought: true}, {Text: "Hel"}, {Text: "lo"}}
	if !reflect.DeepEqual(deltas, wantDeltas) {
		t.Errorf("deltas %v, want %v", deltas, wantDeltas)
	}
}

func TestGuardEmitsWhatTheAdapterDidNot(t *testing.T) {
	_, deltas, err := run(t.Context(), modelcall.Limits{}, func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
		emit(model.Delta{Text: "one "})
		return respond(&genai.Part{Text: "deep", Thought: true}, &genai.Part{Text: "one two"}, adapter.NewCall("", "f", ""), &genai.Part{Text: " three"}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []model.Delta{{Text: "one "}, {Text: "deep", Thought: true}, {Text: "two"}, {Text: " three"}}
	if !reflect.DeepEqual(deltas, want) {
		t.Errorf("deltas %v, want %v", deltas, want)
	}
}

func TestGuardRefusesBrokenResponses(t *testing.T) {
	text := func(s string) *genai.Part { return &genai.Part{Text: s} }
	many := func(n int) []*genai.Part {
		var out []*genai.Part
		for range n {
			out = append(out, adapter.NewCall("", "f", ""))
		}
		return out
	}
	for name, c := range map[string]struct {
		emit string
		resp *model.Response
		want string
	}{
		"nothing":          {"", nil, "neither a response nor an error"},
		"no finish reason": {"", &model.Response{}, "no finish reason"},
		"role":             {"", &model.Response{FinishReason: "STOP", Content: genai.NewContentFromText("x", genai.RoleUser)}, `role "user"`},
		"nil part":         {"", respond(nil), "part 0 of the response is nil"},
		"nameless call":    {"", respond(adapter.NewCall("", "", "")), "has no name"},
		"other text":       {"abc", respond(text("abd")), "not the text of the response"},
		"text missing":     {"abc", respond(text("ab")), "not the text of the response"},
		"text as thought":  {"abc", respond(&genai.Part{Text: "abc", Thought: true}), "not the text of the response"},
		"text not there":   {"abc", &model.Response{FinishReason: "STOP"}, "not the text of the response"},
		"too long":         {"", respond(text(strings.Repeat("x", 101))), "longer than 100 bytes"},
		"too long stream":  {strings.Repeat("x", 101), nil, "longer than 100 bytes"},
		"too many calls":   {"", respond(many(4)...), "4 function calls, at most 3"},
		"not UTF-8":        {"", respond(text("a\xff")), "not UTF-8"},
		"stream not UTF-8": {"a\xff", respond(text("a\xff")), "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, _, err := run(t.Context(), modelcall.Limits{ResponseBytes: 100, Calls: 3}, func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
				if c.emit != "" {
					emit(model.Delta{Text: c.emit})
				}
				return c.resp, nil
			})
			if resp != nil {
				t.Error("a response came with the error")
			}
			wantKind(t, err, model.KindUnavailable, c.want)
		})
	}
}

func TestGuardContainsPanics(t *testing.T) {
	counters := new(modelcall.Counters)
	_, _, err := run(t.Context(), modelcall.Limits{Counters: counters}, func(context.Context, func(model.Delta)) (*model.Response, error) {
		panic("the key is sk-secret")
	})
	wantKind(t, err, model.KindUnavailable, "panicked")
	p, ok := errors.AsType[*modelcall.PanicError](err)
	if !ok || !strings.Contains(string(p.Stack), "guard_test.go") || p.Value != "the key is sk-secret" {
		t.Errorf("error %#v, want a cause with the value and the stack", err)
	}
	if strings.Contains(fmt.Sprint(err, p), "sk-secret") {
		t.Error("the panic's value shows in the error's text")
	}
	if counters.Panics.Load() != 1 {
		t.Errorf("%d panics counted, want 1", counters.Panics.Load())
	}
}

func TestGuardErrors(t *testing.T) {
	own := &model.Error{Kind: model.KindBlocked, Provider: "fake", Message: "no"}
	for name, c := range map[string]struct {
		err  error
		kind model.Kind
	}{
		"own error":         {own, model.KindBlocked},
		"wrapped own error": {fmt.Errorf("call: %w", own), model.KindBlocked},
		"foreign error":     {io.ErrUnexpectedEOF, model.KindUnavailable},
		"false cancel":      {context.Canceled, model.KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := run(t.Context(), modelcall.Limits{}, func(context.Context, func(model.Delta)) (*model.Response, error) { return nil, c.err })
			wantKind(t, err, c.kind, "")
		})
	}
}

// dripping is a server that sends a byte every so often.
type dripping time.Duration

func (d dripping) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: &drip{time.Duration(d), r.Context()}}, nil
}

// drip is the answer of one.
type drip struct {
	interval time.Duration
	ctx      context.Context //nolint:containedctx // of the request whose answer it is
}

func (d *drip) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(d.interval):
		return copy(p, "."), nil
	}
}

func (d *drip) Close() error { return nil }

func TestGuardTimeouts(t *testing.T) {
	// ticking emits every interval until its context ends.
	ticking := func(interval time.Duration) fake {
		return func(ctx context.Context, emit func(model.Delta)) (*model.Response, error) {
			for {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(interval):
					emit(model.Delta{Text: "."})
				}
			}
		}
	}
	// reading gets a byte over HTTP every interval, and has nothing to emit.
	reading := func(interval time.Duration) fake {
		return func(ctx context.Context, _ func(model.Delta)) (*model.Response, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://provider.invalid", nil)
			if err != nil {
				return nil, err
			}
			resp, err := adapter.HTTPClient(dripping(interval), 0).Do(req)
			if err != nil {
				return nil, err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			return nil, errors.Join(err, resp.Body.Close())
		}
	}
	for name, c := range map[string]struct {
		limits modelcall.Limits
		llm    fake
		after  time.Duration
		want   string
	}{
		"silent by default":      {modelcall.Limits{}, ticking(time.Hour), 5 * time.Minute, "nothing for 5m"},
		"silent":                 {modelcall.Limits{Idle: time.Second}, ticking(time.Hour), time.Second, "nothing for 1s"},
		"endless by default":     {modelcall.Limits{}, ticking(time.Minute), 10 * time.Minute, "within 10m"},
		"endless":                {modelcall.Limits{Idle: 2 * time.Second, Total: time.Minute}, ticking(time.Second), time.Minute, "within 1m"},
		"nothing to show":        {modelcall.Limits{}, reading(time.Minute), 10 * time.Minute, "within 10m"},
		"silent over HTTP":       {modelcall.Limits{}, reading(6 * time.Minute), 5 * time.Minute, "nothing for 5m"},
		"silence allowed":        {modelcall.Limits{Idle: -1, Total: time.Hour}, ticking(24 * time.Hour), time.Hour, "within 1h"},
		"both off, until a cut ": {modelcall.Limits{Idle: -1, Total: -1, ResponseBytes: 3}, ticking(time.Hour), 4 * time.Hour, "longer than 3 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, _, err := run(t.Context(), c.limits, c.llm)
				kind := model.KindTimeout
				if c.limits.ResponseBytes > 0 {
					kind = model.KindUnavailable
				}
				wantKind(t, err, kind, c.want)
				if got := time.Since(start); got != c.after {
					t.Errorf("gave up after %v, want %v", got, c.after)
				}
			})
		})
	}
}

// An adapter that ignores its context is left behind; what it still does
// changes nothing and is counted.
func TestGuardLeavesHangingAdaptersBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counters := new(modelcall.Counters)
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, deltas, err := run(ctx, modelcall.Limits{Counters: counters}, func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
			emit(model.Delta{Text: "early"})
			<-release
			emit(model.Delta{Text: "late"})
			return respond(&genai.Part{Text: "earlylate"}), nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		if got := time.Since(start); got > 2*time.Second {
			t.Errorf("returned %v after the start, the context ended after 1s", got)
		}
		if len(deltas) != 1 {
			t.Errorf("deltas %v", deltas)
		}
		if n := counters.Abandoned.Load(); n != 1 {
			t.Errorf("%d abandoned adapters counted, want 1", n)
		}
		close(release)
		synctest.Wait()
		if n := counters.Abandoned.Load(); n != 0 {
			t.Errorf("%d abandoned adapters counted after the last returned, want 0", n)
		}
		if n := counters.LateDeltas.Load(); n != 1 {
			t.Errorf("%d late deltas counted, want 1", n)
		}
		if len(deltas) != 1 {
			t.Errorf("deltas after the return: %v", deltas)
		}
	})
}

// An adapter that emits from a goroutine that outlives it breaks its contract;
// nothing of that reaches the caller.
func TestGuardDropsEmitsAfterReturn(t *testing.T) {
	counters := new(modelcall.Counters)
	var stray sync.WaitGroup
	release := make(chan struct{})
	_, deltas, err := run(t.Context(), modelcall.Limits{Counters: counters}, func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
		stray.Go(func() {
			<-release
			emit(model.Delta{Text: "stray"})
		})
		return respond(), nil
	})
	close(release)
	stray.Wait()
	if err != nil || len(deltas) != 0 || counters.LateDeltas.Load() != 1 {
		t.Errorf("error %v, deltas %v, %d late deltas", err, deltas, counters.LateDeltas.Load())
	}
}

func TestGuardOfAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	called := false
	_, _, err := run(ctx, modelcall.Limits{}, func(context.Context, func(model.Delta)) (*model.Response, error) {
		called = true
		return respond(), nil
	})
	if !errors.Is(err, context.Canceled) || called {
		t.Errorf("error %v, adapter called: %v", err, called)
	}
}

// What the provider said of its usage is not lost with an answer that is refused.
func TestGuardKeepsUsage(t *testing.T) {
	for name, c := range map[string]struct {
		usage model.Usage
		want  *model.Usage
	}{
		"told":     {model.Usage{Prompt: 3, Total: 3}, &model.Usage{Prompt: 3, Total: 3}},
		"not told": {model.Usage{}, nil},
		"nonsense": {model.Usage{Prompt: -3}, nil},
	} {
		resp := respond(adapter.NewCall("", "f", ""), adapter.NewCall("", "f", ""))
		resp.Usage = c.usage
		_, _, err := run(t.Context(), modelcall.Limits{Calls: 1}, func(context.Context, func(model.Delta)) (*model.Response, error) { return resp, nil })
		if got := asError(t, err).Usage; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: usage %+v, want %+v", name, got, c.want)
		}
	}
}

// TestGuardKeepsUsageOfAborted has in the error of a call that was aborted what its
// provider had said by then, and what it had finished meanwhile, which nobody gets.
func TestGuardKeepsUsageOfAborted(t *testing.T) {
	said := model.Usage{Prompt: 7, Total: 7}
	until := func(emits ...string) fake {
		return func(ctx context.Context, emit func(model.Delta)) (*model.Response, error) {
			for _, text := range emits {
				emit(model.Delta{Text: text})
			}
			<-ctx.Done()
			return nil, said.Spent(ctx.Err())
		}
	}
	for name, c := range map[string]struct {
		limits modelcall.Limits
		llm    fake
		kind   model.Kind // "" for the context's own
		want   []model.Usage
	}{
		"cancelled":          {modelcall.Limits{}, until(), "", []model.Usage{said}},
		"cancelled, talking": {modelcall.Limits{}, until("a", "b"), "", []model.Usage{said}},
		"cancelled, done": {modelcall.Limits{}, func(ctx context.Context, _ func(model.Delta)) (*model.Response, error) {
			<-ctx.Done()
			resp := respond(&genai.Part{Text: "late"})
			resp.Usage = said
			return resp, nil
		}, "", []model.Usage{said}},
		"cancelled, failing": {modelcall.Limits{}, func(ctx context.Context, _ func(model.Delta)) (*model.Response, error) {
			<-ctx.Done()
			return nil, said.Spent(adapter.Truncated("fake"))
		}, "", []model.Usage{said}},
		"cancelled, hanging": {modelcall.Limits{}, func(context.Context, func(model.Delta)) (*model.Response, error) {
			time.Sleep(time.Hour)
			return nil, said.Spent(context.Canceled)
		}, "", nil},
		"silent":   {modelcall.Limits{Idle: time.Second}, until(), model.KindTimeout, []model.Usage{said}},
		"too slow": {modelcall.Limits{Total: time.Second}, until(), model.KindTimeout, []model.Usage{said}},
		"too long": {modelcall.Limits{ResponseBytes: 1}, until("ab"), model.KindUnavailable, []model.Usage{said}},
		"by itself": {modelcall.Limits{}, func(context.Context, func(model.Delta)) (*model.Response, error) {
			return nil, said.Spent(context.Canceled)
		}, model.KindUnavailable, []model.Usage{said}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				begin := time.Now()
				_, _, err := run(ctx, c.limits, c.llm)
				if c.kind != "" {
					wantKind(t, err, c.kind, "")
				} else if _, ok := errors.AsType[*model.Error](err); ok || !errors.Is(err, context.DeadlineExceeded) || err.Error() != context.DeadlineExceeded.Error() {
					t.Errorf("error %v (%T), want the context's", err, err)
				}
				if got := modelcall.Took(err); !slices.Equal(got, c.want) {
					t.Errorf("took %v, want %v", got, c.want)
				}
				if took := time.Since(begin); took > time.Minute+time.Second {
					t.Errorf("returned after %v", took)
				}
				time.Sleep(2 * time.Hour) // until nobody hangs any more
			})
		})
	}
}

// TestGuardKeepsOrder: whatever waits for the caller comes to it, in order, before the call is over.
func TestGuardKeepsOrder(t *testing.T) {
	const n = 100
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "%d ", i)
	}
	for range 200 {
		_, deltas, err := run(t.Context(), modelcall.Limits{}, func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
			for word := range strings.SplitAfterSeq(text.String(), " ") {
				emit(model.Delta{Text: word})
			}
			return respond(&genai.Part{Text: text.String()}), nil
		})
		var got strings.Builder
		for _, d := range deltas {
			got.WriteString(d.Text)
		}
		if err != nil || len(deltas) != n || got.String() != text.String() {
			t.Fatalf("%d deltas, error %v: %s", len(deltas), err, got.String())
		}
	}
}

// TestGuardBoundsWhatWaits: an adapter whose caller takes nothing emits no more than a few deltas, and no more text than
// a response may have.
func TestGuardBoundsWhatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		most int64
	}{
		"many": {"x", 66}, // one with the caller, one with the adapter
		"long": {strings.Repeat("x", 400), 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var emitted int64
				release := make(chan struct{})
				adapter := fake(func(ctx context.Context, emit func(model.Delta)) (*model.Response, error) {
					for ctx.Err() == nil {
						emitted++
						emit(model.Delta{Text: c.text})
					}
					return nil, ctx.Err()
				})
				counters := new(modelcall.Counters)
				go func() {
					synctest.Wait()
					if emitted != c.most {
						t.Errorf("%d deltas were emitted, want %d", emitted, c.most)
					}
					close(release)
				}()
				_, err := modelcall.Guard(adapter, modelcall.Limits{Provider: "fake", ResponseBytes: 1000, Counters: counters}).
					Generate(t.Context(), &model.Request{}, func(model.Delta) { <-release })
				wantKind(t, err, model.KindUnavailable, "longer than 1000 bytes")
				if n := counters.Abandoned.Load(); n != 0 {
					t.Errorf("%d adapters were abandoned", n)
				}
			})
		})
	}
}

func BenchmarkGuard(b *testing.B) {
	const n = 200
	text := strings.Repeat("some words of an answer ", n)
	llm := modelcall.Guard(fake(func(_ context.Context, emit func(model.Delta)) (*model.Response, error) {
		for i := range n {
			emit(model.Delta{Text: text[24*i : 24*(i+1)]})
		}
		return respond(&genai.Part{Text: text}), nil
	}), modelcall.Limits{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := llm.Generate(b.Context(), &model.Request{}, func(model.Delta) {}); err != nil {
			b.Fatal(err)
		}
	}
}
