package daemon_test

import (
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
)

// TestTurnIDOfTheCaller: on both services the caller may name its turn, whatever
// the id looks like; a second turn of that name is refused, and a repeat of the
// same request is the same turn.
func TestTurnIDOfTheCaller(t *testing.T) {
	d := start(t, daemon.Config{})
	c := wires(t, d)["Connect, binary, HTTP/2"]
	for way, begin := range begins(t, d) {
		t.Run(way, func(t *testing.T) {
			session, messages := "", map[string]string{}
			for _, id := range []string{"x", "e-x", "e-", "E-X", "order:4711@shop_1.a"} {
				ex := execute(llm("root", "echo"), "hi "+id).GetExecute()
				ex.TurnId, ex.IdempotencyKey = id, way+id
				if session != "" {
					ex.SessionId = &session
				}
				inSession, turn, e := begin(t, ex)
				if e != nil || turn != id {
					t.Fatalf("turn %q: %q, %v", id, turn, e)
				}
				session = inSession
				if _, second, e := begin(t, ex); second != id || e != nil {
					t.Errorf("the same request: %q, %v", second, e)
				}
				ex.IdempotencyKey, ex.SessionId = "", &session
				if _, _, e := begin(t, ex); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_CONFLICT || !strings.Contains(e.GetMessage(), id) {
					t.Errorf("a second turn %q: %v", id, e)
				}
				count := 0
				events, _ := listAll(t, c, &agentdv1.ListTurnEventsRequest{SessionId: session, TurnId: id})
				for _, m := range events {
					message := m.GetOutputChunk().GetMessageId() + m.GetModelCallEnded().GetMessageId()
					if message == "" {
						continue
					}
					count++
					if !strings.HasPrefix(message, id+"/") || messages[message] != "" && messages[message] != id {
						t.Errorf("turn %q has the message %q, that of turn %q", id, message, messages[message])
					}
					messages[message] = id
				}
				calls := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: session, TurnId: id}).GetCalls()
				if count < 2 || len(calls) != 1 {
					t.Errorf("turn %q: %d events of messages, %d model calls", id, count, len(calls))
				}
			}
			for _, bad := range []string{"-x", "a/b", "a b", strings.Repeat("x", 129)} {
				ex := execute(llm("root", "echo"), "hi").GetExecute()
				ex.TurnId = bad
				if _, _, e := begin(t, ex); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST || !strings.Contains(e.GetMessage(), "turn_id") {
					t.Errorf("turn %.20q: %v", bad, e)
				}
			}
		})
	}
}
