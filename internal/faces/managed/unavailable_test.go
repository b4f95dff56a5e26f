package managed_test

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/faces/managed"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// timeless starts a daemon in memory, in a bubble of fake time.
func timeless(t *testing.T, scripts map[string]string, opts ...testdaemon.Option) *desk {
	t.Helper()
	opts = append(opts, func(c *testdaemon.Config) { c.Daemon.Faces = []server.Face{managed.Face{}} })
	d := agentdtest.Start(t, agentdtest.Config{Scripts: scripts}, opts...)
	hc := d.HTTPClient()
	return &desk{t: t, url: d.URL, http: hc, native: agentdv1connect.NewSessionServiceClient(hc, d.URL)}
}

// refused checks that a request is refused in the protocol's form.
func (d *desk) refused(method, path string, body any, status int, kind string) (object, http.Header) {
	d.t.Helper()
	got, out, header := d.send(method, path, body)
	if got != status || out.text("type") != "error" || out.text("error", "type") != kind || out.text("error", "message") == "" ||
		out.text("request_id") == "" || out.text("request_id") != header.Get("Request-Id") {
		d.t.Errorf("%s %s: %d %v, request-id %q; want %d %s", method, path, got, out, header.Get("Request-Id"), status, kind)
	}
	return out, header
}

// A session whose log was purged is gone, and says so; others are served.
func TestPurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := timeless(t, nil, testdaemon.WithTurnLimits(limits.Limits{PurgeAfter: time.Hour}))
		id := d.session("echo")
		d.post(id, said("hi"))
		d.untilIdle(id, "end_turn")
		time.Sleep(24 * time.Hour)
		for _, path := range []string{"/events", "/events/stream"} {
			d.refused("GET", "/v1/sessions/"+id+path, nil, http.StatusGone, "not_found_error")
		}
		d.refused("POST", "/v1/sessions/"+id+"/events", object{"events": []object{said("again")}}, http.StatusGone, "not_found_error")
		next := d.session("echo")
		d.post(next, said("hello"))
		if got := lastText(d.untilIdle(next, "end_turn")); got != "hello" {
			t.Errorf("the next session said %q", got)
		}
	})
}

// While a model is asked again later, its session is being rescheduled, and so is the thread of its agent.
func TestRescheduling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := timeless(t, map[string]string{"weary": `{answers: [
  {when: {user: go}, error: {kind: unavailable, status: 503, message: overloaded, retry_after: 20s}}, {when: {step: 1}, text: fine}]}`})
		id := d.session("scripted/weary")
		d.post(id, said("go"))
		time.Sleep(time.Second)
		session := "/v1/sessions/" + id
		if got := d.must("GET", session, nil).text("status"); got != "rescheduling" {
			t.Errorf("the session is %q between two tries", got)
		}
		if got := d.list(session + "/threads"); len(got) != 1 || got[0].text("status") != "rescheduling" {
			t.Errorf("the threads are %v between two tries", got)
		}
		if got := d.list("/v1/sessions?statuses[]=rescheduling"); len(got) != 1 || got[0].text("id") != id {
			t.Errorf("sessions that are rescheduling: %v", got)
		}
		d.untilIdle(id, "retries_exhausted")
		if got := d.list("/v1/sessions?statuses[]=rescheduling"); len(got) != 0 {
			t.Errorf("after the last try sessions are rescheduling: %v", got)
		}
		d.post(id, said("stay"))
		if got := lastText(d.untilIdle(id, "end_turn")); got != "fine" {
			t.Errorf("the next turn said %q", got)
		}
	})
}

// While the disk is full nothing is taken, and nothing is lost: the same requests are served when there is room.
func TestStoreIsFull(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "agentd.db"), sqlite.Config{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, daemon.Config{Store: db, Scripts: map[string]string{"greets": greets}})
	id := d.session("scripted/greets")
	d.post(id, said("go"))
	use := lastStatus(d.untilIdle(id, "requires_action")).at("stop_reason", "event_ids", 0)
	result := object{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "hi"}}}
	fill(t, db)
	before := d.events(id)
	events := "/v1/sessions/" + id + "/events"
	for range 2 {
		d.refused("POST", events, object{"events": []object{said("more")}}, 529, "overloaded_error")
	}
	if now := d.events(id); len(now) != len(before) {
		t.Errorf("a full store has %d events, before it had %d", len(now), len(before))
	}
	if err := db.SetMaxBytes(t.Context(), 16<<20); err != nil {
		t.Fatal(err)
	}
	for _, event := range []object{said("more"), result} {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if status, out, _ := d.send("POST", events, object{"events": []object{event}}); status == http.StatusOK {
				break
			} else if status != 529 || time.Now().After(deadline) {
				t.Fatalf("with room again: %d %v", status, out)
			}
		}
	}
	after := d.untilIdle(id, "requires_action") // of the message that waited
	if n := len(slices.DeleteFunc(kinds(after), func(kind string) bool { return kind != "user.message" })); n != 2 {
		t.Errorf("%d messages were taken, want the first one and the one that was sent again: %q", n, kinds(after))
	}
}

// fill takes all room that a store has.
func fill(t *testing.T, s *sqlite.Store) {
	t.Helper()
	if err := s.Create(t.Context(), store.NewSession{ID: "filler", CreatedAt: time.Now(), Creator: "local"}, nil); err != nil {
		t.Fatal(err)
	}
	seq := int64(0)
	for _, size := range []int{64 << 10, 4 << 10, 100} {
		for {
			err := s.Append(t.Context(), store.Batch{SessionID: "filler", After: seq, Records: []record.Record{{
				Seq: seq + 1, TurnID: "t", Kind: record.KindEvent, Time: time.Now(), Data: bytes.Repeat([]byte("x"), size),
			}}})
			if err != nil {
				break
			}
			seq++
		}
	}
}

// stalling is a store that writes nothing while it is held.
type stalling struct {
	*sqlite.Store

	mu   sync.Mutex // protects held
	held chan struct{}
}

// wait returns when the store is not held.
func (s *stalling) wait() {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held != nil {
		<-held
	}
}

// hold holds the store until release is called.
func (s *stalling) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held = held
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = nil
		close(held)
	}
}

func (s *stalling) Append(ctx context.Context, b store.Batch) error {
	s.wait()
	return s.Store.Append(ctx, b)
}

func (s *stalling) AppendMany(ctx context.Context, batches []store.Batch) []error {
	s.wait()
	return s.Store.AppendMany(ctx, batches)
}

// A result that is taken and cannot be read back in time is a timeout in the protocol's form; posted again it is the
// first one, and its call has one.
func TestResultIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		slow := &stalling{Store: db}
		d := timeless(t, map[string]string{"greets": greets}, testdaemon.WithStore(slow))
		id := d.session("scripted/greets")
		d.post(id, said("go"))
		use := lastStatus(d.untilIdle(id, "requires_action")).at("stop_reason", "event_ids", 0)
		events := object{"events": []object{{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "hi"}}}}}
		path := "/v1/sessions/" + id + "/events"
		release := slow.hold()
		first := make(chan object, 1)
		go func() {
			_, out, _ := d.send("POST", path, events)
			first <- out
		}()
		time.Sleep(time.Second)
		begun := time.Now()
		d.refused("POST", path, events, http.StatusGatewayTimeout, "timeout_error")
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("it was refused after %v", took)
		}
		release()
		want := (<-first).objects("data")[0].text("id")
		if got := d.must("POST", path, events).objects("data")[0].text("id"); got != want {
			t.Errorf("posted again it is %s, the first one is %s", got, want)
		}
		all := d.untilIdle(id, "end_turn")
		if n := len(slices.DeleteFunc(kinds(all), func(kind string) bool { return kind != "user.custom_tool_result" })); n != 1 {
			t.Errorf("the call has %d results: %q", n, kinds(all))
		}
	})
}
