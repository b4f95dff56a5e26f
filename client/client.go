package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// Client runs agent trees on one agentd server with tools of this process. It
// is made by [New], holds no goroutine between runs, and all its methods may
// be called concurrently.
type Client struct {
	cfg  config                       // immutable after New
	stub agentdv1connect.AgentdClient // immutable after New
	// sessions is for what needs no stream; immutable after New.
	sessions  agentdv1connect.SessionServiceClient
	schedules agentdv1connect.ScheduleServiceClient
	events    agentdv1connect.EventServiceClient
	goals     agentdv1connect.GoalServiceClient
	http      connect.HTTPClient // immutable after New
	err       error              // what is wrong with New's arguments; each Run reports it
	tools     *ToolSet           // guards itself
	results   *resultCache       // guards itself
	journal   *journal           // guards itself; nil: results are not kept on disk
}

// New returns a client of the server at baseURL, such as
// "http://localhost:8080" (HTTP/2 without TLS) or "https://agents.example.com".
// It does not connect. A wrong argument is reported by the first run.
func New(baseURL string, opts ...Option) *Client {
	cfg := defaultConfig()
	for _, opt := range opts {
		opt.applyClient(&cfg)
	}
	c := &Client{
		cfg:     cfg,
		tools:   NewToolSet(),
		results: newResultCache(),
		err:     checkBaseURL(baseURL),
	}
	c.http = withToken(traced{httpClient(&cfg)}, cfg.token)
	if cfg.journalDir != "" {
		c.journal = newJournal(cfg.journalDir)
	}
	hc := linkedClient{directClient{c.http}}
	c.stub = agentdv1connect.NewAgentdClient(hc, strings.TrimSpace(baseURL), cfg.connectOptions()...)
	c.sessions = agentdv1connect.NewSessionServiceClient(hc, strings.TrimSpace(baseURL), cfg.connectOptions()...)
	c.schedules = agentdv1connect.NewScheduleServiceClient(hc, strings.TrimSpace(baseURL), cfg.connectOptions()...)
	c.events = agentdv1connect.NewEventServiceClient(hc, strings.TrimSpace(baseURL), cfg.connectOptions()...)
	c.goals = agentdv1connect.NewGoalServiceClient(hc, strings.TrimSpace(baseURL), cfg.connectOptions()...)
	return c
}

// Run starts a turn and yields what happens until it ends. With a nil agent
// the session of [WithSessionID] continues with its last tree and tools.
//
// The turn begins when the sequence is ranged over; ranging again starts
// another turn. A turn that fails yields a nil event and an [*Error] last; one
// that was ended or canceled yields [Event].End with Completed false. When
// ctx ends, the error matches it by errors.Is. Breaking out of the loop, like
// the end of ctx, cancels the turn on the server, unless [WithOnLeave] says
// otherwise. A server that cannot be reached at that moment is tried once more, for
// an instant; whether the turn then continues without a client is up to
// [WithOnDisconnect].
//
// A session that runs a turn refuses another one with SESSION_BUSY, unless
// [WithOnBusy] has the prompt wait, interrupt, or become a message of that turn.
// [WithBudget] bounds what the turn may spend.
//
// A connection that breaks is set up again, as [WithReconnect] says, and the
// events continue where they were: none is lost and none comes twice, and no second
// turn is started, as the request has a key of its own (see
// [WithIdempotencyKey]). When that fails for too long, the run fails with
// UNAVAILABLE, and the turn may still be running: see [Client.Attach].
//
// A turn that asks a person (a tool that needs approval, the builtin tool
// ask_user) waits until one has answered: see [WithPrompter].
//
// The tools that the tree names must be registered; otherwise nothing is sent
// and the error says which agent names which tool. They are called on
// goroutines of their own. When the run is over their contexts are canceled
// and Run waits for them for the time of [WithGrace]; a handler that still has
// not returned is left behind and its result is dropped.
func (c *Client) Run(ctx context.Context, agent *Agent, prompt string, opts ...RunOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		run, end, err := c.withServers(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer end()
		req, rc, err := run.prepare(agent, prompt, runOptions(opts))
		if err != nil {
			yield(nil, err)
			return
		}
		run.yieldRun(ctx, req, rc, yield)
	}
}

// yieldRun runs what has been prepared and yields its events.
func (c *Client) yieldRun(
	ctx context.Context, req *agentdv1.RunRequest, rc *runConfig, yield func(*Event, error) bool,
) {
	runCtx, cancel := rc.context(ctx)
	defer cancel()
	if runCtx.Err() != nil {
		yield(nil, fromContext(runCtx))
		return
	}
	runCtx, ended := runSpan(runCtx)
	var failed error
	defer func() { ended(failed) }()
	r := c.startRun(runCtx, req, rc)
	defer r.close()
	for {
		event, ok := r.next()
		if !ok {
			break
		}
		if !yield(event, nil) {
			return
		}
	}
	r.close()
	if failed = r.outcome(); failed != nil {
		yield(nil, failed)
	}
}

// CloseIdleConnections closes connections that carry no run. The client stays
// usable.
func (c *Client) CloseIdleConnections() {
	if closer, ok := c.http.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// toolSet makes a Client a [ToolHolder].
func (c *Client) toolSet() *ToolSet { return c.tools }

func checkBaseURL(baseURL string) error {
	u, err := url.Parse(strings.TrimSpace(baseURL))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errorf(ErrInvalidRequest,
			"client.New: the server's address must be http://host:port or https://host, got %q", redactURL(u, baseURL))
	}
	return nil
}

// redactURL keeps a password in the address out of error texts.
func redactURL(u *url.URL, raw string) string {
	if u != nil {
		return u.Redacted()
	}
	if strings.Contains(raw, "@") {
		return "(not shown)"
	}
	return raw
}

// httpClient returns the client to use: the default one, or given without the
// habit of following redirects, because those would carry the caller's
// provider keys to another host.
func httpClient(cfg *config) connect.HTTPClient {
	switch hc := cfg.httpClient.(type) {
	case nil:
		return &http.Client{Transport: newTransport(cfg.tls, cfg.http1), CheckRedirect: refuseRedirect}
	case *http.Client:
		if hc.CheckRedirect != nil {
			return hc
		}
		clone := *hc
		clone.CheckRedirect = refuseRedirect
		return &clone
	default:
		return hc
	}
}

func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// directClient makes an error of a redirect: to try again leads to the same one.
type directClient struct{ connect.HTTPClient }

func (c directClient) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.HTTPClient.Do(req)
	if err != nil || resp.StatusCode/100 != 3 {
		return resp, err
	}
	_ = resp.Body.Close()
	to := "an address that it does not name"
	if u, err := resp.Location(); err == nil {
		to = u.Scheme + "://" + u.Host // what follows may hold a secret
	}
	return nil, connect.NewError(connect.CodeUnimplemented, fmt.Errorf(
		"%s redirects to %s, and redirects are not followed: use the address of agentd itself", req.URL.Host, to))
}
