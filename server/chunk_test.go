package server_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

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

// TestChunkOfSeveral: what clients receive of a chunk does not depend on their number, their codec or their method.
func TestChunkOfSeveral(t *testing.T) {
	words := make(chan string)
	f := serve(t, engine{run: func(ctx context.Context, run *session.Run) error {
		var all string
		for text := range words {
			run.Delta(record.Delta{MessageID: "m1", Path: root, Text: text})
			all += text
		}
		return emit(ctx, run, &record.Event{MessageID: "m1", Path: root, Text: all, Marks: run.Marks("m1")})
	}}, server.Config{})
	over := sync.OnceFunc(func() { close(words) })
	defer over()
	run := f.run(t)
	id := run.next().GetExecute().GetSessionId()
	var next []func() *agentdv1.RunResponse
	for _, opts := range [][]connect.ClientOption{nil, {connect.WithProtoJSON()}, {connect.WithGRPC()}, {connect.WithGRPCWeb()}} {
		c := agentdv1connect.NewSessionServiceClient(f.hc, f.url, opts...)
		for _, display := range []bool{false, true} {
			turn, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, Observe: true, Display: display}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = turn.Close() })
			next = append(next, func() *agentdv1.RunResponse { turn.Receive(); return turn.Msg().GetEvent() })
		}
		whole, err := c.WatchSession(t.Context(), connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: id}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = whole.Close() })
		next = append(next, func() *agentdv1.RunResponse {
			whole.Receive()
			if whole.Msg().GetEvent().GetSeq() > 0 && whole.Msg().GetCursor() == "" {
				t.Errorf("%v has no cursor", whole.Msg())
			}
			return whole.Msg().GetEvent()
		})
	}
	for i := range 20 {
		words <- fmt.Sprintf("word %d \"<\u00e4>\" ", i)
		want := run.until(isText)
		chunk := want[len(want)-1]
		for n, receive := range next {
			got := receive()
			for got != nil && !isText(got) {
				got = receive()
			}
			got.Display = nil
			if !proto.Equal(got, chunk) {
				t.Fatalf("client %d receives %v, want %v", n, got, chunk)
			}
		}
	}
	over()
	run.toEnd()
}
