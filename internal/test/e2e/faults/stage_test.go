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

// line is one answer of a model on the stage.
type line struct {
	thoughts, text []string // one piece each
	calls          []string // tools called together
}

// stage is a provider over HTTP that plays a model of each name, counts its calls
// by turn, and sees how their connections end.
type stage struct {
	t   *testing.T
	url string
	// plays are the answers of each model since the user last spoke, in order. The
	// last one is repeated. Not changed while the stage serves.
	plays map[string][]line
	pause time.Duration // before each piece; not changed while the stage serves
	key   string        // that calls must bear; not changed while the stage serves

	mu      sync.Mutex
	changed *sync.Cond        // a call has begun or come to its end; its lock is mu
	scenes  map[string]*scene // by turn; protected by mu
}

// scene is what a turn has seen of the stage. Its fields are protected by
// stage.mu.
type scene struct {
	calls    int
	told     []providertest.Item // results of tools, each once for a call that tells it
	underWay int
	pieces   int  // sent
	aborted  int  // calls whose connection was closed before their end
	frozen   bool // pieces wait for the end of their requests
}

// turnMark is in the prompt of each turn and names it.
var turnMark = regexp.MustCompile(`<turn [\w.-]+>`)

func newStage(t *testing.T, key string, plays map[string][]line) *stage {
	t.Helper()
	s := &stage{t: t, plays: plays, pause: time.Millisecond, key: key, scenes: map[string]*scene{}}
	s.changed = sync.NewCond(&s.mu)
	_, s.url = fakeprovider.Start(t, s.answer)
	return s
}

// answer answers a model call by the turn and by how often its model has answered in
// it.
func (s *stage) answer(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
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
	play := s.plays[req.Model]
	if len(play) == 0 {
		s.t.Errorf("there is no model %q on the stage", req.Model)
		return refused
	}
	mark, step, results := sceneOf(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.sceneLocked(mark)
	sc.calls++
	sc.underWay++
	sc.told = append(sc.told, results...)
	s.changed.Broadcast()
	return s.reply(sc, play[min(step, len(play)-1)])
}

func (s *stage) sceneLocked(mark string) *scene {
	if s.scenes[mark] == nil {
		s.scenes[mark] = &scene{}
	}
	return s.scenes[mark]
}

// sceneOf finds the turn of a request, how often its model has answered in it, and
// the results that have come since its last answer.
func sceneOf(req *providertest.Request) (mark string, step int, results []providertest.Item) {
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
func (s *stage) reply(sc *scene, l line) fakeprovider.Reply {
	reply := fakeprovider.Reply{
		Thoughts: l.thoughts, Text: l.text, Model: "staged",
		Usage: providertest.Usage{Prompt: 3, Completion: 2, Total: 5},
	}
	for i, name := range l.calls {
		reply.Calls = append(reply.Calls, providertest.ToolCall{Name: name, Args: fmt.Sprintf(`{"z":%d,"a":"x"}`, i)})
	}
	reply.Before = func(ctx context.Context, sent int) error {
		if sent > len(l.thoughts)+len(l.text)+len(l.calls) {
			return nil // what follows the reason to stop comes with it
		}
		return s.wait(ctx, sc)
	}
	reply.Done = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			sc.aborted++
		}
		sc.underWay--
		s.changed.Broadcast()
	}
	return reply
}

// wait lets a piece be sent, unless the turn is frozen or the request is over.
func (s *stage) wait(ctx context.Context, sc *scene) error {
	if err := harness.Wait(ctx, s.pause); err != nil {
		return err
	}
	s.mu.Lock()
	frozen := sc.frozen
	if !frozen {
		sc.pieces++
	}
	s.mu.Unlock()
	if frozen {
		<-ctx.Done()
	}
	return ctx.Err()
}

// freeze has the models of a turn fall silent: calls stay open until they are
// aborted. It returns how many pieces have been sent.
func (s *stage) freeze(mark string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.sceneLocked(mark)
	sc.frozen = true
	return sc.pieces
}

// begun waits until a call of a turn is under way.
func (s *stage) begun(mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.sceneLocked(mark).underWay == 0 {
		s.changed.Wait()
	}
}

// quiet waits until no call of a turn is under way, and returns how many were
// made, and how many of them had their connections closed before their end.
func (s *stage) quiet(mark string) (calls, aborted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.sceneLocked(mark)
	for sc.underWay > 0 {
		s.changed.Wait()
	}
	return sc.calls, sc.aborted
}

// toldOf is what the models of a turn were told of a call, by the provider's id:
// "call_0" is an answer's first.
func (s *stage) toldOf(mark, callID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, res := range s.sceneLocked(mark).told {
		if res.ID == callID {
			out = append(out, res.Text)
		}
	}
	return out
}
