package session_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const (
	conflict     = agentdv1.ErrorCode_ERROR_CODE_CONFLICT
	precondition = agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION
	noSuch       = agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND
	noSession    = agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
	badRequest   = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
)

func (f *fixture) create(names session.Names) index.Session {
	f.t.Helper()
	info, err := f.m.CreateSession(f.t.Context(), names, record.Budget{}, session.Once{})
	if err != nil {
		f.t.Fatalf("create: %v", err)
	}
	return info
}

// run has a session run a turn to its end.
func (f *fixture) run(id, prompt string) *session.Turn {
	f.t.Helper()
	req := session.Request{SessionID: id, Prompt: prompt, Agent: tree(), Tools: tools()}
	turn := f.start(req)
	follow(f.t, turn.Watch())
	<-turn.Done()
	return turn
}

func tools() []*agentdv1.Tool { return []*agentdv1.Tool{{Name: "tool", Description: "a tool"}} }

// pages reads a list to its end.
func (f *fixture) pages(filter index.SessionQuery, size int) (ids []string) {
	f.t.Helper()
	page := ""
	for range 100 {
		infos, next, err := f.m.ListSessions(f.t.Context(), filter, page, size)
		if err != nil {
			f.t.Fatalf("list: %v", err)
		}
		for _, info := range infos {
			ids = append(ids, info.ID)
		}
		if page = next; page == "" {
			return ids
		}
		if len(infos) != size {
			f.t.Errorf("a page of %d sessions is not the last one, want %d", len(infos), size)
		}
	}
	f.t.Fatal("the list has no end")
	return nil
}

func TestListSessions(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	var ids []string
	for i := range 9 {
		names := session.Names{ClientRef: fmt.Sprint(i / 3), Labels: map[string]string{"kind": fmt.Sprint(i % 2), "all": "yes"}}
		ids = append(ids, f.create(names).ID)
	}
	slices.Reverse(ids) // newest first
	f.run(ids[8], "hi")
	waiting := f.start(session.Request{SessionID: ids[7], Prompt: "ask", Agent: tree(), Tools: tools()})
	w := waiting.Watch()
	await(t, w, isCall)
	if _, err := f.m.UpdateSession(t.Context(), ids[0], store.Change{Archived: new(true)}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		filter index.SessionQuery
		want   []string
	}{
		"all":              {index.SessionQuery{}, ids},
		"active":           {index.SessionQuery{Archived: new(false)}, ids[1:]},
		"archived":         {index.SessionQuery{Archived: new(true)}, ids[:1]},
		"client_ref":       {index.SessionQuery{ClientRef: "1"}, ids[3:6]},
		"one label":        {index.SessionQuery{Labels: map[string]string{"kind": "1"}}, []string{ids[1], ids[3], ids[5], ids[7]}},
		"two labels":       {index.SessionQuery{Labels: map[string]string{"kind": "1", "all": "yes"}}, []string{ids[1], ids[3], ids[5], ids[7]}},
		"no such label":    {index.SessionQuery{Labels: map[string]string{"kind": "1", "all": "no"}}, nil},
		"last turn over":   {index.SessionQuery{LastIs: []index.Status{index.Succeeded}}, ids[8:]},
		"last turn runs":   {index.SessionQuery{LastIs: []index.Status{index.Running}}, ids[7:8]},
		"last turn either": {index.SessionQuery{LastIs: []index.Status{index.Running, index.Succeeded}}, ids[7:]},
		"last turn failed": {index.SessionQuery{LastIs: []index.Status{index.Failed}}, nil},
		"in the future":    {index.SessionQuery{CreatedFrom: time.Now().Add(time.Hour)}, nil},
		"before now":       {index.SessionQuery{CreatedBefore: time.Now().Add(time.Hour), UpdatedBefore: time.Now().Add(time.Hour)}, ids},
	} {
		for _, size := range []int{1, 2, 3, 100} {
			if got := f.pages(tt.filter, size); !slices.Equal(got, tt.want) {
				t.Errorf("%s, pages of %d:\n got %v\nwant %v", name, size, got, tt.want)
			}
		}
	}
	_, next, err := f.m.ListSessions(t.Context(), index.SessionQuery{}, "", 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range map[string]string{"of another list": next, "garbage": "!"} {
		if _, _, err := f.m.ListSessions(t.Context(), index.SessionQuery{ClientRef: "1"}, page, 2); code(err) != badRequest {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	// Nobody is there: it waits for a client, here and after a restart.
	w.Close()
	waits := index.SessionQuery{LastIs: []index.Status{index.WaitingForClient}}
	if got := f.pages(waits, 3); !slices.Equal(got, ids[7:8]) {
		t.Errorf("sessions that wait for a client: %v, want %v", got, ids[7:8])
	}
	f.stop()
	g := newFixture(t, f.store, limits.Limits{})
	g.on(talk)
	if got := g.pages(waits, 3); !slices.Equal(got, ids[7:8]) {
		t.Errorf("after a restart: %v, want %v", got, ids[7:8])
	}
}

func TestUpdateSession(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	s := f.create(session.Names{ClientRef: "a", Labels: map[string]string{"x": "1", "y": "2"}})
	if s.Version != 1 || s.Creator != "local" || s.LastTurn != "" || s.LastIs != 0 {
		t.Errorf("a new session: %+v", s)
	}
	change := store.Change{Version: 1, ClientRef: new("b"), Labels: map[string]string{"x": "", "z": "3"}, Archived: new(true)}
	s, err := f.m.UpdateSession(t.Context(), s.ID, change)
	if err != nil || s.Version != 2 || s.ClientRef != "b" || !s.Archived || fmt.Sprint(s.Labels) != "map[y:2 z:3]" {
		t.Errorf("the changed session: %+v, %v", s, err)
	}
	if _, err := f.m.UpdateSession(t.Context(), s.ID, change); code(err) != conflict {
		t.Errorf("a change of an old version: %v", err)
	}
	start := session.Request{SessionID: s.ID, Prompt: "hi", Agent: tree()}
	if _, err := f.m.Start(t.Context(), start); code(err) != precondition {
		t.Errorf("a turn of an archived session: %v", err)
	}
	if s, err = f.m.UpdateSession(t.Context(), s.ID, store.Change{Archived: new(false)}); err != nil || s.Version != 3 || s.ClientRef != "b" {
		t.Errorf("made active: %+v, %v", s, err)
	}
	// Archived while it is in memory, with a turn that continues.
	turn := f.start(session.Request{SessionID: s.ID, Prompt: "ask", Agent: tree(), Tools: tools()})
	w := turn.Watch()
	await(t, w, isCall)
	if _, err := f.m.UpdateSession(t.Context(), s.ID, store.Change{Archived: new(true)}); err != nil {
		t.Error(err)
	}
	answer(t, turn)
	if !end(t, follow(t, w)).GetCompleted() {
		t.Error("the turn of a session that was archived meanwhile was not completed")
	}
	if _, err := f.m.Start(t.Context(), start); code(err) != precondition {
		t.Errorf("a turn of an archived session: %v", err)
	}
	labels := map[string]string{}
	for i := range 64 {
		labels[fmt.Sprint(i)] = "v"
	}
	if _, err := f.m.UpdateSession(t.Context(), s.ID, store.Change{Labels: labels}); err == nil {
		t.Error("66 labels were taken")
	}
	if _, err := f.m.UpdateSession(t.Context(), "none", store.Change{}); code(err) != noSession {
		t.Errorf("an unknown session: %v", err)
	}
}

// However a session is when it is deleted, nothing of it is left.
func TestDeleteSession(t *testing.T) {
	for name, prepare := range map[string]func(f *fixture, id string){
		"new":  func(*fixture, string) {},
		"over": func(f *fixture, id string) { f.run(id, "hi") },
		"running, others wait": func(f *fixture, id string) {
			turn := f.start(session.Request{SessionID: id, Prompt: "ask", Agent: tree(), Tools: tools()})
			await(f.t, turn.Watch(), isCall)
			for range 3 {
				f.start(session.Request{SessionID: id, Prompt: "ask", Agent: tree(), Tools: tools(), OnBusy: enqueue})
			}
		},
		"put aside": func(f *fixture, id string) {
			turn := f.start(session.Request{SessionID: id, Prompt: "ask", Agent: tree(), Tools: tools()})
			w := turn.Watch()
			await(f.t, w, isCall)
			w.Close()
			<-turn.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(talk)
				id := f.create(session.Names{Labels: map[string]string{"a": "b"}}).ID
				other := f.run("", "hi")
				prepare(f, id)
				if err := f.m.DeleteSession(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				if _, err := f.m.Session(t.Context(), id); code(err) != noSession {
					t.Errorf("the session: %v", err)
				}
				if _, err := f.store.Read(t.Context(), id, 0, 1); !errors.Is(err, store.ErrNoSession) {
					t.Errorf("its log: %v", err)
				}
				if _, err := f.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "hi", Agent: tree()}); code(err) != noSession {
					t.Errorf("a turn of it: %v", err)
				}
				rows, err := f.store.Rows(t.Context(), store.RowQuery{Kind: store.RowTurn, Limit: 10})
				if err != nil || len(rows) != 1 || rows[0].ID != other.ID() {
					t.Errorf("the rows that are left: %+v, %v", rows, err)
				}
				if err := f.m.DeleteSession(t.Context(), id); code(err) != noSession {
					t.Errorf("deleted again: %v", err)
				}
			})
		})
	}
}

func TestIdempotencyKeys(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	req := session.Request{Prompt: "ask", Agent: tree(), Tools: tools(), Once: session.Once{Key: "k", Content: "c"}}
	var wg sync.WaitGroup
	ids := make(chan [2]string, 8)
	for range cap(ids) {
		wg.Go(func() {
			turn, err := f.m.Start(t.Context(), req)
			if before, ok := errors.AsType[*session.Repeated](err); ok {
				ids <- [2]string{before.SessionID, before.TurnID}
			} else if err != nil {
				t.Errorf("start: %v", err)
			} else {
				ids <- [2]string{turn.SessionID(), turn.ID()}
			}
		})
	}
	wg.Wait()
	first := <-ids
	for range cap(ids) - 1 {
		if again := <-ids; again != first {
			t.Errorf("a repeat has started %v, the first request %v", again, first)
		}
	}
	_, w := f.attach(session.AttachRequest{SessionID: first[0], Tools: []string{"tool"}}) // otherwise it gives way
	await(t, w, isCall)
	other := req
	other.Once.Content = "d"
	if _, err := f.m.Start(t.Context(), other); code(err) != conflict {
		t.Errorf("the key with other content: %v", err)
	}
	// A prompt that waits has a key too.
	queued := session.Request{SessionID: first[0], Prompt: "hi", OnBusy: enqueue, Once: session.Once{Key: "q", Content: "c"}}
	turn, err := f.m.Start(t.Context(), queued)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.m.Start(t.Context(), queued)
	if before, ok := errors.AsType[*session.Repeated](err); !ok || before.TurnID != turn.ID() {
		t.Errorf("the queued prompt again: %v", err)
	}
	// A refused request has used no key.
	refused := session.Request{SessionID: first[0], Prompt: "hi", Once: session.Once{Key: "r", Content: "c"}}
	for range 2 {
		if _, err := f.m.Start(t.Context(), refused); code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY {
			t.Errorf("a request that is refused: %v", err)
		}
	}
	w.Close()
	// Another server knows the keys; the key stands for something else elsewhere.
	f.stop()
	g := newFixture(t, f.store, limits.Limits{})
	_, err = g.m.Start(t.Context(), req)
	if before, ok := errors.AsType[*session.Repeated](err); !ok || before.TurnID != first[1] {
		t.Errorf("after a restart: %v", err)
	}
	once := session.Once{Key: "k", Content: "c"}
	made, err := g.m.CreateSession(t.Context(), session.Names{}, record.Budget{}, once)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := g.m.CreateSession(t.Context(), session.Names{}, record.Budget{}, once); err != nil || again.ID != made.ID {
		t.Errorf("the session again: %+v, %v", again, err)
	}
	fork := session.ForkRequest{SessionID: made.ID, Once: once}
	forked, err := g.m.ForkSession(t.Context(), fork)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := g.m.ForkSession(t.Context(), fork); err != nil || again.ID != forked.ID || forked.ID == made.ID {
		t.Errorf("the fork again: %+v, %v", again, err)
	}
	// With its session a key is gone.
	if err := g.m.DeleteSession(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if again, err := g.m.CreateSession(t.Context(), session.Names{}, record.Budget{}, once); err != nil || again.ID == made.ID {
		t.Errorf("the session after it was deleted: %+v, %v", again, err)
	}
}

// Turns that say much come in smaller pages.
func TestPagesOfLargeTurns(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	id := f.create(session.Names{}).ID
	for range 5 {
		f.run(id, strings.Repeat("x", 300<<10)) // the same text, repeated
	}
	got, page := 0, ""
	for {
		turns, next, err := f.m.ListTurns(t.Context(), index.TurnQuery{SessionID: id}, page, 50)
		if err != nil {
			t.Fatal(err)
		}
		got += len(turns)
		if page = next; page == "" {
			break
		}
		if len(turns) != 3 {
			t.Errorf("a page of %d turns, want 3", len(turns))
		}
	}
	if got != 5 {
		t.Errorf("%d turns, want 5", got)
	}
}
