package providers

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// retryScripts fail at first.
var retryScripts = map[string]string{
	"recovers": `answers:
  - {when: {try: 1}, usage: {prompt: 100, total: 100}, error: {kind: unavailable, status: 503}}
  - {when: {try: 2}, error: {kind: rate_limited, status: 429, retry_after: 7s}}
  - {when: {try: 3}, usage: {prompt: 10, total: 10}, error: {kind: timeout}}
  - {when: {try: 4}, usage: {prompt: 1, completion: 2, total: 3}, text: "There."}`,
	"fails": `answers: [{when: {}, usage: {prompt: 5, total: 5}, error: {kind: unavailable, status: 500}}]`,
	"waits": `answers:
  - {when: {try: 1}, usage: {prompt: 5, total: 5}, error: {kind: rate_limited, retry_after: 55s}}
  - {when: {}, text: "There.", usage: {prompt: 1, total: 1}}`,
	"shown": `answers: [{when: {}, text: [a, b], error: {kind: unavailable, status: 500, after: 1}}]`,
}

// retryDaemon starts a daemon with the daemon's own waits.
func retryDaemon(t *testing.T, opts ...testdaemon.Option) *agentdtest.Daemon {
	t.Helper()
	opts = append(opts, testdaemon.WithRetry(modelcall.Retry{}))
	return harness.StartDaemon(t, agentdtest.Config{Scripts: retryScripts}, opts...)
}

// TestRetryUsage is F26: what failed tries took is counted once, whether the call
// succeeds in the end, fails, or is cancelled while it waits.
func TestRetryUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := retryDaemon(t)
		clnt := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}
		usage := func(got *harness.Dialogue, calls int32, total int32) {
			t.Helper()
			if u := got.End.GetUsageSummary(); u.GetLlmCalls() != calls || u.GetTotalUsage().GetTotalTokens() != total {
				t.Errorf("usage %v, want %d tokens of %d calls", u, total, calls)
			}
		}

		got := clnt.Talk(harness.StartTurn(harness.ScriptedAgent("root", "recovers")), nil)
		clnt.Completed(got, map[string]string{"root": "There."})
		usage(got, 3, 113)
		var codes []agentdv1.ErrorCode
		for _, r := range got.Retries {
			codes = append(codes, r.GetCode())
		}
		if len(codes) != 3 || codes[0] != agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE || codes[1] != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED || codes[2] != agentdv1.ErrorCode_ERROR_CODE_TIMEOUT {
			t.Errorf("retries %v", got.Retries)
		}

		got = clnt.Talk(harness.StartTurn(harness.ScriptedAgent("root", "fails")), nil)
		harness.CheckFailed(t, got, agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, 5)
		usage(got, 5, 25)

		got = clnt.Talk(harness.StartTurn(harness.ScriptedAgent("root", "waits")), func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
			if m.GetModelCallRetried() == nil {
				return nil
			}
			return []*agentdv1.RunRequest{harness.Cancel(nil)}
		})
		if got.End.GetCompleted() || len(got.Errors) != 0 || len(got.Retries) != 1 {
			t.Errorf("cancelled: %v", got.Msgs)
		}
		usage(got, 1, 5)

		got = clnt.Talk(harness.StartTurn(harness.ScriptedAgent("root", "shown")), nil)
		harness.CheckFailed(t, got, agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, 1)
		// What is on its way is shown to who is there; one who reads slowly may find
		// that the turn has failed already.
		if text := got.Text["root"]; text != "a" && text != "" {
			t.Errorf("text %q, want what was shown", got.Text)
		}
	})
}

// TestRetryWaits is F26: the waits that clients are told are those that pass.
func TestRetryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := retryDaemon(t)
		clnt := harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}
		begin := time.Now()
		got := clnt.Talk(harness.StartTurn(harness.ScriptedAgent("root", "recovers")), nil)
		took := time.Since(begin)
		var told time.Duration
		for i, most := range []time.Duration{500 * time.Millisecond, 7 * time.Second, 2 * time.Second} {
			wait := got.Retries[i].GetWait().AsDuration()
			if told += wait; wait > most || i == 1 && wait != most {
				t.Errorf("retry %d waits %v, want %v", i+1, wait, most)
			}
		}
		// The stream has to be closed as well, which takes no time of its own.
		if last := got.Msgs[len(got.Msgs)-1].GetTime().AsTime().Sub(begin); last.Truncate(time.Microsecond) != told.Truncate(time.Microsecond) {
			t.Errorf("took %v until the end and %v in all, told %v", last, took, told)
		}
	})
}

// TestRetryRestart is F26: a daemon that stops does not wait for a retry, and the
// next one makes the call again.
func TestRetryRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := harness.OpenStore(t.Context(), sqlite.Memory)
		if err != nil {
			t.Fatal(err)
		}
		kept := &harness.RecordedStore{Store: store, Keep: true}
		defer func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
		first := retryDaemon(t, testdaemon.WithStore(kept))
		ctx, leave := context.WithCancel(t.Context())
		s := agentdv1connect.NewAgentdClient(first.HTTPClient(), first.URL).Run(ctx)
		if err := s.Send(harness.StartTurn(harness.ScriptedAgent("root", "waits"))); err != nil {
			t.Fatal(err)
		}
		session, seq := "", int64(0)
		for session == "" || seq == 0 {
			m, err := s.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if m.GetExecute() != nil {
				session = m.GetExecute().GetSessionId()
			}
			if m.GetModelCallRetried() != nil {
				seq = m.GetSeq()
			}
		}
		begin := time.Now()
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("the daemon took %v to stop", took)
		}
		leave()
		_ = s.CloseRequest()
		_ = s.CloseResponse()

		second := retryDaemon(t, testdaemon.WithStore(kept))
		s = agentdv1connect.NewAgentdClient(second.HTTPClient(), second.URL).Run(t.Context())
		defer func() { _ = s.CloseResponse() }()
		if err := s.Send(harness.Attach(session, "", &seq)); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		var end *agentdv1.RunResponse_EndResponse
		for end == nil {
			m, err := s.Receive()
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString(m.GetOutputChunk().GetContent())
			end = m.GetEnd()
		}
		_ = s.CloseRequest()
		// The interrupted call is made again from its first try.
		if u := end.GetUsageSummary(); !end.GetCompleted() || text.String() != "There." || u.GetLlmCalls() != 3 || u.GetTotalUsage().GetTotalTokens() != 11 {
			t.Errorf("%q, %v", text.String(), end)
		}
	})
}
