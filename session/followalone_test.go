package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

// network says which servers reach which others.
type network struct {
	mu  sync.Mutex
	cut map[string]bool // by "from to"
}

func (n *network) reaches(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[from+" "+to]
}

func (n *network) set(cut bool, from ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range from {
		for _, to := range []string{"a", "b", "c"} {
			n.cut[f+" "+to] = cut
		}
	}
}

// watchOver watches until the end of the turn as a server does that may not reach the owner. alone counts the messages
// that came while it did not, and heard is whether the bus carries hints.
func (o *observer) watchOver(ctx context.Context, net *network, heard func() bool) (alone int, err error) {
	away := errors.New("the owner is away")
	for {
		asked, a := o.asked, o.at("a")
		w, err := o.attach(ctx)
		far := o.asked > asked
		cut := func() bool { return !net.reaches(o.addr, "a") }
		for err == nil {
			if far && cut() {
				err = away
				break
			}
			msgs, failed := o.next(ctx, w)
			err = failed
			for _, m := range msgs {
				if err := o.take(m); err != nil {
					return alone, err
				}
				if cut() && !heard() {
					alone++
				}
			}
			if err == nil && o.slow != nil {
				time.Sleep(o.slow())
			}
			if err == nil && len(msgs) == 0 {
				select {
				case <-w.Ready():
				case <-time.After(50 * time.Millisecond):
				}
			}
		}
		if w != nil {
			w.Close()
		}
		switch {
		case errors.Is(err, io.EOF):
			return alone, nil
		case errors.Is(err, away), a != o.at("a"):
		case session.IsMoved(err), session.IsOwnerless(err), elsewhere(err) != "":
		default:
			return alone, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestFollowAlone: observers at servers that do not reach the owner, nor hear it, receive what the log has, and all in
// all exactly what they would at the owner: all facts once and in order, and the whole text, though agents speak at the
// same time. So they do when they reach or hear the owner again, and when it dies.
func TestFollowAlone(t *testing.T) {
	alone := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
			pause := func() time.Duration { return time.Duration(draw(200)) * time.Millisecond }
			g := newGroup(t, limits.Limits{WatchItems: 1 + draw(200), WatchBytes: 50 + draw(4000)})
			net := &network{cut: map[string]bool{}}
			g.reach = net.reaches
			if draw(2) == 0 {
				g.bus = newMemBus()
			}
			heard := func() bool { return g.bus != nil && g.bus.Carries() }
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
			for i := range 6 {
				o := &observer{addr: names[1+i%2], at: at, id: id, whole: i >= 3}
				if draw(3) == 0 {
					o.slow = func() time.Duration { return time.Duration(draw(300)) * time.Millisecond }
				}
				observers = append(observers, o)
				late := time.Duration(draw(3)*draw(2000)) * time.Millisecond
				watching.Go(func() {
					time.Sleep(late)
					n, err := o.watchOver(t.Context(), net, heard)
					if err != nil {
						t.Errorf("seed %d, at %s: %v", seed, o.addr, err)
					}
					mu.Lock()
					defer mu.Unlock()
					alone += n
				})
			}
			time.Sleep(time.Duration(draw(1500)) * time.Millisecond)
			if g.bus != nil {
				g.bus.set(true)
			}
			net.set(true, "b", "c")
			if draw(3) > 0 {
				time.Sleep(time.Duration(draw(8000)) * time.Millisecond)
				switch draw(3) {
				case 0:
					net.set(false, "b", "c")
				case 1:
					if g.bus != nil {
						g.bus.set(false)
					}
				}
			}
			if draw(2) == 0 {
				time.Sleep(time.Duration(draw(500)) * time.Millisecond)
				all[0].owns.Die()
				all[0].m.LostAll()
				mu.Lock()
				servers["a"] = all[1]
				mu.Unlock()
				net.set(false, "b", "c")
			}
			watching.Wait()
			for _, whole := range []bool{false, true} {
				replayed := &observer{addr: "a", at: at, id: id, whole: whole}
				if err := replayed.watch(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, o := range observers {
					if o.whole == whole {
						o.same(t, fmt.Sprintf("seed %d: an observer at %s, whole %v", seed, o.addr, whole), &replayed.seen)
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
	t.Logf("%d messages came from the log alone", alone)
	if alone < 1000 {
		t.Errorf("%d messages came from the log alone", alone)
	}
}
