package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// quick has tests reconnect without waiting for long.
var quick = client.WithReconnect(client.ReconnectPolicy{Base: time.Microsecond, Cap: time.Millisecond})

// host serves a turn log on a loopback port.
func host(t *testing.T, l *turnLog) string {
	t.Helper()
	return hosted(t, l).URL
}

func hosted(t *testing.T, l *turnLog) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(l.handler())
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(func() { stop(srv) })
	return srv
}

// stop ends a server and all its connections, whatever they carry.
func stop(srv *httptest.Server) {
	_ = srv.Listener.Close()
	_ = srv.Config.Close()
}

// doubler offers the tool of a tale and counts its runs.
func doubler(t *testing.T, c *client.Client) *atomic.Int32 {
	t.Helper()
	var runs atomic.Int32
	mustAdd(t, client.AddTool(c, "double", "doubles", func(_ context.Context, in numbered) (any, error) {
		runs.Add(1)
		return 2 * in.N, nil
	}))
	return &runs
}

// note writes down an event; "" for what depends on the speed of tools.
func note(event *client.Event) string {
	where := fmt.Sprintf("%d %s ", event.Seq, event.TurnID)
	switch d := event.Data.(type) {
	case *client.TurnStarted:
		return where + "started " + d.SessionID
	case *client.OutputChunk:
		return where + fmt.Sprintf("%s %q %v", d.MessageID, d.Content, d.Last)
	case *client.StateUpdate:
		return where + fmt.Sprint("state ", d.Delta)
	case *client.ToolCall:
		return where + "call " + d.ID
	case *client.ToolCallAnnounced:
		return where + "notice " + d.ID
	case *client.MessageRetracted:
		return where + "retract " + d.MessageID
	case *client.Error:
		return where + "error " + d.Message
	case *client.End:
		return where + fmt.Sprint("end ", d.Completed, " ", d.Reason)
	default:
		return ""
	}
}

// runTale runs a tale and returns its events and the ids of the tool results.
func runTale(t *testing.T, c *client.Client) (notes, results []string) {
	t.Helper()
	for event, err := range c.Run(t.Context(), llm("double"), "tell") {
		if err != nil {
			t.Errorf("after %q: %v", notes, err)
			break
		}
		switch d := event.Data.(type) {
		case *client.ToolCallAnswered:
			results = append(results, d.ID)
		case *client.ConnectionLost, *client.ConnectionRestored:
		default:
			notes = append(notes, note(event))
		}
	}
	slices.Sort(results)
	return notes, results
}

// expect compares a tale with one that nothing has disturbed.
func expect(t *testing.T, c *client.Client, want []string) {
	t.Helper()
	runs := doubler(t, c)
	notes, results := runTale(t, c)
	if !slices.Equal(notes, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(results, []string{"c1", "c2", "c3"}) || runs.Load() != 3 {
		t.Errorf("results of %q, %d runs", results, runs.Load())
	}
}

// undisturbed returns the events of a tale without a cut.
func undisturbed(t *testing.T) []string {
	t.Helper()
	c := dial(t, host(t, newTurnLog(t, tale)))
	doubler(t, c)
	want, _ := runTale(t, c)
	if len(want) != 18 || want[0] != "10 turn started s-1" || want[17] != "150 turn end true " {
		t.Fatalf("got %d events: %q", len(want), want)
	}
	return want
}

// TestCutAtEveryMessage breaks the first stream before its n-th message.
func TestCutAtEveryMessage(t *testing.T) {
	want := undisturbed(t)
	for at := 1; at < len(want); at++ {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			l := newTurnLog(t, tale)
			l.cut = func(stream, sent int) bool { return stream == 1 && sent == at }
			expect(t, dial(t, host(t, l), quick), want)
			if l.starts != 1 || len(l.streams) != 2 {
				t.Errorf("%d starts, %d streams", l.starts, len(l.streams))
			}
			second := l.streams[1].attach
			if second.GetSessionId() != session || second.AfterSeq == nil || second.GetTurnId() != "turn" || len(second.GetToolNames()) != 1 {
				t.Errorf("attached with %v", second)
			}
		})
	}
}

// TestCutEachStream lets each stream carry few messages.
func TestCutEachStream(t *testing.T) {
	want := undisturbed(t)
	for _, each := range []int{4, 5, 7} { // less never gets past a text in pieces
		l := newTurnLog(t, tale)
		l.cut = func(_, sent int) bool { return sent == each }
		expect(t, dial(t, host(t, l), quick), want)
	}
}

// TestCutAtAnyByte closes connections after any number of bytes, whatever is in
// them, and for all protocols.
func TestCutAtAnyByte(t *testing.T) {
	want := undisturbed(t)
	protocols := map[string][]client.Option{
		"connect": {quick}, "grpc": {quick, client.WithGRPC()}, "grpc-web": {quick, client.WithGRPCWeb()},
	}
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			reported := 0
			for seed := range uint64(24) {
				l := newTurnLog(t, tale)
				rng := rand.New(rand.NewPCG(seed, 1))
				proxy := newCutter(t, strings.TrimPrefix(host(t, l), "http://"), 250, rng)
				c := dial(t, proxy, opts...)
				runs := doubler(t, c)
				var notes []string
				var failed error
				for event, err := range c.Run(t.Context(), llm("double"), "tell") {
					if failed = err; err != nil {
						break
					}
					if text := note(event); text != "" {
						notes = append(notes, text)
					}
				}
				if len(notes) == 0 && errors.Is(failed, client.ErrUnavailable) {
					continue // it broke before anybody knew that the turn runs
				}
				reported++
				if failed != nil || !slices.Equal(notes, want) || runs.Load() != 3 {
					t.Fatalf("seed %d: %v, %d runs, got\n%s\nwant\n%s", seed, failed, runs.Load(), strings.Join(notes, "\n"), strings.Join(want, "\n"))
				}
			}
			if reported < 8 {
				t.Errorf("only %d turns completed", reported)
			}
		})
	}
}

// newCutter forwards TCP to addr and closes each connection after a random
// number of bytes from the server; from connection to connection it allows
// more. It returns its URL.
func newCutter(t *testing.T, addr string, least int, rng *rand.Rand) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			budget := int64(least + rng.IntN(least*n)) // the first message is past the least
			wg.Go(func() {
				_, _ = io.Copy(out, in)
				_ = out.Close()
			})
			wg.Go(func() {
				_, _ = io.CopyN(in, out, budget)
				_ = in.Close()
				_ = out.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
	})
	return "http://" + listener.Addr().String()
}

// TestServerRestarts takes the server away while a tool runs, which finishes
// meanwhile.
func TestServerRestarts(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) {
		l.call("c", "work", "{}")
		l.say("m", l.await("c"))
		l.finish(true, "")
	})
	srv := hosted(t, l)
	var at atomic.Value // where the name of the server leads
	at.Store(srv.Listener.Addr().String())
	tr := &http.Transport{Protocols: srv.Config.Protocols, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, at.Load().(string))
	}}
	c := dial(t, "http://agentd.example", quick, client.WithHTTPClient(&http.Client{Transport: tr}))
	var runs atomic.Int32
	begun, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	mustAdd(t, client.AddTool(c, "work", "works", func(context.Context, struct{}) (any, error) {
		runs.Add(1)
		close(begun)
		<-release
		defer close(returned)
		return "done", nil
	}))
	go func() {
		<-begun
		at.Store("") // Others may get the port.
		stop(srv)
		close(release)
		<-returned // it has finished without a server
		at.Store(hosted(t, l).Listener.Addr().String())
	}()
	var text string
	for event, err := range c.Run(t.Context(), llm("work"), "go", client.WithProviderKey("gemini", "secret")) {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.OutputChunk != nil:
			text += event.OutputChunk.Content
		}
	}
	if text != "done" || runs.Load() != 1 {
		t.Errorf("got %q after %d runs", text, runs.Load())
	}
	if last := l.streams[len(l.streams)-1]; len(l.streams) != 2 || last.key != "secret" {
		t.Errorf("%d streams, the last with key %q", len(l.streams), last.key)
	}
}

// TestRunningCallIsOfferedTwice breaks the stream while a tool runs: the call is
// repeated, and neither runs nor shows twice.
func TestRunningCallIsOfferedTwice(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) {
		l.call("c", "work", "{}")
		l.say("m", l.await("c"))
		l.finish(true, "")
	})
	begun, repeated := make(chan struct{}), make(chan struct{})
	l.hook = func(ctx context.Context, stream int, s *peer) (bool, error) {
		if stream == 1 {
			if err := l.sendTwo(s); err != nil {
				return true, err
			}
			<-begun
			panic(http.ErrAbortHandler)
		}
		// Twice, and then the reply to a heartbeat, which shows that both have come.
		msgs := l.open(1 << 30)
		if err := steps(func() error { return s.send(msgs[0]) }, func() error { return s.send(msgs[0]) }); err != nil {
			return true, err
		}
		close(repeated)
		return false, nil
	}
	c := dial(t, host(t, l), quick)
	var runs atomic.Int32
	mustAdd(t, client.AddTool(c, "work", "works", func(context.Context, struct{}) (any, error) {
		if runs.Add(1) == 1 {
			close(begun)
		}
		<-repeated
		return "done", nil
	}))
	shownOnce(t, c, "done", func(string) {})
	if n := runs.Load(); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
}

// shownOnce runs a turn of one call, which the caller sees once, and which says
// text; heard has what was said so far.
func shownOnce(t *testing.T, c *client.Client, text string, heard func(text string)) {
	t.Helper()
	var calls, results int
	var said string
	for event, err := range c.Run(t.Context(), llm("work"), "go") {
		switch {
		case err != nil:
			t.Fatal(err)
		case event.ToolCall != nil:
			calls++
		case as[*client.ToolCallAnswered](event) != nil:
			results++
		case event.OutputChunk != nil:
			said += event.OutputChunk.Content
			heard(said)
		}
	}
	if calls != 1 || results != 1 || said != text {
		t.Errorf("%d calls, %d results, %q", calls, results, said)
	}
}

// sendTwo sends the first two messages of the log, once they are there.
func (l *turnLog) sendTwo(s *peer) error {
	msgs, _, _ := l.after(0)
	for len(msgs) < 2 {
		msgs, _, _ = l.after(0)
	}
	return steps(func() error { return s.send(msgs[0]) }, func() error { return s.send(msgs[1]) })
}

// held is a log handler that blocks whoever writes that a result could not be stored.
type held struct {
	slog.Handler
	written, release chan struct{}
}

func (h *held) Enabled(context.Context, slog.Level) bool { return true }

func (h *held) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "tool result not stored in the journal" {
		close(h.written)
		<-h.release
	}
	return nil
}

// TestStoredCallIsOfferedTwice breaks the stream while a result is being stored,
// which takes its time: the call is repeated, and neither runs nor shows twice.
func TestStoredCallIsOfferedTwice(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) {
		l.call("c", "work", "{}")
		l.say("m", "so ")
		l.say("n", l.await("c"))
		l.finish(true, "")
	})
	storing := &held{Handler: slog.DiscardHandler, written: make(chan struct{}), release: make(chan struct{})}
	l.hook = func(_ context.Context, stream int, s *peer) (bool, error) {
		if stream > 1 {
			return false, nil
		}
		if err := l.sendTwo(s); err != nil {
			return true, err
		}
		<-storing.written
		panic(http.ErrAbortHandler)
	}
	dir := filepath.Join(t.TempDir(), "journal")
	c := dial(t, host(t, l), quick, client.WithToolJournal(dir), client.WithLogger(slog.New(storing)))
	var runs atomic.Int32
	mustAdd(t, client.AddTool(c, "work", "works", func(context.Context, struct{}) (any, error) {
		runs.Add(1)
		return "done", errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) // so that storing fails, which is logged
	}))
	shownOnce(t, c, "so done", func(text string) {
		if text == "so " { // behind the call that is repeated
			close(storing.release)
		}
	})
	if n := runs.Load(); n != 1 {
		t.Errorf("the tool ran %d times", n)
	}
}

// TestErrorsWithoutRetry: each of these ends the run although it was running.
func TestErrorsWithoutRetry(t *testing.T) {
	refusal := func(code agentdv1.ErrorCode) func(*peer) error {
		return func(s *peer) error { return s.fail(code, "no", false) }
	}
	tests := map[string]struct {
		reply func(*peer) error
		want  error
	}{
		"unknown session": {refusal(agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND), client.ErrSessionNotFound},
		"invalid request": {refusal(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST), client.ErrInvalidRequest},
		"history purged":  {refusal(agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED), client.ErrHistoryPurged},
		"no key":          {refusal(agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED), client.ErrAuthFailed},
		"not permitted":   {refusal(agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED), client.ErrPermissionDenied},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := newTurnLog(t, func(l *turnLog) {
				l.say("m", "half")
				l.say("m", "of it") // it is cut before
			})
			l.cut = func(_, sent int) bool { return sent == 2 }
			l.hook = func(_ context.Context, stream int, s *peer) (bool, error) {
				if stream == 1 {
					return false, nil
				}
				return true, test.reply(s)
			}
			c := dial(t, host(t, l), quick)
			_, err := c.Do(t.Context(), llm(), "go")
			if !errors.Is(err, test.want) || len(l.streams) != 2 {
				t.Errorf("want %v, got %v after %d streams", test.want, err, len(l.streams))
			}
		})
	}
}

// TestUnavailableIsRetried: a server that says so is on its way down or up.
func TestUnavailableIsRetried(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) {
		l.say("m", "a")
		l.say("m", "b")
		l.finish(true, "")
	})
	l.hook = func(_ context.Context, stream int, s *peer) (bool, error) {
		switch stream {
		case 1:
			msgs, _, _ := l.after(0)
			return true, steps(
				func() error { return s.send(msgs[0]) },
				func() error { return s.fail(agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, "stopping", true) },
			)
		case 2, 3:
			return true, s.fail(agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, "starting", true)
		default:
			return false, nil
		}
	}
	res, err := dial(t, host(t, l), quick).Do(t.Context(), llm(), "go")
	if err != nil || res.Text != "ab" || len(l.streams) != 4 {
		t.Errorf("got %+v, %v after %d streams", res, err, len(l.streams))
	}
}

// TestUnknownStartIsRetried: nobody knows whether the turn has begun, but the
// request has an idempotency key.
func TestUnknownStartIsRetried(t *testing.T) {
	l := newTurnLog(t, tale)
	l.cut = func(stream, _ int) bool { return stream <= 3 }
	c := dial(t, host(t, l), client.WithReconnect(client.ReconnectPolicy{Base: time.Microsecond}))
	doubler(t, c)
	res, err := c.Do(t.Context(), llm("double"), "go")
	if err != nil || res.Text != taleText || l.starts != 1 || len(l.streams) != 4 {
		t.Fatalf("got %+v, %v after %d starts on %d streams", res, err, l.starts, len(l.streams))
	}
	for _, s := range l.streams {
		if key := s.execute.GetIdempotencyKey(); key == "" || key != l.startedBy || s.execute.GetUserPrompt() != "go" {
			t.Errorf("stream with key %q: %v", key, s.execute)
		}
	}
}

func TestReconnectDisabled(t *testing.T) {
	l := newTurnLog(t, tale)
	l.cut = func(_, sent int) bool { return sent == 3 }
	c := dial(t, host(t, l), client.WithReconnect(client.ReconnectPolicy{Off: true}))
	doubler(t, c)
	res, err := c.Do(t.Context(), llm("double"), "go")
	if !errors.Is(err, client.ErrUnavailable) || res.Text != "Hel" || len(l.streams) != 1 {
		t.Errorf("got %+v, %v after %d streams", res, err, len(l.streams))
	}
}

// TestEndIsSentAgain loses the stream together with the wish.
func TestEndIsSentAgain(t *testing.T) {
	l := newTurnLog(t, func(l *turnLog) { l.await("nothing") })
	l.hook = func(_ context.Context, stream int, s *peer) (bool, error) {
		if stream > 1 {
			return false, nil
		}
		msgs, _, _ := l.after(0)
		if err := s.send(msgs[0]); err != nil {
			return true, err
		}
		if m, err := s.receive(); err != nil || m.GetEnd() == nil {
			t.Errorf("got %v, %v", m, err)
		}
		panic(http.ErrAbortHandler)
	}
	var control client.Control
	var end *client.End
	for event, err := range dial(t, host(t, l), quick).Run(t.Context(), llm(), "go", client.WithControl(&control)) {
		switch {
		case err != nil:
			t.Fatal(err)
		case as[*client.TurnStarted](event) != nil:
			if err := control.End("enough"); err != nil {
				t.Fatal(err)
			}
		case event.End != nil:
			end = event.End
		}
	}
	if end == nil || end.Reason != "enough" {
		t.Errorf("end: %+v", end)
	}
}

// TestToolJournal restarts the client's program between two offers of a call.
func TestToolJournal(t *testing.T) {
	url, scripts := scripted(t)
	dir := t.TempDir()
	var runs atomic.Int32
	for range 3 {
		c := dial(t, url, client.WithToolJournal(dir))
		mustAdd(t, client.AddTool(c, "count", "counts", func(context.Context, struct{}) (any, error) { return runs.Add(1), nil }))
		scripts <- func(_ context.Context, s *peer) error {
			if err := steps(s.started, func() error { return s.call("same", "count", "{}") }); err != nil {
				return err
			}
			m, err := s.toolResult()
			if err != nil {
				return err
			}
			return s.end(true, m.GetOutput())
		}
		res, err := c.Do(t.Context(), llm("count"), "hi")
		if err != nil || res.Reason != "1" {
			t.Errorf("answered %q, %v", res.Reason, err)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("the tool ran %d times", runs.Load())
	}
}

// TestStartsOnce: a server may begin each stream with an ExecuteResponse, at
// its place in the log, at none, or as something replayed.
func TestStartsOnce(t *testing.T) {
	for name, seq := range map[string]int64{"its place": 10, "none": 0, "another": 45} {
		t.Run(name, func(t *testing.T) {
			l := newTurnLog(t, tale)
			l.cut = func(_, sent int) bool { return sent == 4 }
			l.hook = func(_ context.Context, stream int, s *peer) (bool, error) {
				if stream == 1 {
					return false, nil
				}
				return false, s.send(&agentdv1.RunResponse{Seq: seq, Replayed: true, Response: &agentdv1.RunResponse_Execute{
					Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: session},
				}})
			}
			expect(t, dial(t, host(t, l), quick), undisturbed(t))
		})
	}
}
