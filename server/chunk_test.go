package server_test

import (
	"context"
	"fmt"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// BenchmarkChunk sends one chunk to each client that watches a turn, and has each receive it before the next one.
func BenchmarkChunk(b *testing.B) {
	for _, codec := range []string{"proto", "json"} {
		for _, clients := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/%d", codec, clients), func(b *testing.B) {
				words := make(chan string)
				f := serve(b, engine{run: func(ctx context.Context, run *session.Run) error {
					for text := range words {
						run.Delta(record.Delta{MessageID: "m1", Path: root, Text: text})
					}
					return emit(ctx, run, &record.Event{MessageID: "m1", Path: root, Marks: run.Marks("m1")})
				}}, server.Config{})
				var opts []connect.ClientOption
				if codec == "json" {
					opts = append(opts, connect.WithProtoJSON())
				}
				c := agentdv1connect.NewSessionServiceClient(f.hc, f.url, opts...)
				turn, err := c.CreateTurn(b.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
				if err != nil {
					b.Fatal(err)
				}
				received := make(chan struct{}, clients)
				for range clients {
					watch, err := c.WatchTurn(b.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{
						SessionId: turn.Msg.GetTurn().GetSessionId(), Observe: true,
					}))
					if err != nil {
						b.Fatal(err)
					}
					go func() {
						defer watch.Close()
						for watch.Receive() {
							if isText(watch.Msg().GetEvent()) {
								received <- struct{}{}
							}
						}
					}()
				}
				say := func() {
					words <- "some words of an answer "
					for range clients {
						<-received
					}
				}
				say()
				b.ReportAllocs()
				for b.Loop() {
					say()
				}
				close(words)
			})
		}
	}
}
