package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// frameName matches what a frame of server-sent events may be called.
var frameName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,128}$`)

// Stream serves the events of a session as server-sent events, until the client leaves or the server ends the
// stream. It takes no part in turns: one whose watcher leaves continues.
//
// frames is called with each event, on the goroutine that calls Stream, and sends any number of frames for it, of a
// name that may be empty and of any text. Of the frames of an event with a seq the last one has it as its id. A
// request with Last-Event-ID: n gets what follows n once, 0 is the beginning, and then what happens; without it
// what happens from now on. A cut between the frames of an event repeats all of them. What has no seq, such as
// pieces of a text, has no id and is never repeated. In silence a comment goes out every 15 seconds.
//
// It returns nil once the reply has begun, whatever ends it. Before, it writes nothing and returns why: an error of
// FaceEnv.Sessions, or of frames.
func (env FaceEnv) Stream(
	w http.ResponseWriter, r *http.Request, sessionID string,
	frames func(event *agentdv1.RunResponse, send func(name, data string) error) error,
) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	after, err := env.after(ctx, r, sessionID)
	if err != nil {
		return err
	}
	cursor, err := env.Cursor(ctx, sessionID, after)
	if err != nil {
		return err
	}
	in, err := env.Sessions.WatchSession(ctx, connect.NewRequest(&agentdv1.WatchSessionRequest{
		SessionId: sessionID, Cursor: cursor,
	}))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // of a pipe
	if !in.Receive() {                // the first message is a heartbeat, or there is an error in its place
		return in.Err()
	}
	if e := in.Msg().GetEvent().GetError(); e != nil && in.Msg().GetEvent().GetSeq() == 0 {
		return connectError(&fault.Error{Code: e.GetCode(), Message: e.GetMessage()})
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	out := &eventStream{out: w, rc: http.NewResponseController(w)}
	for ok := true; ok; ok = in.Receive() {
		if err := out.pass(in.Msg(), after, frames); err != nil {
			break
		}
	}
	return nil
}

// after returns the seq behind which a stream begins.
func (env FaceEnv) after(ctx context.Context, r *http.Request, sessionID string) (int64, error) {
	last := r.Header.Get("Last-Event-ID")
	if last == "" {
		resp, err := env.Sessions.GetSession(ctx, connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: sessionID}))
		if err != nil {
			return 0, err
		}
		return resp.Msg.GetSession().GetLastSeq(), nil
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 {
		return 0, connectError(fault.Errorf(codeInvalid,
			"Last-Event-ID is %.40q, want the id of the last event that was received, or 0", last).
			Breaking("Last-Event-ID", fault.RuleFormat))
	}
	return n, nil
}

// Cursor returns the cursor, for WatchSession and ListSessionEvents, of the last place of a session at which no turn
// runs and that is not behind seq: what a face makes of a turn it can make of what follows. It costs a look at the log
// of that turn. Its errors are those of Sessions.
func (env FaceEnv) Cursor(ctx context.Context, sessionID string, seq int64) (string, error) {
	if env.server.now().Authenticate != nil && ctx.Value(requestKey{}) == nil {
		return "", connectError(errNobody)
	}
	if e := mayCall(principal.Of(ctx), agentdv1connect.SessionServiceWatchSessionProcedure); e != nil {
		return "", connectError(e)
	}
	cursor, err := env.server.now().Sessions.CursorAt(ctx, sessionID, seq)
	if err != nil {
		return "", checks{env.server}.clientError(ctx, "the place of "+logged(sessionID), nil, err)
	}
	return cursor, nil
}

// eventStream writes server-sent events. The handler goroutine owns it.
type eventStream struct {
	out http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

// pass sends the frames of what a session's stream yields.
func (s *eventStream) pass(
	msg *agentdv1.WatchSessionResponse, after int64,
	frames func(*agentdv1.RunResponse, func(name, data string) error) error,
) error {
	event := msg.GetEvent()
	seq := event.GetSeq()
	s.buf.Reset()
	switch {
	case event.GetHeartbeat() != nil:
		s.buf.WriteString(":\n\n")
		return s.send()
	case seq > 0 && seq <= after:
		return nil
	}
	type frame struct{ name, data string }
	var all []frame
	err := frames(event, func(name, data string) error {
		if !frameName.MatchString(name) {
			return fmt.Errorf("server: a frame is called %q, want at most 128 of letters, digits and . _ -", name)
		}
		all = append(all, frame{name, data})
		return nil
	})
	if err != nil || len(all) == 0 {
		return err
	}
	for i, f := range all {
		// Of the pieces of a large event only the last has a cursor.
		if i == len(all)-1 && seq > 0 && msg.GetCursor() != "" {
			fmt.Fprintf(&s.buf, "id: %d\n", seq)
		}
		if f.name != "" {
			fmt.Fprintf(&s.buf, "event: %s\n", f.name)
		}
		for line := range strings.SplitSeq(lineEnds.Replace(f.data), "\n") {
			fmt.Fprintf(&s.buf, "data: %s\n", line)
		}
		s.buf.WriteByte('\n')
	}
	return s.send()
}

// lineEnds makes one of the three that the format knows.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func (s *eventStream) send() error {
	_, err := s.out.Write(s.buf.Bytes())
	return errors.Join(err, s.rc.Flush())
}
