package session_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

// memBus is a bus in memory. While it is down, it loses all.
type memBus struct {
	mu   sync.Mutex // protects the fields below
	down bool
	lose func(subject string) bool // nil: nothing is lost
	sent map[string]int            // by the first part of the subject
	subs map[int]memSub
	next int
}

type memSub struct {
	subject string
	in      chan memHint
}

type memHint struct {
	subject string
	data    []byte
}

func newMemBus() *memBus { return &memBus{subs: map[int]memSub{}, sent: map[string]int{}} }

func (b *memBus) Publish(subject string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return
	}
	kind, _, _ := strings.Cut(subject, ".")
	b.sent[kind]++
	for _, s := range b.subs {
		if b.lose != nil && b.lose(subject) {
			continue
		}
		prefix, below := strings.CutSuffix(s.subject, ">")
		if s.subject != subject && (!below || !strings.HasPrefix(subject, prefix)) {
			continue
		}
		select {
		case s.in <- memHint{subject, data}:
		default:
		}
	}
}

func (b *memBus) Subscribe(subject string, f func(string, []byte)) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id, in := b.next, make(chan memHint, 1<<12)
	b.next++
	b.subs[id] = memSub{subject, in}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for h := range in {
			f(h.subject, h.data)
		}
	}()
	return sync.OnceFunc(func() {
		b.mu.Lock()
		delete(b.subs, id)
		b.mu.Unlock()
		close(in)
		<-done
	}), nil
}

func (b *memBus) Carries() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.down
}

// set lets the bus be down, or up.
func (b *memBus) set(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// A turn that a server lets go of is taken up at once where a bus says so, and soon where none does.
func TestWake(t *testing.T) {
	for _, carried := range []bool{true, false} {
		t.Run(fmt.Sprintf("carried %v", carried), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, limits.Limits{})
				g.bus = newMemBus()
				a := g.join("a", func(ctx context.Context, r *session.Run) error {
					return r.Wait(ctx, false, func(ctx context.Context) error {
						<-ctx.Done()
						return context.Cause(ctx)
					})
				})
				b := g.join("b", sayHello)
				turn := a.start(session.Request{})
				moved := make(chan struct{}, 10)
				defer b.m.WhenMoved(t.Context(), turn.SessionID(), func() { moved <- struct{}{} })()
				synctest.Wait()
				g.bus.set(!carried)
				a.stop()
				time.Sleep(100 * time.Millisecond)
				info, err := b.m.Turn(t.Context(), turn.SessionID(), "")
				if err != nil || (info.End != nil) != carried || (len(moved) > 0) != carried {
					t.Errorf("after 0.1 s: %+v, %v; said to have moved %d times", info.End, err, len(moved))
				}
				time.Sleep(time.Second)
				if info, err := b.m.Turn(t.Context(), turn.SessionID(), ""); err != nil || info.End == nil {
					t.Errorf("after a second: %+v, %v", info.Status, err)
				}
				for range 1000 { // a storm
					b.m.Wake()
				}
				time.Sleep(time.Second)
			})
		})
	}
}
