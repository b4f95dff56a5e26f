package adkbridge

import (
	"bytes"
	"testing"
	"unsafe"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// maxRawBody is how many bytes of a provider's response are kept.
const maxRawBody = 1 << 20

// TestRushHoldsNoPayloads: the records from which a turn is replayed have no raw payloads.
func TestRushHoldsNoPayloads(t *testing.T) {
	recs := []record.Record{
		{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Data: []byte(`{"prompt":"hi","agent":{}}`)},
		{Seq: 2, TurnID: "t", Kind: record.KindRawPayload, Data: bytes.Repeat([]byte("x"), maxRawBody)},
		{Seq: 3, TurnID: "t", Kind: record.KindTurnEnded, Data: []byte(`{"completed":true}`)},
	}
	v := &verification{hist: newHistory(), state: map[string]any{}}
	got, err := v.skipTo(t.Context(), logOfTurn("s", "t", recs))
	if err != nil || len(got) != len(recs) {
		t.Fatalf("%d records, %v", len(got), err)
	}
	size := 0
	for _, rec := range got {
		size += len(rec.Data)
	}
	if size > 1000 {
		t.Errorf("%d bytes are held", size)
	}
	if len(recs[1].Data) != maxRawBody {
		t.Error("the log itself was changed")
	}
}

// TestModelCallsShareTexts: an instruction that many calls share is in memory once.
func TestModelCallsShareTexts(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("search"), use("search"), say("done")}})
	w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		return session.ClientResult{Output: new("ok")}
	}
	turn := w.start(llm("root", instruct("be quick")), "go")
	w.follow(turn).ok(t)
	calls, err := listedCalls(t, w.turnLog(turn.ID()))
	if err != nil || len(calls) != 3 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	first := unsafe.StringData(calls[0].GetInstruction())
	for i, c := range calls {
		if c.GetInstruction() == "" || unsafe.StringData(c.GetInstruction()) != first {
			t.Errorf("call %d has an instruction of its own: %q", i, c.GetInstruction())
		}
	}
}
