package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
)

// envelope frames a message as connect does.
func envelope(flags byte, data []byte) []byte {
	b := make([]byte, 5, 5+len(data))
	b[0] = flags
	binary.BigEndian.PutUint32(b[1:], uint32(len(data)))
	return append(b, data...)
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// raw sends a body as it is, and returns the response and how the stream ended.
func (f *fixture) raw(t *testing.T, contentType string, body io.Reader) (msgs []*agentdv1.RunResponse, trailer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+agentdv1connect.AgentdRunProcedure, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Connect-Content-Encoding", "gzip")
	resp, err := f.hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read: %v after %d bytes", err, len(all))
	}
	for len(all) >= 5 {
		flags, n := all[0], binary.BigEndian.Uint32(all[1:])
		data := all[5 : 5+n]
		all = all[5+n:]
		if flags&2 != 0 {
			return msgs, string(data)
		}
		m := &agentdv1.RunResponse{}
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, m)
	}
	t.Fatal("the stream has no end")
	return nil, ""
}

const wireProto = "application/connect+proto"

// deepTree is a chain of agents, built on the wire: encoding it the usual way
// costs as much as decoding.
func deepTree(depth int) []byte {
	field := func(n int, data []byte) []byte {
		b := binary.AppendUvarint(nil, uint64(n<<3|2))
		return append(binary.AppendUvarint(b, uint64(len(data))), data...)
	}
	agent := field(1, []byte("leaf"))
	for range depth {
		agent = append(field(1, []byte("a")), field(4, field(1, agent))...) // sequential.agents
	}
	return field(1, append(field(1, agent), field(3, []byte("hi"))...)) // execute.agent, user_prompt
}

func TestUnreadableFirstMessage(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{MaxMessageBytes: 64 << 10})
	bomb := &bytes.Buffer{}
	z := gzip.NewWriter(bomb)
	if _, err := z.Write(make([]byte, 32<<20)); err != nil || z.Close() != nil {
		t.Fatal("no bomb")
	}
	invalid := marshal(t, execute())
	invalid = bytes.Replace(invalid, []byte("world"), []byte("wo\xffld"), 1)
	cases := map[string]struct {
		body []byte
		code agentdv1.ErrorCode
		text string
	}{
		"nothing":         {nil, codeInvalid, "before an ExecuteRequest"},
		"half a prefix":   {[]byte{0, 0}, codeInvalid, "cannot be read"},
		"half a message":  {envelope(0, marshal(t, execute()))[:20], codeInvalid, "cannot be read"},
		"garbage":         {envelope(0, []byte("\xff\xff\xff garbage")), codeInvalid, "no RunRequest"},
		"invalid UTF-8":   {envelope(0, invalid), codeInvalid, "UTF-8"},
		"too large":       {envelope(0, make([]byte, 100<<10)), codeLimit, "65536"},
		"claims 4 GiB":    {append([]byte{0, 0xff, 0xff, 0xff, 0xff}, make([]byte, 1<<20)...), codeLimit, "given up"},
		"compressed":      {envelope(1, bomb.Bytes()), codeInvalid, "compressed requests are not accepted"},
		"end of stream":   {envelope(2, []byte("{}")), codeInvalid, ""},
		"a thousand deep": {envelope(0, deepTree(1000)), codeLimit, "nested too deeply"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			msgs, trailer := f.raw(t, wireProto, bytes.NewReader(tc.body))
			if trailer != "{}" {
				t.Errorf("the stream must end cleanly, got %s", trailer)
			}
			if len(msgs) != 1 || msgs[0].GetError() == nil {
				t.Fatalf("want one ErrorResponse, got %s", show(msgs))
			}
			if e := msgs[0].GetError(); e.GetCode() != tc.code || !strings.Contains(e.GetMessage(), tc.text) {
				t.Errorf("got %v, want %v with %q", e, tc.code, tc.text)
			}
		})
	}
	if !lastOf(t, f.run(t).toEnd()).GetCompleted() {
		t.Error("the next call must be served")
	}
}

// The JSON form has the same bounds, under both of its names.
func TestUnreadableJSON(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	for _, contentType := range []string{"application/connect+json", "application/connect+json; charset=utf-8"} {
		for body, text := range map[string]string{
			`{"execute":{"agent":` + strings.Repeat(`{"sequential":{"agents":[`, 1000) + strings.Repeat(`]}}`, 1000) + `}}`: "nested too deeply",
			`{"execute":{"agent":7}}`:                 "no RunRequest",
			"{\"execute\":{\"userPrompt\":\"\xff\"}}": "UTF-8",
			``: "request",
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+agentdv1connect.AgentdRunProcedure, bytes.NewReader(envelope(0, []byte(body))))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", contentType)
			resp, err := f.hc.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || !bytes.Contains(got, []byte(text)) || !bytes.HasSuffix(got, []byte("{}")) {
				t.Errorf("%s %.40s: got %q (%v), want an error with %q and a clean end", contentType, body, got, err, text)
			}
		}
	}
}

// A message in the middle of a turn that cannot be decoded is refused; the turn
// continues, and so does the stream.
func TestGarbageInATurn(t *testing.T) { //nolint:tparallel // its subtests use one daemon, one after the other
	t.Parallel() // it waits
	outcomes := make(chan string, 1)
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		res, err := ask(ctx, run, "call")
		if err != nil {
			return err
		}
		outcomes <- string(res[0].Outcome)
		return nil
	}}, server.Config{MaxMessageBytes: 64 << 10})
	for name, tc := range map[string]struct {
		garbage []byte
		code    agentdv1.ErrorCode
		outcome record.Outcome
	}{
		"not a message": {envelope(0, []byte("\xff garbage")), codeInvalid, record.Returned},
		"too large":     {envelope(0, make([]byte, 100<<10)), codeLimit, record.Returned},
		"compressed":    {envelope(1, []byte("zz")), codeInvalid, record.Returned},
		"bad framing":   {envelope(2, []byte("{}")), codeInvalid, record.Abandoned},
	} {
		t.Run(name, func(t *testing.T) {
			body := slices.Concat(envelope(0, marshal(t, execute())), tc.garbage, envelope(0, marshal(t, toolResult("call", "x"))))
			r, w := io.Pipe()
			sent := make(chan error, 1)
			go func() {
				_, err := w.Write(body)
				sent <- errors.Join(err, w.Close())
			}()
			msgs, trailer := f.raw(t, wireProto, r)
			_ = r.Close()
			if err := <-sent; err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
			if trailer != "{}" {
				t.Errorf("the stream must end cleanly, got %s", trailer)
			}
			if !lastOf(t, msgs).GetCompleted() {
				t.Errorf("the turn must go on: %s", show(msgs))
			}
			i := slices.IndexFunc(msgs, isError)
			if i < 0 || msgs[i].GetError().GetCode() != tc.code {
				t.Errorf("want %v, got %s", tc.code, show(msgs))
			}
			if got := <-outcomes; got != string(tc.outcome) && tc.outcome == record.Abandoned {
				t.Errorf("the call was %s, want %s", got, tc.outcome)
			}
		})
	}
}

// A client that stops reading is cut off, and no more than a fixed amount waits for it;
// its turn continues.
func TestClientThatDoesNotRead(t *testing.T) {
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		text := strings.Repeat("x", 256<<10)
		for range 32 { // more than the client's window and both ends' buffers hold
			if err := emit(ctx, run, &record.Event{Path: root, Text: text}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}}, server.Config{WriteTimeout: time.Second})
	c := f.run(t, connect.WithAcceptCompression("gzip", nil, nil))
	first := c.next()
	for f.srv.Streams() > 0 {
		time.Sleep(time.Millisecond)
	}
	second := execute()
	second.GetExecute().SessionId = new(first.GetExecute().GetSessionId())
	d := f.open(t.Context(), t)
	d.send(second)
	if msgs := d.rest(); msgs[0].GetError().GetCode() != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY {
		t.Errorf("got %s, want the turn still running", show(msgs))
	}
	for {
		if _, err := c.Receive(); err != nil {
			if errors.Is(err, io.EOF) {
				t.Error("a stream that was cut off must not look complete")
			}
			break
		}
	}
	_ = c.CloseRequest()
	_ = c.CloseResponse()
}

// onPipes runs a test on fake time.
func onPipes(t *testing.T, e engine, cfg server.Config, test func(t *testing.T, f *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := serveOn(t, testdaemon.NewListener(), e, cfg)
		test(t, f)
		f.stop()
	})
}

// A client that never closes its side gets everything, and the stream still
// ends by itself; one that does waits for nothing.
func TestServerClosesTheStream(t *testing.T) {
	for name, opts := range wires {
		t.Run(name, func(t *testing.T) {
			onPipes(t, engine{run: talk}, server.Config{}, func(t *testing.T, f *fixture) {
				start := time.Now()
				c := f.run(t, opts...)
				msgs := c.until(isEnd)
				if took := time.Since(start); took > 0 {
					t.Errorf("EndResponse took %v", took)
				}
				if _, err := c.Receive(); !errors.Is(err, io.EOF) {
					t.Errorf("got %v, want a clean end", err)
				}
				// An earlier end would reset the stream, and some clients would then
				// lose what came last.
				if took := time.Since(start); took != 2*time.Second {
					t.Errorf("the end took %v, want LingerTimeout, 2s", took)
				}
				if !lastOf(t, msgs).GetCompleted() || joined(msgs) != "hello world" {
					t.Errorf("got %s", show(msgs))
				}
				_ = c.CloseRequest()
				_ = c.CloseResponse()

				start = time.Now()
				f.run(t, opts...).toEnd()
				if took := time.Since(start); took != 0 {
					t.Errorf("a client that closes its side waited %v", took)
				}
			})
		})
	}
}

func TestTimeouts(t *testing.T) {
	t.Run("first message", func(t *testing.T) {
		onPipes(t, engine{run: talk}, server.Config{}, func(t *testing.T, f *fixture) {
			c := f.open(t.Context(), t)
			c.send(nil...)
			if err := c.Send(nil); err != nil { // the headers alone
				t.Fatal(err)
			}
			start := time.Now()
			msgs := []*agentdv1.RunResponse{c.next()}
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("took %v, want 10s", took)
			}
			endedEarly(t, append(msgs, c.rest()...), codeTimeout, "no ExecuteRequest or AttachRequest within 10s")
		})
	})
	t.Run("idle", func(t *testing.T) {
		onPipes(t, engine{run: func(ctx context.Context, run *session.Run) error {
			_, err := ask(ctx, run, "a", "b", "c")
			return err
		}}, server.Config{}, func(t *testing.T, f *fixture) {
			c := f.run(t)
			first := c.next()
			for range 3 {
				c.until(isCall)
			}
			start := time.Now()
			time.Sleep(14 * time.Minute)
			c.send(heartbeat()) // gets a reply, which keeps the stream open
			c.next()
			for _, id := range []string{"b", "c"} { // so does what gets no reply
				time.Sleep(14 * time.Minute)
				c.send(toolResult(id, "x"))
			}
			msgs := c.until(isError)
			if took := time.Since(start); took != 57*time.Minute {
				t.Errorf("took %v, want 3 x 14 and 15 minutes", took)
			}
			endedEarly(t, append(msgs, c.rest()...), codeTimeout, "no message for 15m0s")
			f.stillRuns(t, first)
		})
	})
	t.Run("age", func(t *testing.T) {
		onPipes(t, engine{run: hold}, server.Config{StreamTimeout: 20 * time.Minute}, func(t *testing.T, f *fixture) {
			c := f.run(t)
			first := c.next()
			start := time.Now()
			time.Sleep(10 * time.Minute)
			c.send(heartbeat())
			msgs := c.until(isError)
			if took := time.Since(start); took != 20*time.Minute {
				t.Errorf("took %v", took)
			}
			endedEarly(t, append(msgs, c.rest()...), codeTimeout, "open for 20m0s")
			f.stillRuns(t, first)
		})
	})
}

// Messages are taken at a bounded pace; what comes faster waits.
func TestFlood(t *testing.T) {
	onPipes(t, engine{run: hold}, server.Config{MessagesPerSecond: 10}, func(t *testing.T, f *fixture) {
		c := f.run(t)
		c.until(isSaid)
		const n = 200
		start := time.Now()
		go func() {
			for range n {
				if c.Send(heartbeat()) != nil {
					return
				}
			}
		}()
		for range n {
			if c.next().GetHeartbeat() == nil {
				t.Fatal("want a heartbeat")
			}
		}
		// Two seconds' worth pass at once, the others one by one.
		if took := time.Since(start).Round(time.Second); took != (n-20)/10*time.Second {
			t.Errorf("%d messages took %v at 10 a second", n, took)
		}
		c.send(cancelTurn())
		c.toEnd()
	})
}

// A stream that has ended keeps no place, whatever its client does, and what the client
// still sends is dropped at any rate.
func TestEndedStreamKeepsNoPlace(t *testing.T) {
	t.Run("a client that does not close its side", func(t *testing.T) {
		onPipes(t, engine{run: talk}, server.Config{MaxStreams: 1}, func(t *testing.T, f *fixture) {
			var streams []*rawStream
			defer func() {
				for _, s := range streams {
					s.close()
				}
			}()
			begin := time.Now()
			for range 3 {
				s := f.rawStream(t, false)
				streams = append(streams, s)
				s.write(0, s.encode(execute()))
				s.until(isEnd)
				synctest.Wait()
				if n, took := f.srv.Streams(), time.Since(begin); n != 0 || took > 0 {
					t.Errorf("%d streams are open after %v", n, took)
				}
			}
		})
	})
	t.Run("a backlog", func(t *testing.T) {
		onPipes(t, engine{run: hold}, server.Config{MessagesPerSecond: 10, MaxRefused: 5}, func(t *testing.T, f *fixture) {
			s := f.rawStream(t, false)
			defer s.close()
			s.write(0, s.encode(execute()))
			s.until(isText)
			begin := time.Now()
			go func() {
				bad := s.encode(toolResult("nobody's", "x"))
				for range 5000 {
					s.write(0, bad)
				}
			}()
			s.until(func(m *agentdv1.RunResponse) bool { return m.GetError().GetCode() == codeLimit })
			for s.next() != nil {
				t.Error("a message after the last one")
			}
			if took := time.Since(begin); took > 2*time.Second {
				t.Errorf("the stream ended after %v, want LingerTimeout, 2s, at most", took)
			}
		})
	})
}

func TestMaxStreams(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{MaxStreams: 1})
	c := f.run(t)
	c.until(isText)
	full := f.run(t)
	msgs := full.rest()
	if len(msgs) != 1 || msgs[0].GetError().GetCode() != codeUnavailable || !msgs[0].GetError().GetRetryable() {
		t.Errorf("want UNAVAILABLE, got %s", show(msgs))
	}
	c.send(cancelTurn())
	c.toEnd()
}

// Draining refuses new streams, also those that have not said anything yet, and
// leaves those that run alone.
func TestDrain(t *testing.T) {
	f := serve(t, engine{run: hold}, server.Config{})
	running := f.run(t)
	running.until(isSaid)
	silent := f.open(t.Context(), t)
	if err := silent.Send(nil); err != nil {
		t.Fatal(err)
	}
	for f.srv.Streams() < 2 {
		time.Sleep(time.Millisecond)
	}
	f.srv.Drain()
	f.srv.Drain()
	for _, c := range []*conversation{silent, f.run(t)} {
		msgs := c.rest()
		if len(msgs) != 1 || msgs[0].GetError().GetCode() != codeUnavailable {
			t.Errorf("want UNAVAILABLE, got %s", show(msgs))
		}
	}
	select {
	case <-f.srv.Drained():
		t.Error("drained while a stream runs")
	default:
	}
	running.send(heartbeat())
	if running.next().GetHeartbeat() == nil {
		t.Error("a stream that runs is served")
	}
	running.send(end("bye"))
	if lastOf(t, running.toEnd()).GetReason() != "bye" {
		t.Error("want the turn's end")
	}
	<-f.srv.Drained()
}

// faulty panics or fails where a manager should not.
type faulty struct {
	server.Sessions // nil: its methods panic
	err             error
}

func (s faulty) Turn(context.Context, string, string) (index.Turn, error) {
	return index.Turn{}, s.err
}

func (s faulty) Start(context.Context, session.Request) (*session.Turn, error) {
	if s.err == nil {
		panic("start fault")
	}
	return nil, s.err
}

func (s faulty) Attach(context.Context, session.AttachRequest) (*session.Turn, *session.Watcher, error) {
	return nil, nil, s.err
}

func TestFaultsOfOurs(t *testing.T) {
	t.Run("panic", func(t *testing.T) {
		f := serve(t, engine{run: talk}, server.Config{Sessions: faulty{}})
		c := f.run(t)
		_, err := c.Receive()
		if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "fault") {
			t.Errorf("got %v, want internal error", err)
		}
		_ = c.CloseRequest()
		_ = c.CloseResponse()
		f.stop()
		if !bytes.Contains(f.log.Bytes(), []byte("start fault")) {
			t.Error("the log must hold the panic")
		}
	})
	t.Run("error", func(t *testing.T) {
		f := serve(t, engine{run: talk}, server.Config{Sessions: faulty{err: errors.New("disk at /secret/path is on fire")}})
		msgs := f.run(t).rest()
		if len(msgs) != 1 || msgs[0].GetError().GetMessage() != "internal error" || msgs[0].GetError().GetRetryable() {
			t.Errorf("got %s, want internal error", show(msgs))
		}
		f.stop()
		if !bytes.Contains(f.log.Bytes(), []byte("on fire")) {
			t.Error("the log must hold the cause")
		}
	})
}

// endless never comes to start a turn.
type endless struct {
	server.Sessions
	entered chan struct{}
}

func (s endless) Start(ctx context.Context, _ session.Request) (*session.Turn, error) {
	close(s.entered)
	<-ctx.Done()
	return nil, fmt.Errorf("read the log: %w", context.Cause(ctx))
}

func (s endless) Attach(ctx context.Context, _ session.AttachRequest) (*session.Turn, *session.Watcher, error) {
	_, err := s.Start(ctx, session.Request{})
	return nil, nil, err
}

// A start that is given up because of the client is no fault of ours.
func TestStartGivenUp(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		f := serve(t, engine{run: talk}, server.Config{Sessions: endless{entered: make(chan struct{})}})
		c := f.open(t.Context(), t)
		c.RequestHeader().Set("Connect-Timeout-Ms", "50")
		c.send(execute())
		msgs := c.rest()
		if len(msgs) != 1 || msgs[0].GetError().GetCode() != agentdv1.ErrorCode_ERROR_CODE_TIMEOUT {
			t.Errorf("got %s, want TIMEOUT", show(msgs))
		}
	})
	t.Run("disconnect", func(t *testing.T) {
		s := endless{entered: make(chan struct{})}
		f := serve(t, engine{run: talk}, server.Config{Sessions: s})
		ctx, cancel := context.WithCancel(t.Context())
		c := f.open(ctx, t)
		c.send(execute())
		<-s.entered
		cancel()
		_ = c.CloseRequest()
		_, _ = c.Receive()
		f.stop() // waits for the stream
		if bytes.Contains(f.log.Bytes(), []byte(`"level":"ERROR"`)) {
			t.Errorf("logged as a fault: %s", f.log)
		}
	})
}

// Run needs a protocol with streams in both directions.
func TestHTTP1(t *testing.T) {
	f := serve(t, engine{run: talk}, server.Config{})
	resp, err := http.Post(f.url+agentdv1connect.AgentdRunProcedure, wireProto, bytes.NewReader(envelope(0, marshal(t, execute()))))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusHTTPVersionNotSupported || !bytes.Contains(body, []byte("needs HTTP/2")) {
		t.Errorf("status %d, %q (%v), want 505 and what to do", resp.StatusCode, body, err)
	}
}
