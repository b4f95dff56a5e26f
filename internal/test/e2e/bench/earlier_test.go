package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// BenchmarkEarlierTurns is what a session costs that has had many turns: a turn of
// one word, GetTurn, attaches to the last turn and to the tenth last one, and
// ListModelCalls of that, each in sessions of 10 and of 1,000 earlier turns. x10 is
// the time compared with that after 10: it should stay near 1, but for
// ListModelCalls, which reads the log up to its turn.
func BenchmarkEarlierTurns(b *testing.B) {
	sizes := []int{10, 1000}
	p := harness.Provider{Name: "bench", Model: func(string) harness.Generate {
		return func(_ context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) { // never reads what it is told
			out := &adapter.Builder{Provider: "bench", Emit: emit}
			out.Text("word")
			return &model.Response{Content: out.Content(), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Total: 1}, Model: "bench"}, nil
		}
	}}
	onEachStore(b, func(b *testing.B, d *agentdtest.Daemon) {
		sessions := agentdv1connect.NewSessionServiceClient(d.HTTPClient(), d.URL)
		ids, tenth := map[int]string{}, map[int]string{}
		request := func(id string) *agentdv1.RunRequest_ExecuteRequest {
			req := &agentdv1.RunRequest_ExecuteRequest{Agent: harness.LLMAgent("root", "bench/m", ""), UserPrompt: "word"}
			if id != "" {
				req.SessionId = &id
			}
			return req
		}
		for _, size := range sizes {
			for range size {
				ids[size], _ = benchEnd(b, benchRun(b, d, request(ids[size])))
			}
			turns, err := sessions.ListTurns(b.Context(), connect.NewRequest(&agentdv1.ListTurnsRequest{SessionId: ids[size], PageSize: 10}))
			if err != nil {
				b.Fatal(err)
			}
			tenth[size] = turns.Msg.GetTurns()[9].GetId()
		}
		does := []struct {
			name string
			do   func(size int)
		}{
			{"turn", func(size int) { benchEnd(b, benchRun(b, d, request(ids[size]))) }},
			{"get", func(size int) {
				if _, err := sessions.GetTurn(b.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: ids[size], TurnId: tenth[size]})); err != nil {
					b.Fatal(err)
				}
			}},
			{"attach", func(size int) {
				benchEnd(b, benchOpen(b, d, harness.Attach(ids[size], "", nil)))
			}},
			{"attach-earlier", func(size int) {
				benchEnd(b, benchOpen(b, d, harness.Attach(ids[size], tenth[size], nil)))
			}},
			{"calls", func(size int) {
				if _, err := sessions.ListModelCalls(b.Context(), connect.NewRequest(&agentdv1.ListModelCallsRequest{SessionId: ids[size], TurnId: tenth[size]})); err != nil {
					b.Fatal(err)
				}
			}},
		}
		took := map[string][]time.Duration{}
		for b.Loop() {
			for _, one := range does {
				for _, size := range sizes {
					begin := time.Now()
					one.do(size)
					key := fmt.Sprintf("%s@%d", one.name, size)
					took[key] = append(took[key], time.Since(begin))
				}
			}
		}
		for _, one := range does {
			few, many := median(took[one.name+"@10"]), median(took[one.name+"@1000"])
			b.ReportMetric(float64(few.Nanoseconds())/1000, "µs/"+one.name)
			b.ReportMetric(float64(many)/float64(few), "x10-"+one.name)
		}
	}, p)
}
