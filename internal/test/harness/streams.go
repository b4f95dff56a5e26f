package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/plainlog"
	"github.com/apzuk3/agentd/session/record"
)

// PlainLog returns a log as plainlog writes it.
func PlainLog(t testing.TB, recs []record.Record) string {
	t.Helper()
	text, err := plainlog.Text(recs)
	if err != nil {
		t.Error(err)
	}
	return text
}

// keepStream has what a client was sent compared. Pieces of one text that follow
// each other are one; positions, times and ids are left out.
func keepStream(t testing.TB, msgs []*agentdv1.RunResponse) {
	t.Helper()
	if current == nil {
		return
	}
	text := PlainStream(t, msgs)
	current.mu.Lock()
	defer current.mu.Unlock()
	current.streams = append(current.streams, text)
}

// PlainStream returns what a client was sent as keepStream compares it.
func PlainStream(t testing.TB, msgs []*agentdv1.RunResponse) string {
	t.Helper()
	seen := map[string]int{}
	var joined, replies []*agentdv1.RunResponse
	last := ""
	for _, m := range msgs {
		m = proto.CloneOf(m)
		if m.GetTurnId() == "" { // no event of the turn: has no place among them
			replies = append(replies, m)
			continue
		}
		key := ""
		if o := m.GetOutputChunk(); o.GetContent() != "" && !o.GetLast() {
			if key = TextKey(o); key == last {
				joined[len(joined)-1].GetOutputChunk().Content += o.GetContent()
				continue
			}
		}
		last = key
		joined = append(joined, m)
	}
	if n := len(joined); n > 0 && !joined[n-1].GetEnd().GetCompleted() {
		joined = withoutHalves(joined)
	}
	var lines []string
	for _, m := range append(joined, replies...) {
		timeless(m)
		data, err := protojson.Marshal(m)
		if err != nil {
			t.Error(err)
		}
		var compact bytes.Buffer // protojson varies its spaces
		if err := json.Compact(&compact, data); err != nil {
			t.Error(err)
		}
		lines = append(lines, plainlog.WithoutIDs(compact.String(), seen))
	}
	return strings.Join(plainlog.Loose(lines, `{"toolCallAnswered":`), "\n")
}

// withoutHalves leaves out the text of the last message of a turn that was not
// completed. If the message was not complete either, who is slow may not be told
// of it.
func withoutHalves(msgs []*agentdv1.RunResponse) []*agentdv1.RunResponse {
	id := ""
	for _, m := range msgs {
		if o := m.GetOutputChunk(); o.GetContent() != "" {
			id = o.GetMessageId()
		}
	}
	return slices.DeleteFunc(msgs, func(m *agentdv1.RunResponse) bool {
		o := m.GetOutputChunk()
		return o.GetContent() != "" && o.GetMessageId() == id
	})
}

// timeless takes out of a message what differs from run to run.
func timeless(m *agentdv1.RunResponse) {
	m.Seq, m.Time, m.Replayed = 0, nil, false
	if r := m.GetEnd().GetReceipt(); r != nil {
		r.Took = nil
		for _, c := range r.GetAbortedModelCalls() {
			c.Ran = nil
		}
	}
	if e := m.GetError(); e != nil && m.GetTurnId() == "" {
		e.Message, e.Violations = "", nil // of a refusal, which calls the request and its fields by their names
	}
	if r := m.GetModelCallRetried(); r != nil {
		r.Wait = nil
	}
	if c := m.GetModelCallEnded(); c != nil {
		c.Duration, c.TimeToFirstText = nil, nil
	}
}

// TextKey identifies the text that a chunk is a piece of.
func TextKey(o *agentdv1.RunResponse_OutputChunk) string {
	return fmt.Sprintf("%s %s %v", strings.Join(o.GetAgentPath(), "/"), o.GetMessageId(), o.GetIsThought())
}
