package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/session/record"
)

// check holds a session that is at rest against what its clients have seen and
// said and what the fake models have counted. I8 and I9 are checked when the fixture is
// taken down.
func (b *fixture) check(id string, chains ...*chain) []*harness.LoggedTurn {
	b.t.Helper()
	turns := harness.ReadLog(b.t.Context(), b.t, b.store, id) // I2, I3, I4
	for _, c := range chains {
		c.inLog(b.t, b.told(id, c.from), turns)
		c.stands(b.t, turns)
	}
	b.counts(b.t, turns, b.told(id, 0))
	return turns
}

// told is what a session's log tells after a position.
func (b *fixture) told(id string, after int64) []*agentdv1.RunResponse {
	b.t.Helper()
	c := b.chain(nil)
	c.session, c.cursor = id, after
	c.attach()
	c.rest()
	return c.got
}

// inLog checks that what a client has seen is in the log, with the same bytes
// (I1). Who has seen all of turns that were completed has seen exactly what the
// log tells.
func (c *chain) inLog(t testing.TB, log []*agentdv1.RunResponse, turns []*harness.LoggedTurn) {
	t.Helper()
	completed := !slices.ContainsFunc(turns, func(l *harness.LoggedTurn) bool { return !l.Ended.Completed })
	if completed && c.whole {
		last := c.got[len(c.got)-1].GetSeq() // later turns are not of interest
		sameStory(t, c.got, slices.DeleteFunc(log, func(m *agentdv1.RunResponse) bool { return m.GetSeq() > last }))
		return
	}
	facts := map[int64]string{}
	calls := map[string]string{}
	texts := map[string]string{}
	for _, m := range log {
		if o := m.GetOutputChunk(); o.GetContent() != "" {
			texts[harness.TextKey(o)] += o.GetContent()
			continue
		}
		facts[m.GetSeq()] = canonical(t, m)
		if m.GetToolCallAnnounced() != nil {
			calls[m.GetToolCallAnnounced().GetToolCallId()] = facts[m.GetSeq()]
		}
	}
	seen := map[string]string{}
	at := int64(0)
	for _, m := range c.got {
		switch o := m.GetOutputChunk(); {
		case m.GetSeq() == 0:
		case o.GetContent() != "":
			seen[harness.TextKey(o)] += o.GetContent()
		case m.GetToolCall() != nil && m.GetSeq() == at: // asked again
			if again, first := canonical(t, m), calls[m.GetToolCall().GetToolCallId()]; afterSeq(again) != afterSeq(first) {
				t.Errorf("asked again for %q, the log has %q", again, first)
			}
		case canonical(t, m) != facts[m.GetSeq()]:
			t.Errorf("a client has seen %q, the log has %q", canonical(t, m), facts[m.GetSeq()])
		}
		if m.GetSeq() != 0 && m.GetSeq() < at {
			t.Errorf("position %d after %d: %v", m.GetSeq(), at, m)
		}
		at = max(at, m.GetSeq())
	}
	for key, text := range seen {
		logged, ok := texts[key]
		if !strings.Contains(logged, text) && (ok || completed) {
			t.Errorf("a client has seen %q of %s, the log has %q", text, key, logged)
		}
	}
}

// stands checks that the first thing that was said about each call stands (I3).
func (c *chain) stands(t testing.TB, turns []*harness.LoggedTurn) {
	t.Helper()
	for _, turn := range turns {
		for id, res := range turn.Results {
			said, ok := c.first[id]
			if ok && (res.Outcome != record.Returned || res.Output == nil || *res.Output != said) {
				t.Errorf("call %s: the client said %q, the log has %+v", id, said, res)
			}
		}
	}
}

// counts checks that no model was asked more often than the log says (I7), and
// that a turn has one end, which is its last message (I4).
func (b *fixture) counts(t testing.TB, turns []*harness.LoggedTurn, log []*agentdv1.RunResponse) {
	t.Helper()
	ends := map[string]*agentdv1.RunResponse_EndResponse{}
	for _, m := range log {
		if ends[m.GetTurnId()] != nil {
			t.Errorf("turn %s: %v follows its end", m.GetTurnId(), m)
		}
		if m.GetEnd() != nil {
			ends[m.GetTurnId()] = m.GetEnd()
		}
	}
	for _, turn := range turns {
		mark := turnMark.FindString(turn.Started.Prompt)
		end := ends[turn.ID]
		if end == nil || end.GetCompleted() != turn.Ended.Completed {
			t.Errorf("turn %s ended as %v, the log has %+v", turn.ID, end, turn.Ended)
			continue
		}
		made, _ := b.models.quiet(mark)
		counted := int(end.GetUsageSummary().GetLlmCalls())
		if most := counted + len(end.GetReceipt().GetAbortedModelCalls()); mark == "" || made < counted || made > most {
			t.Errorf("turn %s %s: %d model calls were made, the log counts %d and %v", turn.ID, mark, made, counted, end.GetReceipt())
		}
	}
}

// canonical is a message as anybody sees it who has not asked for it.
func canonical(t testing.TB, m *agentdv1.RunResponse) string {
	t.Helper()
	m = proto.CloneOf(m)
	m.Replayed = false
	if c := m.GetToolCall(); c != nil {
		m.Response = &agentdv1.RunResponse_ToolCallAnnounced{ToolCallAnnounced: &agentdv1.ToolCallAnnounced{
			SessionId: c.GetSessionId(), ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName(), ToolInput: c.GetToolInput(), AgentPath: c.GetAgentPath(),
		}}
	}
	seq := m.GetSeq()
	m.Seq = 0
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(seq, 10) + ": " + string(data)
}

// afterSeq is a canonical message without its position and time, which a call
// that is asked again does not have.
func afterSeq(text string) string {
	_, data, _ := strings.Cut(text, ": ")
	return data
}

// story is what messages tell, however text was cut: pieces of one message that
// follow each other are one, and a call that is asked again is left out.
func story(t testing.TB, msgs []*agentdv1.RunResponse) []string {
	t.Helper()
	var joined []*agentdv1.RunResponse
	var text strings.Builder // of the last one, if it is text
	finish := func() {
		if n := len(joined); n > 0 && text.Len() > 0 {
			joined[n-1].GetOutputChunk().Content = text.String()
		}
		text.Reset()
	}
	at := int64(0)
	for _, m := range msgs {
		if m.GetSeq() == 0 || m.GetSeq() == at && m.GetToolCall() != nil {
			continue
		}
		if m.GetSeq() <= at {
			t.Errorf("position %d after %d: %v", m.GetSeq(), at, m)
		}
		at = m.GetSeq()
		o := m.GetOutputChunk()
		if text.Len() > 0 && o.GetContent() != "" && harness.TextKey(joined[len(joined)-1].GetOutputChunk()) == harness.TextKey(o) {
			text.WriteString(o.GetContent())
			joined[len(joined)-1].Seq = at
			continue
		}
		finish()
		joined = append(joined, proto.CloneOf(m))
		text.WriteString(o.GetContent())
	}
	finish()
	var out []string
	for _, m := range joined {
		out = append(out, canonical(t, m))
	}
	return out
}

func sameStory(t testing.TB, got, want []*agentdv1.RunResponse) {
	t.Helper()
	a, b := story(t, got), story(t, want)
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			t.Errorf("the streams have %d messages, the log %d; they differ from number %d on:\n%.4000v\n%.4000v", len(a), len(b), i, fmt.Sprint(got), fmt.Sprint(want))
			return
		}
	}
}

// saga is what a Go client's events tell; events of the client's own are left
// out.
func saga(t testing.TB, events []*client.Event) []string {
	t.Helper()
	type piece struct {
		seq       int64
		key, text string
	}
	var pieces []piece
	called, noticed := map[string]bool{}, map[string]bool{}
	for _, ev := range events {
		if n := harness.As[*client.ToolCallAnnounced](ev); n != nil {
			noticed[n.ID] = true
		}
		if c := ev.ToolCall; c != nil {
			if called[c.ID] {
				t.Errorf("call %s is told twice", c.ID)
			}
			called[c.ID] = true
			if noticed[c.ID] {
				continue // the client has come back before the daemon missed it
			}
		}
		p := piece{seq: ev.Seq, key: ev.TurnID}
		switch d := ev.Data.(type) {
		case *client.TurnStarted:
			p.text = "started " + d.SessionID
		case *client.OutputChunk:
			o := d
			p.key = fmt.Sprint(ev.TurnID, o.AgentPath, o.MessageID, o.IsThought, o.Last)
			p.text = o.Content
		case *client.StateUpdate:
			p.text = fmt.Sprint("state ", d.Delta)
		case *client.ToolCall:
			p.text = fmt.Sprintf("call %s %s %s %v", d.ID, d.Name, d.Input, d.AgentPath)
		case *client.ToolCallAnnounced:
			p.text = fmt.Sprintf("call %s %s %s %v", d.ID, d.Name, d.Input, d.AgentPath)
		case *client.End:
			p.text = fmt.Sprint("end ", d.Completed, d.Reason, d.Usage.PromptTokens, " ", d.Usage.CompletionTokens)
		case *client.MessageCompleted:
			p.text = fmt.Sprintf("completed %+v", *d)
		case *client.AgentStarted:
			p.text = fmt.Sprintf("agent started %+v", *d)
		case *client.AgentEnded:
			p.text = fmt.Sprintf("agent ended %+v", *d)
		case *client.Transferred:
			p.text = fmt.Sprintf("transferred %+v", *d)
		case *client.ModelCallEnded:
			call, used := *d, *d.Usage
			cost := *cmp.Or(used.CostUSD, new(-1.0))
			call.Usage, used.CostUSD = nil, nil
			p.text = fmt.Sprintf("%+v %+v %v", call, used, cost)
		case *client.ToolCallAnswered, *client.ToolCallCanceled, *client.ConnectionLost, *client.ConnectionRestored:
			continue
		default:
			p.text = fmt.Sprintf("%T %+v", d, d)
		}
		if n := len(pieces); n > 0 && ev.OutputChunk != nil && ev.OutputChunk.Content != "" && pieces[n-1].key == p.key {
			pieces[n-1].text += p.text
			pieces[n-1].seq = p.seq
			continue
		}
		pieces = append(pieces, p)
	}
	var out []string
	for _, p := range pieces {
		out = append(out, fmt.Sprintf("%d %s %s", p.seq, p.key, p.text))
	}
	return out
}

// replay is what a Go client is told of a session by the log.
func (b *fixture) replay(id string) []*client.Event {
	b.t.Helper()
	var events []*client.Event
	for ev, err := range b.client(b.url).Attach(b.t.Context(), id, client.WithAfterSeq(0), client.Observe()) {
		if err != nil {
			b.t.Fatal(err)
		}
		events = append(events, ev)
	}
	return events
}

func (b *fixture) sameSaga(got []*client.Event, id string) {
	b.t.Helper()
	a, w := saga(b.t, got), saga(b.t, b.replay(id))
	if !slices.Equal(a, w) {
		b.t.Errorf("the client was told\n%s\nthe log tells\n%s", strings.Join(a, "\n"), strings.Join(w, "\n"))
	}
}
