package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// silent is a feed that says nothing, and fails when it is told to.
type silent struct{ fails chan error }

func (s *silent) Ready() <-chan struct{}     { return nil }
func (*silent) Lags() bool                   { return false }
func (*silent) Weight(context.Context) int64 { return 0 }
func (s *silent) Next(context.Context) ([]session.Placed, error) {
	select {
	case err := <-s.fails:
		return nil, err
	default:
		return nil, nil
	}
}

// A stream that says nothing for long follows its session however often the owner is lost, and gives up when none is
// found for a minute, with an error for clients; one whose client is gone is not said to have failed.
func TestRoamer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		now := &silent{fails: make(chan error, 1)}
		away := false
		r := newRoamer(now, func() {}, func(session.Placed) {})
		r.stays = func() bool { return true }
		r.attach = func(context.Context) (feed, func(), error) {
			if away {
				return nil, nil, errAway
			}
			return now, func() {}, nil
		}
		defer r.close()
		for range 5 {
			time.Sleep(45 * time.Second)
			now.fails <- errAway
			if _, err := r.Next(ctx); err != nil {
				t.Fatalf("the owner is lost: %v", err)
			}
			<-r.Ready()
			if _, err := r.Next(ctx); err != nil || r.now == nil {
				t.Fatalf("there is another one: %v", err)
			}
		}
		away = true
		now.fails <- errAway
		_, err := r.Next(ctx)
		for since := time.Now(); err == nil; {
			if time.Since(since) > 2*roamFor {
				t.Fatal("it looks for the owner for ever")
			}
			<-r.Ready()
			_, err = r.Next(ctx)
		}
		if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != codeUnavailable {
			t.Errorf("nobody is found: %v", err)
		}
		cancel()
		if _, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("the client is gone: %v", err)
		}
	})
}
