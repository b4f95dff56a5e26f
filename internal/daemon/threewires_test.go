package daemon_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// spectator follows a turn on a wire of its own.
type spectator struct {
	name  string
	leave context.CancelFunc
	// seen has a token for each event that was seen; a full one is not waited for.
	seen chan struct{}

	mu  sync.Mutex
	got []*agentdv1.RunResponse // protected by mu
	err error                   // of the stream; written before done is closed
	// done is closed when the stream is over.
	done chan struct{}
}

// spectate has a goroutine follow what next gives, to its end.
func spectate(t *testing.T, name string, open func(context.Context) (next func() (*agentdv1.RunResponse, error), err error)) *spectator {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &spectator{name: name, leave: cancel, seen: make(chan struct{}, 1), done: make(chan struct{})}
	next, err := open(ctx)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go func() {
		defer close(s.done)
		for {
			m, err := next()
			if err != nil {
				s.err = err
				return
			}
			s.mu.Lock()
			s.got = append(s.got, proto.CloneOf(m))
			s.mu.Unlock()
			select {
			case s.seen <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-s.done })
	return s
}

// until waits for an event and returns it.
func (s *spectator) until(t *testing.T, fit func(*agentdv1.RunResponse) bool) *agentdv1.RunResponse {
	t.Helper()
	for over := false; ; {
		s.mu.Lock()
		i := slices.IndexFunc(s.got, fit)
		var m *agentdv1.RunResponse
		if i >= 0 {
			m = s.got[i]
		}
		s.mu.Unlock()
		if m != nil {
			return m
		}
		if over {
			t.Fatalf("%s: the stream is over (%v) after %v", s.name, s.err, s.got)
		}
		select {
		case <-s.seen:
		case <-s.done:
			over = true // what came last may have come since
		}
	}
}

// watchOn follows a turn by WatchTurn.
func watchOn(c agentdv1connect.SessionServiceClient, req *agentdv1.WatchTurnRequest) func(context.Context) (func() (*agentdv1.RunResponse, error), error) {
	return func(ctx context.Context) (func() (*agentdv1.RunResponse, error), error) {
		stream, err := c.WatchTurn(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return func() (*agentdv1.RunResponse, error) {
			if !stream.Receive() {
				err := stream.Err()
				_ = stream.Close()
				if err == nil {
					err = io.EOF
				}
				return nil, err
			}
			return stream.Msg().GetEvent(), nil
		}, nil
	}
}

// attachOn follows a session's last turn by Run, without tools.
func attachOn(c agentdv1connect.AgentdClient, session string) func(context.Context) (func() (*agentdv1.RunResponse, error), error) {
	return func(ctx context.Context) (func() (*agentdv1.RunResponse, error), error) {
		bidi := c.Run(ctx)
		err := bidi.Send(attach(session, -1))
		if err != nil {
			return nil, err
		}
		// The client's own context does not end a Receive that waits.
		stop := context.AfterFunc(ctx, func() { _ = bidi.CloseRequest() })
		return func() (*agentdv1.RunResponse, error) {
			m, err := bidi.Receive()
			if err != nil {
				stop()
				_ = bidi.CloseResponse()
				return nil, err
			}
			if m.GetEnd() != nil {
				_ = bidi.CloseRequest()
			}
			return m, nil
		}, nil
	}
}

// contents is what a stream says, apart from how texts are cut, from who is asked,
// and from when a client came.
func contents(got []*agentdv1.RunResponse) []string {
	var out []string
	last := ""
	for _, m := range got {
		m = proto.CloneOf(m)
		m.Replayed = false
		if c := m.GetToolCall(); c != nil {
			m.Response = &agentdv1.RunResponse_ToolCallAnnounced{ToolCallAnnounced: &agentdv1.ToolCallAnnounced{
				SessionId: c.GetSessionId(), ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), ToolInput: c.GetToolInput(), AgentPath: c.GetAgentPath(),
			}}
		}
		if o := m.GetOutputChunk(); o.GetContent() != "" && !o.GetLast() {
			if last == o.GetMessageId() {
				out[len(out)-1] += o.GetContent()
				continue
			}
			last = o.GetMessageId()
			out = append(out, last+": "+o.GetContent())
			continue
		}
		last = ""
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			data = []byte(err.Error())
		}
		out = append(out, string(data))
	}
	return out
}

// Clients of three wires follow one turn: each receives the same, one of them
// returns results, and whoever leaves changes nothing for the others.
func TestThreeWires(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	clients := wires(t, d)
	plain, web := clients["Connect, JSON, HTTP/1.1"], clients["gRPC-Web, HTTP/1.1"]
	runs := agentdv1connect.NewAgentdClient(h2c(t), d.URL())
	names := []string{"Connect JSON", "gRPC-Web", "Run"}
	for leaves := range len(names) + 1 { // the last time nobody does
		t.Run(append(names, "nobody")[leaves]+" leaves", func(t *testing.T) {
			turn := call(t, plain.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("go")}).GetTurn()
			id := turn.GetSessionId()
			asked := func(m *agentdv1.RunResponse) bool { return m.GetToolCall() != nil }
			noticed := func(m *agentdv1.RunResponse) bool {
				return m.GetToolCallAnnounced() != nil || m.GetToolCall() != nil
			}
			// The one that is to be asked is another one than the one that leaves.
			answering := (leaves + 1) % 2
			tools := [][]string{nil, nil}
			tools[answering] = []string{"look"}
			all := []*spectator{
				spectate(t, names[0], watchOn(plain, &agentdv1.WatchTurnRequest{SessionId: id, ToolNames: tools[0]})),
				spectate(t, names[1], watchOn(web, &agentdv1.WatchTurnRequest{SessionId: id, ToolNames: tools[1]})),
				spectate(t, names[2], attachOn(runs, id)),
			}
			for _, s := range all {
				s.until(t, noticed)
			}
			asking := all[answering].until(t, asked)
			asks := asking.GetToolCall()
			if leaves < len(all) {
				all[leaves].leave()
				<-all[leaves].done
			}
			resp := call(t, []agentdv1connect.SessionServiceClient{plain, web}[answering].SubmitToolResults, &agentdv1.SubmitToolResultsRequest{
				SessionId: id, TurnId: asking.GetTurnId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{
					ToolCallId: asks.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "fog"},
				}},
			})
			if len(resp.GetRefused()) != 0 {
				t.Errorf("refused: %v", resp)
			}
			whole := contents(followTurn(t, plain, &agentdv1.WatchTurnRequest{SessionId: id}))
			if !strings.Contains(strings.Join(whole, "\n"), "fog") {
				t.Errorf("the turn is %q", whole)
			}
			for i, s := range all {
				if i == leaves {
					if n := len(contents(s.got)); n == 0 || n > len(whole) || !slices.Equal(contents(s.got)[:n-1], whole[:n-1]) {
						t.Errorf("%s has left and was told %q, the turn is %q", s.name, contents(s.got), whole)
					}
					continue
				}
				<-s.done
				if !errors.Is(s.err, io.EOF) {
					t.Errorf("%s: %v", s.name, s.err)
				}
				if got := contents(s.got); !slices.Equal(got, whole) {
					t.Errorf("%s was told %q, the turn is %q", s.name, got, whole)
				}
			}
		})
	}
}
