package server_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// Large requests share room: one waits for another for a bounded time, and one for
// which there is no room to wait is refused at once; small ones never wait. So it is on
// both services.
func TestLargeRequestsShareRoom(t *testing.T) {
	release := make(chan struct{})
	e := engine{run: talk, check: func(spec *record.Spec, _ session.Keys) error {
		if len(spec.Prompt) > 1000 {
			<-release
		}
		return nil
	}}
	onPipes(t, e, server.Config{MaxReplyBytes: 1 << 20}, func(t *testing.T, f *fixture) {
		release = make(chan struct{}) // of the bubble
		c := agentdv1connect.NewSessionServiceClient(f.hc, f.url)
		said := func(n int) *agentdv1.RunRequest_ExecuteRequest {
			ex := execute().GetExecute()
			ex.UserPrompt = strings.Repeat("x", n)
			return ex
		}
		create := func(n int) <-chan error {
			done := make(chan error, 1)
			go func() { // ends with its reply
				_, err := c.CreateTurn(context.Background(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: said(n)}))
				done <- err
			}()
			return done
		}
		crowded := func(who string, e *agentdv1.RunResponse_ErrorResponse) {
			if e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || e.GetRetryAfter().AsDuration() <= 0 || !strings.Contains(e.GetMessage(), "too many large requests") {
				t.Errorf("%s: %v", who, e)
			}
		}
		first := create(200_000)
		synctest.Wait()
		second := create(200_000)
		synctest.Wait()

		from := time.Now()
		crowded("no room to wait", detailOf(<-create(200_000)))
		s := f.open(t.Context(), t)
		s.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: said(200_000)}})
		crowded("no room to wait, Run", s.next().GetError())
		if err := <-create(100); err != nil {
			t.Errorf("a small request: %v", err)
		}
		if took := time.Since(from); took > 3*time.Second { // a refused stream lingers
			t.Errorf("they took %v", took)
		}

		crowded("waited in vain", detailOf(<-second))
		third := create(200_000)
		synctest.Wait()
		close(release)
		for who, done := range map[string]<-chan error{"the first": first, "the third": third} {
			if err := <-done; err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
		_ = s.CloseRequest()
		_ = s.CloseResponse()
	})
}
