package cli_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

// sessionStream is one stream of WatchSession.
type sessionStream = func(send func(cursor string, event *agentdv1.RunResponse)) error

func (f *fake) WatchSession(_ context.Context, r *connect.Request[agentdv1.WatchSessionRequest], s *connect.ServerStream[agentdv1.WatchSessionResponse]) error {
	f.mu.Lock()
	serve := f.sessions[min(len(f.cursors), len(f.sessions)-1)]
	f.cursors = append(f.cursors, r.Msg.GetCursor())
	f.mu.Unlock()
	return serve(func(cursor string, event *agentdv1.RunResponse) {
		_ = s.Send(&agentdv1.WatchSessionResponse{Event: event, Cursor: cursor})
	})
}

// A stream of a session that breaks, or is ended by the server, continues behind the last
// cursor; it does not end with a turn, but when the session is gone. What comes in
// pieces is shown whole.
func TestFollowSession(t *testing.T) {
	f := &fake{sessions: []sessionStream{
		func(send func(string, *agentdv1.RunResponse)) error {
			send("", heartbeat())
			send("a", at(1, says(nil, "a")))
			send("b", at(2, ends(true)))
			send("", says(nil, "c, in two pieces"))
			return connect.NewError(connect.CodeUnavailable, errors.New("gone"))
		},
		func(send func(string, *agentdv1.RunResponse)) error {
			send("", heartbeat())
			send("", says(nil, "c, in two pieces"))
			send("c", at(3, says(nil, ".")))
			send("d", at(4, fails(agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED, "of a turn")))
			send("e", at(5, ends(false)))
			return nil
		},
		func(send func(string, *agentdv1.RunResponse)) error {
			send("", fails(agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, "deleted"))
			return nil
		},
	}}
	c := dial(t, f)
	lost := 0
	var seqs []int64
	var cursors []string
	var last *cli.Error
	for e, err := range c.FollowSession(t.Context(), cli.Following{Session: "s1", Cursor: "zero", Lost: func(error) { lost++ }}) {
		if err != nil {
			last, _ = errors.AsType[*cli.Error](err)
			continue
		}
		seqs, cursors = append(seqs, e.Seq), append(cursors, e.Cursor)
	}
	if !slices.Equal(seqs, []int64{1, 2, 0, 3, 4, 5}) || !slices.Equal(cursors, []string{"a", "b", "", "c", "d", "e"}) || lost != 2 {
		t.Errorf("got %v at %q, lost %d times", seqs, cursors, lost)
	}
	if last == nil || last.Code != client.ErrSessionNotFound {
		t.Errorf("it ended with %v", last)
	}
	if !slices.Equal(f.cursors, []string{"zero", "b", "e"}) {
		t.Errorf("asked behind %q", f.cursors)
	}
	for _, err := range c.FollowSession(t.Context(), cli.Following{Session: "s1"}) {
		if err == nil {
			t.Error("a session that is deleted is followed")
		}
		break // leaving ends it
	}
}
