package bench

import (
	"fmt"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// BenchmarkWatchTurn reads a whole turn that is over, of agents in turn that each
// repeat what the ones before have said.
func BenchmarkWatchTurn(b *testing.B) {
	const agents = 50
	var all []*agentdv1.Agent
	for i := range agents {
		all = append(all, harness.LLMAgent(fmt.Sprintf("a%d", i), "echo", ""))
	}
	d := agentdtest.Start(b, agentdtest.Config{Addr: "127.0.0.1:0"})
	id, _ := benchEnd(b, benchRun(b, d, &agentdv1.RunRequest_ExecuteRequest{Agent: harness.SequentialAgent("root", all...), UserPrompt: "word"}))
	c := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
	b.ReportAllocs()
	for b.Loop() {
		s, err := c.WatchTurn(b.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, AfterSeq: new(int64)}))
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for s.Receive() {
			n++
		}
		if err := s.Err(); err != nil || n < agents {
			b.Fatalf("%d messages: %v", n, err)
		}
		_ = s.Close()
	}
}
