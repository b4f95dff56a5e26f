package daemon_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// idsOf are the ids of the events that a filter selects.
func idsOf(t *testing.T, cl *client.Client, after int64, filter client.LogFilter) (ids []string) {
	t.Helper()
	for e, err := range cl.EventLog(t.Context(), after, filter) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// watched follows the event log until the test ends.
func watched(t *testing.T, cl *client.Client, after int64, filter client.LogFilter) <-chan *client.LoggedEvent {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, over := make(chan *client.LoggedEvent, 1000), make(chan struct{})
	go func() {
		defer close(over)
		for e, err := range cl.WatchEventLog(ctx, after, filter) {
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("the watch has ended: %v", err)
				}
				return
			}
			out <- e
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-over
		cl.CloseIdleConnections()
	})
	return out
}

// take returns the ids of the next n events.
func take(t *testing.T, from <-chan *client.LoggedEvent, n int) (ids []string) {
	t.Helper()
	for range n {
		select {
		case e := <-from:
			ids = append(ids, e.ID)
		case <-t.Context().Done():
			t.Fatalf("no more events behind %q", ids)
		}
	}
	return ids
}

// TestEventService lists and watches the event log: each tenant its own, and across a restart each event once.
func TestEventService(t *testing.T) {
	t.Parallel()
	cfg := daemon.Config{
		Addr: "127.0.0.1:0", DataDir: t.TempDir(), EventLog: true, CreateSessions: true, Authenticate: byHeader,
		Scripts: map[string]string{"looks": looks},
	}
	d := start(t, cfg)
	as := func(who string) client.Option { return client.WithHeader("X-Test-Who", who) }
	ann, observer, other := as("ann@acme/caller"), as("ben@acme/observer"), as("ann@umbrella/operator")
	of := func(opts ...client.Option) *client.Client {
		cl := client.New(d.URL(), opts...)
		t.Cleanup(cl.CloseIdleConnections)
		return cl
	}
	all := watched(t, of(observer), 0, client.LogFilter{})
	children := watched(t, of(ann), 0, client.LogFilter{BranchPrefix: "bg."})
	askLooks(t, d, "s", "canary", ann)
	askLooks(t, d, "s", "canary", other)
	askLooks(t, d, "s:sub:bg.x", "canary", ann)
	const s, sub = "acme/s#1 acme/s#3 acme/s#5 acme/s#6 acme/s#8", "acme/s:sub:bg.x#1 acme/s:sub:bg.x#3 " +
		"acme/s:sub:bg.x#5 acme/s:sub:bg.x#6 acme/s:sub:bg.x#8"
	if got := strings.Join(take(t, all, 10), " "); got != s+" "+sub {
		t.Errorf("the watch has %s", got)
	}
	if got := strings.Join(take(t, children, 5), " "); got != sub {
		t.Errorf("the watch of children has %s", got)
	}
	var first *client.LoggedEvent
	for e, err := range of(ann).EventLog(t.Context(), 0, client.LogFilter{SessionID: "s"}) {
		if err != nil {
			t.Fatal(err)
		}
		first = e
		break
	}
	got := *first
	want := client.LoggedEvent{
		Seq: got.Seq, App: "agentd", User: "ann", SessionID: "s", ID: "acme/s#1", Author: "user", Time: got.Time,
		TurnID: got.TurnID, Metadata: []byte("{}"),
	}
	if diff := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".msg" }, cmp.Ignore())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		who    client.Option
		after  int64
		filter client.LogFilter
		want   string
	}{
		{ann, 0, client.LogFilter{}, s + " " + sub},
		{observer, first.Seq, client.LogFilter{SessionID: "s"}, s[len("acme/s#1 "):]},
		{ann, 0, client.LogFilter{SessionID: "s", Tree: true}, s + " " + sub},
		{ann, 0, client.LogFilter{SessionID: "s", Author: "b"}, "acme/s#8"},
		{other, 0, client.LogFilter{}, strings.ReplaceAll(s, "acme", "umbrella")},
		{other, 0, client.LogFilter{SessionID: "s:sub:bg.x"}, ""},
	} {
		if got := strings.Join(idsOf(t, of(c.who), c.after, c.filter), " "); got != c.want {
			t.Errorf("behind %d with %+v there are %s, want %s", c.after, c.filter, got, c.want)
		}
	}

	// What is refused.
	raw := agentdv1connect.NewEventServiceClient(
		&http.Client{Transport: headed{map[string]string{"X-Test-Who": "ann@acme/caller"}, h2c(t).Transport}}, d.URL())
	for text, req := range map[string]*agentdv1.ListEventsRequest{
		"filter.tree": {Filter: &agentdv1.EventFilter{Tree: true}},
		"after_seq":   {AfterSeq: -1},
		"limit":       {Limit: 1001},
	} {
		_, err := raw.List(t.Context(), connect.NewRequest(req))
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}

	// The watches go on at the next process.
	cfg.Addr = strings.TrimPrefix(d.URL(), "http://")
	askLooks(t, d, "s", "more", ann)
	stop(t, d)
	d = start(t, cfg)
	askLooks(t, d, "s", "more", ann)
	more := take(t, all, 10)
	if diff := cmp.Diff(idsOf(t, of(ann), 0, client.LogFilter{})[10:], more); diff != "" {
		t.Errorf("across a restart (-list +watch):\n%s", diff)
	}
	fresh, err := raw.Watch(t.Context(), connect.NewRequest(&agentdv1.WatchEventsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fresh.Close() }()
	fresh.ResponseHeader() // from here on the stream watches
	askLooks(t, d, "t", "more", ann)
	if !fresh.Receive() || fresh.Msg().GetEvent().GetEventId() != "acme/t#1" {
		t.Errorf("a watch of what is to come begins with %v, %v", fresh.Msg(), fresh.Err())
	}
}

// TestEventServiceOfReplicas watches at one daemon what another one appends.
func TestEventServiceOfReplicas(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2, daemon.Config{
		EventLog: true, CreateSessions: true, Scripts: map[string]string{"looks": looks},
	})
	all := watched(t, client.New(r.each[1].URL()), 0, client.LogFilter{})
	for _, id := range []string{"s", "t", "u"} {
		askLooks(t, r.each[0], id, "hello")
	}
	if got := strings.Join(take(t, all, 15), " "); got != "s#1 s#3 s#5 s#6 s#8 t#1 t#3 t#5 t#6 t#8 u#1 u#3 u#5 u#6 u#8" {
		t.Errorf("the watch has %s", got)
	}
}

// TestNoEventService: a server without an event log says so.
func TestNoEventService(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{DataDir: daemon.Memory})
	cl := client.New(d.URL())
	defer cl.CloseIdleConnections()
	for _, list := range []func() error{
		func() error { return firstError(cl.EventLog(t.Context(), 0, client.LogFilter{})) },
		func() error { return firstError(cl.WatchEventLog(t.Context(), 0, client.LogFilter{})) },
	} {
		if err := list(); err == nil || !strings.Contains(err.Error(), "--eventlog") {
			t.Errorf("error %v", err)
		}
	}
}

func firstError(events func(func(*client.LoggedEvent, error) bool)) (first error) {
	for _, err := range events {
		return err
	}
	return nil
}
