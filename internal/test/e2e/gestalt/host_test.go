// Package gestalt tests agentd gestalt-provider as a host sees it: a double of the host starts the program, speaks gRPC
// with it by grpc-go, and looks at all that it says.
package gestalt_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
	"github.com/apzuk3/agentd/internal/test/testmain"
)

func TestMain(m *testing.M) {
	if did, err := standIn(os.Args[1:]); did {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testmain.Run(m)
}

// program is built once for all tests.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentd-gestalt-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "agentd")
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s -w"}, raceFlags...)
	out, err := exec.CommandContext(context.Background(), "go", append(args, "-o", bin, "github.com/apzuk3/agentd/cmd/agentd")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return bin, nil
})

// host is a double of a Gestalt host with one provider.
type host struct {
	t      *testing.T
	dir    string
	env    map[string]string
	config map[string]any

	tools  []*gestaltv1.ListedAgentTool
	paged  int // tools of a page, whatever is asked for
	server *grpc.Server
	// execute is what tools do; the default answers 200 and "ok".
	execute func(context.Context, *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error)
	// hold keeps ListTools waiting until it is closed; nil does not.
	hold chan struct{}
	// holdFirst keeps the turn t0 waiting.
	holdFirst chan struct{}
	// refuse is what ListTools says in place of tools.
	refuse error

	mu       sync.Mutex
	provider *provider
	subjects map[string]string // of turns
	grants   map[string]string // of turns; one that is not there is over
	executed []*gestaltv1.ExecuteToolRequest
	traces   []string       // of executed
	starting bool           // callbacks are refused, and the provider is not asked
	early    map[string]int // how many were, by their turns
	revoked  string         // a turn whose grant tools do not take
	listed   []*gestaltv1.ListToolsRequest
	seen     []gestaltv1.AgentExecutionStatus // how turns were when the host was called back
	talk     *transcript                      // nil: nothing is written down
}

// provider is a process of agentd.
type provider struct {
	cmd    *exec.Cmd
	conn   *grpc.ClientConn
	stderr *output
	ended  chan struct{} // closed when the process has ended
	err    error         // how; to be read then
}

// output is what a process writes. Its methods may be called from any goroutine.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// newHost is a host whose provider has agents and scripts, by their names.
func newHost(t *testing.T, agents string, scripts map[string]string) *host {
	t.Helper()
	h := &host{
		t: t, dir: t.TempDir(), paged: 100,
		subjects: map[string]string{}, grants: map[string]string{}, early: map[string]int{},
		execute: func(context.Context, *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
			return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "ok"}, nil
		},
	}
	h.write("agents.yaml", agents)
	if err := os.Mkdir(filepath.Join(h.dir, "scripts"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range scripts {
		h.write(filepath.Join("scripts", name+".yaml"), text)
	}
	h.config = map[string]any{"agents": h.path("agents.yaml"), "data": h.path("data")}
	h.env = map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": h.dir, "TMPDIR": h.dir, "AGENTD_SCRIPTS": h.path("scripts"),
		"GESTALT_PLUGIN_SOCKET": h.path("p.sock"), "GESTALT_PLUGIN_NAME": "agentd",
		"GESTALT_PLUGIN_PARENT_PID": strconv.Itoa(os.Getpid()), "GESTALT_AGENT_HOST_SOCKET": h.path("h.sock"),
	}
	h.serve()
	t.Cleanup(func() {
		if p := h.current(); p != nil {
			h.kill()
		}
		h.server.Stop()
		if p := h.current(); t.Failed() && p != nil {
			text := p.stderr.String()
			t.Logf("the log of the last process ends with:\n%s", text[max(0, len(text)-4000):])
		}
	})
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) current() *provider {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.provider
}

// serve serves AgentHost.
func (h *host) serve() {
	h.t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(h.t.Context(), "unix", h.path("h.sock"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.server = grpc.NewServer()
	h.server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "gestalt.provider.v1.AgentHost", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "ListTools", Handler: unary(h.ListTools)},
			{MethodName: "ExecuteTool", Handler: unary(h.ExecuteTool)},
		},
	}, h)
	go func() { _ = h.server.Serve(l) }()
}

// unary is a handler of grpc-go.
func unary[Req, Reply any, P interface {
	*Req
	proto.Message
}](f func(context.Context, *Req) (*Reply, error)) func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		req := P(new(Req))
		if err := decode(req); err != nil {
			return nil, err
		}
		return f(ctx, (*Req)(req))
	}
}

// allowed is what a host does before it serves a callback: it asks the provider for the turn.
func (h *host) allowed(ctx context.Context, session, turn, grant string) error {
	h.mu.Lock()
	want, ok := h.grants[turn]
	subject, starting := h.subjects[turn], h.starting
	if starting {
		h.early[turn]++
	}
	h.mu.Unlock()
	if starting {
		return status.Error(codes.PermissionDenied, "the provider is not available for the grant")
	}
	if !ok || grant != want {
		return status.Errorf(codes.PermissionDenied, "the grant %q is not valid", grant)
	}
	got := &gestaltv1.AgentTurn{}
	if err := h.call(ctx, "AgentProvider/GetTurn", &gestaltv1.GetTurnRequest{TurnId: turn, Subject: of(subject)}, got); err != nil {
		return status.Errorf(codes.PermissionDenied, "the turn: %v", err)
	}
	h.mu.Lock()
	h.seen = append(h.seen, got.GetStatus())
	h.mu.Unlock()
	switch got.GetStatus() {
	case gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_PENDING,
		gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_RUNNING,
		gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_WAITING_FOR_INPUT:
	default:
		return status.Errorf(codes.PermissionDenied, "the turn is %v", got.GetStatus())
	}
	if got.GetSessionId() != session {
		return status.Errorf(codes.PermissionDenied, "the turn is of session %q, want %q", got.GetSessionId(), session)
	}
	return nil
}

func (h *host) ListTools(ctx context.Context, req *gestaltv1.ListToolsRequest) (*gestaltv1.ListToolsResponse, error) {
	h.mu.Lock()
	h.listed = append(h.listed, req)
	h.mu.Unlock()
	if err := h.allowed(ctx, req.GetSessionId(), req.GetTurnId(), req.GetRunGrant()); err != nil {
		return nil, err
	}
	if h.refuse != nil {
		return nil, h.refuse
	}
	hold := h.hold
	if h.holdFirst != nil && req.GetTurnId() == "t0" {
		hold = h.holdFirst
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	from := 0
	if req.GetPageToken() != "" {
		if _, err := fmt.Sscanf(req.GetPageToken(), "from-%d", &from); err != nil {
			return nil, status.Error(codes.InvalidArgument, "page_token")
		}
	}
	to := min(from+min(h.paged, int(req.GetPageSize())), len(h.tools))
	out := &gestaltv1.ListToolsResponse{Tools: h.tools[from:to]}
	if to < len(h.tools) {
		out.NextPageToken = fmt.Sprintf("from-%d", to)
	}
	h.note("agentd -> AgentHost.ListTools", req, out, nil)
	return out, nil
}

func (h *host) ExecuteTool(ctx context.Context, req *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	h.mu.Lock()
	h.executed = append(h.executed, req)
	if req.GetTurnId() == h.revoked {
		delete(h.grants, h.revoked)
	}
	h.traces = append(h.traces, fmt.Sprint(md.Get("traceparent")))
	h.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok {
		h.t.Error("a tool call has no deadline")
	}
	if err := h.allowed(ctx, req.GetSessionId(), req.GetTurnId(), req.GetRunGrant()); err != nil {
		return nil, err
	}
	h.mu.Lock()
	execute := h.execute
	h.mu.Unlock()
	out, err := execute(ctx, req)
	h.note("agentd -> AgentHost.ExecuteTool", req, out, err)
	return out, err
}

// start starts the provider and shakes hands with it.
func (h *host) start() {
	h.t.Helper()
	h.launch()
	h.reach()
	h.handshake()
}

// launch starts the process.
func (h *host) launch() {
	h.t.Helper()
	bin, err := program()
	if err != nil {
		h.t.Fatal(err)
	}
	p := &provider{cmd: exec.Command(bin, "gestalt-provider"), stderr: &output{}, ended: make(chan struct{})}
	for name, value := range h.env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Dir, p.cmd.Stderr, p.cmd.Stdout = h.dir, p.stderr, p.stderr
	if err := p.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	p.conn, err = grpc.NewClient("unix:"+h.env["GESTALT_PLUGIN_SOCKET"], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	h.provider = p
	h.mu.Unlock()
}

// reach waits until the process serves.
func (h *host) reach() {
	h.t.Helper()
	p := h.current()
	h.await("the socket", func() bool {
		select {
		case <-p.ended:
			h.t.Fatalf("the provider has ended: %v", p.err)
		default:
		}
		return h.call(h.t.Context(), "ProviderLifecycle/GetProviderIdentity", &emptypb.Empty{}, &gestaltv1.ProviderIdentity{}) == nil
	})
}

func (h *host) handshake() {
	h.t.Helper()
	identity := &gestaltv1.ProviderIdentity{}
	h.must("ProviderLifecycle/GetProviderIdentity", &emptypb.Empty{}, identity)
	if identity.GetKind() != gestaltv1.ProviderKind_PROVIDER_KIND_AGENT || identity.GetMinProtocolVersion() > 3 || identity.GetMaxProtocolVersion() < 3 {
		h.t.Fatalf("identity: %v", identity)
	}
	configured := &gestaltv1.ConfigureProviderResponse{}
	h.must("ProviderLifecycle/ConfigureProvider", h.configuration(), configured)
	if configured.GetProtocolVersion() != 3 {
		h.t.Fatalf("configured: %v", configured)
	}
	h.must("ProviderLifecycle/GetProviderIdentity", &emptypb.Empty{}, &gestaltv1.ProviderIdentity{})
	h.must("ProviderLifecycle/StartProvider", &emptypb.Empty{}, &gestaltv1.StartRuntimeProviderResponse{})
	health := &gestaltv1.HealthCheckResponse{}
	h.must("ProviderLifecycle/HealthCheck", &emptypb.Empty{}, health)
	if !health.GetReady() {
		h.t.Fatalf("health: %v", health)
	}
	h.must("AgentProvider/GetCapabilities", &gestaltv1.GetCapabilitiesRequest{}, &gestaltv1.AgentProviderCapabilities{})
}

func (h *host) configuration() *gestaltv1.ConfigureProviderRequest {
	config, err := structpb.NewStruct(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	return &gestaltv1.ConfigureProviderRequest{Name: h.env["GESTALT_PLUGIN_NAME"], Config: config, ProtocolVersion: 3}
}

// call calls a method of the provider, as the host does: with its deadline.
func (h *host) call(ctx context.Context, method string, req, reply proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return h.current().conn.Invoke(ctx, "/gestalt.provider.v1."+method, req, reply)
}

// must calls a method that has to succeed, and writes it down.
func (h *host) must(method string, req, reply proto.Message) {
	h.t.Helper()
	if h.talk != nil { // what the host is asked meanwhile comes later
		h.talk.mu.Lock()
		defer h.talk.mu.Unlock()
	}
	err := h.call(h.t.Context(), method, req, reply)
	h.talk.note("host -> "+method, req, reply, err)
	if err != nil {
		h.t.Fatalf("%s: %v", method, err)
	}
}

// refused calls a method that has to be refused, and returns the text.
func (h *host) refused(method string, req proto.Message, want codes.Code) string {
	h.t.Helper()
	err := h.call(h.t.Context(), method, req, &emptypb.Empty{})
	if got := status.Code(err); got != want {
		h.t.Errorf("%s %v: %v (%v), want %v", method, req, got, err, want)
	}
	return status.Convert(err).Message()
}

// kill ends the process as a crash does.
func (h *host) kill() {
	h.t.Helper()
	p := h.current()
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-p.ended
	_ = p.conn.Close()
}

// stop ends the process as a host does. It has to end by itself; how long it may take is that of TestStopWithin.
func (h *host) stop() {
	h.t.Helper()
	if err := h.current().cmd.Process.Signal(syscall.SIGTERM); err != nil {
		h.t.Fatal(err)
	}
	h.ends()
}

// ends waits until the process has ended by itself, and checks how.
func (h *host) ends() {
	h.t.Helper()
	p := h.current()
	h.await("the process ends", func() bool {
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	if p.err != nil {
		h.t.Errorf("the provider has ended with %v", p.err)
	}
	_ = p.conn.Close()
}

// await waits until something is so.
func (h *host) await(what string, so func() bool) {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("%s: not within a minute", what)
		}
	}
}

func of(subject string) *gestaltv1.AgentSubjectContext {
	return &gestaltv1.AgentSubjectContext{SubjectId: subject, SubjectKind: "user", DisplayName: "Ann", AuthSource: "test"}
}

func actor(subject string) *gestaltv1.AgentActor {
	return &gestaltv1.AgentActor{SubjectId: subject, SubjectKind: "user", DisplayName: "Ann", AuthSource: "test"}
}

func says(text string) []*gestaltv1.AgentMessage {
	return []*gestaltv1.AgentMessage{{Role: "user", Text: text}}
}

// session makes a session.
func (h *host) session(id, subject, model string) *gestaltv1.AgentSession {
	h.t.Helper()
	out := &gestaltv1.AgentSession{}
	h.must("AgentProvider/CreateSession", &gestaltv1.CreateSessionRequest{
		SessionId: id, Model: model, ClientRef: "r1", CreatedBy: actor(subject), Subject: of(subject),
	}, out)
	return out
}

// prompt makes a turn, with a grant of its own.
func (h *host) prompt(req *gestaltv1.CreateTurnRequest) *gestaltv1.AgentTurn {
	h.t.Helper()
	h.granted(req)
	out := &gestaltv1.AgentTurn{}
	h.must("AgentProvider/CreateTurn", req, out)
	return out
}

// granted fills in what a host says of each turn.
func (h *host) granted(req *gestaltv1.CreateTurnRequest) {
	subject := "user:ann"
	if req.GetSubject() != nil {
		subject = req.GetSubject().GetSubjectId()
	}
	req.Subject, req.CreatedBy, req.ExecutionRef = of(subject), actor(subject), req.GetTurnId()
	req.ToolSource, req.RunGrant = gestaltv1.AgentToolSourceMode_AGENT_TOOL_SOURCE_MODE_MCP_CATALOG, "grant-of-"+req.GetTurnId()
	if req.GetMessages() == nil {
		req.Messages = says("hi")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subjects[req.GetTurnId()], h.grants[req.GetTurnId()] = subject, req.GetRunGrant()
}

func (h *host) turn(id string) *gestaltv1.AgentTurn {
	h.t.Helper()
	h.mu.Lock()
	subject := h.subjects[id]
	h.mu.Unlock()
	out := &gestaltv1.AgentTurn{}
	if err := h.call(h.t.Context(), "AgentProvider/GetTurn", &gestaltv1.GetTurnRequest{TurnId: id, Subject: of(subject)}, out); err != nil {
		h.t.Fatal(err)
	}
	return out
}

// until waits until a turn has a status.
func (h *host) until(id string, want gestaltv1.AgentExecutionStatus) (out *gestaltv1.AgentTurn) {
	h.t.Helper()
	h.await(fmt.Sprintf("turn %s is %v", id, want), func() bool {
		out = h.turn(id)
		if out.GetCompletedAt() != nil && out.GetStatus() != want {
			h.t.Fatalf("turn %s is %v: %s", id, out.GetStatus(), out.GetStatusMessage())
		}
		return out.GetStatus() == want
	})
	return out
}

// events lists the events of a turn after a number.
func (h *host) events(id string, after int64, limit int32) []*gestaltv1.AgentTurnEvent {
	h.t.Helper()
	out := &gestaltv1.ListTurnEventsResponse{}
	h.mu.Lock()
	subject := h.subjects[id]
	h.mu.Unlock()
	req := &gestaltv1.ListTurnEventsRequest{TurnId: id, AfterSeq: after, Limit: limit, Subject: of(subject)}
	if err := h.call(h.t.Context(), "AgentProvider/ListTurnEvents", req, out); err != nil {
		h.t.Fatal(err)
	}
	return out.GetEvents()
}

// revoke has the host take the grant of a turn no more, once its tools are listed.
func (h *host) revoke(turn string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revoked = turn
}

// starts has the host refuse callbacks, as one does that has not taken the provider in yet, or serve them.
func (h *host) starts(does bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starting = does
}

// executes sets what tools do from now on.
func (h *host) executes(f func(context.Context, *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.execute = f
}

// calls returns what tools were executed, by the ids of the calls.
func (h *host) calls() map[string][]*gestaltv1.ExecuteToolRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string][]*gestaltv1.ExecuteToolRequest{}
	for _, e := range h.executed {
		out[e.GetToolCallId()] = append(out[e.GetToolCallId()], e)
	}
	return maps.Clone(out)
}

const (
	pending   = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_PENDING
	running   = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_RUNNING
	succeeded = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_SUCCEEDED
	failed    = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_FAILED
	canceled  = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_CANCELED
	waiting   = gestaltv1.AgentExecutionStatus_AGENT_EXECUTION_STATUS_WAITING_FOR_INPUT
)
