package faults

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// answer is one answer of a fake model.
type answer struct {
	thoughts, text []string // one piece each
	calls          []string // tools called together
}

// fakeModels answers the calls of each model by a script, counts them by turn, and
// sees how their connections end.
type fakeModels struct {
	t   *testing.T
	url string
	// scripts are the answers of each model after the user last spoke, in order. The
	// last one is repeated. Not changed while the fake serves.
	scripts map[string][]answer
	pause   time.Duration // before each piece; not changed while the fake serves
	key     string        // that calls must bear; not changed while the fake serves

	mu      sync.Mutex
	changed *sync.Cond            // a call has begun or come to its end; its lock is mu
	turns   map[string]*turnCalls // by turn; protected by mu
}

// turnCalls are the model calls of a turn. The fields are protected by
// fakeModels.mu.
type turnCalls struct {
	calls    int
	results  []providertest.Item // of tools, each once for a call that carries it
	underWay int
	pieces   int  // sent
	aborted  int  // calls whose connection was closed before their end
	frozen   bool // pieces wait for the end of their requests
}

// turnMark is in the prompt of each turn and names it.
var turnMark = regexp.MustCompile(`<turn [\w.-]+>`)

func newFakeModels(t *testing.T, key string, scripts map[string][]answer) *fakeModels {
	t.Helper()
	s := &fakeModels{t: t, scripts: scripts, pause: time.Millisecond, key: key, turns: map[string]*turnCalls{}}
	s.changed = sync.NewCond(&s.mu)
	_, s.url = fakeprovider.Start(t, s.answer)
	return s
}

// answer answers a model call by the turn and by how often its model has answered in
// it.
func (s *fakeModels) answer(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
	refused := fakeprovider.Reply{Status: http.StatusBadRequest, Message: "the test does not expect this request"}
	req, err := c.Request()
	if err != nil {
		s.t.Error(err)
		return refused
	}
	if err := providertest.CheckHistory(c.Body, req.Wire, req.Items); err != nil {
		s.t.Errorf("%s is told a history that no provider takes: %v", req.Model, err)
	}
	if got := c.Header.Get("Authorization"); got != "Bearer "+s.key {
		s.t.Errorf("a model call bears the key %q", got)
	}
	script := s.scripts[req.Model]
	if len(script) == 0 {
		s.t.Errorf("there is no script for the model %q", req.Model)
		return refused
	}
	mark, step, results := turnOf(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	tc := s.turnLocked(mark)
	tc.calls++
	tc.underWay++
	tc.results = append(tc.results, results...)
	s.changed.Broadcast()
	return s.reply(tc, script[min(step, len(script)-1)])
}

func (s *fakeModels) turnLocked(mark string) *turnCalls {
	if s.turns[mark] == nil {
		s.turns[mark] = &turnCalls{}
	}
	return s.turns[mark]
}

// turnOf finds the turn of a request, how often its model has answered in it, and
// the results that have come since its last answer.
func turnOf(req *providertest.Request) (mark string, step int, results []providertest.Item) {
	answering := false
	for _, item := range req.Items {
		said := item.Kind == providertest.Assistant || item.Kind == providertest.Call
		// What the user says right after a turn that was stopped may be one item.
		if ms := turnMark.FindAllString(item.Text, -1); len(ms) > 0 && item.Kind == providertest.User {
			mark, step, results = ms[len(ms)-1], 0, nil
		}
		switch {
		case said && !answering:
			step++
			results = nil
		case item.Kind == providertest.Result:
			results = append(results, item)
		}
		answering = said
	}
	return mark, step, results
}

// reply is an answer whose pieces wait for the turn.
func (s *fakeModels) reply(tc *turnCalls, l answer) fakeprovider.Reply {
	reply := fakeprovider.Reply{
		Thoughts: l.thoughts, Text: l.text, Model: "fake",
		Usage: providertest.Usage{Prompt: 3, Completion: 2, Total: 5},
	}
	for i, name := range l.calls {
		reply.Calls = append(reply.Calls, providertest.ToolCall{Name: name, Args: fmt.Sprintf(`{"z":%d,"a":"x"}`, i)})
	}
	reply.Before = func(ctx context.Context, sent int) error {
		if sent > len(l.thoughts)+len(l.text)+len(l.calls) {
			return nil // what follows the reason to stop comes with it
		}
		return s.wait(ctx, tc)
	}
	reply.Done = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			tc.aborted++
		}
		tc.underWay--
		s.changed.Broadcast()
	}
	return reply
}

// wait lets a piece be sent, unless the turn is frozen or the request is over.
func (s *fakeModels) wait(ctx context.Context, tc *turnCalls) error {
	if err := harness.Wait(ctx, s.pause); err != nil {
		return err
	}
	s.mu.Lock()
	frozen := tc.frozen
	if !frozen {
		tc.pieces++
	}
	s.mu.Unlock()
	if frozen {
		<-ctx.Done()
	}
	return ctx.Err()
}

// freeze has the models of a turn fall silent: calls stay open until they are
// aborted. It returns how many pieces have been sent.
func (s *fakeModels) freeze(mark string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	tc := s.turnLocked(mark)
	tc.frozen = true
	return tc.pieces
}

// begun waits until a call of a turn is under way.
func (s *fakeModels) begun(mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.turnLocked(mark).underWay == 0 {
		s.changed.Wait()
	}
}

// quiet waits until no call of a turn is under way, and returns how many were
// made, and how many of them had their connections closed before their end.
func (s *fakeModels) quiet(mark string) (calls, aborted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tc := s.turnLocked(mark)
	for tc.underWay > 0 {
		s.changed.Wait()
	}
	return tc.calls, tc.aborted
}

// resultsOf returns the results that the models of a turn received for a call, by the provider's id:
// "call_0" is an answer's first.
func (s *fakeModels) resultsOf(mark, callID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, res := range s.turnLocked(mark).results {
		if res.ID == callID {
			out = append(out, res.Text)
		}
	}
	return out
}
