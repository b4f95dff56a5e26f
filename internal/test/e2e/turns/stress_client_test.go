package turns

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// clientTurn carries a turn by the client library.
type clientTurn struct {
	*stressTurn
	control client.Control
	cancel  context.CancelFunc

	mu   sync.Mutex // protects the fields below, and first and handlers of stressTurn
	seen int        // events
	over bool       // the mood has shown
}

// runClient carries the turn by the client library, with a tool that answers in
// all ways there are.
func (s *stressTurn) runClient(ctx context.Context, c *client.Client) {
	r := &clientTurn{stressTurn: s}
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	tools := client.NewToolSet()
	if err := client.AddTool(tools, "work", "the tool work", r.work); err != nil {
		s.faultf("%v", err)
		return
	}
	opts := []client.RunOption{client.WithInitialState(s.state()), client.WithTools(tools), client.WithControl(&r.control)}
	if s.session != "" {
		opts = append(opts, client.WithSessionID(s.session))
	}
	agent := s.tree.agent
	if s.repeat {
		agent = nil
	}
	if s.delay > 0 && s.mood != finishes {
		timer := time.AfterFunc(s.delay, func() { r.show() })
		defer timer.Stop()
	}
	s.texts = map[string]string{}
	last := map[string]bool{}
	results := map[string]bool{}
	var end *client.End
	var failure error
	for ev, err := range c.Run(ctx, agent, s.prompt(), opts...) {
		if end != nil || failure != nil {
			s.faultf("%v, %v follow the end", ev, err)
		}
		if failure = err; err != nil {
			continue
		}
		switch {
		case harness.As[*client.ConnectionLost](ev) != nil, harness.As[*client.ConnectionRestored](ev) != nil, harness.As[*client.ConnectionAbandoned](ev) != nil:
			continue
		case harness.As[*client.TurnStarted](ev) != nil:
			s.started, s.session = true, ev.SessionID
		case ev.OutputChunk != nil:
			path := strings.Join(ev.OutputChunk.AgentPath, "/")
			if last[path] {
				s.faultf("%s speaks after its last chunk", path)
			}
			last[path] = ev.OutputChunk.Last
			if !ev.OutputChunk.IsThought {
				s.texts[path] += ev.OutputChunk.Content
			}
		case harness.As[*client.ToolCallAnswered](ev) != nil:
			if results[harness.As[*client.ToolCallAnswered](ev).ID] {
				s.faultf("two results of call %s", harness.As[*client.ToolCallAnswered](ev).ID)
			}
			results[harness.As[*client.ToolCallAnswered](ev).ID] = true
		case ev.Error != nil && s.mood != cancels && s.mood != ends && !s.cancelsCalls():
			s.faultf("refused: %v", ev.Error)
		case ev.End != nil:
			end = ev.End
			for path, closed := range last {
				if !closed {
					s.faultf("%s has spoken and had no last chunk", path)
				}
			}
		}
		if !s.started {
			s.faultf("%v comes before Started", ev)
		}
		if r.event(ev) == breaks {
			break
		}
	}
	r.cancel()
	r.judgeRun(end, failure)
}

// event counts an event and lets the mood show when its moment has come. It
// returns breaks if the loop is to be left.
func (r *clientTurn) event(ev *client.Event) mood {
	r.mu.Lock()
	r.seen++
	now := r.mood != finishes && r.seen > r.moment && !r.over
	r.mu.Unlock()
	if ev.ToolCall != nil && r.cancelsCalls() && r.rng.IntN(4) == 0 {
		_ = r.control.CancelTool(ev.ToolCall.ID) // it may be over by now
	}
	if r.rng.IntN(8) == 0 {
		runtime.Gosched()
	}
	if now {
		return r.show()
	}
	return finishes
}

// show does what the mood is, once.
func (r *clientTurn) show() mood {
	r.mu.Lock()
	over := r.over
	r.over = true
	r.mu.Unlock()
	if over {
		return finishes
	}
	switch r.mood {
	case cancels:
		_ = r.control.Cancel() // the run may be over by now
	case ends:
		_ = r.control.End(r.reason())
	case drops:
		r.cancel()
	default: // breaks: the loop does; the others need a raw stream
	}
	return r.mood
}

// cancelsCalls tells whether the client cancels single calls, while its handlers
// answer them: whatever comes second is refused.
func (s *stressTurn) cancelsCalls() bool { return s.number%5 == 0 }

func (r *clientTurn) judgeRun(end *client.End, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, n := range r.handlers {
		if n != 1 {
			r.faultf("the handler ran %d times for call %s", n, id)
		}
	}
	if err := r.tree.checkTexts(strconv.Itoa(r.number), r.texts, end != nil && end.Completed); err != nil && r.started {
		r.faultf("%v", err)
	}
	if end != nil {
		r.end = &agentdv1.RunResponse_EndResponse{Completed: end.Completed, UsageSummary: summaryOf(end.Usage)}
	}
	switch {
	case errors.Is(failure, client.ErrSessionBusy):
		r.busy = true
	case errors.Is(failure, client.ErrUnavailable) && strings.Contains(failure.Error(), "heartbeats"):
		r.lost = true // a machine under load is slow, and the intervals are short
	case failure != nil && !(r.mood == drops && errors.Is(failure, context.Canceled)):
		r.faultf("%v", failure)
	case failure == nil && end == nil && r.mood != breaks && r.mood != drops:
		r.faultf("the run has neither an end nor an error")
	case end != nil && !end.Completed && (r.mood != cancels && r.mood != ends):
		r.faultf("not completed: %+v", end)
	case end != nil && !end.Completed && r.mood == ends && end.Reason != r.reason():
		r.faultf("reason %q, want %q", end.Reason, r.reason())
	}
}

type workInput struct {
	N int `json:"n"`
}

// work is the tool: it takes a moment, and answers, fails or panics.
func (r *clientTurn) work(ctx context.Context, in workInput) (any, error) {
	call := client.CallFrom(ctx)
	id := call.ID()
	r.mu.Lock()
	r.handlers[id]++
	r.mu.Unlock()
	path := strings.Join(call.AgentPath(), "/")
	if in.N < 0 || in.N >= callsOfAnswer || r.tree.paths[path[strings.LastIndex(path, "/")+1:]] != path {
		return nil, fmt.Errorf("input %d from %s", in.N, path) // which is not what the log is expected to hold
	}
	if err := harness.Wait(ctx, time.Duration((in.N*7+r.number)%11)*100*time.Microsecond); err != nil {
		return nil, err
	}
	what := sent{output: new(fmt.Sprintf(`{"told":%q}`, id))}
	switch (in.N + r.number) % 16 {
	case 3:
		what = sent{err: "no " + id}
	case 7:
		what = sent{err: "the tool panicked: at " + id}
	}
	r.mu.Lock()
	r.first[id] = what
	r.mu.Unlock()
	switch {
	case what.output != nil:
		return map[string]string{"told": id}, nil
	case strings.HasPrefix(what.err, "no "):
		return nil, errors.New(what.err)
	default:
		panic("at " + id)
	}
}

// summaryOf is as much of the usage of an end as is compared.
func summaryOf(u *client.Usage) *agentdv1.UsageSummary {
	return &agentdv1.UsageSummary{
		LlmCalls: int32(u.ModelCalls), TotalUsage: &agentdv1.TokenUsage{TotalTokens: int32(u.TotalTokens)},
	}
}
