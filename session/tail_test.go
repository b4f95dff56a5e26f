package session_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// readsCounted counts the reads of logs.
type readsCounted struct {
	store.Store
	reads atomic.Int64
}

func (s *readsCounted) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	s.reads.Add(1)
	return s.Store.Read(ctx, id, after, limit)
}

// TestFollowingReadsNothing follows turns whose runs read the history as well:
// what was written a moment ago is in memory, and what is not is still read.
func TestFollowingReadsNothing(t *testing.T) {
	store := &readsCounted{Store: memory(t)}
	f := newFixture(t, store, limits.Limits{})
	known := int64(0) // as a runner that has kept the history
	heard := make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		for rec, err := range r.Records(ctx, known) {
			if err != nil {
				return err
			}
			if known++; rec.Seq != known {
				t.Errorf("record %d follows %d", rec.Seq, known-1)
			}
		}
		known += 2 // the end is news to the next turn
		err := errors.Join(say(ctx, r, "1", root, "one"), say(ctx, r, "2", root, "two"))
		<-heard // who comes when the turn is over does read
		return err
	})
	id := ""
	for range 3 {
		turn := f.start(session.Request{SessionID: id})
		id = turn.SessionID()
		w := turn.Watch()
		got := await(t, w, func(m *agentdv1.RunResponse) bool { return m.GetOutputChunk().GetContent() == "two" })
		heard <- struct{}{}
		if got := texts(append(got, follow(t, w)...))["root"]; got != "onetwo" {
			t.Errorf("the watcher reads %q", got)
		}
		<-turn.Done()
	}
	if n := store.reads.Load(); n != 0 {
		t.Errorf("%d reads of the log", n)
	}
	_, w := f.attach(session.AttachRequest{SessionID: id, After: new(int64(0))})
	if got := texts(follow(t, w))["root"]; got != "onetwoonetwoonetwo" {
		t.Errorf("who comes later reads %q", got)
	}
	if store.reads.Load() == 0 {
		t.Error("the first turns were read nowhere")
	}
}
