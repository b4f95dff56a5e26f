package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// sessionReader reads a session on several servers, one after the other.
type sessionReader struct {
	t      *testing.T
	id     string
	mu     sync.Mutex // protects cursor and got
	cursor string
	got    []*agentdv1.SessionEvent
	ended  chan struct{} // closed by the end of a turn
}

func (r *sessionReader) service(s *served) agentdv1connect.SessionServiceClient {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(true)
	r.t.Cleanup(tr.CloseIdleConnections)
	return agentdv1connect.NewSessionServiceClient(&http.Client{Transport: tr}, s.url)
}

// watch reads on a server, behind what it has, until the connection breaks or ctx ends;
// then what it returns is closed.
func (r *sessionReader) watch(ctx context.Context, s *served) <-chan struct{} {
	over := make(chan struct{})
	w, err := r.service(s).WatchSession(ctx, connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: r.id, Cursor: r.cursor}))
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(over)
		for w.Receive() {
			m := w.Msg()
			if r.mu.Lock(); m.GetCursor() != "" {
				r.cursor, r.got = m.GetCursor(), append(r.got, &agentdv1.SessionEvent{Event: m.GetEvent(), Cursor: m.GetCursor()})
			}
			r.mu.Unlock()
			if m.GetEvent().GetEnd() != nil {
				close(r.ended)
			}
		}
		_ = w.Close()
	}()
	return over
}

// list reads what there is behind a cursor.
func (r *sessionReader) list(s *served, cursor string) (out []*agentdv1.SessionEvent) {
	r.t.Helper()
	for more := true; more; {
		page, err := r.service(s).ListSessionEvents(r.t.Context(), connect.NewRequest(&agentdv1.ListSessionEventsRequest{SessionId: r.id, Cursor: cursor, PageSize: 7}))
		if err != nil {
			r.t.Fatal(err)
		}
		out, more, cursor = append(out, page.Msg.GetEvents()...), page.Msg.GetMore(), page.Msg.GetNextCursor()
	}
	return out
}

// contents is what events say, without the text that was retracted.
func contents(events []*agentdv1.SessionEvent) (out []string) {
	texts := map[string]string{}
	for _, e := range events {
		m := e.GetEvent()
		if c := m.GetOutputChunk(); c.GetMessageId() != "" {
			texts[c.GetMessageId()] += c.GetContent()
			continue
		}
		if m.GetMessageRetracted() != nil {
			clear(texts)
		}
		out = append(out, fmt.Sprintf("%d %T %s", m.GetSeq(), m.GetResponse(), texts[m.GetMessageCompleted().GetMessageId()]))
	}
	return out
}

// A cursor is good for the server that comes after one that was killed: who watches a
// session has all of it then, and nothing twice.
func TestWatchAcrossAKill(t *testing.T) {
	t.Parallel()
	env, f := killable(t)
	pace(t, env, slow, slow)
	first := binary(t, env)
	f.open(first, agent("scripted/work", "a", "b", "c", "d"))
	f.until(func(m *agentdv1.RunResponse) bool { return m.GetExecute() != nil })
	r := &sessionReader{t: t, id: f.session(), ended: make(chan struct{})}
	over := r.watch(t.Context(), first)
	f.until(func(m *agentdv1.RunResponse) bool { return strings.Contains(m.GetOutputChunk().GetContent(), "four") })
	first.signal(syscall.SIGKILL)
	first.wait()
	f.lost()
	<-over
	before := len(r.got)
	pace(t, env, fast, fast)
	second := binary(t, env)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	over = r.watch(ctx, second)
	f.open(second, nil)
	if end := f.end(); !end.GetCompleted() {
		t.Errorf("got %v", end)
	}
	stored := r.list(second, "")
	select {
	case <-r.ended:
	case <-over:
		t.Error("the stream has ended before the turn")
	}
	cancel()
	<-over
	if before == 0 || before == len(r.got) || !slices.Equal(contents(r.got), contents(stored)) {
		t.Errorf("watched, the first %d on the server that was killed,\n%q\nstored\n%q", before, contents(r.got), contents(stored))
	}
	for i := range before {
		at := r.got[i].GetEvent().GetSeq()
		rest := stored[slices.IndexFunc(stored, func(e *agentdv1.SessionEvent) bool { return e.GetEvent().GetSeq() > at }):]
		if got := r.list(second, r.got[i].GetCursor()); !slices.Equal(contents(got), contents(rest)) {
			t.Errorf("behind event %d of the first server\n%q\nwant\n%q", i, contents(got), contents(rest))
		}
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
}
