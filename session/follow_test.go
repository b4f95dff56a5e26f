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

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// chatter has two agents speak at the same time, several messages each, with a tool call in the middle; what is in the
// log is not said again.
func chatter(pause func() time.Duration) func(context.Context, *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		said := map[string]bool{}
		for rec, err := range r.Records(ctx, r.StartSeq()) {
			if err != nil {
				return err
			}
			if ev, err := (&engine{}).Decode(rec.Data); rec.Kind == record.KindEvent && err == nil {
				said[ev.MessageID] = true
			}
		}
		for step := range 4 {
			var wg sync.WaitGroup
			errs := make(chan error, 2)
			for _, agent := range []string{"x", "y"} {
				id, path := fmt.Sprintf("%s%d", agent, step), []string{"root", agent}
				if said[id] {
					continue
				}
				wg.Go(func() {
					text := ""
					for i := range 12 {
						select {
						case <-ctx.Done():
							errs <- context.Cause(ctx)
							return
						case <-time.After(pause()):
						}
						piece := fmt.Sprintf("%s.%d ", id, i)
						r.Delta(record.Delta{MessageID: id, Path: path, Text: piece, Thought: i < 2})
						if i >= 2 {
							text += piece
						}
					}
					ev := &record.Event{MessageID: id, Path: path, Text: text, Thoughts: fmt.Sprintf("%s.0 %s.1 ", id, id),
						State: map[string]any{id: step}}
					if err := add(ctx, r, ev); err != nil {
						errs <- err
					}
				})
			}
			wg.Wait()
			select {
			case err := <-errs:
				return err
			default:
			}
		}
		return nil
	}
}

// seen is what a client has of a turn.
type seen struct {
	facts []*agentdv1.RunResponse
	texts map[string]string // by message; of a message that was retracted, nothing
	whole map[string]bool   // messages that are complete
	last  int64
}

// take takes a message, as a client does.
func (s *seen) take(m *agentdv1.RunResponse) error {
	if s.texts == nil {
		s.texts, s.whole = map[string]string{}, map[string]bool{}
	}
	if m.GetSeq() == 0 {
		return nil
	}
	if m.GetSeq() <= s.last {
		return fmt.Errorf("position %d after %d: %v", m.GetSeq(), s.last, m)
	}
	s.last = m.GetSeq()
	if c := m.GetOutputChunk(); c != nil && c.GetMessageId() != "" {
		key := fmt.Sprint(c.GetMessageId(), c.GetIsThought())
		s.texts[key] += c.GetContent()
		return nil
	}
	if m.GetMessageRetracted() != nil {
		for key := range s.texts {
			if !s.whole[strings.TrimSuffix(strings.TrimSuffix(key, "true"), "false")] {
				delete(s.texts, key)
			}
		}
	}
	if c := m.GetMessageCompleted(); c != nil {
		s.whole[c.GetMessageId()] = true
	}
	fact := proto.CloneOf(m)
	fact.Replayed = false
	s.facts = append(s.facts, fact)
	return nil
}

// same compares with what another client has.
func (s *seen) same(t *testing.T, who string, want *seen) {
	t.Helper()
	for i := range max(len(s.facts), len(want.facts)) {
		switch {
		case i >= len(s.facts):
			t.Errorf("%s lacks %v", who, want.facts[i])
			return
		case i >= len(want.facts):
			t.Errorf("%s has also %v", who, s.facts[i])
			return
		case !proto.Equal(s.facts[i], want.facts[i]):
			t.Errorf("%s has %v, want %v", who, s.facts[i], want.facts[i])
			return
		}
	}
	for key, text := range want.texts {
		if s.texts[key] != text {
			t.Errorf("%s has of %s %q, want %q", who, key, s.texts[key], text)
		}
	}
	if len(s.texts) != len(want.texts) {
		t.Errorf("%s has %d texts, want %d", who, len(s.texts), len(want.texts))
	}
}

// observer watches a turn at one server, as that server has it do: there, or at the owner.
type observer struct {
	seen
	addr   string                // where it is
	at     func(string) *replica // that serves clients of an address now
	id     string
	whole  bool                 // it watches the session
	slow   func() time.Duration // between two reads; nil: none
	cursor string
	far    int // how often it was served at home while another server owned the session
	asked  int // how often it was served by the owner
}

// feed is what an observer reads.
type feed interface {
	Ready() <-chan struct{}
	Close()
}

// next reads a feed.
func (o *observer) next(ctx context.Context, w feed) (msgs []*agentdv1.RunResponse, err error) {
	if w, is := w.(*session.Watcher); is {
		return w.Next(ctx)
	}
	placed, err := w.(*session.SessionWatcher).Next(ctx)
	for _, p := range placed {
		msgs = append(msgs, p.Message)
		if p.Cursor != "" {
			o.cursor = p.Cursor
		}
		if p.Message.GetEnd() != nil {
			err = io.EOF
		}
	}
	return msgs, err
}

// attach returns what the observer reads; nil with an error.
func (o *observer) attach(ctx context.Context) (feed, error) {
	home := o.at(o.addr)
	if o.whole {
		w, err := home.m.WatchSession(ctx, o.id, o.cursor)
		if addr := elsewhere(err); addr != "" {
			o.asked++
			w, err = o.at(addr).m.WatchSession(ctx, o.id, o.cursor)
		} else if owner, _ := home.owns.Owner(ctx, o.id); err == nil && owner != "" {
			o.far++
		}
		if err != nil {
			return nil, err
		}
		return w, nil
	}
	req := session.AttachRequest{SessionID: o.id, Observe: true, Follow: true}
	if o.last > 0 {
		req.After = &o.last
	}
	_, w, err := home.m.Attach(ctx, req)
	if err == nil {
		if owner, _ := home.owns.Owner(ctx, o.id); owner != "" {
			o.far++
		}
		return w, nil
	}
	if addr := elsewhere(err); addr != "" {
		o.asked++
		req.Follow = false
		_, w, err = o.at(addr).m.Attach(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// watch watches until the end of the turn.
func (o *observer) watch(ctx context.Context) error {
	for {
		a := o.at("a")
		w, err := o.attach(ctx)
		for err == nil {
			var msgs []*agentdv1.RunResponse
			msgs, err = o.next(ctx, w)
			for _, m := range msgs {
				if err := o.take(m); err != nil {
					return err
				}
			}
			if err == nil && o.slow != nil {
				time.Sleep(o.slow())
			}
			if err == nil && len(msgs) == 0 {
				<-w.Ready()
			}
		}
		if w != nil {
			w.Close()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case a != o.at("a"): // it is gone: its clients connect elsewhere, and so do other servers
		case session.IsMoved(err), session.IsOwnerless(err), elsewhere(err) != "":
		default:
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Observers at three servers receive the same, also when the bus loses hints, is away for a while, and when the owner
// dies: all facts once and in order, and the whole text.
func TestFollow(t *testing.T) {
	far, asked := 0, 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			var mu sync.Mutex
			draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
			pause := func() time.Duration { return time.Duration(draw(40)) * time.Millisecond }
			g := newGroup(t, limits.Limits{WatchItems: 1 + draw(200)})
			g.bus = newMemBus()
			if loss := draw(3) * 3; loss > 0 {
				g.bus.lose = func(string) bool { return draw(100) < loss }
			}
			names := []string{"a", "b", "c"}
			servers := map[string]*replica{}
			var all []*replica
			for _, addr := range names {
				r := g.join(addr, chatter(pause))
				servers[addr], all = r, append(all, r)
			}
			at := func(addr string) *replica { mu.Lock(); defer mu.Unlock(); return servers[addr] }
			turn := all[0].start(session.Request{})
			id := turn.SessionID()
			var watching sync.WaitGroup
			var observers []*observer
			for i := range 10 {
				o := &observer{addr: names[i%3], at: at, id: id, whole: i >= 5}
				if draw(3) == 0 {
					o.slow = func() time.Duration { return time.Duration(draw(300)) * time.Millisecond }
				}
				observers = append(observers, o)
				late := time.Duration(draw(3)*draw(400)) * time.Millisecond
				watching.Go(func() {
					time.Sleep(late)
					if err := o.watch(t.Context()); err != nil {
						t.Errorf("at %s: %v", o.addr, err)
					}
				})
			}
			if draw(2) == 0 {
				time.Sleep(time.Duration(draw(600)) * time.Millisecond)
				g.bus.set(true)
				time.Sleep(time.Duration(draw(1500)) * time.Millisecond)
				g.bus.set(false)
			}
			if draw(2) == 0 {
				time.Sleep(time.Duration(draw(500)) * time.Millisecond)
				all[0].owns.Die()
				all[0].m.LostAll()
				mu.Lock()
				servers["a"] = all[1]
				mu.Unlock()
			}
			watching.Wait()
			for _, whole := range []bool{false, true} {
				replayed := &observer{addr: "c", at: at, id: id, whole: whole}
				if err := replayed.watch(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, o := range observers {
					if o.whole == whole {
						o.same(t, fmt.Sprintf("seed %d: an observer at %s, whole %v", seed, o.addr, whole), &replayed.seen)
						far, asked = far+o.far, asked+o.asked
					}
				}
				if len(replayed.texts) != 16 || t.Failed() {
					t.Fatalf("seed %d: %d texts", seed, len(replayed.texts))
				}
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d were served where they are, %d by the owner", far, asked)
	if far < 40 || asked == 0 {
		t.Errorf("%d were served where they are, %d by the owner", far, asked)
	}
}

// An observer who finds the session of a dead server before others do does not keep its turn from going on.
func TestObserverOfDeadServer(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole %v", whole), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, limits.Limits{})
				slow := chatter(func() time.Duration { return time.Second })
				a := g.join("a", slow)
				turn := a.start(session.Request{})
				id := turn.SessionID()
				time.Sleep(5 * time.Second)
				b := g.join("b", slow)
				a.owns.Die()
				a.m.LostAll()
				if whole {
					w, err := b.m.WatchSession(t.Context(), id, "")
					if err != nil {
						t.Fatal(err)
					}
					defer w.Close()
				} else {
					_, w, err := b.m.Attach(t.Context(), session.AttachRequest{SessionID: id, Observe: true})
					if err != nil {
						t.Fatal(err)
					}
					defer w.Close()
				}
				time.Sleep(2 * time.Minute)
				if info, err := b.m.Turn(t.Context(), id, ""); err != nil || info.End == nil {
					t.Errorf("the turn is %v, %v", info.Status, err)
				}
			})
		})
	}
}

// TestFollowTriesAgain: an observer is not told that the database has failed once when it was looked where a session is.
func TestFollowTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{})
		g.bus = newMemBus()
		slow := chatter(func() time.Duration { return time.Second })
		a, b := g.join("a", slow), g.join("b", slow)
		id := a.start(session.Request{}).SessionID()
		b.owns.Blind(io.ErrUnexpectedEOF)
		w, err := b.m.WatchSession(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
	})
}
