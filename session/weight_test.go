package session_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
)

// What a watcher gives next takes no more than it has said: a large state, one of many
// small values, a long log; and at the end nothing.
func TestWeight(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	many := make([]any, 50_000)
	for i := range many {
		many[i] = float64(i % 10)
	}
	turn := f.start(session.Request{
		Prompt: strings.Repeat("y", 300_000), InitialState: map[string]any{"large": strings.Repeat("x", 300_000), "many": many},
	})
	_, late := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
	_, other := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Observe: true})
	<-turn.Done() // or more comes between what a watcher says and what it gives
	for name, w := range map[string]*session.Watcher{"begun": turn.Watch(), "late": late, "observer": other} {
		var all int64
		for over := false; !over; {
			weight := w.Weight(t.Context())
			msgs, err := w.Next(t.Context())
			over = err != nil
			size := int64(0)
			for _, m := range msgs {
				size += int64(proto.Size(m))
			}
			if size > weight {
				t.Errorf("%s: %d messages have %d bytes, and were to weigh %d", name, len(msgs), size, weight)
			}
			if all += size; !over && len(msgs) == 0 {
				<-w.Ready()
			}
		}
		if all < 800_000 {
			t.Errorf("%s: all messages have %d bytes", name, all)
		}
		if n := w.Weight(t.Context()); n != 0 {
			t.Errorf("%s: behind the end %d bytes are to come", name, n)
		}
	}
}
