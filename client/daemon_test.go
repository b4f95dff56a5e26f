package client_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// puppet is a model of a real daemon whose responses the test gives, one by one.
type puppet struct{ calls chan *modelCall }

func newPuppet() puppet { return puppet{make(chan *modelCall)} }

// modelCall is a call that waits for its response.
type modelCall struct {
	heard   []string // what the user has said, in order
	results []string // results of tools, in order
	replies chan reply
	over    <-chan struct{} // closed when nobody waits any more
}

// reply is a model's response: it speaks, then calls tools, by their names and
// maybe a space and arguments.
type reply struct {
	text  string
	calls []string
}

func (puppet) Describe() model.Description { return model.Description{Name: "puppet", Keyless: true} }

func (p puppet) Open(string, string) (model.Model, error) { return model.Model{LLM: p}, nil }

func (p puppet) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	c := &modelCall{replies: make(chan reply), over: ctx.Done()}
	for _, content := range req.Contents {
		for _, part := range content.Parts {
			switch {
			case part.FunctionResponse != nil:
				data, err := rawjson.Marshal(part.FunctionResponse.Response)
				if err != nil {
					return nil, err
				}
				c.results = append(c.results, string(data))
			case content.Role == genai.RoleUser && part.Text != "":
				c.heard = append(c.heard, part.Text)
			}
		}
	}
	b := &adapter.Builder{Provider: "puppet", Emit: emit}
	var r reply
	select {
	case p.calls <- c:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r = <-c.replies:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.text != "" {
		b.Text(r.text)
	}
	for _, name := range r.calls {
		name, args, _ := strings.Cut(name, " ")
		b.Part(adapter.NewCall("", name, cmp.Or(args, "{}")))
	}
	return &model.Response{
		Content: b.Content(), FinishReason: genai.FinishReasonStop, Model: "puppet",
		Usage: model.Usage{Prompt: 7, Completion: 3, Total: 10},
	}, nil
}

// next returns the next call of the model.
func (p puppet) next(t *testing.T) *modelCall {
	t.Helper()
	return await(t, p.calls, "call of the model")
}

// await receives what must come; it only takes long when it never comes.
func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s came", what)
		panic("not reached")
	}
}

// says responds to the next call with text alone and returns what it was about.
func (p puppet) says(t *testing.T, text string) *modelCall {
	t.Helper()
	c := p.next(t)
	c.gets(t, reply{text: text})
	return c
}

func (c *modelCall) gets(t *testing.T, r reply) {
	t.Helper()
	select {
	case c.replies <- r:
	case <-c.over:
		t.Error("nobody waits for the model's answer any more")
	}
}

// will responds to the next call, whenever it comes.
func (p puppet) will(t *testing.T, r reply) {
	t.Helper()
	go func() {
		select {
		case c := <-p.calls:
			select {
			case c.replies <- r:
			case <-c.over:
			}
		case <-t.Context().Done():
		}
	}()
}

// daemonWithModel is a real daemon whose model the test controls.
type daemonWithModel struct {
	puppet
	d *agentdtest.Daemon
}

func newDaemon(t *testing.T, opts ...testdaemon.Option) *daemonWithModel {
	t.Helper()
	return newDaemonWith(t, newPuppet(), agentdtest.Config{}, opts...)
}

func newDaemonWith(t *testing.T, p puppet, cfg agentdtest.Config, opts ...testdaemon.Option) *daemonWithModel {
	t.Helper()
	cfg.Providers = append(cfg.Providers, p)
	return &daemonWithModel{p, agentdtest.Start(t, cfg, opts...)}
}

// wires are a client's connections, which a test can cut.
type wires struct {
	dial func(context.Context, string, string) (net.Conn, error)

	mu    sync.Mutex // protects the fields below
	open  []net.Conn
	away  bool
	addr  string                 // of the daemon; "": it has none
	first []*agentdv1.RunRequest // what the streams began with
}

// client returns a client of the daemon, which reconnects at once.
func (s *daemonWithModel) client(t *testing.T, opts ...client.Option) (*client.Client, *wires) {
	t.Helper()
	tr := s.d.HTTPClient().Transport.(*http.Transport).Clone()
	w := &wires{dial: tr.DialContext, addr: strings.TrimPrefix(s.d.URL, "http://")}
	if w.dial == nil {
		w.dial = new(net.Dialer).DialContext
	}
	tr.DialContext = w.connect
	opts = append([]client.Option{
		quick, client.WithHTTPClient(&http.Client{Transport: tr}), client.WithConnectOptions(connect.WithInterceptors(w)),
	}, opts...)
	return dial(t, s.d.URL, opts...), w
}

func (w *wires) connect(ctx context.Context, network, _ string) (net.Conn, error) {
	w.mu.Lock()
	away, addr := w.away, w.addr
	w.mu.Unlock()
	if away || addr == "" {
		return nil, errors.New("no network")
	}
	c, err := w.dial(ctx, network, addr)
	if err == nil {
		w.mu.Lock()
		w.open = append(w.open, c)
		w.mu.Unlock()
	}
	return c, err
}

// cut breaks all connections; until mend there are no others.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = true
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

func (w *wires) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = false
}

// lead has later connections go to another address; with "" there are none.
func (w *wires) lead(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addr = addr
}

// last returns what the last stream has attached with; nil if it has not.
func (w *wires) last() *agentdv1.AttachRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.first) == 0 {
		return nil
	}
	return w.first[len(w.first)-1].GetAttach()
}

func (w *wires) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (w *wires) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (w *wires) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return &tapped{next(ctx, spec), w}
	}
}

// tapped is a stream whose first message is noted.
type tapped struct {
	connect.StreamingClientConn
	w *wires
}

func (c *tapped) Send(m any) error {
	if req, ok := m.(*agentdv1.RunRequest); ok && (req.GetExecute() != nil || req.GetAttach() != nil) {
		c.w.mu.Lock()
		c.w.first = append(c.w.first, req)
		c.w.mu.Unlock()
	}
	return c.StreamingClientConn.Send(m)
}

// running is a run on a goroutine of its own.
type running struct {
	events chan *client.Event
	err    error // set before events is closed
}

// events of one run that wait for a test.
const tailSize = 256

func follow(run func(func(*client.Event, error) bool)) *running {
	r := &running{events: make(chan *client.Event, tailSize)}
	go func() {
		defer close(r.events)
		for event, err := range run {
			if err != nil {
				r.err = err
				return
			}
			if !isConnection(event) {
				r.events <- event
			}
		}
	}()
	return r
}

// isConnection reports whether an event is about the connection.
func isConnection(e *client.Event) bool {
	switch e.Data.(type) {
	case *client.ConnectionLost, *client.ConnectionRestored, *client.ConnectionAbandoned:
		return true
	default:
		return false
	}
}

// until returns the next event of a kind; what comes before is skipped.
func (r *running) until(t *testing.T, is func(*client.Event) bool) *client.Event {
	t.Helper()
	for {
		event := await(t, r.events, "such event")
		if event == nil {
			t.Fatalf("the run ended before: %v", r.err)
		}
		if is(event) {
			return event
		}
	}
}

// rest returns what is left of a run that must not fail.
func (r *running) rest(t *testing.T) (events []*client.Event) {
	t.Helper()
	for event := await(t, r.events, "event"); event != nil; event = await(t, r.events, "event") {
		events = append(events, event)
	}
	if r.err != nil {
		t.Fatalf("the run failed: %v", r.err)
	}
	return events
}

func isQueued(e *client.Event) bool  { return as[*client.TurnQueued](e) != nil }
func isStarted(e *client.Event) bool { return as[*client.TurnStarted](e) != nil }

// textOf joins what was said.
func textOf(events []*client.Event) (text string) {
	for _, e := range events {
		if e.OutputChunk != nil {
			text += e.OutputChunk.Content
		}
	}
	return text
}

// lastEnd returns the end, which must come last and once.
func lastEnd(t *testing.T, events []*client.Event) *client.End {
	t.Helper()
	ends := slices.DeleteFunc(slices.Clone(events), func(e *client.Event) bool { return e.End == nil })
	if len(ends) != 1 || events[len(events)-1] != ends[0] {
		t.Fatalf("%d ends in %d events", len(ends), len(events))
	}
	return ends[0].End
}

// actor returns a tree of one agent that the puppet plays.
func actor(tools ...string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{
		Llm: &agentdv1.LlmAgent{Model: "puppet/any", ToolNames: tools},
	}}
}

// doorTool is a tool whose calls wait until the test lets them go.
type doorTool struct {
	asked chan struct{} // one signal a call
	open  chan string   // what a call returns
	ended chan error    // why the context of a call ended before
}

func newDoor(t *testing.T, c client.ToolHolder, name string, opts ...client.ToolOption) *doorTool {
	t.Helper()
	d := &doorTool{asked: make(chan struct{}, 16), open: make(chan string), ended: make(chan error, 16)}
	mustAdd(t, client.AddTool(c, name, "waits", func(ctx context.Context, _ struct{}) (any, error) {
		d.asked <- struct{}{}
		select {
		case text := <-d.open:
			return text, nil
		case <-ctx.Done():
			d.ended <- context.Cause(ctx)
			return nil, context.Cause(ctx)
		}
	}, opts...))
	return d
}

// let has a call of the tool return.
func (d *doorTool) let(t *testing.T, result string) {
	t.Helper()
	select {
	case d.open <- result:
	case <-time.After(20 * time.Second):
		t.Fatal("no call of the tool waits")
	}
}

// stops waits until a call of the tool has stopped because its turn was.
func (d *doorTool) stops(t *testing.T) {
	t.Helper()
	if cause := await(t, d.ended, "end of the tool"); !errors.Is(cause, client.ErrToolCanceled) && !errors.Is(cause, client.ErrRunEnded) {
		t.Errorf("the handler's context ended by %v", cause)
	}
}
