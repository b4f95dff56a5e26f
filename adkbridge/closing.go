package adkbridge

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// stoppedText begins the results of calls that were cut off.
const stoppedText = "cancelled: the turn was stopped"

// reasonBytes bounds the reasons in these results, all together.
const reasonBytes = 1 << 20

// close makes the history valid after the tree ends. It appends complete responses that
// are not in the log, the usage of failed calls, and a result for each call that has
// none. Results that say that a call was cut off are appended together with the turn's
// end: a turn without an end in its log continues, and so do its calls. The calls of a
// suspended turn stay open, since their results come later. After a natural end there
// is nothing to do.
func (t *turn) close(ctx context.Context, cause error) error {
	// The history keeps the events of the log that the run did not reach.
	var rest []loggedEvent
	for _, queue := range t.logged {
		rest = append(rest, queue...)
	}
	slices.SortFunc(rest, func(a, b loggedEvent) int { return int(a.seq - b.seq) })
	for _, l := range rest {
		t.apply(l.seq, l.ev, l.size, nil)
	}
	if err := t.recordAgentsAtEnd(cause); err != nil {
		return err
	}
	if !errors.Is(cause, session.ErrSuspended) {
		t.reportCutCalls()
	}
	t.mu.Lock()
	made := slices.Concat(t.unappended, t.unreported)
	n := len(made) + len(t.open)
	t.unreported = nil
	t.mu.Unlock()
	if n == 0 {
		return nil
	}
	// The context may be what stopped the turn.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limits.CloseTimeout)
	defer cancel()
	for _, a := range made {
		ev := t.newEvent(ctx, a.author, a.branch)
		ev.Content = a.content
		ev.FinishReason, ev.ModelVersion = a.finish, a.model
		if err := t.commit(ctx, ev, a.meta); err != nil && !t.keptWithoutState(ev, err) {
			return err
		}
	}
	if errors.Is(cause, session.ErrSuspended) {
		return nil
	}
	t.mu.Lock()
	open := slices.Clone(t.open)
	t.mu.Unlock()
	text := stoppedText + " before this call was over"
	if e, ok := errors.AsType[*fault.Error](cause); ok && e.Code != codeInternal {
		calls := 1
		for _, o := range open {
			calls += len(o.calls)
		}
		text = stoppedText + ": " + cut(e.Message, reasonBytes/calls)
	}
	for _, o := range open {
		commit := t.commit
		ev := t.newEvent(ctx, o.author, o.branch)
		ev.Content = &genai.Content{Role: genai.RoleUser}
		for _, c := range o.calls {
			result := errorResult(text)
			if reason := t.refusal(c.ID); reason != "" {
				result = errorResult(reason)
			} else if res, ok := t.run.Result(c.ID); ok {
				result = t.result(c.ID, res)
				maps.Copy(ev.Actions.StateDelta, res.State)
			} else {
				commit = t.commitAtEnd
			}
			ev.Content.Parts = append(ev.Content.Parts, responsePart(c, result))
		}
		if err := commit(ctx, ev, &meta{Path: o.path}); err != nil && !t.keptWithoutState(ev, err) {
			return err
		}
	}
	t.mu.Lock()
	t.open = nil
	t.mu.Unlock()
	return nil
}

// reportCutCalls ends the calls that a crash cut off and that the turn did not repeat.
func (t *turn) reportCutCalls() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, agent := range slices.SortedFunc(maps.Keys(t.cut), func(a, b roomKey) int {
		return cmp.Or(cmp.Compare(a.agent, b.agent), cmp.Compare(a.room, b.room))
	}) {
		c := t.cut[agent]
		if c.usage.Calls == 0 {
			continue // nothing was reported
		}
		t.unreported = append(t.unreported, &response{
			author: agent.agent, branch: c.branch, content: &genai.Content{Role: genai.RoleModel},
			meta: &meta{Path: c.path, Usage: &record.Usage{}, Before: &c.usage,
				Call: &record.CallInfo{Model: c.model}},
		})
	}
	t.cut = nil
}

// newEvent is an event of this turn.
func (t *turn) newEvent(ctx context.Context, author, branch string) *adksession.Event {
	ev := adksession.NewEvent(ctx, t.run.TurnID())
	ev.Author, ev.Branch = author, branch
	return ev
}

// seal marks all known records as read. Records that are appended with the turn's end
// come later; the next turn reads them.
func (h *history) seal(startSeq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.upto = startSeq
	if n := len(h.items); n > 0 {
		h.upto = max(h.upto, h.items[n-1].seq)
	}
}
