package session_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const limitExceeded = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED

// smallState are bounds that a test can reach.
var smallState = limits.Limits{MaxOwnBytes: 400, MaxOwnKeys: 4, MaxSharedBytes: 200, MaxSharedKeys: 3}

// scopes are those that are bounded, as prefixes, and how many bytes and keys they
// take.
var scopes = map[string][2]int{"": {400, 4}, "app:": {200, 3}, "user:": {200, 3}}

// stateFixture runs turns that return what State they see, and write what their
// prompts say as JSON.
func stateFixture(t *testing.T, store store.Store, limits limits.Limits) (f *fixture, saw func() map[string]any) {
	var mu sync.Mutex
	var last map[string]any
	f = newFixture(t, store, limits)
	f.on(func(ctx context.Context, r *session.Run) error {
		mu.Lock()
		last = r.State()
		mu.Unlock()
		delta := map[string]any{}
		if !strings.HasPrefix(r.Spec().Prompt, "{") {
			return nil
		}
		if err := json.Unmarshal([]byte(r.Spec().Prompt), &delta); err != nil {
			return err
		}
		return add(ctx, r, &record.Event{Path: root, State: delta})
	})
	return f, func() map[string]any {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// write runs a turn that writes keys, "" is a new session, and returns how it ended.
func (f *fixture) write(id string, delta map[string]any) index.Turn {
	f.t.Helper()
	text, err := json.Marshal(delta)
	if err != nil {
		f.t.Fatal(err)
	}
	turn := f.start(session.Request{SessionID: id, Prompt: string(text), Agent: tree()})
	<-turn.Done()
	info, err := f.m.Turn(f.t.Context(), turn.SessionID(), turn.ID())
	if err != nil {
		f.t.Fatal(err)
	}
	return info
}

// TestStateIsBounded: whatever would take a session's own keys, or those of a scope,
// past a bound is refused: with the request before anything is stored, or as the end
// of the turn that writes it.
func TestStateIsBounded(t *testing.T) {
	for scope, most := range scopes {
		for what, tc := range map[string]struct {
			state func() map[string]any
			want  string
		}{
			"bytes": {func() map[string]any { return map[string]any{scope + "k": strings.Repeat("x", most[0])} }, fmt.Sprintf("at most %d", most[0])},
			"keys": {func() map[string]any {
				out := map[string]any{}
				for i := range most[1] + 1 {
					out[fmt.Sprint(scope, "k", i)] = i
				}
				return out
			}, fmt.Sprintf("at most %d", most[1])},
		} {
			t.Run(scope+" "+what, func(t *testing.T) {
				store := memory(t)
				f, saw := stateFixture(t, store, smallState)
				_, err := f.m.Start(t.Context(), session.Request{Prompt: "hi", Agent: tree(), InitialState: tc.state()})
				if code(err) != limitExceeded || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("start: %v, want %q", err, tc.want)
				}
				if list, _, err := f.m.ListSessions(t.Context(), index.SessionQuery{}, "", 9); err != nil || len(list) > 0 {
					t.Errorf("there are sessions: %v, %v", list, err)
				}
				info := f.write("", tc.state())
				if info.Status != index.Failed || info.End.Code != limitExceeded || !strings.Contains(info.End.Message, tc.want) {
					t.Errorf("the turn is %v, %+v, want %q", info.Status, info.End, tc.want)
				}
				if info = f.write(info.SessionID, map[string]any{scope + "k": 1}); info.Status != index.Succeeded {
					t.Errorf("the next turn is %v, %+v", info.Status, info.End)
				}
				f.write(info.SessionID, nil)
				if got := saw(); len(got) != 1 || got[scope+"k"] == nil {
					t.Errorf("the state is %v", got)
				}
			})
		}
	}
}

// TestStateOfAResult: a tool's result whose state does not fit is a tool error, and
// its client receives the error; one that fits is taken.
func TestStateOfAResult(t *testing.T) {
	f := newFixture(t, memory(t), smallState)
	var results map[string]record.ToolResult
	f.on(func(ctx context.Context, r *session.Run) (err error) {
		results, err = call(ctx, r, "fits", "does not")
		return err
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	await(t, w, isCall)
	err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "does not", Output: new("ok"), State: map[string]any{"app:k": strings.Repeat("x", 200)}})
	if code(err) != limitExceeded || !strings.Contains(err.Error(), "state_delta") || !strings.Contains(err.Error(), "at most 200") {
		t.Errorf("answer: %v", err)
	}
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "fits", Output: new("ok"), State: map[string]any{"app:k": "x"}}); err != nil {
		t.Errorf("answer: %v", err)
	}
	if e := end(t, follow(t, w)); !e.Completed {
		t.Errorf("end is %v", e)
	}
	if got := results["does not"]; !strings.Contains(got.Error, "at most 200") || len(got.State) > 0 || got.Output != nil {
		t.Errorf("the result is %+v", got)
	}
	if got := results["fits"]; got.Error != "" || len(got.State) != 1 {
		t.Errorf("the result is %+v", got)
	}
}

// TestNullRemovesAKey: from the request and from a turn, in every scope, for the
// session that writes, for others, and after a restart.
func TestNullRemovesAKey(t *testing.T) {
	store := memory(t)
	f, saw := stateFixture(t, store, limits.Limits{})
	a := f.start(session.Request{Prompt: "hi", Agent: tree(), InitialState: map[string]any{
		"a": 1, "b": 1, "app:a": 1, "app:b": 1, "user:a": 1, "user:b": 1, "temp:a": 1, "temp:b": nil, "none": nil, "app:none": nil,
	}})
	<-a.Done()
	if got := saw(); len(got) != 7 {
		t.Errorf("the state is %v", got)
	}
	b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "hi", Agent: tree(), InitialState: map[string]any{"a": nil, "app:a": nil, "user:a": nil}})
	<-b.Done()
	want := []string{"app:b", "b", "user:b"}
	keys := func() []string {
		var out []string
		for k := range saw() {
			out = append(out, k)
		}
		slices.Sort(out)
		return out
	}
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("the keys are %v, want %v", got, want)
	}
	f.write(a.SessionID(), map[string]any{"b": nil, "app:b": nil, "c": 2})
	f.write(a.SessionID(), nil)
	want = []string{"c", "user:b"}
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("the keys are %v, want %v", got, want)
	}
	f.stop()
	f, saw = stateFixture(t, store, limits.Limits{})
	f.write(a.SessionID(), nil)
	if got := keys(); !slices.Equal(got, want) {
		t.Errorf("after a restart the keys are %v, want %v", got, want)
	}
	f.write("", nil)
	if got := keys(); !slices.Equal(got, []string{"user:b"}) {
		t.Errorf("another session has the keys %v", got)
	}
}

// TestStatePastItsBound: a database that has more than the bound still works: a write that
// grows it is refused, one that does not grow it or removes keys is taken.
func TestStatePastItsBound(t *testing.T) {
	store := memory(t)
	f, _ := stateFixture(t, store, limits.Limits{})
	full := map[string]any{}
	for i := range 10 {
		full[fmt.Sprint("app:k", i)], full[fmt.Sprint("k", i)] = strings.Repeat("x", 100), strings.Repeat("x", 100)
	}
	id := f.write("", full).SessionID
	f.stop()
	f, saw := stateFixture(t, store, smallState)
	for _, tc := range []struct {
		delta map[string]any
		want  index.Status
	}{
		{map[string]any{"app:new": 1}, index.Failed},
		{map[string]any{"new": 1}, index.Failed},
		{map[string]any{"app:k0": strings.Repeat("y", 100), "k0": strings.Repeat("y", 100)}, index.Succeeded},
		{map[string]any{"app:k0": "y", "k0": "y"}, index.Succeeded},
		{map[string]any{"app:k0": nil, "k0": nil}, index.Succeeded},
	} {
		if info := f.write(id, tc.delta); info.Status != tc.want {
			t.Errorf("writing %v: %v, %+v", tc.delta, info.Status, info.End)
		}
	}
	f.write(id, nil)
	if got := saw(); len(got) != 18 {
		t.Errorf("there are %d keys, want 18", len(got))
	}
}

// TestStateOfAQueuedTurn: one whose state has come not to fit while it waited fails,
// and the next one starts.
func TestStateOfAQueuedTurn(t *testing.T) {
	f := newFixture(t, memory(t), smallState)
	f.on(talk)
	big := strings.Repeat("x", 150)
	a := f.start(session.Request{Prompt: "ask a"})
	await(t, a.Watch(), isCall)
	b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue, InitialState: map[string]any{"app:b": big}})
	c := f.start(session.Request{SessionID: a.SessionID(), Prompt: "c", OnBusy: enqueue})
	<-f.start(session.Request{Prompt: "d", InitialState: map[string]any{"app:d": big}}).Done()
	wb := b.Watch()
	answer(t, a)
	if e := end(t, follow(t, wb)); e.Completed {
		t.Errorf("end is %v", e)
	}
	<-c.Done()
	for turn, want := range map[*session.Turn]index.Status{b: index.Failed, c: index.Succeeded} {
		if info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID()); err != nil || info.Status != want {
			t.Errorf("%q is %v, %+v, %v", info.Prompt, info.Status, info.End, err)
		}
	}
}

// TestWritersAtTheBound (F42): a hundred sessions write to a scope at once. It never
// has more than its bound, writers that are refused receive an error, and strangers' turns
// complete. Then an operator lists the keys and removes them.
func TestWritersAtTheBound(t *testing.T) {
	store := memory(t)
	limits := limits.Limits{MaxSharedBytes: 4096, MaxSharedKeys: 20}
	f, saw := stateFixture(t, store, limits)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			info := f.write("", map[string]any{fmt.Sprint("app:key", i): strings.Repeat("x", 150), "user:same": i})
			if info.Status != index.Succeeded && info.End.Code != limitExceeded {
				t.Errorf("a writer is %v, %+v", info.Status, info.End)
			}
			if info := f.write("", nil); info.Status != index.Succeeded {
				t.Errorf("a stranger is %v, %+v", info.Status, info.End)
			}
		})
	}
	wg.Wait()
	f.write("", nil)
	last := saw()
	var keys []session.SharedKey
	for page := ""; ; {
		some, next, err := f.m.SharedKeys(t.Context(), "app:", page, 7)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, some...)
		if page = next; page == "" {
			break
		}
	}
	bytes := 0
	var names []string
	for _, k := range keys {
		bytes += k.Bytes
		names = append(names, k.Key)
		if last[k.Key] == nil {
			t.Errorf("%s is listed, and no turn sees it", k.Key)
		}
	}
	if len(keys) == 0 || len(keys) > limits.MaxSharedKeys || bytes > limits.MaxSharedBytes || !slices.IsSorted(names) {
		t.Errorf("there are %d keys of %d bytes, %v", len(keys), bytes, names)
	}
	removed, err := f.m.RemoveShared(t.Context(), append(names, "app:none"))
	if err != nil || !slices.Equal(removed, names) {
		t.Errorf("removed %v, %v, want %v", removed, err, names)
	}
	if info := f.write("", map[string]any{"app:more": 1}); info.Status != index.Succeeded {
		t.Errorf("a writer is %v, %+v", info.Status, info.End)
	}
	f.write("", nil)
	if got := saw(); len(got) != 2 || got["app:more"] == nil || got["user:same"] == nil {
		t.Errorf("the state is %v", got)
	}
	if _, err := f.m.RemoveShared(t.Context(), []string{"own"}); code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
		t.Errorf("removing a session's key: %v", err)
	}
}

// late is a store of which the appends return a while after they are durable.
type late struct{ store.Store }

func (s late) Append(ctx context.Context, b store.Batch) error {
	err := s.Store.Append(ctx, b)
	time.Sleep(5 * time.Millisecond)
	return err
}

// TestWritersThatFit: writers at the same time that stay within the bound together are
// refused nothing, however many of their writes are under way.
func TestWritersThatFit(t *testing.T) {
	const writers, keys, each = 20, 3, 150
	name := func(i int) string { return fmt.Sprintf("app:k%02d", i) }
	value := strings.Repeat("x", each)
	most := writers * keys * (each + len(`""`) + len("k00"))
	f, _ := stateFixture(t, late{memory(t)}, limits.Limits{MaxSharedBytes: most, MaxSharedKeys: writers * keys})
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range keys {
				time.Sleep(time.Duration(i) * time.Millisecond) // so that they do not keep step
				turn, err := f.m.Start(t.Context(), session.Request{Prompt: "go", Agent: tree(), InitialState: map[string]any{name(keys*i + n): value}})
				if err != nil {
					t.Error(err)
					return
				}
				<-turn.Done()
			}
		})
	}
	wg.Wait()
	if info := f.write("", map[string]any{"app:more": 1}); info.Status == index.Succeeded {
		t.Error("a key past the bound was taken")
	}
}
