package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"pgregory.net/rapid"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// secret is what the store of forgetful takes out of results when a turn ends.
const secret = "payload"

// forgetful is a store that takes the results of tools out of the log in the append that ends their turn, as
// internal/payloads does, and counts the records that are read.
type forgetful struct {
	store.Store
	reads atomic.Int64
	// onRead, if set, is called after a read, before the reader has what was read.
	mu     sync.Mutex // protects the fields below
	skip   int        // so many reads before
	onRead func()
	onEnd  func() // called when a turn's end is in the store, and the session does not know yet
}

func (s *forgetful) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	recs, err := s.Store.Read(ctx, id, after, limit)
	s.reads.Add(int64(len(recs)))
	s.mu.Lock()
	on := s.onRead
	if s.skip--; s.skip >= 0 {
		on = nil
	} else {
		s.onRead = nil
	}
	s.mu.Unlock()
	if on != nil {
		on()
	}
	return recs, err
}

// once has the next read but some call f.
func (s *forgetful) once(skip int, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skip, s.onRead = skip, f
}

func (s *forgetful) Append(ctx context.Context, b store.Batch) error {
	ended := func(rec record.Record) bool { return rec.Kind == record.KindTurnEnded }
	if slices.ContainsFunc(b.Records, ended) {
		recs, err := s.Store.Read(ctx, b.SessionID, 0, 1000)
		if err != nil {
			return err
		}
		for _, rec := range recs {
			if without := bytes.ReplaceAll(rec.Data, []byte(secret), []byte("gone")); !bytes.Equal(without, rec.Data) {
				rec.Data = without
				b.Rewrites = append(b.Rewrites, rec)
			}
		}
	}
	err := s.Store.Append(ctx, b)
	s.mu.Lock()
	on := s.onEnd
	s.mu.Unlock()
	if on != nil && slices.ContainsFunc(b.Records, ended) {
		on()
	}
	return err
}

func (s *forgetful) AppendMany(ctx context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	for i := range batches {
		errs[i] = s.Append(ctx, batches[i])
	}
	return errs
}

// asksOften is a turn of rounds, each a message and a call, which waits in the last one.
func asksOften(rounds int) func(ctx context.Context, r *session.Run) error {
	return func(ctx context.Context, r *session.Run) error {
		for i := range rounds {
			if _, err := call(ctx, r, fmt.Sprintf("c%d", i)); err != nil {
				return err
			}
		}
		return nil
	}
}

// awaitCall waits until the client w is asked for a call.
func (f *fixture) awaitCall(w *session.Watcher, n int) {
	f.t.Helper()
	id := fmt.Sprintf("c%d", n)
	await(f.t, w, func(m *agentdv1.RunResponse) bool { return m.GetToolCall().GetToolCallId() == id })
}

// answerCall answers a call with the secret.
func (f *fixture) answerCall(turn *session.Turn, n int) {
	f.t.Helper()
	res := session.ClientResult{CallID: fmt.Sprintf("c%d", n), Output: new(`{"text":"` + secret + `"}`)}
	if err := turn.SubmitResult(f.t.Context(), res); err != nil {
		f.t.Fatal(err)
	}
}

// asked starts a turn of asksOften that waits for the last call, and the client that it asks.
func (f *fixture) asked(rounds int) (*session.Turn, *session.Watcher) {
	f.t.Helper()
	f.on(asksOften(rounds))
	turn := f.start(session.Request{})
	w := turn.Watch()
	for i := range rounds - 1 {
		f.awaitCall(w, i)
		f.answerCall(turn, i)
	}
	f.awaitCall(w, rounds-1)
	return turn, w
}

// seen is what an observer sees of a turn now, as it is sent; the error is that of the last Next.
func (f *fixture) seen(id, turn string) (string, error) {
	f.t.Helper()
	_, w, err := f.m.Attach(f.t.Context(), session.AttachRequest{SessionID: id, TurnID: turn, After: new(int64(0)), Observe: true})
	if err != nil {
		return "", err
	}
	defer w.Close()
	return f.sees(w)
}

// sees is seen for a watcher.
func (f *fixture) sees(w *session.Watcher) (string, error) {
	f.t.Helper()
	msgs, err := w.Next(f.t.Context())
	var out strings.Builder
	for _, m := range msgs {
		data, err := protojson.Marshal(m)
		if err != nil {
			f.t.Fatal(err)
		}
		var compact bytes.Buffer // protojson varies its spaces
		if err := json.Compact(&compact, data); err != nil {
			f.t.Fatal(err)
		}
		fmt.Fprintln(&out, compact.String())
	}
	return out.String(), err
}

// Who reads a turn after somebody else sees the same, reads nothing of it from the store, and decodes nothing.
func TestTheNextReaderReadsNothing(t *testing.T) {
	const rounds = 40
	db := &forgetful{Store: memory(t)}
	f := newFixture(t, db, limits.Limits{})
	turn, w := f.asked(rounds)
	check := func(what string) {
		t.Helper()
		first, _ := f.seen(turn.SessionID(), turn.ID())
		if n := strings.Count(first, "toolCallAnswered"); n < rounds-1 {
			t.Fatalf("%s: %d results in\n%s", what, n, first)
		}
		reads, decoded := db.reads.Load(), f.decoded.Load()
		again, _ := f.seen(turn.SessionID(), turn.ID())
		if again != first {
			t.Errorf("%s, from memory:\n%s\nfrom the log:\n%s", what, again, first)
		}
		if n, d := db.reads.Load()-reads, f.decoded.Load()-decoded; n > 1 || d > 0 { // a request looks at one record
			t.Errorf("%s: the second reader reads %d records and decodes %d events", what, n, d)
		}
		g := newFixture(t, db, limits.Limits{}) // another server, which has nothing in memory
		if other, _ := g.seen(turn.SessionID(), turn.ID()); what == "over" && other != first {
			t.Errorf("%s, on another server:\n%s\nwant\n%s", what, other, first)
		}
	}
	check("open")
	f.answerCall(turn, rounds-1)
	follow(t, w)
	check("over")
}

// What is taken out of a log when its turn ends, or with the session, is not shown afterwards: neither to who comes then
// nor from what a reader has read before, who is in the middle of the log at that time.
func TestWhatIsTakenOutIsNotShown(t *testing.T) {
	const rounds = 36 // of two records, more than a page
	rapid.Check(t, func(rt *rapid.T) {
		db := &forgetful{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{})
		turn, w := f.asked(rounds)
		id := turn.SessionID()
		if rapid.Bool().Draw(rt, "read before") {
			if got, _ := f.seen(id, turn.ID()); !strings.Contains(got, secret) {
				rt.Fatalf("while the turn runs its results are shown, got\n%s", got)
			}
		}
		ends := func() {
			f.answerCall(turn, rounds-1)
			follow(t, w)
		}
		removed := func() {
			if err := f.m.DeleteSession(t.Context(), id); err != nil {
				rt.Fatal(err)
			}
		}
		if rapid.Bool().Draw(rt, "in the middle") {
			db.once(rapid.IntRange(0, 7).Draw(rt, "reads before"), ends)
			if _, err := f.seen(id, turn.ID()); err != nil {
				rt.Fatal(err)
			}
			if db.once(0, nil); !isDone(turn) {
				ends() // it has read nothing
			}
		} else {
			ends()
		}
		for range rapid.IntRange(1, 3).Draw(rt, "readers") {
			if got, _ := f.seen(id, turn.ID()); strings.Contains(got, secret) || !strings.Contains(got, "gone") {
				rt.Fatalf("the turn is over, its results are shown:\n%s", got)
			}
		}
		late := turn.Watch() // of a session that is no longer there
		if rapid.Bool().Draw(rt, "deleted in the middle") {
			db.once(rapid.IntRange(0, 7).Draw(rt, "reads before"), removed)
			_, w, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: id, After: new(int64(0)), Observe: true})
			if err != nil {
				rt.Fatal(err)
			}
			_, _ = f.sees(w)
			w.Close()
			db.once(0, nil)
		}
		if _, err := f.m.Session(t.Context(), id); err == nil {
			removed()
		}
		if got, err := f.sees(late); code(err) != noSession || strings.Contains(got, "gone") {
			rt.Fatalf("the session is deleted, its turn is shown: %v\n%s", err, got)
		}
		if got, err := f.seen(id, turn.ID()); code(err) != noSession {
			rt.Fatalf("the session is deleted, its turn is shown: %v\n%s", err, got)
		}
		if n := f.m.Recent(); n != 0 {
			rt.Fatalf("%d bytes are kept of sessions that are deleted", n)
		}
	})
}

// What is taken out of a log is not shown from the moment on at which the store has it no more, before the session knows.
func TestWhatIsTakenOutIsNotShownMeanwhile(t *testing.T) {
	const rounds = 20 // of two records: the tail of the log begins within the second page
	db := &forgetful{Store: memory(t)}
	f := newFixture(t, db, limits.Limits{})
	turn, w := f.asked(rounds)
	if got, _ := f.seen(turn.SessionID(), turn.ID()); strings.Count(got, secret) != rounds-1 {
		t.Fatalf("while the turn runs it shows\n%s", got)
	}
	var meanwhile string
	db.mu.Lock()
	db.onEnd = func() { meanwhile, _ = f.seen(turn.SessionID(), turn.ID()) }
	db.mu.Unlock()
	f.answerCall(turn, rounds-1)
	follow(t, w)
	if strings.Contains(meanwhile, secret) || strings.Count(meanwhile, "gone") != rounds {
		t.Errorf("the turn's end is in the store, a reader sees\n%s", meanwhile)
	}
	if f.m.Recent() != 0 {
		t.Errorf("%d bytes are kept that were read before the end was applied", f.m.Recent())
	}
}

// isDone reports whether a turn is over.
func isDone(turn *session.Turn) bool {
	select {
	case <-turn.Done():
		return true
	default:
		return false
	}
}
