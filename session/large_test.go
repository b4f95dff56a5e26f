package session_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// maxRawBody is how many bytes of a provider's response are kept.
const maxRawBody = 1 << 20

// TestEventsAreBounded: the messages of a turn with large payloads come in pieces of
// a bounded size, however many are asked for, and all of them come.
func TestEventsAreBounded(t *testing.T) {
	const payloads = 12
	f := newFixture(t, memory(t), limits.Limits{})
	f.engine.on(func(ctx context.Context, r *session.Run) error {
		for i := range payloads {
			if err := r.Raw(ctx, record.RawPayload{MessageID: "m", Attempt: i + 1, Body: make([]byte, maxRawBody)}); err != nil {
				return err
			}
		}
		return nil
	})
	turn := f.start(session.Request{Raw: true})
	follow(t, turn.Watch())
	var got []*agentdv1.RunResponse
	for more := true; more; {
		var after *int64
		if len(got) > 0 {
			after = &got[len(got)-1].Seq
		}
		var page []*agentdv1.RunResponse
		var err error
		page, more, err = f.m.Events(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), After: after}, 1000, nil)
		if err != nil || len(page) == 0 {
			t.Fatalf("after %d messages: %d more, %v", len(got), len(page), err)
		}
		size := 0
		for _, msg := range page {
			size += proto.Size(msg)
		}
		if size > 8<<20 {
			t.Errorf("%d bytes at once", size)
		}
		got = append(got, page...)
	}
	n := 0
	for _, msg := range got {
		if raw := msg.GetRawPayloadReceived(); raw != nil {
			if n++; int(raw.GetAttempt()) != n || len(raw.GetBody()) != maxRawBody {
				t.Errorf("payload %d: try %d with %d bytes", n, raw.GetAttempt(), len(raw.GetBody()))
			}
		}
	}
	if n != payloads || !end(t, got).GetCompleted() {
		t.Errorf("%d payloads, end %v", n, end(t, got))
	}
}
