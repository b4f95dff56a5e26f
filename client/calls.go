package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxWaiting bounds the calls of a run that wait for a free handler.
const maxWaiting = 1024

// toolRunner runs the tool calls of one run: each on its own goroutine, at
// most limit at a time. It owns those goroutines until stop has returned;
// handlers that ignore their contexts for longer than the grace outlive it.
type toolRunner struct {
	ctx    context.Context         // parent of all handlers' contexts
	cancel context.CancelCauseFunc // ends ctx
	run    *run
	state  *stateView

	mu      sync.Mutex       // protects the fields below
	calls   map[string]*call // running and waiting ones by id; at most limit+maxWaiting
	waiting []*call
	running int
	stopped bool
	idle    chan struct{}   // closed once stopped and running is 0
	kept    []*cachedResult // results that the server has not recorded yet; it may ask again
	// reported holds, by call id, the kept results that the caller has received already. It
	// receives them at once if the server does not count its messages.
	reported map[string]*agentdv1.RunRequest_ToolCallResponse
	// replaced are the calls whose results the server refused; an error replaces them.
	replaced map[string]bool

	reporting sync.Mutex // protects silent, and the order of results before the end
	silent    bool       // the turn has ended: no more results are reported
}

// call is a tool call without a result.
type call struct {
	req    *agentdv1.RunResponse_ToolCallRequest
	stored bool // the server sends the results that it has recorded
	// yielded is set by start before the call may run.
	yielded bool
	turnID  string
	tool    *tool // nil: this client has none of that name
	ctx     context.Context
	cancel  context.CancelCauseFunc
	expire  context.CancelFunc // ends the part of ctx that has the timeout
	rouse   func() bool        // stops waiting for the end of ctx; set while the call waits for a handler
	asks    asking
	over    atomic.Bool // the call has a result, or gets none from this run
	taken   atomic.Bool // another client has sent the result
}

func newToolRunner(ctx context.Context, r *run) *toolRunner {
	t := &toolRunner{
		run: r, state: newStateView(), calls: make(map[string]*call), idle: make(chan struct{}),
		reported: make(map[string]*agentdv1.RunRequest_ToolCallResponse), replaced: make(map[string]bool),
	}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	return t
}

// start takes a call that came on a link. It is called by the driver alone and
// does not block, except to refuse a call when far too many wait.
func (t *toolRunner) start(l *link, msg *agentdv1.RunResponse) {
	req := msg.GetToolCall()
	if req.GetSessionId() == "" {
		req.SessionId = *t.run.session.Load()
	}
	c := &call{req: req, stored: msg.GetSeq() > 0, turnID: msg.GetTurnId(), tool: t.run.rc.available[req.GetToolName()]}
	t.mu.Lock()
	old := t.calls[req.GetToolCallId()]
	if t.stopped || (old != nil && !old.over.Load()) {
		// A call that runs sends its result once, on the stream that is open then. A
		// finished call may have sent it on a stream that broke.
		t.mu.Unlock()
		return
	}
	if len(t.waiting) >= maxWaiting {
		t.mu.Unlock()
		l.reply(toolRequest(failure(req,
			fmt.Errorf("the client already has %d tool calls waiting; call fewer at a time", maxWaiting))))
		return
	}
	c.ctx, c.cancel = context.WithCancelCause(t.ctx)
	if timeout := t.timeout(c); timeout > 0 {
		c.ctx, c.expire = context.WithTimeoutCause(c.ctx, timeout, ErrToolTimeout)
	}
	t.calls[req.GetToolCallId()] = c
	t.mu.Unlock()

	// A call in t.calls was yielded before, also if its result is being stored.
	if key := t.key(req); old == nil && !t.run.client.results.known(key) && !t.run.client.journal.has(key) {
		t.run.deliver(eventOf(msg, toolCallOf(req)))
		c.yielded = true
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.waiting = append(t.waiting, c)
	c.rouse = context.AfterFunc(c.ctx, func() { t.overdue(c) })
	t.launch()
}

// overdue ends a call that timed out, or was canceled, while it waited for a handler. No
// handler runs for it, so it takes no place.
func (t *toolRunner) overdue(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.waiting, c)
	if t.stopped || i < 0 || !isVerdict(context.Cause(c.ctx)) {
		return
	}
	t.waiting = slices.Delete(t.waiting, i, i+1)
	t.running++
	go t.perform(c)
}

// launch starts waiting calls while there is room. mu is held.
func (t *toolRunner) launch() {
	for !t.stopped && t.running < t.run.rc.concurrency && len(t.waiting) > 0 {
		c := t.waiting[0]
		t.waiting[0] = nil
		t.waiting = t.waiting[1:]
		t.running++
		c.rouse()
		go t.perform(c)
	}
}

// cancelCall ends a call that the server no longer wants.
func (t *toolRunner) cancelCall(id, reason string) {
	t.mu.Lock()
	c := t.calls[id]
	t.mu.Unlock()
	if c == nil {
		return
	}
	cause := ErrToolCanceled
	if reason != "" {
		cause = fmt.Errorf("%w: %s", ErrToolCanceled, reason)
	}
	c.cancel(cause)
}

// errTaken is the reason for a handler to stop after another client has sent the result.
const errTaken = "another client has sent the result of the call"

// recorded handles a result that the server has recorded. It reports whether the result
// is new to the caller; a result that this run has reported is not. A handler that still
// runs for the call stops.
func (t *toolRunner) recorded(r *agentdv1.ToolCallAnswered) (news bool) {
	id := r.GetToolCallId()
	t.mu.Lock()
	own := t.reported[id]
	delete(t.reported, id)
	if i := slices.IndexFunc(t.kept, func(entry *cachedResult) bool { return entry.key.call == id }); i >= 0 {
		t.run.client.results.letGo(t.kept[i]) // the server has it
		t.kept = slices.Delete(t.kept, i, i+1)
	}
	c := t.calls[id]
	t.mu.Unlock()
	if own != nil {
		return own.GetOutput() != r.GetOutput() || own.GetError() != r.GetError() ||
			!equalParts(own.GetParts(), r.GetParts())
	}
	if c != nil {
		c.taken.Store(true)
		t.cancelCall(id, errTaken)
	}
	return true
}

// stop cancels all calls and lets no new one start.
func (t *toolRunner) stop() {
	t.cancel(ErrRunEnded)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.stopped = true
	t.waiting = nil
	for _, entry := range t.kept {
		t.run.client.results.letGo(entry)
	}
	t.kept = nil
	if t.running == 0 {
		close(t.idle)
	}
}

// maxKept bounds the results that a run keeps in the cache.
const maxKept = 16 * maxResults

// keep keeps a result until the server has recorded it or the run ends: on a new
// connection the server may ask again for a result that it has not received. stored is
// true if the server sends the results that it has recorded.
func (t *toolRunner) keep(entry *cachedResult, stored bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		t.run.client.results.letGo(entry)
		return
	}
	t.kept = append(t.kept, entry)
	if !stored {
		t.reported[entry.key.call] = entry.msg
	}
	if len(t.kept) > maxKept {
		delete(t.reported, t.kept[0].key.call)
		t.run.client.results.letGo(t.kept[0])
		t.kept = t.kept[1:]
	}
}

// wait waits until the handlers have returned, at most for the grace. stop
// must have been called.
func (t *toolRunner) wait(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-t.idle:
	case <-timer.C:
	}
}

// release frees the place of a call and starts the next one.
func (t *toolRunner) release(c *call) {
	c.cancel(nil)
	if c.expire != nil {
		c.expire()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id := c.req.GetToolCallId(); t.calls[id] == c {
		delete(t.calls, id)
	}
	t.running--
	if t.stopped && t.running == 0 {
		close(t.idle)
	}
	t.launch()
}

// perform runs one call and sends its result; it is the body of the call's goroutine.
func (t *toolRunner) perform(c *call) {
	defer t.release(c)
	memory := t.run.client.results
	entry, mine, err := memory.claim(c.ctx, t.key(c.req))
	if err != nil {
		return // canceled while another run works on it
	}
	if !mine {
		c.over.Store(true) // the call may be asked again as soon as this is sent
		_ = t.run.enqueue(toolRequest(entry.msg))
		return
	}
	if msg := t.run.client.journal.find(t.key(c.req)); msg != nil {
		memory.store(entry, msg)
		memory.letGo(entry) // the journal has it
		c.over.Store(true)
		_ = t.run.enqueue(toolRequest(msg))
		return
	}
	// If the context ends first, the error result is sent at once; the handler keeps
	// its place until it returns.
	watched := make(chan struct{})
	stopWatch := context.AfterFunc(c.ctx, func() {
		defer close(watched)
		if cause := context.Cause(c.ctx); isVerdict(cause) {
			t.finish(c, entry, failure(c.req, cause))
		}
	})
	// Overwritten unless the handler ends its goroutine by runtime.Goexit.
	msg := failure(c.req, errors.New("the tool's handler exited without a result"))
	defer func() {
		if !stopWatch() {
			<-watched
		}
		if c.ctx.Err() == nil || msg.GetError() == "" {
			t.finish(c, entry, msg)
		}
		// The handler failed because its context ended: that is no result.
		if c.over.CompareAndSwap(false, true) {
			memory.abandon(entry)
		}
	}()
	if f := t.run.rc.beforeCall; f != nil && c.yielded && c.ctx.Err() == nil {
		f(c.ctx, toolCallOf(c.req))
	}
	if c.ctx.Err() == nil {
		msg = t.invoke(c)
	}
}

// isVerdict reports whether the end of a handler's context gives the call an error
// result. The end of the run does not: the server may send the call again.
func isVerdict(cause error) bool {
	return errors.Is(cause, ErrToolTimeout) || errors.Is(cause, ErrToolCanceled)
}

// finish stores and sends the result of a call, once.
func (t *toolRunner) finish(c *call, entry *cachedResult, msg *agentdv1.RunRequest_ToolCallResponse) {
	if !c.over.CompareAndSwap(false, true) {
		return
	}
	wanted := !errors.Is(context.Cause(c.ctx), ErrToolCanceled)
	if wanted && c.tool != nil {
		t.record(c, msg)
	}
	t.run.client.results.store(entry, msg)
	t.keep(entry, c.stored)
	if !c.stored && !c.taken.Load() {
		event := newEvent(ownResultOf(c.req, msg))
		event.TurnID = c.turnID
		t.report(event)
	}
	if !wanted {
		return
	}
	_ = t.run.enqueue(toolRequest(msg))
}

// refused handles the refusal of a result. It sends an error result instead, once:
// otherwise the call would wait for a result that never comes. If the server has
// recorded an error itself, it refuses this one too, and the caller is not notified.
func (t *toolRunner) refused(l *link, msg *agentdv1.RunResponse) {
	id, why := msg.GetError().GetToolCallId(), fromResponse(msg.GetError())
	t.mu.Lock()
	if t.replaced[id] {
		t.mu.Unlock()
		return
	}
	var instead *cachedResult
	i := slices.IndexFunc(t.kept, func(entry *cachedResult) bool { return entry.key.call == id })
	if i >= 0 && !t.stopped {
		if len(t.replaced) >= maxKept {
			clear(t.replaced)
		}
		t.replaced[id] = true
		reply := t.kept[i].msg
		instead = t.run.client.results.replace(t.kept[i], failure(&agentdv1.RunResponse_ToolCallRequest{
			SessionId: reply.GetSessionId(), ToolCallId: id, ToolName: reply.GetToolName(),
		}, fmt.Errorf("the tool ran, but its result was refused: %w", why)))
		t.kept[i] = instead
	}
	t.mu.Unlock()
	t.run.deliver(errorEvent(msg))
	if instead != nil {
		l.reply(toolRequest(instead.msg))
	}
}

// silence stops the reports of results: the end of the turn is the last event.
func (t *toolRunner) silence() {
	t.reporting.Lock()
	defer t.reporting.Unlock()
	t.silent = true
}

// report yields the result of a call to the caller.
func (t *toolRunner) report(event *Event) {
	t.reporting.Lock()
	defer t.reporting.Unlock()
	if !t.silent {
		t.run.emit(event)
	}
}

// record appends a result to the journal. The client also sends a result that it
// cannot store, because the tool has run.
func (t *toolRunner) record(c *call, msg *agentdv1.RunRequest_ToolCallResponse) {
	if err := t.run.client.journal.append(t.key(c.req), msg); err != nil {
		t.run.client.cfg.logger.LogAttrs(context.WithoutCancel(c.ctx), slog.LevelWarn,
			"tool result not stored in the journal",
			slog.String("tool", c.req.GetToolName()),
			slog.String("tool_call_id", c.req.GetToolCallId()),
			slog.Any("error", err))
	}
}

// begin notes in the journal that the call has begun, which it must not have.
func (t *toolRunner) begin(c *call) error {
	key := t.key(c.req)
	first, err := t.run.client.journal.begin(key)
	switch {
	case err != nil:
		return fmt.Errorf("%s was not run: that it begins could not be written to the journal: %w",
			c.req.GetToolName(), err)
	case !first:
		return fmt.Errorf("%s was started before this program stopped: it may have happened; look before you repeat it",
			c.req.GetToolName())
	}
	return nil
}

// invoke calls the handler and returns its result; a panic is an error result.
func (t *toolRunner) invoke(c *call) (msg *agentdv1.RunRequest_ToolCallResponse) {
	if c.tool == nil {
		return failure(c.req, fmt.Errorf("this client has no tool named %q; it has: %s",
			c.req.GetToolName(), nameList(t.run.rc.available)))
	}
	defer func() {
		if v := recover(); v != nil {
			msg = failure(c.req, fmt.Errorf("the tool panicked: %v", v))
			t.run.client.cfg.logger.LogAttrs(context.WithoutCancel(c.ctx), slog.LevelDebug, "tool handler panicked",
				slog.String("tool", c.req.GetToolName()), slog.String("tool_call_id", c.req.GetToolCallId()),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	current := &Call{req: c.req, seen: t.state, begin: func() error { return t.begin(c) }, ended: t.ctx.Done()}
	current.ask = func(ctx context.Context, q Question) (*Resolution, error) { return t.ask(ctx, c, q) }
	ctx, end := toolSpan(context.WithValue(c.ctx, callContextKey{}, current), c.req)
	defer func() { end(msg) }()
	result, err := c.tool.invoke(ctx, c.req.GetToolInput())
	if err != nil {
		return failure(c.req, err)
	}
	output, parts, err := encodeOutput(result)
	if err != nil {
		return failure(c.req, err)
	}
	delta, err := current.takeDelta()
	if err != nil {
		return failure(c.req, err)
	}
	reply := response(c.req)
	reply.StateDeltaJson, reply.Parts = delta, parts
	reply.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: output}
	if err := t.run.client.cfg.checkResult(reply); err != nil {
		return failure(c.req, err)
	}
	return reply
}

// checkResult refuses a result that no server accepts. The server would refuse it only
// after the caller was notified of a success.
func (c *config) checkResult(msg *agentdv1.RunRequest_ToolCallResponse) error {
	text, err := marshalJSON(msg.GetOutput())
	if err != nil {
		return err
	}
	if n := len(text) + len(msg.GetStateDeltaJson()) + resultOverhead; n > c.maxResult {
		return fmt.Errorf("the tool's result takes %d bytes as JSON, at most %d are allowed", n, c.maxResult)
	}
	if n := proto.Size(toolRequest(msg)); n > c.maxMessage {
		return fmt.Errorf("the tool's result takes %d bytes with its parts, at most %d are allowed", n, c.maxMessage)
	}
	return nil
}

// resultOverhead is what stands around the output and the state of a result where
// the server measures it: names of fields and the call's id. It is on the safe side.
const resultOverhead = 512

func (t *toolRunner) timeout(c *call) time.Duration {
	if c.tool != nil && c.tool.timeout > 0 {
		return c.tool.timeout
	}
	return t.run.rc.toolTimeout
}

func (t *toolRunner) key(req *agentdv1.RunResponse_ToolCallRequest) callKey {
	return callKey{session: req.GetSessionId(), call: req.GetToolCallId()}
}

func response(req *agentdv1.RunResponse_ToolCallRequest) *agentdv1.RunRequest_ToolCallResponse {
	return &agentdv1.RunRequest_ToolCallResponse{
		SessionId:  req.GetSessionId(),
		ToolCallId: req.GetToolCallId(),
		ToolName:   req.GetToolName(),
	}
}

// maxErrorText bounds the text of a tool error.
const maxErrorText = 16 << 10

func failure(req *agentdv1.RunResponse_ToolCallRequest, err error) *agentdv1.RunRequest_ToolCallResponse {
	text := err.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + " [cut]"
	}
	if text == "" {
		text = fmt.Sprintf("the tool failed with an error of type %T that has no text", err)
	}
	msg := response(req)
	msg.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: validUTF8(text)}
	return msg
}

func toolRequest(msg *agentdv1.RunRequest_ToolCallResponse) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: msg}}
}
