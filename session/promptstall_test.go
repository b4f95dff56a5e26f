package session_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// packed is a store that may have no space left.
type packed struct {
	store.Store
	full atomic.Bool
}

func (s *packed) Append(ctx context.Context, b store.Batch) error {
	if s.full.Load() {
		return store.ErrFull
	}
	return s.Store.Append(ctx, b)
}

// Taking back a prompt does not wait for the store: the client has more to say,
// and other sessions have more to do.
func TestTakingBackAPromptWhileTheStoreIsFull(t *testing.T) {
	for name, ends := range map[string]bool{"the running turn ends": true, "the running turn works": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &packed{Store: memory(t)}
				f := newFixture(t, store, limits.Limits{})
				resumeLast := make(chan struct{})
				f.on(func(ctx context.Context, r *session.Run) error {
					if r.Spec().Prompt == "a" {
						<-resumeLast
						if ends {
							return nil
						}
					}
					return talk(ctx, r)
				})
				a := f.start(session.Request{Prompt: "a"})
				wa := a.Watch()
				b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
				wb := b.Watch()
				store.full.Store(true)
				close(resumeLast)
				synctest.Wait() // a's record waits for the store
				begin := time.Now()
				done := make(chan struct{})
				go func() { b.Cancel("not wanted"); close(done) }()
				time.AfterFunc(time.Hour, func() { store.full.Store(false) })
				<-done
				if took := time.Since(begin); took > time.Second {
					t.Errorf("it took %v", took)
				}
				follow(t, wa)
				if e := end(t, follow(t, wb)); e.Completed || e.GetReason() != "not wanted" {
					t.Errorf("b ended with %v", e)
				}
			})
		})
	}
}

// Who asks for a turn does not wait for the store longer than it wants to.
func TestEnqueueBehindAnEndThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gated{Store: memory(t)}
		f := newFixture(t, store, limits.Limits{})
		resumeLast := make(chan struct{})
		f.on(func(context.Context, *session.Run) error {
			<-resumeLast
			return nil
		})
		a := f.start(session.Request{Prompt: "a"})
		wa := a.Watch()
		open := store.shut()
		close(resumeLast)
		synctest.Wait() // the end waits for the store
		time.AfterFunc(5*time.Second, open)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := f.m.Start(ctx, session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
		if took := time.Since(begin); err == nil || took > time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		follow(t, wa)
	})
}
