package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

// makers are the ways to make a session. They return how that was refused.
var makers = map[string]func(ctx context.Context, t *testing.T, at maker, id string) *agentdv1.RunResponse_ErrorResponse{
	"CreateSession": func(ctx context.Context, t *testing.T, at maker, _ string) *agentdv1.RunResponse_ErrorResponse {
		_, err := at.sessions().CreateSession(ctx, connect.NewRequest(&agentdv1.CreateSessionRequest{}))
		return refusalOf(t, err)
	},
	"ForkSession": func(ctx context.Context, t *testing.T, at maker, _ string) *agentdv1.RunResponse_ErrorResponse {
		_, err := at.sessions().ForkSession(ctx, connect.NewRequest(&agentdv1.ForkSessionRequest{SessionId: at.from}))
		return refusalOf(t, err)
	},
	"CreateTurn": func(ctx context.Context, t *testing.T, at maker, _ string) *agentdv1.RunResponse_ErrorResponse {
		ex := execute(llm("root", "echo"), "hi").GetExecute()
		_, err := at.sessions().CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
		return refusalOf(t, err)
	},
	"CreateTurn with create": func(ctx context.Context, t *testing.T, at maker, id string) *agentdv1.RunResponse_ErrorResponse {
		ex := execute(llm("root", "echo"), "hi").GetExecute()
		ex.SessionId, ex.Create, ex.OnBusy = &id, true, agentdv1.OnBusy_ON_BUSY_ENQUEUE
		_, err := at.sessions().CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
		return refusalOf(t, err)
	},
	"Run with --create-sessions": func(ctx context.Context, t *testing.T, at maker, id string) *agentdv1.RunResponse_ErrorResponse {
		stream := agentdv1connect.NewAgentdClient(at.client, at.url).Run(ctx)
		req := execute(llm("root", "echo"), "hi")
		req.GetExecute().SessionId = new("run-" + id)
		if err := stream.Send(req); err != nil {
			t.Error(err)
		}
		first, err := stream.Receive()
		if err != nil {
			t.Error(err)
		}
		for err == nil {
			_, err = stream.Receive()
		}
		if err := stream.CloseRequest(); err != nil {
			t.Error(err)
		}
		return first.GetError()
	},
}

// maker says where, as whom and from which session one is made.
type maker struct {
	client    *http.Client
	url, from string
}

func (p maker) sessions() agentdv1connect.SessionServiceClient {
	return agentdv1connect.NewSessionServiceClient(p.client, p.url)
}

func refusalOf(t *testing.T, err error) *agentdv1.RunResponse_ErrorResponse {
	if err == nil {
		return nil
	}
	return details(t, err)
}

// isBound reports whether a refusal is that of one session too many.
func isBound(e *agentdv1.RunResponse_ErrorResponse, most int64) bool {
	return e.GetCode() == agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED && !e.GetRetryable() &&
		e.GetLimit().GetName() == "tenant_sessions" && e.GetLimit().GetValue() == most && e.GetLimit().GetReceived() == most+1
}

// TestTenantSessions: callers at the same time never make more sessions than their tenant may have, in whatever way, also
// after a restart; a session that is deleted makes room for another one.
func TestTenantSessions(t *testing.T) {
	t.Parallel()
	const callers, most = 64, 20
	cfg := daemon.Config{
		DataDir: t.TempDir(), Authenticate: byHeader, CreateSessions: true, LingerTimeout: time.Millisecond,
		Turns: limits.Limits{MaxTenantSessions: most},
	}
	d := start(t, cfg)
	clients := map[string]*http.Client{}
	for _, who := range []string{"ann@acme", "eve@umbrella", "joe"} {
		clients[who] = clientOf(t, who)
	}
	at := func(who, from string) maker { return maker{clients[who], d.URL(), from} }
	c := func(who string) agentdv1connect.SessionServiceClient { return at(who, "").sessions() }
	count := func(who string) int {
		t.Helper()
		return len(call(t, c(who).ListSessions, &agentdv1.ListSessionsRequest{PageSize: 1000}).GetSessions())
	}
	first := call(t, c("ann@acme").CreateSession, &agentdv1.CreateSessionRequest{}).GetSession().GetId()
	var made, refused atomic.Int64
	round := func(who, from, name string) {
		t.Helper()
		var wg sync.WaitGroup
		i := 0
		for range (callers + len(makers) - 1) / len(makers) {
			for how, create := range makers {
				i++
				id := fmt.Sprintf("%s-%d", name, i)
				wg.Go(func() {
					switch e := create(t.Context(), t, at(who, from), id); {
					case e == nil:
						made.Add(1)
					case isBound(e, most):
						refused.Add(1)
					default:
						t.Errorf("%s: %v", how, e)
					}
				})
			}
		}
		wg.Wait()
	}
	round("ann@acme", first, "one")
	if got := count("ann@acme"); made.Load() != most-1 || refused.Load() == 0 || got != most {
		t.Errorf("%d sessions were made and %d refused, %d are listed; want %d", made.Load(), refused.Load(), got, most-1)
	}
	for how, create := range makers {
		if e := create(t.Context(), t, at("ann@acme", first), "late"); !isBound(e, most) {
			t.Errorf("%s above the bound: %v", how, e)
		}
	}
	// A session that exists takes turns, those of others and of callers without a tenant have bounds of their own or none.
	ex := execute(llm("root", "echo"), "hi").GetExecute()
	ex.SessionId, ex.Create = &first, true
	call(t, c("ann@acme").CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex})
	call(t, c("eve@umbrella").CreateSession, &agentdv1.CreateSessionRequest{})
	for range most + 1 {
		call(t, c("joe").CreateSession, &agentdv1.CreateSessionRequest{})
	}

	stop(t, d)
	d = start(t, cfg)
	if e := makers["CreateSession"](t.Context(), t, at("ann@acme", first), ""); !isBound(e, most) {
		t.Errorf("after a restart: %v", e)
	}
	for _, s := range call(t, c("ann@acme").ListSessions, &agentdv1.ListSessionsRequest{PageSize: 3}).GetSessions() {
		call(t, c("ann@acme").DeleteSession, &agentdv1.DeleteSessionRequest{SessionId: s.GetId()})
	}
	left := call(t, c("ann@acme").ListSessions, &agentdv1.ListSessionsRequest{PageSize: 1}).GetSessions()[0].GetId()
	made.Store(0)
	round("ann@acme", left, "two")
	if got := count("ann@acme"); made.Load() != 3 || got != most {
		t.Errorf("after 3 were deleted %d were made, %d are listed", made.Load(), got)
	}
	cfg.Turns.MaxTenantSessions = -1
	if err := d.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	call(t, c("ann@acme").CreateSession, &agentdv1.CreateSessionRequest{})
	cfg.Turns.MaxTenantSessions = 1
	if err := d.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	if e := makers["CreateSession"](t.Context(), t, at("ann@acme", first), ""); !isBound(e, 1) {
		t.Errorf("with a lower bound: %v", e)
	}
}
