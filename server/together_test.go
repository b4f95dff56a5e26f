package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// heldStore lets the first append with a result wait, and notes the results of each append.
type heldStore struct {
	store.Store
	open chan struct{}

	mu      sync.Mutex
	results []string // of each append that has some
}

func (s *heldStore) Append(ctx context.Context, b store.Batch) error {
	var ids []string
	for i := range b.Records {
		fact, err := b.Records[i].Decode(engine{}.Decode)
		if err != nil {
			return err
		}
		if res, ok := fact.(*record.ToolResult); ok {
			ids = append(ids, res.CallID)
		}
	}
	if len(ids) > 0 {
		s.mu.Lock()
		s.results = append(s.results, strings.Join(ids, " "))
		s.mu.Unlock()
		<-s.open
	}
	return s.Store.Append(ctx, b)
}

// written returns the results of each append.
func (s *heldStore) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.results)
}

// TestResultsTogether: results that come while one is written are written together, in their order. What comes behind them
// waits for them, and one that is refused holds up none.
func TestResultsTogether(t *testing.T) {
	ids := strings.Fields("a b c d e f g h")
	st := &heldStore{}
	onPipes(t, engine{
		run: func(ctx context.Context, run *session.Run) error {
			if _, err := ask(ctx, run, ids...); err != nil {
				return err
			}
			return talk(ctx, run)
		},
		wrap: func(kept store.Store) store.Store {
			st.Store, st.open = kept, make(chan struct{})
			return st
		},
	}, server.Config{}, func(t *testing.T, f *fixture) {
		c := f.run(t)
		for range ids {
			c.until(isCall)
		}
		for _, id := range ids[:4] {
			c.send(toolResult(id, "fine"))
		}
		c.send(toolResult("unknown", "fine"))
		if refused := c.until(isError); refused[len(refused)-1].GetError().GetToolCallId() != "unknown" {
			t.Errorf("got %s", show(refused))
		}
		c.send(toolResult("a", "another"))
		if refused := c.until(isError); refused[len(refused)-1].GetError().GetToolCallId() != "a" {
			t.Errorf("got %s", show(refused))
		}
		for _, id := range ids[4:] {
			c.send(toolResult(id, "fine"))
		}
		c.send(heartbeat())
		synctest.Wait()
		if got := st.written(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q are written, want one", got)
		}
		close(st.open)
		c.until(func(m *agentdv1.RunResponse) bool { return m.GetHeartbeat() != nil })
		if got := st.written(); !slices.Equal(got, []string{"a", "b c d e f g h"}) {
			t.Errorf("appends have the results %q", got)
		}
		if !lastOf(t, c.rest()).GetCompleted() {
			t.Error("the turn has not completed")
		}
	})
}

// TestManyResultsWait: no more results are handled at a time than a stream may hold, and each is written.
func TestManyResultsWait(t *testing.T) {
	var ids []string
	for i := range 40 {
		ids = append(ids, string(rune('A'+i)))
	}
	st := &heldStore{}
	onPipes(t, engine{
		run: func(ctx context.Context, run *session.Run) error {
			_, err := ask(ctx, run, ids...)
			return errors.Join(err, talk(ctx, run))
		},
		wrap: func(kept store.Store) store.Store {
			st.Store, st.open = kept, make(chan struct{})
			return st
		},
	}, server.Config{}, func(t *testing.T, f *fixture) {
		c := f.run(t)
		for range ids {
			c.until(isCall)
		}
		for _, id := range ids {
			c.send(toolResult(id, "fine"))
		}
		synctest.Wait()
		close(st.open)
		if !lastOf(t, c.rest()).GetCompleted() {
			t.Error("the turn has not completed")
		}
		got := st.written()
		if all := strings.Join(got, " "); all != strings.Join(ids, " ") || len(strings.Fields(got[1])) != 15 {
			t.Errorf("appends have the results %q", got)
		}
	})
}

// TestEndIsNotFlushed: the end of a stream is sent when the handler has returned, together with the end of HTTP/2.
func TestEndIsNotFlushed(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	var writers []*flushNoter
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := &flushNoter{ResponseWriter: w}
		writers = append(writers, n)
		f.srv.Handler().ServeHTTP(n, r)
	}))
	ts.EnableHTTP2 = true
	ts.StartTLS()
	defer ts.Close()
	for name, opts := range map[string][]connect.ClientOption{"Connect": nil, "gRPC-Web": {connect.WithGRPCWeb()}} {
		writers = nil
		c := &conversation{t, agentdv1connect.NewAgentdClient(ts.Client(), ts.URL, opts...).Run(t.Context())}
		c.send(execute())
		id := c.toEnd()[0].GetExecute().GetSessionId()
		service := agentdv1connect.NewSessionServiceClient(ts.Client(), ts.URL, opts...)
		w, err := service.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id}))
		if err != nil {
			t.Fatal(err)
		}
		for w.Receive() {
		}
		if err := errors.Join(w.Err(), w.Close()); err != nil {
			t.Error(name, err)
		}
		for _, n := range writers {
			if n.flushes == 0 || !n.unflushed {
				t.Errorf("%s: after %d flushes nothing is left for the end", name, n.flushes)
			}
		}
	}
}

// flushNoter notes whether something was written after the last flush.
type flushNoter struct {
	http.ResponseWriter
	flushes   int
	unflushed bool
}

func (n *flushNoter) Write(p []byte) (int, error) {
	n.unflushed = true
	return n.ResponseWriter.Write(p)
}

func (n *flushNoter) Flush() {
	n.flushes++
	n.unflushed = false
	n.ResponseWriter.(http.Flusher).Flush()
}

func (n *flushNoter) Unwrap() http.ResponseWriter { return n.ResponseWriter }
