package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// BenchmarkSharedState is a turn of one word beside app: keys at their bound, compared
// with one beside none, on two daemons that take turns: what strangers pay for them. Each
// turn begins with the whole state, so that its client reads all of it. x-none is the ratio
// of the medians.
func BenchmarkSharedState(b *testing.B) {
	cfg := agentdtest.Config{Addr: "127.0.0.1:0"}
	full, none := agentdtest.Start(b, cfg), agentdtest.Start(b, cfg)
	c := agentdv1connect.NewSessionServiceClient(full.HTTPClient(), full.URL)
	for i := range 100 {
		_, err := c.SetSharedState(b.Context(), connect.NewRequest(&agentdv1.SetSharedStateRequest{
			Values: []*agentdv1.SharedStateValue{{Key: fmt.Sprintf("app:k%02d", i), Value: `"` + strings.Repeat("x", 2500) + `"`}},
		}))
		if err != nil {
			b.Fatal(err)
		}
	}
	req := &agentdv1.RunRequest_ExecuteRequest{Agent: harness.LLMAgent("root", "echo", ""), UserPrompt: "word"}
	var took [2][]time.Duration
	for b.Loop() {
		for i, d := range []*agentdtest.Daemon{full, none} {
			begin := time.Now()
			benchEnd(b, benchRun(b, d, req))
			took[i] = append(took[i], time.Since(begin))
		}
	}
	var median [2]float64
	for i := range took {
		slices.Sort(took[i])
		median[i] = float64(took[i][len(took[i])/2].Microseconds())
	}
	b.ReportMetric(median[0], "µs/full")
	b.ReportMetric(median[1], "µs/none")
	b.ReportMetric(median[0]/median[1], "x-none")
}
