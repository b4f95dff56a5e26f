package remote_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// dying is a store that takes so many records; then its daemon dies, as its disk fails for good.
type dying struct {
	kept
	mu   sync.Mutex
	left int
	dead chan struct{} // closed when it has taken all
}

func (d *dying) takes(b store.Batch) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left < len(b.Records) {
		if d.left >= 0 {
			close(d.dead)
		}
		d.left = -1
		return fmt.Errorf("%w: the disk is gone", store.ErrFailed)
	}
	d.left -= len(b.Records)
	return nil
}

func (d *dying) Append(ctx context.Context, b store.Batch) error {
	if err := d.takes(b); err != nil {
		return err
	}
	return d.kept.Append(ctx, b)
}

func (d *dying) AppendMany(ctx context.Context, batches []store.Batch) []error {
	out := make([]error, len(batches))
	for i, b := range batches {
		out[i] = d.Append(ctx, b)
	}
	return out
}

// kindsOf returns the kinds of the records of a session.
func (w *world) kindsOf(session string) []record.Kind {
	w.t.Helper()
	recs, err := w.db.Read(w.t.Context(), session, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []record.Kind
	for _, r := range recs {
		out = append(out, r.Kind)
	}
	return out
}

// TestKills lets the daemon die after each record of a turn, with two calls, and one of its terminal tool in a turn that
// goes on: nothing is made, answered or run twice, and the end is the same.
func TestKills(t *testing.T) {
	steps := []step{{say: "looking", calls: []string{"search", "fetch"}}, {say: "more", calls: []string{"search"}}, {say: "done"}}
	for _, k := range kinds {
		whole := 0
		t.Run(k.name+" whole", func(t *testing.T) { whole = killAt(t, k.make(t, steps), 0) })
		if whole < 10 {
			t.Fatalf("%d records", whole)
		}
		for n := 1; n < whole; n++ {
			t.Run(fmt.Sprintf("%s after %d", k.name, n), func(t *testing.T) { killAt(t, k.make(t, steps), n) })
		}
	}
}

// killAt plays a turn whose daemon dies after n records, 0 for never, and returns how many records it has in the end.
func killAt(t *testing.T, b *backend, n int) int {
	w := newWorld(t, b)
	session, turn := "s-1", "t-1"
	create := func(r *agentdv1.RunRequest_ExecuteRequest) {
		r.SessionId, r.Create, r.TurnId = &session, true, turn
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if n > 0 {
		_ = w.d.Close() // another one, on a store that dies
		disk := &dying{kept: kept{w.db}, left: n, dead: make(chan struct{})}
		w.start(b, disk)
		w.begin(remoteAgent(), create)
		first, stop := context.WithCancel(ctx)
		go func() {
			<-disk.dead
			stop()
		}()
		if out, err := w.follow(first, session, turn); err == nil {
			t.Fatalf("the daemon did not die: %+v", out)
		}
		stop()
		_ = w.d.Close()
		w.start(b, w.db)
	} else {
		w.begin(remoteAgent(), create)
	}
	out, err := w.follow(ctx, session, turn)
	if err != nil {
		t.Fatal(err)
	}
	if !out.Ended || out.State != "done" || out.Code != "" {
		t.Errorf("it ended with %s %s", text(out), out.message)
	}
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	b.once(t)
	if len(b.seen.answers) != 3 || len(b.seen.messages) != 1 {
		t.Errorf("answers %v, messages %q", b.seen.answers, b.seen.messages)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ran) != 3 {
		t.Errorf("calls %v", w.ran)
	}
	resp, err := w.stub.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: session, TurnId: turn}))
	if err != nil || resp.Msg.GetTurn().GetUsage().GetModelCalls() != 3 {
		t.Errorf("usage %v %v", resp.Msg.GetTurn().GetUsage(), err)
	}
	return len(w.kindsOf(session))
}
