package live

import (
	"context"
	"errors"
	"maps"

	"github.com/apzuk3/agentd/session/record"
)

// errCallsAtEnd refuses calls that could have no result.
var errCallsAtEnd = errors.New("session: an event that is appended with a turn's end holds calls")

// AppendAtEnd hands over an event for the append of the turn's end, right before the end: the log has
// both or neither. It is for facts that are true only of a turn that has ended, such as the results of
// calls that its end cancels. data and ev are as for Append; ev has no calls.
//
// Nothing is durable when it returns. If the turn does not end with this run, because it is suspended,
// its end cannot be recorded or the process dies, the event is dropped.
//
// It refuses state beyond the bounds with LIMIT_EXCEEDED, and everything when ctx has ended. All events
// of a run are one append: the runner bounds them. It must not be called concurrently with itself, nor
// after Runner.Run has returned.
func (r *Run) AppendAtEnd(ctx context.Context, data []byte, ev *record.Event) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case len(ev.Calls) > 0:
		return errCallsAtEnd
	}
	state := r.stateAtEnd()
	maps.Copy(state, ev.State)
	if len(ev.State) > 0 {
		if err := r.s.stateFits(ctx, state); err != nil {
			return err
		}
	}
	r.atEnd = append(r.atEnd, &entry{
		turn: r.t, attempt: r.a, kind: record.KindEvent, data: data, fact: ev, shared: r.s.sharedValues(ev.State),
	})
	return nil
}

// stateAtEnd returns the state that the events of AppendAtEnd write.
func (r *Run) stateAtEnd() map[string]any {
	state := map[string]any{}
	for _, e := range r.atEnd {
		if ev, ok := e.fact.(*record.Event); ok {
			maps.Copy(state, ev.State)
		}
	}
	return state
}
