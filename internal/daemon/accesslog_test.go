package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/principal"
)

// byWord takes callers at their word.
func byWord(r *http.Request) (principal.Principal, error) {
	who := r.Header.Get("X-Who")
	if who == "" || strings.HasPrefix(who, "evil") {
		return principal.Principal{}, errors.New("unknown caller " + who)
	}
	return principal.Principal{ID: who, Tenant: "acme"}, nil
}

// whoTransport says who calls.
type whoTransport struct {
	who  string
	next http.RoundTripper
}

func (t whoTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Who", t.who)
	return t.next.RoundTrip(r)
}

// endedCalls returns the lines about calls, once there are so many.
func endedCalls(t *testing.T, log *buffer, want int) (lines []map[string]any) {
	t.Helper()
	for range 500 { // a line is written after the reply
		lines = nil
		for line := range strings.Lines(log.String()) {
			entry := map[string]any{}
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("a line that is no JSON: %q", line)
			}
			if entry["msg"] == "call ended" {
				lines = append(lines, entry)
			}
		}
		if len(lines) >= want {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if len(lines) != want {
		t.Fatalf("%d lines, want %d: %v", len(lines), want, log)
	}
	return lines
}

// TestCallsAreLogged: each call has one line that says who called what about which turn, and what came of it.
func TestCallsAreLogged(t *testing.T) {
	log := &buffer{}
	d := start(t, daemon.Config{
		Logger: slog.New(slog.NewJSONHandler(log, nil)), Authenticate: byWord, MaxMessageBytes: 64 << 10,
	})
	hc := h2c(t)
	as := func(who string) *http.Client { return &http.Client{Transport: whoTransport{who, hc.Transport}} }
	for name, wire := range map[string][]connect.ClientOption{
		"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Count(log.String(), "call ended")
			sessions := agentdv1connect.NewSessionServiceClient(as("ann"), d.URL(), wire...)
			turn := call(t, sessions.CreateTurn, &agentdv1.CreateTurnRequest{Execute: execute(llm("root", "echo"), "hi").GetExecute()}).GetTurn()
			_, err := sessions.GetSession(t.Context(), connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: "nobody"}))
			if connect.CodeOf(err) != connect.CodeNotFound {
				t.Fatal(err)
			}
			_, err = sessions.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{ClientRef: strings.Repeat("x", 100<<10)}))
			if connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Fatal(err)
			}
			_, err = agentdv1connect.NewSessionServiceClient(as("evil\tone"), d.URL(), wire...).ListModels(t.Context(), connect.NewRequest(&agentdv1.ListModelsRequest{}))
			if connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Fatal(err)
			}
			watch, err := sessions.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}))
			if err != nil {
				t.Fatal(err)
			}
			for watch.Receive() {
				continue
			}
			if err := watch.Close(); err != nil {
				t.Fatal(err)
			}
			lines := endedCalls(t, log, before+5)[before:]
			for i, want := range []struct{ method, code, principal, session, turn string }{
				{"SessionService/CreateTurn", "ok", "ann", turn.GetSessionId(), turn.GetId()},
				{"SessionService/GetSession", "not_found", "ann", "nobody", ""},
				{"SessionService/CreateSession", "resource_exhausted", "ann", "", ""},
				{"SessionService/ListModels", "unauthenticated", "", "", ""},
				{"SessionService/WatchTurn", "ok", "ann", turn.GetSessionId(), turn.GetId()},
			} {
				line := lines[i]
				for key, value := range map[string]string{
					"level": "INFO", "method": want.method, "code": want.code, "principal": want.principal, "session": want.session, "turn": want.turn,
				} {
					if got, _ := line[key].(string); got != value {
						t.Errorf("%s: %s is %q, want %q", want.method, key, got, value)
					}
				}
				if from, _ := line["from"].(string); !strings.HasPrefix(from, "127.0.0.1:") {
					t.Errorf("%s: from %q", want.method, from)
				}
				if n, _ := line["bytes_out"].(float64); n <= 0 && want.code == "ok" {
					t.Errorf("%s: %v bytes", want.method, line)
				}
			}
		})
	}
}

// TestRunIsLogged: a stream has one line, with what came of its turn.
func TestRunIsLogged(t *testing.T) {
	log := &buffer{}
	d := start(t, daemon.Config{Logger: slog.New(slog.NewJSONHandler(log, nil))})
	run := connectDialer(h2c(t), d.URL()).open(t, execute(llm("root", "echo"), "hi"))
	run.rest()
	refused := connectDialer(h2c(t), d.URL()).open(t, execute(llm("root", "no-such/model"), "hi"))
	refused.next()
	refused.drop()
	lines := endedCalls(t, log, 2)
	if l := lines[0]; l["method"] != "Agentd/Run" || l["code"] != "ok" || l["outcome"] != "completed" || l["session"] != run.session() || l["model_calls"] != 1.0 {
		t.Errorf("got %v", l)
	}
	if l := lines[1]; l["outcome"] != "refused" || l["code"] != "unavailable" || l["error_code"] != "ERROR_CODE_MODEL_UNAVAILABLE" {
		t.Errorf("got %v", l)
	}
}

// TestLogLinesAreWhole: what a caller sends neither begins a line of its own, nor makes one endless; probes of health
// and reflection have none.
func TestLogLinesAreWhole(t *testing.T) {
	log := &buffer{}
	d := start(t, daemon.Config{Logger: slog.New(slog.NewTextHandler(log, nil)), Authenticate: byWord})
	get := func(path string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL()+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if path == "/healthz" {
			req.Method = http.MethodGet
		}
		req.Header.Set("X-Who", "ann")
		req.Header.Set("Content-Type", "application/json")
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	const forged = "x\nlevel=ERROR msg=forged"
	get("/agentd.v1.SessionService/x%0Alevel=ERROR%20msg=forged")
	get("/agentd.v1.SessionService/" + strings.Repeat("y", 10_000))
	get("/healthz")
	get("/grpc.health.v1.Health/Check")
	get("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
	sessions := agentdv1connect.NewSessionServiceClient(&http.Client{Transport: whoTransport{"ann", http.DefaultTransport}}, d.URL())
	_, _ = sessions.GetSession(t.Context(), connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: forged}))
	http.DefaultClient.CloseIdleConnections()
	if err := d.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	calls := 0
	for line := range strings.Lines(log.String()) {
		if !strings.HasPrefix(line, "time=") || strings.Contains(line, " level=ERROR") && !strings.Contains(line, `\nlevel=ERROR`) || len(line) > 2000 {
			t.Errorf("the log has %q", line)
		}
		if strings.Contains(line, `msg="call ended"`) {
			calls++
		}
	}
	if calls != 3 {
		t.Errorf("%d calls are logged, want 3: %s", calls, log)
	}
}
