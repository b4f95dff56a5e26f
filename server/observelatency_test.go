package server_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/natsserver"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// BenchmarkObserve measures how long a delta takes to an observer: at the owner, forwarded by another server, and at
// another server that hears of it over NATS.
func BenchmarkObserve(b *testing.B) {
	for _, way := range []string{"owner", "forwarded", "bus"} {
		b.Run(way, func(b *testing.B) {
			begin, n := make(chan struct{}), 0
			e := engine{run: func(ctx context.Context, r *session.Run) error {
				<-begin
				for range n {
					text := strconv.FormatInt(time.Now().UnixNano(), 10) + " "
					r.Delta(record.Delta{MessageID: "m", Path: root, Text: text})
					time.Sleep(time.Millisecond) // as a model does
				}
				return emit(ctx, r, &record.Event{MessageID: "m", Path: root, Text: "", Last: true})
			}}
			url := ""
			if way == "bus" {
				url = natsserver.Start(b, nil).URL()
			}
			all := peersOn(b, e, 2, url)
			n = b.N
			made, err := all[0].calls.CreateTurn(b.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
			if err != nil {
				b.Fatal(err)
			}
			at := all[1]
			if way == "owner" {
				at = all[0]
			}
			w, err := at.calls.WatchTurn(b.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
				SessionId: made.Msg.GetTurn().GetSessionId(), Observe: true,
			}))
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			var took []time.Duration
			for begun := false; w.Receive(); {
				m := w.Msg().GetEvent()
				if !begun && m.GetSeq() > 0 {
					begun = true
					b.ResetTimer()
					close(begin)
				}
				if text := m.GetOutputChunk().GetContent(); len(text) > 19 {
					said, err := strconv.ParseInt(text[len(text)-20:len(text)-1], 10, 64)
					if err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Duration(time.Now().UnixNano()-said))
				}
				if m.GetEnd() != nil {
					break
				}
			}
			if len(took) == 0 {
				b.Fatal("nothing was said")
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
