package gestalt

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
	"github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1/gestaltv1connect"
)

const (
	// toolPage is how many tools are asked for at once.
	toolPage = 100
	// maxTools is how many tools a turn may have; the daemon has the same.
	maxTools = 512
	// maxDescription and maxSchema are the daemon's, in bytes.
	maxDescription, maxSchema = 16384, 32768
	// maxName is how long the name of a tool may be.
	maxName = 64
	// toolTimeout bounds a tool call that the file says nothing of.
	toolTimeout = 10 * time.Minute
	// listTimeout bounds one request for a page of tools.
	listTimeout = 30 * time.Second
	// toolMargin is how much longer the daemon waits for a result, so that the model reads why there is none.
	toolMargin = 2 * time.Second
	// maxReply is the size of the largest message of the host, in bytes.
	maxReply = 4 << 20
	// tokenHeader has the token of a relay.
	tokenHeader = "x-gestalt-host-service-relay-token" //nolint:gosec // it is the name of one
)

// hostTool is a tool of the host as a turn has it.
type hostTool struct {
	// Name is what models call it, ID what the host does.
	Name        string `json:"name"`
	ID          string `json:"id"`
	Description string `json:"description"`
	Schema      string `json:"schema,omitempty"` // JSON text
	// Timeout bounds a call.
	Timeout time.Duration `json:"timeout"`
}

func (h *hostTool) serverTimeout() *durationpb.Duration {
	return durationpb.New(min(h.Timeout+toolMargin, 24*time.Hour))
}

// newHost returns AgentHost of an environment, and its transport; nil without an address.
func newHost(e *Environment) (gestaltv1connect.AgentHostClient, *http.Transport, error) {
	if e.Host == "" {
		return nil, nil, nil
	}
	protocols := new(http.Protocols)
	transport := &http.Transport{
		Protocols: protocols,
		// A host that vanished without a word is noticed by pings alone.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
	base := "http://localhost"
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	switch scheme, address, relayed := strings.Cut(e.Host, "://"); {
	case !relayed:
		protocols.SetUnencryptedHTTP2(true)
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", e.Host)
		}
	case scheme == "tcp":
		protocols.SetUnencryptedHTTP2(true)
		transport.DialContext, base = dialer.DialContext, "http://"+address
	case scheme == "tls":
		protocols.SetHTTP2(true)
		transport.DialContext, base = dialer.DialContext, "https://"+address
		var err error
		if transport.TLSClientConfig, err = tlsConfig(e.CA); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, fmt.Errorf("GESTALT_AGENT_HOST_SOCKET is %q, want a path, tcp://HOST:PORT or tls://HOST:PORT",
			e.Host)
	}
	return gestaltv1connect.NewAgentHostClient(&http.Client{Transport: transport}, base,
		connect.WithGRPC(), connect.WithReadMaxBytes(maxReply)), transport, nil
}

func tlsConfig(ca string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return cfg, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("GESTALT_HOST_SERVICE_TLS_CA_FILE or _PEM has no certificate, PEM")
	}
	cfg.RootCAs = pool
	return cfg, nil
}

// toHost is a request to the host, as part of a trace.
func toHost[T any](p *Provider, msg *T, trace, state string) *connect.Request[T] {
	req := connect.NewRequest(msg)
	for name, value := range map[string]string{
		tokenHeader: p.cfg.Env.Token, "traceparent": trace, "tracestate": state,
	} {
		if value != "" {
			req.Header().Set(name, value)
		}
	}
	return req
}

// listTools asks the host for the tools of a turn, page by page. given are those that came with the turn.
func (p *Provider) listTools(
	ctx context.Context, t *Turn, given []*gestaltv1.ResolvedAgentTool,
) ([]hostTool, error) {
	c := &catalog{trees: p.now().trees, log: p.log, names: map[string]bool{}, ids: map[string]bool{}}
	for _, tool := range given {
		schema := ""
		if tool.GetParametersSchema() != nil {
			text, err := protojson.MarshalOptions{}.Marshal(tool.GetParametersSchema())
			if err != nil {
				return nil, fmt.Errorf("the schema of tool %q cannot be read: %w", tool.GetName(), err)
			}
			schema = string(text)
		}
		c.add(tool.GetId(), tool.GetName(), tool.GetDescription(), schema)
	}
	if p.host == nil {
		return c.tools, nil
	}
	grant, err := p.store.Grant(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	for page := ""; ; {
		reply, err := p.listPage(ctx, t, &gestaltv1.ListToolsRequest{
			SessionId: t.SessionID, TurnId: t.ID, PageSize: toolPage, PageToken: page, RunGrant: grant,
		})
		switch code := connect.CodeOf(err); {
		case err == nil:
		case page == "" && (code == connect.CodeUnimplemented || code == connect.CodeFailedPrecondition):
			return c.tools, nil // the host has no tools for agents
		default:
			return nil, fmt.Errorf("the host does not list its tools: %s", textOf(err))
		}
		for _, tool := range reply.GetTools() {
			about := cmp.Or(tool.GetDescription(), tool.GetTitle(), tool.GetMcpName())
			c.add(tool.GetId(), tool.GetMcpName(), about, tool.GetInputSchema())
		}
		next := reply.GetNextPageToken()
		switch {
		case len(c.tools) > maxTools:
			return nil, fmt.Errorf("the host has more than %d tools for the turn", maxTools)
		case next == "":
			return c.tools, nil
		case next == page:
			return nil, errors.New("the host does not list its tools: a page follows itself")
		}
		page = next
	}
}

// listPage asks for one page, a few times if the host may answer later.
func (p *Provider) listPage(
	ctx context.Context, t *Turn, msg *gestaltv1.ListToolsRequest,
) (*gestaltv1.ListToolsResponse, error) {
	for try := 0; ; try++ {
		starts := !p.heard.Load()
		within, cancel := context.WithTimeout(ctx, listTimeout)
		reply, err := p.host.ListTools(within, toHost(p, msg, t.Trace, ""))
		cancel()
		if err == nil {
			return reply.Msg, nil
		}
		if ctx.Err() != nil || !later(err, starts) || !p.pause(ctx, try) {
			return nil, err
		}
	}
}

// hostTries is how often the host is asked that may answer later.
const hostTries = 8

// later reports whether the host may do later what it has refused. It cannot be reached, or it stops, and gives up what
// it does. One that starts refuses all until it has taken the provider in: it does not say when, but has once it calls.
func later(err error, starts bool) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeCanceled:
		return true
	case connect.CodePermissionDenied:
		return starts
	default:
		return false
	}
}

// pause waits before the next try, longer after each, and reports whether there is one.
func (p *Provider) pause(ctx context.Context, try int) bool {
	if try+1 >= hostTries {
		return false
	}
	timer := time.NewTimer(min(100*time.Millisecond<<try, 2*time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// catalog gathers the tools of a turn.
type catalog struct {
	trees      *trees
	log        *slog.Logger
	tools      []hostTool
	names, ids map[string]bool
}

// unnamed matches what the name of a tool must not have.
var unnamed = regexp.MustCompile(`[^A-Za-z0-9_.:-]`)

// add adds a tool, under a name that models can call it by.
func (c *catalog) add(id, name, about, schema string) {
	if id == "" || name == "" || c.ids[id] {
		return
	}
	switch {
	case len(schema) > maxSchema:
		c.log.Warn("a tool of the host is left out: its schema is too large",
			slog.String("tool", name), slog.Int("bytes", len(schema)), slog.Int("most", maxSchema))
		return
	case schema != "" && !isObject(schema):
		c.log.Warn("a tool of the host is left out: its schema is no JSON object", slog.String("tool", name))
		return
	}
	name = unnamed.ReplaceAllString(name, "_")
	if first := name[0]; first != '_' && (first < 'A' || first > 'z' || first > 'Z' && first < 'a') {
		name = "_" + name
	}
	name = name[:min(len(name), maxName)]
	for n := 2; c.names[name]; n++ {
		tail := fmt.Sprintf("_%d", n)
		name = name[:min(len(name), maxName-len(tail))] + tail
	}
	about = cmp.Or(about, name)
	for len(about) > maxDescription {
		about = about[:maxDescription]
		for !utf8.ValidString(about) {
			about = about[:len(about)-1]
		}
	}
	timeout := toolTimeout
	if said := c.trees.tools[name].GetTimeout(); said != nil {
		timeout = said.AsDuration()
	}
	c.ids[id], c.names[name] = true, true
	c.tools = append(c.tools, hostTool{Name: name, ID: id, Description: about, Schema: schema, Timeout: timeout})
}

func isObject(text string) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal([]byte(text), &m) == nil && m != nil
}

// call is a tool call for the host.
type call struct {
	turn         *Turn
	tool         *hostTool
	id           string
	trace, state string
}

// execute has the host run a tool, whose time is that of ctx, and returns its output. An error is that of the tool. A
// host that may do it later is asked again, under the same ids.
func (p *Provider) execute(ctx context.Context, c *call, arguments json.RawMessage) (string, error) {
	if p.host == nil {
		return "", errors.New("the host has no address for tools (GESTALT_AGENT_HOST_SOCKET)")
	}
	args := &structpb.Struct{}
	if len(arguments) > 0 {
		if err := protojson.Unmarshal(arguments, args); err != nil {
			return "", errors.New("the arguments are not a JSON object")
		}
	}
	grant, err := p.store.Grant(ctx, c.turn.ID)
	if err != nil {
		return "", errors.New("the grant of the turn cannot be read")
	}
	msg := &gestaltv1.ExecuteToolRequest{
		SessionId: c.turn.SessionID, TurnId: c.turn.ID, ToolCallId: c.id, ToolId: c.tool.ID, Arguments: args,
		IdempotencyKey: c.id, RunGrant: grant,
	}
	for try := 0; ; try++ {
		starts := !p.heard.Load()
		reply, err := p.host.ExecuteTool(ctx, toHost(p, msg, c.trace, c.state))
		switch {
		case err == nil && reply.Msg.GetStatus() >= http.StatusBadRequest:
			return "", fmt.Errorf("status %d: %s", reply.Msg.GetStatus(), reply.Msg.GetBody())
		case err == nil:
			return reply.Msg.GetBody(), nil
		case ctx.Err() == nil && later(err, starts) && p.pause(ctx, try):
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		default:
			return "", fmt.Errorf("the host does not run the tool: %s", redact(textOf(err), grant))
		}
	}
}

// redact keeps a grant out of a text that others read.
func redact(text, grant string) string {
	if grant == "" {
		return text
	}
	return strings.ReplaceAll(text, grant, "***")
}

// readTools reads what a turn has of the host's tools.
func readTools(t *Turn) (tools []hostTool, err error) {
	if len(t.Tools) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(t.Tools, &tools); err != nil {
		return nil, fmt.Errorf("the tools of turn %q: %w", t.ID, err)
	}
	return slices.Clip(tools), nil
}
