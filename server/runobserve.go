package server

import (
	"context"
	"maps"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// observed is what a Run stream of a server that is one of several observes: a turn, wherever its session is, as
// WatchTurn does. The stream has no turn of its own: what its client sends changes nothing.
type observed struct {
	session, turn string // turn is "" until it is known
	feed          *roamer
}

// observe has the stream observe a turn, which the client may, as req says too.
func (st *stream) observe(
	ctx context.Context, at *agentdv1.AttachRequest, req session.AttachRequest,
) *fault.Error {
	r := connect.NewRequest(&agentdv1.WatchTurnRequest{
		SessionId: req.SessionID, TurnId: req.TurnID, AfterSeq: at.AfterSeq, Observe: true,
	})
	maps.Copy(r.Header(), st.bidi.RequestHeader()) // some go along when the session is elsewhere
	feed, turn, err := (&sessionService{st.srv}).roamTurn(ctx, r)
	if err != nil {
		return st.noTurn(ctx, "attach", within("attach.", err))
	}
	st.observed, st.observes = &observed{session: req.SessionID, turn: req.TurnID, feed: feed}, true
	if turn != nil {
		st.observed.turn = turn.ID()
	}
	st.view = view{display: at.GetDisplay(), only: at.GetVisibility()}
	return nil
}

// follows returns what follows its session from server to server, nil for none.
func (st *stream) follows() *roamer {
	switch {
	case st.observed != nil:
		return st.observed.feed
	case st.far != nil:
		return st.far.feed
	}
	return nil
}

// ids returns the session and the turn of the stream, as far as they are known.
func (st *stream) ids() (sessionID, turnID string) {
	switch {
	case st.turn != nil:
		return st.turn.SessionID(), st.turn.ID()
	case st.observed != nil:
		return st.observed.session, st.observed.turn
	}
	return st.far.named(), ""
}
