package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// turnLog is a fake server of one session with one turn, which outlives its
// streams: what happens stands in a log, and streams read that from a position.
type turnLog struct {
	plot func(*turnLog) // what happens in the turn; it has its own goroutine
	cut  func(stream, sent int) bool
	hook func(ctx context.Context, stream int, s *peer) (handled bool, err error)

	unnamed bool // as of a server that knows no ids of turns

	plots sync.WaitGroup

	mu      sync.Mutex // protects the fields below
	changed chan struct{}
	steps   int64 // entries but for results
	behind  int64 // results behind the last step
	entries []entry
	calls   map[string]*agentdv1.RunResponse // without a result
	results map[string]*agentdv1.RunRequest_ToolCallResponse
	streams []*streamRecord
	starts  int

	startedBy string // the key of the last start
	cancels   int
	over      bool
}

// entry is what stands under one position; of its messages the last bears it.
type entry struct {
	seq  int64
	msgs []*agentdv1.RunResponse
}

// streamRecord is what the server saw of one stream.
type streamRecord struct {
	execute    *agentdv1.RunRequest_ExecuteRequest // nil: it attaches
	attach     *agentdv1.AttachRequest
	key        string
	halfClosed bool
	done       chan struct{} // closed when nothing more is received
}

func newTurnLog(t *testing.T, plot func(*turnLog)) *turnLog {
	t.Helper()
	l := &turnLog{
		plot: plot, changed: make(chan struct{}),
		calls: make(map[string]*agentdv1.RunResponse), results: make(map[string]*agentdv1.RunRequest_ToolCallResponse),
	}
	t.Cleanup(func() {
		l.finish(false, "the test is over")
		l.plots.Wait()
	})
	return l
}

func (l *turnLog) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewAgentdHandler(l))
	return mux
}

// add appends messages under the next position, unless the turn is over.
func (l *turnLog) add(msgs ...*agentdv1.RunResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(msgs...)
}

func (l *turnLog) addLocked(msgs ...*agentdv1.RunResponse) {
	if l.over {
		return
	}
	last := msgs[len(msgs)-1]
	l.steps, l.behind = l.steps+1, 0
	last.Seq = l.steps * 10
	for _, m := range msgs {
		if !l.unnamed {
			m.TurnId = "turn"
		}
		if m.GetOutputChunk() == nil {
			m.Time = timestamppb.Now()
		}
	}
	l.entries = append(l.entries, entry{seq: last.GetSeq(), msgs: msgs})
	if call := last.GetToolCall(); call != nil {
		l.calls[call.GetToolCallId()] = last
	}
	l.over = last.GetEnd() != nil
	l.wakeLocked()
}

// appendResultLocked appends a result behind the last step, whose positions do not depend on
// how fast tools are.
func (l *turnLog) appendResultLocked(m *agentdv1.RunResponse) {
	if l.over {
		return
	}
	l.behind++
	m.Seq = l.steps*10 + l.behind
	if !l.unnamed {
		m.TurnId = "turn"
	}
	m.Time = timestamppb.Now()
	l.entries = append(l.entries, entry{seq: m.GetSeq(), msgs: []*agentdv1.RunResponse{m}})
}

func (l *turnLog) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *turnLog) say(id, text string) { l.add(chunkMsg(id, text)) }

func (l *turnLog) call(id, tool, input string) {
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCall{ToolCall: &agentdv1.RunResponse_ToolCallRequest{
		SessionId: session, ToolCallId: id, ToolName: tool, ToolInput: input, AgentPath: []string{"root"},
	}}})
}

// await returns the result of a call, "" when the turn has ended before.
func (l *turnLog) await(id string) string {
	for {
		l.mu.Lock()
		m, over, changed := l.results[id], l.over, l.changed
		l.mu.Unlock()
		switch {
		case m.GetError() != "":
			return "error: " + m.GetError()
		case m != nil:
			return m.GetOutput()
		case over:
			return ""
		}
		<-changed
	}
}

func (l *turnLog) finish(completed bool, reason string) {
	end := &agentdv1.RunResponse_EndResponse{SessionId: session, Completed: completed, UsageSummary: usage()}
	if reason != "" {
		end.Reason = &reason
	}
	l.add(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: end}})
}

func (l *turnLog) result(m *agentdv1.RunRequest_ToolCallResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id := m.GetToolCallId(); l.results[id] == nil {
		l.results[id] = m
		delete(l.calls, id)
		l.appendResultLocked(resultMsg(m))
		l.wakeLocked()
	}
}

// enter notes a stream and starts the turn if the stream does.
func (l *turnLog) enter(first *agentdv1.RunRequest, key string) (int, *streamRecord) {
	execute := first.GetExecute()
	l.mu.Lock()
	defer l.mu.Unlock()
	rec := &streamRecord{execute: execute, attach: first.GetAttach(), key: key, done: make(chan struct{})}
	l.streams = append(l.streams, rec)
	if execute.GetUserPrompt() != "" && (l.starts == 0 || execute.GetIdempotencyKey() != l.startedBy) {
		l.starts++
		l.startedBy = execute.GetIdempotencyKey()
		l.addLocked(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{Execute: &agentdv1.RunResponse_ExecuteResponse{SessionId: session}}})
		if l.starts == 1 {
			l.plots.Go(func() { l.plot(l) })
		}
	}
	return len(l.streams), rec
}

// after returns the messages after a position, as of now.
func (l *turnLog) after(pos int64) (msgs []*agentdv1.RunResponse, over bool, changed chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.seq > pos {
			msgs = append(msgs, e.msgs...)
		}
	}
	return msgs, l.over, l.changed
}

// open returns the calls up to a position that have no result.
func (l *turnLog) open(pos int64) []*agentdv1.RunResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*agentdv1.RunResponse
	for _, m := range l.calls {
		if m.GetSeq() <= pos {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b *agentdv1.RunResponse) int { return int(a.GetSeq() - b.GetSeq()) })
	return out
}

func (l *turnLog) isOpen(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[id] != nil
}

func (l *turnLog) Run(ctx context.Context, stream *connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse]) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	n, rec := l.enter(first, stream.RequestHeader().Get("X-Agentd-Gemini-Api-Key"))
	if l.hook != nil {
		if handled, err := l.hook(ctx, n, &peer{stream: stream, execute: first.GetExecute(), attach: first.GetAttach()}); handled {
			close(rec.done)
			return err
		}
	}
	replies := make(chan *agentdv1.RunResponse, 16)
	go l.read(ctx, stream, rec, replies)
	return l.write(ctx, stream, n, replies)
}

func (l *turnLog) read(ctx context.Context, stream *connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse], rec *streamRecord, replies chan<- *agentdv1.RunResponse) {
	defer close(rec.done)
	for {
		m, err := stream.Receive()
		if err != nil {
			rec.halfClosed = errors.Is(err, io.EOF)
			return
		}
		switch {
		case m.GetHeartbeat() != nil:
			select {
			case replies <- &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{}}}:
			case <-ctx.Done():
				return
			}
		case m.GetToolCallResponse() != nil:
			l.result(m.GetToolCallResponse())
		case m.GetCancel() != nil:
			l.mu.Lock()
			l.cancels++
			l.mu.Unlock()
			l.finish(false, "cancelled")
		case m.GetEnd() != nil:
			l.finish(false, m.GetEnd().GetReason())
		}
	}
}

func (l *turnLog) write(ctx context.Context, stream *connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse], n int, replies <-chan *agentdv1.RunResponse) error {
	l.mu.Lock()
	rec := l.streams[n-1]
	l.mu.Unlock()
	pos, sent := rec.attach.GetAfterSeq(), 0
	send := func(m *agentdv1.RunResponse, replayed bool) error {
		if l.cut != nil && l.cut(n, sent) {
			panic(http.ErrAbortHandler)
		}
		sent++
		m = proto.CloneOf(m)
		m.Replayed = replayed
		return stream.Send(m)
	}
	offers := len(rec.execute.GetTools()) > 0 || len(rec.attach.GetToolNames()) > 0
	if offers {
		for _, m := range l.open(pos) {
			if err := send(m, true); err != nil {
				return err
			}
		}
	}
	for {
		msgs, over, changed := l.after(pos)
		for _, m := range msgs {
			if call := m.GetToolCall(); call != nil && (!offers || !l.isOpen(call.GetToolCallId())) {
				m = noticeMsg(m)
			}
			if err := send(m, n > 1); err != nil {
				return err
			}
			pos = max(pos, m.GetSeq())
		}
		if over && sent == 0 {
			return nil // there is nothing to say
		}
		if over {
			select {
			case <-rec.done:
			case <-ctx.Done():
			}
			return nil
		}
		select {
		case <-changed:
		case m := <-replies:
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func chunkMsg(id, text string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: &agentdv1.RunResponse_OutputChunk{
		SessionId: session, AgentPath: []string{"root"}, MessageId: id, Content: text, Last: id == "",
	}}}
}

func noticeMsg(m *agentdv1.RunResponse) *agentdv1.RunResponse {
	call := m.GetToolCall()
	return &agentdv1.RunResponse{Seq: m.GetSeq(), TurnId: m.GetTurnId(), Response: &agentdv1.RunResponse_ToolCallAnnounced{
		ToolCallAnnounced: &agentdv1.ToolCallAnnounced{
			SessionId: session, ToolCallId: call.GetToolCallId(), ToolName: call.GetToolName(), ToolInput: call.GetToolInput(), AgentPath: call.GetAgentPath(),
		},
	}}
}

func resultMsg(m *agentdv1.RunRequest_ToolCallResponse) *agentdv1.RunResponse {
	result := &agentdv1.ToolCallAnswered{ToolCallId: m.GetToolCallId(), ToolName: m.GetToolName(), AgentPath: []string{"root"}}
	if m.GetError() != "" {
		result.Result = &agentdv1.ToolCallAnswered_Error{Error: m.GetError()}
	} else {
		result.Result = &agentdv1.ToolCallAnswered_Output{Output: m.GetOutput()}
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: result}}
}

func retractMsg(id string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageRetracted{MessageRetracted: &agentdv1.MessageRetracted{SessionId: session, MessageId: id}}}
}

func stateMsg(key string, value float64) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{StateUpdate: &agentdv1.RunResponse_StateUpdate{
		SessionId: session, StateDelta: &structpb.Struct{Fields: map[string]*structpb.Value{key: structpb.NewNumberValue(value)}},
	}}}
}

// tale is a turn with something of everything.
func tale(l *turnLog) {
	l.add(stateMsg("n", 1))
	l.say("m1", "Hel")
	l.say("m1", "lo, ")
	l.call("c1", "double", `{"n":1}`)
	l.call("c2", "double", `{"n":2}`)
	one, two := l.await("c1"), l.await("c2")
	l.add(stateMsg("n", 2))
	l.say("m2", fmt.Sprintf("%s+%s ", one, two))
	l.add(retractMsg("m2"))
	l.say("m2", fmt.Sprintf("%s and %s", one, two))
	l.call("c3", "double", `{"n":3}`)
	l.add(chunkMsg("m3", " aaa"), chunkMsg("m3", "bbb"), chunkMsg("m3", "aaa")) // in pieces, whose last one is counted
	l.await("c3")
	l.add(chunkMsg("m3", " é"), chunkMsg("m3", " and so on"))
	l.say("", "")
	l.finish(true, "")
}

// taleText is what tale says.
const taleText = "Hello, 2 and 4 aaabbbaaa é and so on"
