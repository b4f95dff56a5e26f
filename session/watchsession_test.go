package session_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// watchSession returns a reading of a session.
func (f *fixture) watchSession(id, cursor string) *session.SessionWatcher {
	f.t.Helper()
	w, err := f.m.WatchSession(f.t.Context(), id, cursor)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.Close)
	return w
}

// now takes what a reading has now, and why it has ended.
func now(t *testing.T, w *session.SessionWatcher) (got []session.Placed, err error) {
	t.Helper()
	for synctest.Wait(); err == nil; synctest.Wait() {
		select {
		case <-w.Ready():
		default:
			return got, nil
		}
		var some []session.Placed
		some, err = w.Next(t.Context())
		got = append(got, some...)
	}
	return got, err
}

// Who watches a session changes nothing for others: a turn is suspended, cancelled,
// deleted with its session and stopped with its server as if nobody were there.
func TestSessionWatcherKeepsNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		does func(f *fixture, id string) error
		want agentdv1.ErrorCode // why the watcher ends; 0: it does not
	}{
		"cancel":  {func(*fixture, string) error { time.Sleep(5 * time.Minute); return nil }, 0},
		"suspend": {func(*fixture, string) error { time.Sleep(5 * time.Minute); return nil }, 0},
		"delete":  {func(f *fixture, id string) error { return f.m.DeleteSession(f.t.Context(), id) }, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND},
		"stop":    {func(f *fixture, _ string) error { return f.m.Shutdown(f.t.Context()) }, unavailable},
		"delete an idle one": {func(f *fixture, id string) error {
			if err := f.m.CancelTurn(f.t.Context(), id, "", "enough"); err != nil {
				return err
			}
			time.Sleep(time.Minute)
			return f.m.DeleteSession(f.t.Context(), id)
		}, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND},
		"stop with an idle one": {func(f *fixture, id string) error {
			if err := f.m.CancelTurn(f.t.Context(), id, "", "enough"); err != nil {
				return err
			}
			return f.m.Shutdown(f.t.Context())
		}, unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(talk)
				turn := f.start(session.Request{Prompt: "ask", OnDisconnect: record.OnDisconnect{Cancel: name == "cancel", Grace: 3 * time.Minute}})
				w := turn.Watch()
				await(t, w, isCall)
				whole := f.watchSession(turn.SessionID(), "")
				got, err := now(t, whole)
				if err != nil || slices.ContainsFunc(messagesOf(got), isCall) {
					t.Errorf("it reads %v, %v", got, err)
				}
				w.Close()
				if err := tc.does(f, turn.SessionID()); err != nil {
					t.Fatal(err)
				}
				rest, err := now(t, whole)
				if code(err) != tc.want || tc.want == 0 && err != nil {
					t.Errorf("it ends with %v", err)
				}
				if users := f.m.Users(turn.SessionID()); users != 0 {
					t.Errorf("%d users hold the session in memory", users)
				}
				ends := slices.ContainsFunc(messagesOf(rest), func(m *agentdv1.RunResponse) bool { return m.GetEnd() != nil })
				if quiet := name == "suspend" || name == "stop"; ends == quiet && name != "delete" && name != "delete an idle one" {
					t.Errorf("the turn's end is shown: %v", ends)
				}
			})
		})
	}
}

// While a session is quiet a watcher holds nothing of it, yet it sees a turn that
// starts later, also when the session was read anew; and a look without a find costs nothing.
func TestQuietSessionIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{MaxIdleSessions: 1})
		f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, r.TurnID(), root, "a", "b") })
		first := f.start(session.Request{})
		<-first.Done()
		id := first.SessionID()
		w := f.watchSession(id, "")
		got, err := now(t, w)
		if err != nil || len(got) == 0 || f.m.Users(id) != 0 {
			t.Fatalf("%d events, %v, %d users", len(got), err, f.m.Users(id))
		}
		other := f.start(session.Request{}) // takes its place in memory
		<-other.Done()
		f.m.WakeReaders(id)
		if got, err := now(t, w); err != nil || len(got) > 0 || f.m.Users(id) != 0 {
			t.Errorf("nothing has happened: %v, %v", got, err)
		}
		second := f.start(session.Request{SessionID: id})
		<-second.Done()
		more, err := now(t, w)
		if err != nil || texts(messagesOf(more))["root"] != "ab" || f.m.Users(id) != 0 {
			t.Errorf("the second turn: %v, %v", more, err)
		}
		for _, p := range more {
			if p.Message.GetTurnId() != second.ID() || p.Message.GetReplayed() {
				t.Errorf("got %v", p.Message)
			}
		}
		w.Close()
		w.Close()
	})
}

// A session without turns is read too. What a turn begins with is what its request has
// set; a turn that never starts has its end all the same.
func TestReadingAcrossTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		s := f.create(session.Names{})
		if got, more, err := f.m.SessionEvents(t.Context(), s.ID, "", 10, nil); err != nil || more || len(got) > 0 {
			t.Errorf("nothing has happened: %v, %v, %v", got, more, err)
		}
		w := f.watchSession(s.ID, "")
		hold := make(chan struct{})
		f.on(func(ctx context.Context, r *session.Run) error {
			if err := add(ctx, r, &record.Event{Path: root, State: map[string]any{"n": 1}}); err != nil {
				return err
			}
			<-hold
			return nil
		})
		first := f.start(session.Request{SessionID: s.ID, Agent: tree(), InitialState: map[string]any{"a": 1}})
		second := f.start(session.Request{SessionID: s.ID, OnBusy: enqueue, InitialState: map[string]any{"b": 2}})
		third := f.start(session.Request{SessionID: s.ID, OnBusy: enqueue})
		if err := f.m.CancelTurn(t.Context(), s.ID, third.ID(), "enough"); err != nil {
			t.Fatal(err)
		}
		close(hold)
		<-first.Done()
		<-second.Done()
		got, err := now(t, w)
		if err != nil {
			t.Fatal(err)
		}
		var states []map[string]any
		var ends []string
		for _, m := range messagesOf(got) {
			if u := m.GetStateUpdate(); u != nil {
				states = append(states, u.GetStateDelta().AsMap())
			}
			if m.GetEnd() != nil {
				ends = append(ends, m.GetTurnId())
			}
		}
		keys := func(m map[string]any) string {
			for k := range m {
				return k
			}
			return ""
		}
		if len(states) != 4 || keys(states[0]) != "a" || keys(states[1]) != "n" || len(states[2]) != 1 || keys(states[2]) != "b" || keys(states[3]) != "n" {
			t.Errorf("states %v", states)
		}
		if !slices.Equal(ends, []string{third.ID(), first.ID(), second.ID()}) {
			t.Errorf("ends %v of %s, %s, %s", ends, first.ID(), second.ID(), third.ID())
		}
	})
}

// A cursor that nobody has given is refused and does no harm, whatever is in it.
func TestForgedCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(busy)
		turn := f.start(session.Request{Prompt: "sp"})
		time.Sleep(time.Minute)
		id := turn.SessionID()
		all, _, err := f.m.SessionEvents(t.Context(), id, "", 100, nil)
		if err != nil || len(all) < 5 {
			t.Fatal(all, err)
		}
		good, err := base64.RawURLEncoding.DecodeString(all[len(all)-1].Cursor)
		if err != nil {
			t.Fatal(err)
		}
		forge := func(version byte, at, from uint64) string {
			data := append([]byte{version}, good[1:9]...)
			return base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(binary.AppendUvarint(data, at), from))
		}
		last := uint64(all[len(all)-1].Message.GetSeq())
		if _, _, err := f.m.SessionEvents(t.Context(), id, forge(1, last, 1), 10, nil); err != nil {
			t.Errorf("as it was given: %v", err)
		}
		for name, cursor := range map[string]string{
			"empty": base64.RawURLEncoding.EncodeToString(nil), "no version": "x", "not base64": "???",
			"another version": forge(2, last, 1), "short": base64.RawURLEncoding.EncodeToString(good[:9]),
			"long":       base64.RawURLEncoding.EncodeToString(append(slices.Clone(good), 0)),
			"to come":    forge(1, last+1<<30, 1),
			"largest":    forge(1, 1<<63-1, 1),
			"negative":   forge(1, 1<<63, 1),
			"mid turn":   forge(1, last, 2),
			"mid turn 2": forge(1, last, 3),
			"behind it":  forge(1, last, last>>20+1),
			"far behind": forge(1, last, last>>20+2),
			"far":        forge(1, last, 1<<62),
		} {
			if cursor == "" {
				continue
			}
			for i := range 2 {
				var err error
				if i == 0 {
					_, _, err = f.m.SessionEvents(t.Context(), id, cursor, 10, nil)
				} else {
					_, err = f.m.WatchSession(t.Context(), id, cursor)
				}
				if e := fault.As(err); err == nil || e.Code != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST || len(e.Violations) != 1 || e.Violations[0].Field != "cursor" {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
}
