package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/issuer"
	"github.com/apzuk3/agentd/session/principal"
)

// authority issues certificates to clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate for a name.
func (a *authority) issue(t *testing.T, name string, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		URIs: []*url.URL{u}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// headed sends headers.
type headed struct {
	headers map[string]string
	next    http.RoundTripper
}

func (h headed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.headers {
		r.Header.Set(name, value)
	}
	return h.next.RoundTrip(r)
}

// gated is a daemon that takes every kind of credential.
type gated struct {
	t      *testing.T
	d      *daemon.Daemon
	dir    string
	issuer *issuer.Issuer
	ca     *authority
	pool   *x509.CertPool
}

func newGated(t *testing.T) *gated {
	t.Helper()
	cert, key, pool := certificate(t)
	g := &gated{t: t, dir: t.TempDir(), issuer: issuer.Start(t), ca: newAuthority(t), pool: pool}
	g.d = start(t, daemon.Config{
		DataDir: g.dir, TenantRequestsPerSecond: 1_000_000, TLSCertFile: cert, TLSKeyFile: key, Scripts: map[string]string{"asks": asks},
		Auth: daemon.Auth{
			Issuer:       &daemon.Issuer{URL: g.issuer.URL, Audience: "agentd", Tenant: "org", Role: "role"},
			ClientCAFile: g.ca.file,
			Proxy: &daemon.Proxy{
				From: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, User: "X-User", Tenant: "X-Tenant", Role: "X-Role",
			},
		},
	})
	return g
}

// with is a client that sends headers, and shows a certificate.
func (g *gated) with(headers map[string]string, certs ...tls.Certificate) *http.Client {
	cfg := &tls.Config{RootCAs: g.pool, Certificates: certs}
	return &http.Client{Transport: headed{headers, transport(g.t, cfg, func(p *http.Protocols) { p.SetHTTP2(true) }).Transport}}
}

func (g *gated) url() string { return strings.Replace(g.d.URL(), "http://", "https://", 1) }

func (g *gated) bearer(token string) *http.Client {
	return g.with(map[string]string{"Authorization": "Bearer " + token})
}

// key makes an API key, beside the daemon.
func (g *gated) key(p principal.Principal) (text, id string) {
	g.t.Helper()
	keys, err := daemon.OpenLedger(g.t.Context(), g.dir, false)
	if err != nil {
		g.t.Fatal(err)
	}
	text, key, _, err := keys.CreateKey(g.t.Context(), p, "")
	if err = errors.Join(err, keys.Close()); err != nil {
		g.t.Fatal(err)
	}
	return text, key.ID
}

func (g *gated) revoke(id string) {
	g.t.Helper()
	keys, err := daemon.OpenLedger(g.t.Context(), g.dir, false)
	if err != nil {
		g.t.Fatal(err)
	}
	_, err = keys.RevokeKey(g.t.Context(), id)
	if err = errors.Join(err, keys.Close()); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gated) claims(p principal.Principal) map[string]any {
	return map[string]any{"sub": p.ID, "org": p.Tenant, "role": p.Role.String(), "aud": "agentd", "exp": time.Now().Add(time.Hour).Unix()}
}

// good are clients of a principal by each kind of credential.
func (g *gated) good(p principal.Principal) map[string]*http.Client {
	key, _ := g.key(p)
	return map[string]*http.Client{
		"key":         g.bearer(key),
		"token":       g.bearer(g.issuer.Token(g.t, g.claims(p))),
		"certificate": g.with(nil, g.ca.issue(g.t, fmt.Sprintf("agentd://%s/%s/%s", p.Tenant, p.Role, p.ID), time.Now().Add(time.Hour))),
		"proxy":       g.with(map[string]string{"X-User": p.ID, "X-Tenant": p.Tenant, "X-Role": p.Role.String()}),
	}
}

// bad are clients whose credentials are refused.
func (g *gated) bad() map[string]*http.Client {
	ann := principal.Principal{ID: "ann", Tenant: "acme", Role: principal.Operator}
	revoked, id := g.key(ann)
	g.revoke(id)
	gone := ann
	gone.Expires = time.Now().Add(-time.Second)
	expired, _ := g.key(gone)
	valid, _ := g.key(ann)
	claims := func(name string, value any) map[string]any {
		all := g.claims(ann)
		all[name] = value
		return all
	}
	return map[string]*http.Client{
		"nothing":                g.with(nil),
		"an expired key":         g.bearer(expired),
		"a revoked key":          g.bearer(revoked),
		"a wrong secret":         g.bearer(valid[:len(valid)-1] + "0"),
		"a key and another":      g.with(map[string]string{"Authorization": "Bearer " + valid[:len(valid)-1] + "0", "X-Api-Key": valid}),
		"an expired token":       g.bearer(g.issuer.Token(g.t, claims("exp", time.Now().Add(-time.Hour).Unix()))),
		"a wrong audience":       g.bearer(g.issuer.Token(g.t, claims("aud", "others"))),
		"a wrong issuer":         g.bearer(g.issuer.Token(g.t, claims("iss", "https://evil.test"))),
		"another issuer's key":   g.bearer(issuer.New(g.t, g.issuer.URL).Token(g.t, g.claims(ann))),
		"a strange role":         g.bearer(g.issuer.Token(g.t, claims("role", "root"))),
		"no principal by proxy":  g.with(map[string]string{"X-Tenant": "acme", "X-Role": "operator"}),
		"a certificate, no name": g.with(nil, g.ca.issue(g.t, "spiffe://acme/ann", time.Now().Add(time.Hour))),
	}
}

// needs says which role each method of the services is for, by called.
var needs = map[string]principal.Role{
	"CreateSession": principal.Caller, "GetSession": principal.Observer, "ListSessions": principal.Observer,
	"UpdateSession": principal.Caller, "CompactSession": principal.Caller, "DeleteSession": principal.Caller, "ForkSession": principal.Caller,
	"CreateTurn": principal.Caller, "GetTurn": principal.Observer, "ListTurns": principal.Observer,
	"CancelTurn": principal.Caller, "CancelToolCall": principal.Caller, "ListTurnEvents": principal.Observer,
	"WatchTurn":         principal.Caller, // without observe
	"ListSessionEvents": principal.Observer, "WatchSession": principal.Observer, "SubmitToolResults": principal.Caller,
	"GetInteraction": principal.Observer, "ListInteractions": principal.Observer, "ResolveInteraction": principal.Caller,
	"RaiseInteraction": principal.Caller,
	"ListModelCalls":   principal.Observer, "GetCapabilities": principal.Observer, "ListSharedState": principal.Operator,
	"SetSharedState": principal.Operator, "RemoveSharedState": principal.Operator, "ListModels": principal.Observer,
	"CreateSessionToken": principal.Caller,
	"ApplyAgent":         principal.Caller, "GetAgent": principal.Observer, "ListAgents": principal.Observer,
	"ArchiveAgent": principal.Caller, "DeleteAgent": principal.Caller,
	"GoalService.Start": principal.Caller, "GoalService.Resume": principal.Caller, "GoalService.Get": principal.Observer,
	"GoalService.List": principal.Observer, "GoalService.Control": principal.Caller, "GoalService.Inject": principal.Caller,
	"ScheduleService.Create": principal.Caller, "ScheduleService.Get": principal.Observer,
	"ScheduleService.List": principal.Observer, "ScheduleService.Delete": principal.Caller,
	"EventService.List": principal.Observer, "EventService.Watch": principal.Observer,
}

// called is the name of a method, with that of its service unless it is SessionService.
func called(m protoreflect.MethodDescriptor) string {
	if service := m.Parent().Name(); service != "SessionService" {
		return string(service) + "." + string(m.Name())
	}
	return string(m.Name())
}

func may(role, need principal.Role) bool {
	return role == principal.Operator || role == need || role == principal.Caller && need == principal.Observer
}

func methods() []protoreflect.MethodDescriptor {
	var out []protoreflect.MethodDescriptor
	for _, service := range []protoreflect.ServiceDescriptor{
		agentdv1.File_agentd_v1_sessions_proto.Services().ByName("SessionService"),
		agentdv1.File_agentd_v1_goals_proto.Services().ByName("GoalService"),
		agentdv1.File_agentd_v1_schedules_proto.Services().ByName("ScheduleService"),
		agentdv1.File_agentd_v1_eventlog_proto.Services().ByName("EventService"),
	} {
		for i := range service.Methods().Len() {
			out = append(out, service.Methods().Get(i))
		}
	}
	return out
}

// outcome is the code of a call; 0 for none. A stream that begins counts as none.
func outcome(t *testing.T, c *http.Client, url string, m protoreflect.MethodDescriptor, req proto.Message) agentdv1.ErrorCode {
	t.Helper()
	err := attempt(t, c, url, m, req)
	if err == nil {
		return 0
	}
	if connect.CodeOf(err) == connect.CodeUnknown || connect.CodeOf(err) == connect.CodeUnavailable {
		t.Errorf("%s: %v", m.Name(), err)
		return 0
	}
	return details(t, err).GetCode()
}

// TestAuthorizationMatrix makes each method with each kind of credential of each role, for a session of its tenant
// and for one of another.
func TestAuthorizationMatrix(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	if len(needs) != len(methods()) {
		t.Fatalf("the table has %d methods of %d", len(needs), len(methods()))
	}
	owner := g.good(principal.Principal{ID: "owner", Tenant: "acme"})["key"]
	sessions := agentdv1connect.NewSessionServiceClient(owner, g.url())
	other := agentdv1connect.NewSessionServiceClient(g.good(principal.Principal{ID: "eve", Tenant: "umbrella"})["key"], g.url())
	foreign := call(t, other.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
	foreign = until(t, other, foreign, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	for _, role := range []principal.Role{principal.Caller, principal.Observer, principal.Operator} {
		for kind, c := range g.good(principal.Principal{ID: "ann", Tenant: "acme", Role: role}) {
			for _, m := range methods() {
				what := fmt.Sprintf("%s as %v by %s", called(m), role, kind)
				own := call(t, sessions.CreateTurn, &agentdv1.CreateTurnRequest{Execute: execute(llm("root", "echo"), "hi").GetExecute()}).GetTurn()
				req, named := filled(m, own.GetSessionId(), own.GetId())
				got := outcome(t, c, g.url(), m, req)
				denied := got == agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED
				if allowed := may(role, needs[called(m)]); denied == allowed || got == agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED || got == agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
					t.Errorf("%s, its own tenant: %v, allowed %v", what, got, allowed)
				}
				if !named {
					continue
				}
				req, _ = filled(m, foreign.GetSessionId(), foreign.GetId())
				want := agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
				if denied {
					want = agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED
				}
				if got := outcome(t, c, g.url(), m, req); got != want {
					t.Errorf("%s, another tenant: %v, want %v", what, got, want)
				}
			}
		}
	}
	if got := call(t, other.GetTurn, &agentdv1.GetTurnRequest{SessionId: foreign.GetSessionId()}).GetTurn(); got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT {
		t.Errorf("the other tenant's turn is %v", got)
	}
	for name, c := range g.bad() {
		for _, m := range methods() {
			req, _ := filled(m, foreign.GetSessionId(), foreign.GetId())
			if got := outcome(t, c, g.url(), m, req); got != agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED {
				t.Errorf("%s with %s: %v", called(m), name, got)
			}
		}
		run := agentdv1connect.NewAgentdClient(c, g.url()).Run(t.Context())
		_ = run.Send(execute(llm("root", "echo"), "hi")) // the refusal may be there before
		if _, err := run.Receive(); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("Run with %s: %v", name, err)
		}
		_ = run.CloseRequest()
		_ = run.CloseResponse()
	}
	for name, cert := range map[string]tls.Certificate{
		"an expired certificate":     g.ca.issue(t, "agentd://acme/operator/ann", time.Now().Add(-time.Hour)),
		"another authority's":        newAuthority(t).issue(t, "agentd://acme/operator/ann", time.Now().Add(time.Hour)),
		"another's, with no name":    newAuthority(t).issue(t, "spiffe://acme/ann", time.Now().Add(time.Hour)),
		"an expired one, by a proxy": g.ca.issue(t, "agentd://acme/operator/ann", time.Now().Add(-time.Minute)),
	} {
		c := agentdv1connect.NewSessionServiceClient(g.with(map[string]string{"X-User": "ann"}, cert), g.url())
		if _, err := c.ListModels(t.Context(), connect.NewRequest(&agentdv1.ListModelsRequest{})); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestStreamMessages sends each message of a client on a stream, with each role and with tokens of the session and of
// another one.
func TestStreamMessages(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	owner := g.good(principal.Principal{ID: "owner", Tenant: "acme"})["key"]
	sessions := agentdv1connect.NewSessionServiceClient(owner, g.url())
	waiting := func() *agentdv1.Turn {
		turn := call(t, sessions.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
		return until(t, sessions, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	}
	token := func(session string, req *agentdv1.CreateSessionTokenRequest) *http.Client {
		req.SessionId = session
		return g.bearer(call(t, sessions.CreateSessionToken, req).GetToken())
	}
	messages := map[string]func(*agentdv1.Turn) *agentdv1.RunRequest{
		"execute": func(turn *agentdv1.Turn) *agentdv1.RunRequest {
			id := turn.GetSessionId()
			return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: &agentdv1.RunRequest_ExecuteRequest{
				SessionId: &id, UserPrompt: "again", OnBusy: agentdv1.OnBusy_ON_BUSY_ENQUEUE,
			}}}
		},
		"execute with a tree": func(turn *agentdv1.Turn) *agentdv1.RunRequest {
			id := turn.GetSessionId()
			req := execute(llm("root", "echo"), "again")
			req.GetExecute().SessionId, req.GetExecute().OnBusy = &id, agentdv1.OnBusy_ON_BUSY_ENQUEUE
			return req
		},
		"execute in a new session": func(*agentdv1.Turn) *agentdv1.RunRequest { return execute(llm("root", "echo"), "again") },
		"attach": func(turn *agentdv1.Turn) *agentdv1.RunRequest {
			return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: &agentdv1.AttachRequest{SessionId: turn.GetSessionId()}}}
		},
		"attach with the tool": func(turn *agentdv1.Turn) *agentdv1.RunRequest {
			return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: &agentdv1.AttachRequest{SessionId: turn.GetSessionId(), ToolNames: []string{"look"}}}}
		},
		"observe": func(turn *agentdv1.Turn) *agentdv1.RunRequest {
			return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: &agentdv1.AttachRequest{SessionId: turn.GetSessionId(), Observe: true}}}
		},
	}
	const denied, unknown = agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
	all := func(code agentdv1.ErrorCode, but map[string]agentdv1.ErrorCode) map[string]agentdv1.ErrorCode {
		out := map[string]agentdv1.ErrorCode{}
		for name := range messages {
			out[name] = code
		}
		maps.Copy(out, but)
		return out
	}
	of := func(role principal.Role, tenant string) func(*agentdv1.Turn) *http.Client {
		c := g.good(principal.Principal{ID: "ann", Tenant: tenant, Role: role})["key"]
		return func(*agentdv1.Turn) *http.Client { return c }
	}
	for who, tt := range map[string]struct {
		client func(*agentdv1.Turn) *http.Client
		want   map[string]agentdv1.ErrorCode
	}{
		"caller":            {of(principal.Caller, "acme"), all(0, nil)},
		"operator":          {of(principal.Operator, "acme"), all(0, nil)},
		"observer":          {of(principal.Observer, "acme"), all(denied, map[string]agentdv1.ErrorCode{"observe": 0})},
		"of another tenant": {of(principal.Operator, "umbrella"), all(unknown, map[string]agentdv1.ErrorCode{"execute in a new session": 0})},
		"token without a tool": {func(turn *agentdv1.Turn) *http.Client {
			return token(turn.GetSessionId(), &agentdv1.CreateSessionTokenRequest{})
		}, all(denied, map[string]agentdv1.ErrorCode{"execute": 0, "attach": 0, "observe": 0})},
		"token with the tool": {func(turn *agentdv1.Turn) *http.Client {
			return token(turn.GetSessionId(), &agentdv1.CreateSessionTokenRequest{ToolNames: []string{"look"}})
		}, all(0, map[string]agentdv1.ErrorCode{"execute with a tree": denied, "execute in a new session": denied})},
		"token with trees": {func(turn *agentdv1.Turn) *http.Client {
			return token(turn.GetSessionId(), &agentdv1.CreateSessionTokenRequest{ToolNames: []string{"look"}, Agents: true})
		}, all(0, map[string]agentdv1.ErrorCode{"execute in a new session": denied})},
		"token that observes": {func(turn *agentdv1.Turn) *http.Client {
			return token(turn.GetSessionId(), &agentdv1.CreateSessionTokenRequest{Observe: true})
		}, all(denied, map[string]agentdv1.ErrorCode{"observe": 0})},
		"token of another session": {func(*agentdv1.Turn) *http.Client {
			return token(waiting().GetSessionId(), &agentdv1.CreateSessionTokenRequest{ToolNames: []string{"look"}, Agents: true})
		}, all(unknown, map[string]agentdv1.ErrorCode{"execute in a new session": denied})},
	} {
		for name, message := range messages {
			turn := waiting()
			run := connectDialer(tt.client(turn), g.url()).open(t, message(turn))
			if got := run.next().GetError().GetCode(); got != tt.want[name] {
				t.Errorf("%s, %s: %v, want %v", who, name, got, tt.want[name])
			}
		}
	}
	for who, tt := range map[string]struct {
		tools []string
		want  agentdv1.ErrorCode
	}{"the tool": {[]string{"look"}, 0}, "another tool": {[]string{"other"}, denied}} {
		turn := waiting()
		c := token(turn.GetSessionId(), &agentdv1.CreateSessionTokenRequest{ToolNames: tt.tools})
		id := turn.GetPendingToolCalls()[0].GetToolCallId()
		result := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: id, Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "a hill"}}
		resp := call(t, agentdv1connect.NewSessionServiceClient(c, g.url()).SubmitToolResults, &agentdv1.SubmitToolResultsRequest{
			SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{result},
		})
		var got agentdv1.ErrorCode
		if len(resp.GetRefused()) > 0 {
			got = resp.GetRefused()[0].GetError().GetCode()
		}
		if got != tt.want {
			t.Errorf("a result of look with a token for %s: %v, want %v", who, resp, tt.want)
		}
		turn = waiting()
		run := connectDialer(token(turn.GetSessionId(), &agentdv1.CreateSessionTokenRequest{ToolNames: tt.tools}), g.url()).open(t, messages["attach"](turn))
		result.ToolCallId = turn.GetPendingToolCalls()[0].GetToolCallId()
		run.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: result}})
		for msg := run.next(); ; msg = run.next() {
			if e := msg.GetError(); e != nil || msg.GetEnd() != nil {
				if e.GetCode() != tt.want {
					t.Errorf("a result on a stream, with a token for %s: %v, want %v", who, msg, tt.want)
				}
				break
			}
		}
	}
}

// TestSessionTokens: with a token no other session exists, and it makes nothing.
func TestSessionTokens(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	key, keyID := g.key(principal.Principal{ID: "shop", Tenant: "acme"})
	maker := agentdv1connect.NewSessionServiceClient(g.bearer(key), g.url())
	own := call(t, maker.CreateTurn, &agentdv1.CreateTurnRequest{Execute: execute(llm("root", "echo"), "hi").GetExecute()}).GetTurn()
	call(t, maker.CreateTurn, &agentdv1.CreateTurnRequest{Execute: execute(llm("root", "echo"), "hi").GetExecute()})
	made := call(t, maker.CreateSessionToken, &agentdv1.CreateSessionTokenRequest{SessionId: own.GetSessionId(), Lifetime: durationpb.New(time.Minute)})
	if left := time.Until(made.GetExpireTime().AsTime()); left < 30*time.Second || left > time.Minute {
		t.Errorf("the token ends in %v, want a minute", left)
	}
	page := g.bearer(made.GetToken())
	c := agentdv1connect.NewSessionServiceClient(page, g.url())
	allowed := []string{
		"GetSession", "CreateTurn", "GetTurn", "ListTurns", "CancelTurn", "CancelToolCall", "ListTurnEvents", "WatchTurn", "ListSessionEvents",
		"CompactSession", "WatchSession", "SubmitToolResults", "GetInteraction", "ListInteractions", "ResolveInteraction", "RaiseInteraction", "GetCapabilities", "ListModels",
		"GoalService.Get", "GoalService.List", "GoalService.Control", "GoalService.Inject",
	}
	for _, m := range methods() {
		req, _ := filled(m, own.GetSessionId(), own.GetId())
		if m.Name() == "CreateTurn" {
			req.(*agentdv1.CreateTurnRequest).Execute.Agent = nil
		}
		got := outcome(t, page, g.url(), m, req)
		if (got == agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED) == slices.Contains(allowed, called(m)) {
			t.Errorf("%s with a token: %v", called(m), got)
		}
	}
	for field, change := range map[string]func(ex *agentdv1.RunRequest_ExecuteRequest){
		"fork":     func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.Fork = true },
		"labels":   func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.Labels = map[string]string{"a": "b"} },
		"metadata": func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.Metadata = map[string]string{"a": "b"} },
		"instruction_mode": func(ex *agentdv1.RunRequest_ExecuteRequest) {
			ex.Instruction, ex.InstructionMode = "x", agentdv1.InstructionMode_INSTRUCTION_MODE_REPLACE
		},
	} {
		ex := execute(nil, "hi").GetExecute()
		ex.SessionId = new(own.GetSessionId())
		change(ex)
		_, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
		if e := details(t, err); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED || e.GetViolations()[0].GetField() != "execute."+field {
			t.Errorf("a turn with %s: %v", field, e)
		}
	}
	if turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{}).GetTurns(); len(turns) != 2 || turns[0].GetSessionId() != own.GetSessionId() || turns[0].GetCreatedBy() != "shop" {
		t.Errorf("a token lists %v", turns)
	}
	g.revoke(keyID)
	time.Sleep(2 * time.Second) // auth.Freshness
	for name, c := range map[string]agentdv1connect.SessionServiceClient{"the key": maker, "the token that was made with it": c} {
		if _, err := c.GetSession(t.Context(), connect.NewRequest(&agentdv1.GetSessionRequest{SessionId: own.GetSessionId()})); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("after the key was revoked, %s: %v", name, err)
		}
	}
}
