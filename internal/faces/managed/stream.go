package managed

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// What an event of the protocol says may depend on events before it in its turn, so a stream reads its session from the
// beginning of the turn that its client has last seen, and sends what that lacks. That is why it is not
// server.FaceEnv.Stream, which shows a face the latter alone.

const deltaKind = "agent.message"

// eventStream is a stream of the events of a session, or of a thread. The goroutine of the request owns it.
type eventStream struct {
	*face
	out     http.ResponseWriter
	flush   func() error
	state   fold
	after   int64  // the client has what is at or before it
	thread  string // "" for all
	deltas  bool
	started map[string]bool // messages whose event_start was sent, by the id of their event
	buf     bytes.Buffer
}

func (f *face) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(requestID, newRequestID())
	if err := f.follow(w, r); err != nil {
		refuse(w, f.failureOf(err))
	}
}

// follow serves a stream. It returns an error only before the reply has begun.
func (f *face) follow(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	kinds := q.all("event_deltas", func(s string) bool { return s == deltaKind }, `"`+deltaKind+`"`)
	if err := q.done(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &eventStream{
		face: f, out: w, flush: http.NewResponseController(w).Flush, state: fold{sessionID: r.PathValue("id")},
		thread: r.PathValue("thread"), deltas: len(kinds) > 0, started: map[string]bool{},
	}
	of, _, err := f.session(ctx, s.state.sessionID)
	if err != nil {
		return err
	}
	if s.thread != "" {
		if _, err := f.thread(ctx, s.state.sessionID, s.thread); err != nil {
			return err
		}
	}
	if s.after, err = afterOf(r, of); err != nil {
		return err
	}
	cursor, err := f.env.Cursor(ctx, s.state.sessionID, s.after)
	if err != nil {
		return err
	}
	in, err := f.env.Sessions.WatchSession(ctx, connect.NewRequest(&agentdv1.WatchSessionRequest{
		SessionId: s.state.sessionID, Cursor: cursor,
	}))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // what is left of it is of no use
	if !in.Receive() {                // a heartbeat, or an error in its place
		return in.Err()
	}
	if e := in.Msg().GetEvent().GetError(); e != nil && in.Msg().GetEvent().GetSeq() == 0 {
		status := http.StatusServiceUnavailable
		if e.GetCode() == noSession {
			status = http.StatusNotFound
		}
		return &failure{status: statusOf(status, e), message: e.GetMessage()}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	for ok := true; ok; ok = in.Receive() {
		if err := s.pass(ctx, in.Msg()); err != nil {
			break
		}
	}
	return nil
}

// afterOf returns the seq behind which a stream begins: that of the last event that the client has, or of the last one
// that there is.
func afterOf(r *http.Request, s *agentdv1.Session) (int64, error) {
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		return s.GetLastSeq(), nil
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 {
		return 0, badf("Last-Event-ID is %.40q, want the id of the last event that was received, or 0", last)
	}
	return n, nil
}

// pass sends what an event of agentd becomes.
func (s *eventStream) pass(ctx context.Context, msg *agentdv1.WatchSessionResponse) error {
	e := msg.GetEvent()
	s.buf.Reset()
	switch {
	case e.GetHeartbeat() != nil:
		s.buf.WriteString(":\n\n")
		return s.send()
	case e.GetError() != nil && e.GetSeq() == 0:
		s.last(e.GetError())
		return s.send()
	}
	made := s.state.add(e)
	if e.GetSeq() <= s.after {
		return nil
	}
	if chunk := e.GetOutputChunk(); chunk != nil && s.deltas && e.GetTime() == nil && !e.GetReplayed() {
		s.delta(chunk)
		return s.send()
	}
	made = slices.DeleteFunc(made, func(e *event) bool {
		return s.thread != "" && threadOf(s.state.sessionID, e.path) != s.thread
	})
	for i, m := range made {
		if !m.queued {
			if _, err := s.complete(ctx, s.state.sessionID, m); err != nil {
				return err
			}
		}
		delete(s.started, m.id)
		if i == len(made)-1 && msg.GetCursor() != "" {
			fmt.Fprintf(&s.buf, "id: %d\n", e.GetSeq())
		}
		s.frame(m.kind, m)
	}
	return s.send()
}

// frame adds a frame.
func (s *eventStream) frame(kind string, data any) {
	fmt.Fprintf(&s.buf, "event: %s\ndata: %s\n\n", kind, marshal(data))
}

// last says why the stream ends.
func (s *eventStream) last(e *agentdv1.RunResponse_ErrorResponse) {
	if e.GetCode() == noSession {
		s.frame("session.deleted", &event{id: s.state.id("deleted"), kind: "session.deleted", at: time.Now()})
		return
	}
	failed := &failure{status: statusOf(http.StatusServiceUnavailable, e), message: e.GetMessage()}
	fmt.Fprintf(&s.buf, "event: error\ndata: %s\n\n", bodyOfFailure(failed, s.out.Header().Get(requestID)))
}

// startOf says that a message begins.
type startOf struct {
	Type  string `json:"type"`
	Event struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	} `json:"event"`
}

// deltaOf is a piece of a message.
type deltaOf struct {
	Type    string `json:"type"`
	EventID string `json:"event_id"`
	Delta   struct {
		Type    string `json:"type"`
		Index   int    `json:"index"`
		Content block  `json:"content"`
	} `json:"delta"`
}

// delta sends a piece of a message: the first one with all of it that was said before.
func (s *eventStream) delta(c *agentdv1.RunResponse_OutputChunk) {
	so, text := s.state.texts[c.GetMessageId()], c.GetContent()
	if so == nil || c.GetIsThought() || text == "" ||
		s.thread != "" && threadOf(s.state.sessionID, so.path) != s.thread {
		return
	}
	id := s.state.messageID(c.GetMessageId())
	if !s.started[id] {
		s.started[id] = true
		text = string(so.text)
		start := startOf{Type: "event_start"}
		start.Event.ID, start.Event.Type = id, deltaKind
		s.frame(start.Type, start)
	}
	delta := deltaOf{Type: "event_delta", EventID: id}
	delta.Delta.Type, delta.Delta.Content = "content_delta", textBlock(text)
	s.frame(delta.Type, delta)
}

func (s *eventStream) send() error {
	if s.buf.Len() == 0 {
		return nil
	}
	if _, err := s.out.Write(s.buf.Bytes()); err != nil {
		return err
	}
	return s.flush()
}
