package server_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
)

// holding is a turn that lasts until it is stopped, and its context.
func holding() (engine, <-chan context.Context) {
	running := make(chan context.Context, 1)
	return engine{run: func(ctx context.Context, run *session.Run) error {
		running <- ctx
		return hold(ctx, run)
	}}, running
}

// gone waits until no stream is open any more: what becomes of the turn is decided.
func (f *fixture) gone() {
	for f.srv.Streams() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// frames is a client's side of one Run stream, frame by frame.
type frames struct {
	t    *testing.T
	conn net.Conn
}

const (
	frameData, frameHeaders, frameReset, frameSettings, frameGoAway = 0, 1, 3, 4, 7

	flagEndStream, flagEndHeaders, flagAck = 1, 4, 1
)

func (s *frames) frame(kind, flags byte, stream uint32, payload []byte) {
	s.t.Helper()
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	head = binary.BigEndian.AppendUint32(append(head, flags), stream)
	if _, err := s.conn.Write(append(head, payload...)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *frames) reset(code uint32) {
	s.frame(frameReset, 0, 1, binary.BigEndian.AppendUint32(nil, code))
}

func (s *frames) halfClose() { s.frame(frameData, flagEndStream, 1, nil) }

// hangUp ends the connection without a reset of TCP, so that the server reads all that was sent. Close resets it where
// a frame of the server is not read yet, and the last frames are lost then.
func (s *frames) hangUp() {
	s.t.Helper()
	_ = s.tcp().CloseWrite()
}

// dropConn closes the connection, with a reset of TCP.
func (s *frames) dropConn() {
	s.t.Helper()
	conn := s.tcp()
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

func (s *frames) tcp() *net.TCPConn {
	s.t.Helper()
	conn, ok := s.conn.(*net.TCPConn)
	if !ok {
		s.t.Fatalf("%T is no TCP connection", s.conn)
	}
	return conn
}

// openRaw starts a turn on its own connection, and returns after the server's first
// bytes.
func openRaw(t *testing.T, f *fixture, msg *agentdv1.RunRequest) *frames {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := &frames{t, conn}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	s.frame(frameSettings, 0, 0, nil)
	var fields []byte
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", agentdv1connect.AgentdRunProcedure}, {":authority", "localhost"},
		{"content-type", "application/connect+proto"},
	} {
		fields = append(fields, 0, byte(len(f[0])))
		fields = append(append(fields, f[0]...), byte(len(f[1])))
		fields = append(fields, f[1]...)
	}
	s.frame(frameHeaders, flagEndHeaders, 1, fields)
	data, err := proto.Marshal(msg)
	if err != nil {
		t.Fatal(err)
	}
	s.frame(frameData, 0, 1, envelope(0, data))
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head)>>8)); err != nil {
			t.Fatal(err)
		}
		switch {
		case head[3] == frameData:
			return s
		case head[3] == frameSettings && head[4]&flagAck == 0:
			s.frame(frameSettings, flagAck, 0, nil)
		}
	}
}

// withField is the request of a client that knows more of the protocol.
func withField(set func(m *agentdv1.RunRequest)) *agentdv1.RunRequest {
	m := execute()
	set(m)
	return m
}

// A client that is too old to know on_disconnect cancels its turn by a reset of its
// stream; one that knows it does not, and a connection that is lost is no wish of
// anybody's.
func TestResetCancels(t *testing.T) {
	const noError, internalError, cancel, enhanceYourCalm = 0, 2, 8, 11
	for name, c := range map[string]struct {
		first     *agentdv1.RunRequest
		policy    string
		leave     func(f *fixture, s *frames)
		cancelled bool
	}{
		"reset":                     {leave: func(_ *fixture, s *frames) { s.reset(cancel) }, cancelled: true},
		"half-closed and reset":     {leave: func(_ *fixture, s *frames) { s.halfClose(); s.reset(cancel) }, cancelled: true},
		"reset and gone":            {leave: func(_ *fixture, s *frames) { s.reset(cancel); s.hangUp() }, cancelled: true},
		"no error":                  {leave: func(_ *fixture, s *frames) { s.reset(noError) }},
		"another code":              {leave: func(_ *fixture, s *frames) { s.reset(internalError) }},
		"calm":                      {leave: func(_ *fixture, s *frames) { s.reset(enhanceYourCalm) }},
		"connection closed":         {leave: func(_ *fixture, s *frames) { _ = s.conn.Close() }},
		"connection reset":          {leave: func(_ *fixture, s *frames) { s.dropConn() }},
		"half-closed and closed":    {leave: func(_ *fixture, s *frames) { s.halfClose(); _ = s.conn.Close() }},
		"half-closed and TCP reset": {leave: func(_ *fixture, s *frames) { s.halfClose(); s.dropConn() }},
		"goaway and closed": {leave: func(_ *fixture, s *frames) {
			s.frame(frameGoAway, 0, 0, make([]byte, 8))
			_ = s.conn.Close()
		}},
		"a broken frame":         {leave: func(_ *fixture, s *frames) { s.frame(frameReset, 0, 1, nil) }},
		"the server stops":       {leave: func(f *fixture, s *frames) { f.srv.Drain(); s.reset(cancel) }},
		"continue by the server": {policy: "continue", leave: func(_ *fixture, s *frames) { s.reset(cancel) }},
		"continue by the client": {first: withField(func(m *agentdv1.RunRequest) {
			m.GetExecute().OnDisconnect = agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE
		}), leave: func(_ *fixture, s *frames) { s.reset(cancel) }},
		"a newer field":           {first: withField(func(m *agentdv1.RunRequest) { m.GetExecute().IdempotencyKey = "k" }), leave: func(_ *fixture, s *frames) { s.reset(cancel) }},
		"a newer field of a tool": {first: withField(func(m *agentdv1.RunRequest) { m.GetExecute().GetTools()[0].NeedsApproval = true }), leave: func(_ *fixture, s *frames) { s.reset(cancel) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, running := holding()
			f := serve(t, e, server.Config{OnDisconnect: c.policy})
			if c.first == nil {
				c.first = execute()
			}
			s := openRaw(t, f, c.first)
			turn := <-running
			c.leave(f, s)
			f.gone()
			if cancelled := turn.Err() != nil; cancelled != c.cancelled {
				t.Errorf("cancelled: %t, want %t", cancelled, c.cancelled)
			}
		})
	}
}

// A break of deployed clients cancels their context and then closes both sides, over
// each protocol.
func TestBreakOfDeployedClients(t *testing.T) {
	for name, opts := range wires {
		t.Run(name, func(t *testing.T) {
			e, running := holding()
			f := serve(t, e, server.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			c := f.open(ctx, t, opts...)
			c.send(execute())
			id := c.next().GetExecute().GetSessionId()
			turn := <-running
			cancel()
			_ = c.CloseRequest()
			_ = c.CloseResponse()
			f.gone()
			if turn.Err() == nil {
				t.Fatal("the turn goes on")
			}
			sessions := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
			w, err := sessions.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id}))
			if err != nil {
				t.Fatal(err)
			}
			for w.Receive() {
			}
			got, err := sessions.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id}))
			if err != nil {
				t.Fatal(err)
			}
			if turn := got.Msg.GetTurn(); turn.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_CANCELED || !strings.Contains(turn.GetStatusMessage(), "reset") {
				t.Errorf("the turn is %v: %q", turn.GetStatus(), turn.GetStatusMessage())
			}
		})
	}
}

// A reset says nothing for the other clients of a turn, and nothing where the client
// did not start it.
func TestResetOfOneOfTwoClients(t *testing.T) {
	e, running := holding()
	f := serve(t, e, server.Config{})
	starter := f.run(t)
	id := starter.next().GetExecute().GetSessionId()
	turn := <-running
	sessions := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
	ctx, cancel := context.WithCancel(t.Context())
	watch, err := sessions.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id}))
	if err != nil {
		t.Fatal(err)
	}
	attached := openRaw(t, f, attach(id, -1))
	for i, leave := range []func(){
		func() { _, _ = starter.CloseRequest(), starter.CloseResponse() }, // a reset, beside two others
		func() { cancel(); _ = watch.Close() },
		func() { attached.reset(8) }, // the last one
	} {
		leave()
		for f.srv.Streams() > 2-i {
			time.Sleep(time.Millisecond)
		}
		if turn.Err() != nil {
			t.Fatalf("the turn was cancelled by client %d", i)
		}
	}
}

// The server's own default is for requests that say nothing.
func TestDefaultOnDisconnect(t *testing.T) {
	for says, cancelled := range map[agentdv1.OnDisconnect]bool{
		agentdv1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED: true,
		agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE:    false,
	} {
		e, running := holding()
		f := serve(t, e, server.Config{OnDisconnect: "cancel"})
		s := openRaw(t, f, withField(func(m *agentdv1.RunRequest) {
			m.GetExecute().OnDisconnect = says
			m.GetExecute().IdempotencyKey = "k"
		}))
		turn := <-running
		_ = s.conn.Close()
		f.gone()
		if cancelled {
			<-turn.Done()
		} else if turn.Err() != nil {
			t.Error("a turn that is to go on was cancelled")
		}
	}
	if _, err := server.New(server.Config{OnDisconnect: "abort", Sessions: faulty{}}); err == nil || !strings.Contains(err.Error(), `OnDisconnect is "abort"`) {
		t.Errorf("a default that there is none of: %v", err)
	}
}
