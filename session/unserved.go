package session

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// unservedAfter is how long a call waits for a client with its tool before those that
// watch are told that there is none.
const unservedAfter = 3 * time.Second

// unservedCall is a call that no client can be asked for, and when the turn is over if
// none comes.
type unservedCall struct {
	call    record.ToolCall
	expires time.Time
}

// notifyUnservedLocked says to everybody who watches that nobody has come with the tool of
// a call in a while.
func (s *Session) notifyUnservedLocked(t *Turn, p *pending) {
	p.unserved = true
	u := unservedCall{p.call, s.expiresLocked(t)}
	for w := range s.watchers {
		if w.turnLocked() == t {
			w.push(item{unserved: &u})
		}
	}
}

// unservedLocked are the calls of a turn that no client can be asked for, for those
// who come now. While the turn is suspended that is each one that is open.
func (s *Session) unservedLocked(t *Turn) []unservedCall {
	if t != s.turn || t.ended != nil {
		return nil
	}
	var out []unservedCall
	for _, p := range t.inOrder() {
		if p.open() && p.owner == nil && (p.unserved || !t.runs() && s.starting == nil) {
			out = append(out, unservedCall{p.call, s.expiresLocked(t)})
		}
	}
	return out
}

// expiresLocked is when the open turn is over if no client comes that it needs.
func (s *Session) expiresLocked(t *Turn) time.Time {
	at := s.lastAt.Add(s.limits.Retention)
	if t.runs() && (t.deadline.IsSet() || t.stalled) && s.attendedLocked() && t.due.Before(at) {
		at = t.due
	}
	if t.onDisconnect.Cancel && !t.cancelAt.IsZero() && t.cancelAt.At.Before(at) {
		at = t.cancelAt.At
	}
	return at
}

// unserved tells, once for each call, that nobody who is there has its tool. It has no
// place in the order.
func (v *view) unserved(u unservedCall) {
	if v.told[u.call.ID] || v.hidden() || !v.isOpen(u.call.ID) {
		return
	}
	if v.told == nil {
		v.told = map[string]bool{}
	}
	v.told[u.call.ID] = true
	v.finishJoin()
	v.out = append(v.out, &agentdv1.RunResponse{TurnId: v.turnID, Response: &agentdv1.RunResponse_ToolCallUnserved{
		ToolCallUnserved: &agentdv1.ToolCallUnserved{
			SessionId: v.sessionID, ToolCallId: u.call.ID, ToolName: u.call.Name, AgentPath: u.call.Path,
			ExpireTime: timestamppb.New(u.expires),
		},
	}})
}
