package attacks

import (
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

const limitExceeded = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED

// largeResults answers a tool call with more than a result may hold: the turn has to
// end with the tool's error.
func largeResults(b *bed) {
	agent, tools := worker()
	sizes := []int{1100 << 10, 2 << 20, 4000 << 10, 5 << 20}
	for _, size := range sizes {
		output := strings.Repeat("x", size)
		ex := execute(agent, "go", nil)
		ex.Tools = tools
		turn, err := b.create(ex)
		if err != nil {
			b.Fatal(err)
		}
		turn = b.until(turn, waitsForClient)
		result := &agentdv1.RunRequest_ToolCallResponse{
			ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: output},
		}
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		_, err = b.sessions.SubmitToolResults(ctx, connect.NewRequest(&agentdv1.SubmitToolResultsRequest{
			SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{result},
		}))
		if size <= 4<<20 && err != nil || size > 4<<20 && !refused(err) {
			b.Errorf("SubmitToolResults of %d bytes: %v", size, err)
		}
		if size <= 4<<20 {
			if turn = b.until(turn, succeeded); !strings.Contains(turn.GetOutputText(), "refused") {
				b.Errorf("the turn said %.300q", turn.GetOutputText())
			}
		} else { // the message is too large to say whose result it is; the call can be answered still
			_, err := b.sessions.CancelTurn(ctx, connect.NewRequest(&agentdv1.CancelTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}))
			if err != nil {
				b.Error(err)
			}
		}
		cancel()
		b.runLarge(ex, output)
	}
	b.sayf("results up to 4 MiB: the turn goes on at once with the tool's error and completes; 5 MiB: the request is refused, over Run the turn goes on as well")
}

// runLarge does the same over a stream.
func (b *bed) runLarge(ex *agentdv1.RunRequest_ExecuteRequest, output string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	stream := b.streams.Run(ctx)
	defer func() { _, _ = stream.CloseRequest(), stream.CloseResponse() }()
	if err := stream.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}}); err != nil {
		b.Fatal(err)
	}
	failure := ""
	for {
		msg, err := stream.Receive()
		if err != nil {
			b.Errorf("a result of %d bytes over Run: the stream ended with %v after %q", len(output), err, failure)
			return
		}
		if call := msg.GetToolCall(); call != nil {
			answer := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: call.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: output}}
			_ = stream.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: answer}}) // Receive says what failed
		}
		if r := msg.GetToolCallAnswered(); r != nil {
			failure = r.GetError()
		}
		if end := msg.GetEnd(); end != nil {
			if !end.GetCompleted() || failure == "" {
				b.Errorf("a result of %d bytes over Run: error %q, end %v", len(output), failure, end)
			}
			return
		}
	}
}

// messages is the body of a request: messages of a stream, and no end.
type messages struct {
	empty int // so many empty messages follow
	rest  []byte
	gone  chan struct{}
	once  sync.Once
}

func newMessages(empty int, first *agentdv1.RunRequest) *messages {
	data := must(proto.Marshal(first))
	m := &messages{empty: empty, gone: make(chan struct{})}
	m.rest = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
	return m
}

func (m *messages) Read(p []byte) (int, error) {
	if len(m.rest) == 0 && m.empty > 0 {
		n := min(m.empty, 1000)
		m.empty -= n
		m.rest = make([]byte, 5*n)
	}
	if len(m.rest) == 0 {
		<-m.gone
		return 0, io.EOF
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

func (m *messages) Close() error {
	m.once.Do(func() { close(m.gone) })
	return nil
}

// flood opens a stream, starts a turn that waits, and sends so many empty messages;
// it never closes its side. The caller closes the response.
func (b *bed) flood(ctx context.Context, empty int) *http.Response {
	agent, tools := worker()
	ex := execute(agent, "go", nil)
	ex.Tools = tools
	body := newMessages(empty, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}})
	req := must(http.NewRequestWithContext(ctx, http.MethodPost, b.url()+agentdv1connect.AgentdRunProcedure, body))
	req.Header.Set("Content-Type", "application/connect+proto")
	resp, err := b.hc.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	return resp
}

// answers reads a response up to an error, or the end of the stream.
func (b *bed) answers(body io.Reader) agentdv1.ErrorCode {
	b.Helper()
	for {
		var head [5]byte
		if _, err := io.ReadFull(body, head[:]); err != nil {
			b.Fatalf("the stream ended with %v", err)
		}
		data := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(body, data); err != nil {
			b.Fatalf("the stream ended with %v", err)
		}
		if head[0]&2 != 0 {
			return 0
		}
		msg := &agentdv1.RunResponse{}
		if err := proto.Unmarshal(data, msg); err != nil {
			b.Fatal(err)
		}
		if e := msg.GetError(); e.GetCode() == limitExceeded {
			return e.GetCode()
		}
	}
}

// backlog is refused; its place is free at once, though it never closes its side.
func backlog(b *bed) {
	var longest, slot, end time.Duration
	rounds := times(10)
	for range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		from := time.Now()
		resp := b.flood(ctx, 200_000)
		if code := b.answers(resp.Body); code != limitExceeded {
			b.Errorf("the stream ended with %v", code)
		}
		longest = max(longest, time.Since(from))
		slot = max(slot, b.ping()) // there are two places, and the stranger has one
		b.answers(resp.Body)
		end = max(end, time.Since(from))
		cancel()
		_ = resp.Body.Close()
	}
	b.sayf("%d streams are refused after %d ms at most and end after %d ms; the place of each is free at once: a turn on it takes %d ms at most",
		rounds, longest.Milliseconds(), end.Milliseconds(), slot.Milliseconds())
}

// backlogAtStop stops the daemon while streams have backlogs that are not read yet.
func backlogAtStop(b *bed) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const streams = 5
	for range streams {
		resp := b.flood(ctx, 200_000)
		b.Cleanup(func() { _ = resp.Body.Close() })
	}
	b.sayf("%d streams: stopped in %v", streams, b.stop().Round(10*time.Millisecond))
	b.start()
}
