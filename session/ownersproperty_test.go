package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// TestOwnersInAnyOrder has clients use sessions through servers that die, come, let go, lose their sessions and cannot
// reach their owners, in random orders: each prompt is one turn, which ends once; each result that was taken is in the
// log once; and at the end nobody owns anything.
func TestOwnersInAnyOrder(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { ownersWorld(t, seed) })
		})
	}
}

// servers are those of a world that take requests.
type servers struct {
	g *group

	mu   sync.Mutex // protects the fields below
	pick *rand.Rand
	all  []*replica
	made int
}

// add starts one more server.
func (s *servers) add() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	s.all = append(s.all, s.g.join(fmt.Sprintf("server-%d", s.made), inTime))
}

// at returns the server of an address, another one if it is gone or the address is "".
func (s *servers) at(address string) *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all {
		if r.addr == address {
			return r
		}
	}
	return s.all[s.pick.IntN(len(s.all))]
}

func (s *servers) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pick.IntN(n)
}

// replace has a server die, as others see it, and another one take its place. The dead one goes on until it is fenced.
func (s *servers) replace() {
	s.mu.Lock()
	dead := s.all[0]
	s.all = s.all[1:]
	s.mu.Unlock()
	s.add()
	dead.owns.Die()
	if s.n(2) == 0 {
		dead.m.LostAll()
	}
}

// inTime is sayAskSay with time between the steps.
func inTime(ctx context.Context, r *session.Run) error {
	select {
	case <-time.After(time.Duration(200+len(r.TurnID())) * time.Millisecond):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return sayAskSay(ctx, r)
}

func ownersWorld(t *testing.T, seed uint64) {
	g := newGroup(t, limits.Limits{IdleTurn: 20 * time.Second})
	s := &servers{g: g, pick: rand.New(rand.NewPCG(seed, 1))}
	for range 3 {
		s.add()
	}
	const prompts = 4
	ids := []string{"one", "two", "three"}
	var clients sync.WaitGroup
	var mu sync.Mutex // protects the maps
	turns, taken := map[string]string{}, map[string]bool{}
	for _, id := range ids {
		clients.Go(func() {
			for i := range prompts {
				turn := startAnywhere(t, s, id, fmt.Sprintf("%s-%d", id, i))
				answered := finishAnywhere(t, s, id, turn)
				mu.Lock()
				turns[turn], taken["c-"+turn] = id, answered
				mu.Unlock()
			}
		})
	}
	over := make(chan struct{})
	go func() { clients.Wait(); close(over) }()
	for stop := false; !stop; {
		select {
		case <-over:
			stop = true
		case <-time.After(time.Duration(s.n(1500)) * time.Millisecond):
			disturb(s, ids)
		}
	}
	time.Sleep(time.Minute)
	if len(turns) != prompts*len(ids) {
		t.Errorf("%d turns, want %d: %v", len(turns), prompts*len(ids), turns)
	}
	for _, id := range ids {
		checkOwnedLog(t, g, id, prompts, taken)
	}
	if owned := g.Owned(); len(owned) > 0 {
		t.Errorf("still owned:\n%v", g)
	}
}

// disturb does one thing that the clients must not notice but for errors that say to try again.
func disturb(s *servers, ids []string) {
	r, id := s.at(""), ids[s.n(len(ids))]
	switch s.n(7) {
	case 0:
		s.replace()
	case 1:
		r.m.Lost(id)
	case 2:
		if err := s.at("").m.Want(r.t.Context(), id); err != nil {
			r.t.Log(err)
		}
	case 3:
		r.owns.Cut(errors.New("cut off"))
		time.Sleep(time.Duration(s.n(3000)) * time.Millisecond)
		r.owns.Cut(nil)
	case 4:
		if w, err := r.m.WatchSession(r.t.Context(), id, ""); err == nil {
			time.Sleep(time.Duration(s.n(1000)) * time.Millisecond)
			w.Close()
		}
	default:
	}
}

// startAnywhere sends a prompt under a key until a turn has it.
func startAnywhere(t *testing.T, s *servers, id, key string) (turn string) {
	t.Helper()
	address := ""
	for range 1000 {
		started, err := s.at(address).m.Start(t.Context(), session.Request{
			SessionID: id, Create: true, Prompt: key, Agent: tree(), Tools: tools(),
			Once: session.Once{Key: key, Content: key},
		})
		before, again := errors.AsType[*session.Repeated](err)
		switch {
		case err == nil:
			return started.ID()
		case again:
			return before.TurnID
		}
		if address = elsewhere(err); address == "" {
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.Fatalf("%s was not started", key)
	return ""
}

// finishAnywhere follows a turn to its end, and answers its call. It reports whether the answer was taken.
func finishAnywhere(t *testing.T, s *servers, id, turn string) (answered bool) {
	t.Helper()
	address := ""
	var after *int64
	for range 1000 {
		now, w, err := s.at(address).m.Attach(t.Context(),
			session.AttachRequest{SessionID: id, TurnID: turn, After: after, Tools: toolNames()})
		if err != nil {
			if address = elsewhere(err); address == "" {
				time.Sleep(100 * time.Millisecond)
			}
			continue
		}
		for err == nil {
			var failed error
			msgs, next := w.Next(t.Context())
			for _, m := range msgs {
				if seq := m.GetSeq(); seq > 0 {
					if after != nil && seq <= *after {
						t.Fatalf("position %d after %d", seq, *after)
					}
					after = &seq
				}
				if isCall(m) {
					failed = now.SubmitResult(t.Context(), session.ClientResult{CallID: "c-" + turn, Output: new(`"ok"`)})
					answered = answered || failed == nil
				}
			}
			switch {
			case errors.Is(next, io.EOF):
				w.Close()
				return answered
			case next != nil:
				err = next
			case failed != nil:
				err, after = failed, nil // the call comes again
			case len(msgs) == 0:
				<-w.Ready()
			}
		}
		w.Close()
		address = ""
	}
	t.Fatalf("turn %s of %s was not finished", turn, id)
	return false
}

// checkOwnedLog checks the log of a session that has had so many prompts.
func checkOwnedLog(t *testing.T, g *group, id string, prompts int, taken map[string]bool) {
	t.Helper()
	started, ended := map[string]int{}, map[string]int{}
	results, events := map[string]int{}, map[string]int{}
	open := ""
	for i, rec := range g.log(id) {
		if rec.Seq != int64(i+1) {
			t.Fatalf("%s: record %d is at %d", id, rec.Seq, i+1)
		}
		if open != "" && rec.TurnID != open || open == "" && rec.Kind != record.KindTurnStarted {
			t.Errorf("%s: record %d is %s of %s while %q is open", id, rec.Seq, rec.Kind, rec.TurnID, open)
		}
		switch rec.Kind { //nolint:exhaustive // the others are not counted
		case record.KindTurnStarted:
			started[rec.TurnID]++
			open = rec.TurnID
		case record.KindTurnEnded:
			ended[rec.TurnID]++
			open = ""
		case record.KindToolResult:
			results["c-"+rec.TurnID]++
		case record.KindEvent:
			events[rec.TurnID]++
		}
	}
	if len(started) != prompts || len(ended) != prompts {
		t.Errorf("%s: %d turns have started and %d have ended, want %d", id, len(started), len(ended), prompts)
	}
	for turn, n := range started {
		if n != 1 || ended[turn] != 1 || events[turn] != 3 {
			t.Errorf("%s: turn %s has started %d times, ended %d times, and has %d events",
				id, turn, n, ended[turn], events[turn])
		}
		if n := results["c-"+turn]; n != 1 {
			t.Errorf("%s: turn %s has %d results, its client's was taken: %v", id, turn, n, taken["c-"+turn])
		}
	}
	var text []string
	for _, rec := range g.log(id) {
		text = append(text, string(rec.Kind))
	}
	if t.Failed() {
		t.Log(strings.Join(text, " "))
	}
}
