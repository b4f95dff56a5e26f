package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

const (
	// atOnce is how many tools run at a time; waiting is how many calls may be open.
	atOnce, waiting = 16, 1024
)

// errCancelled stops a tool that nobody waits for.
var errCancelled = errors.New("the tool call was canceled")

// toolbox runs the tools of one turn. Each call has a goroutine, which ends with
// its answer, its cancellation, or close.
type toolbox struct {
	owner   *Turn
	session string
	turn    func() string
	tools   map[string]toolcmd.Command
	note    func(format string, args ...any)

	ctx   context.Context //nolint:containedctx // of all calls; ends with close
	stop  context.CancelCauseFunc
	slots chan struct{}
	wg    sync.WaitGroup

	mu    sync.Mutex                         // protects the fields below
	calls map[string]context.CancelCauseFunc // by id, also those that are answered; the turn bounds them
	open  int                                // that are not answered
}

func newToolbox(ctx context.Context, t *Turn, session string, turn func() string) *toolbox {
	b := &toolbox{
		owner: t, session: session, turn: turn, tools: t.Tools, note: t.Note,
		slots: make(chan struct{}, atOnce), calls: map[string]context.CancelCauseFunc{},
	}
	b.ctx, b.stop = context.WithCancelCause(ctx)
	return b
}

// call runs a tool, unless it has been asked for before.
func (b *toolbox) call(c *agentdv1.RunResponse_ToolCallRequest) (fresh bool) {
	ctx, cancel := context.WithCancelCause(b.ctx)
	b.mu.Lock()
	_, known := b.calls[c.GetToolCallId()]
	full := b.open >= waiting
	if !known {
		b.calls[c.GetToolCallId()] = cancel
		b.open++
	}
	b.mu.Unlock()
	if known {
		cancel(nil)
		return false
	}
	b.wg.Go(func() {
		defer cancel(nil)
		b.run(ctx, c, full)
		b.mu.Lock()
		b.open--
		b.mu.Unlock()
	})
	return true
}

// cancel stops a call.
func (b *toolbox) cancel(id string) {
	b.mu.Lock()
	cancel := b.calls[id]
	b.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
}

// close stops all calls and waits for them.
func (b *toolbox) close() {
	b.stop(errCancelled)
	b.wg.Wait()
}

func (b *toolbox) run(ctx context.Context, c *agentdv1.RunResponse_ToolCallRequest, full bool) {
	answer := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: c.GetToolCallId(), ToolName: c.GetToolName()}
	var output string
	var err error
	if full {
		err = fmt.Errorf("more than %d tool calls wait", waiting)
	} else {
		select {
		case b.slots <- struct{}{}:
			output, err = b.execute(ctx, c)
			<-b.slots
		case <-ctx.Done():
			return
		}
	}
	if ctx.Err() != nil { // nobody waits for it
		return
	}
	if err != nil {
		answer.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: err.Error()}
	} else {
		answer.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: output}
	}
	b.submit(ctx, answer)
}

func (b *toolbox) execute(ctx context.Context, c *agentdv1.RunResponse_ToolCallRequest) (string, error) {
	cmd, ok := b.tools[c.GetToolName()]
	if !ok {
		return "", fmt.Errorf("this client has no tool %q", c.GetToolName())
	}
	cmd.Env = append(slices.Clip(cmd.Env), "AGENTD_SESSION_ID="+b.session, "AGENTD_TOOL_CALL_ID="+c.GetToolCallId())
	return toolcmd.Run(ctx, cmd, c.GetToolInput())
}

// submit sends an answer until it has arrived or is not wanted. An equal repeat
// changes nothing. The turn would wait for a result that is too large until the
// tool's timeout: the model is told that instead.
func (b *toolbox) submit(ctx context.Context, answer *agentdv1.RunRequest_ToolCallResponse) {
	err := b.send(ctx, answer)
	if err == nil || ctx.Err() != nil {
		return
	}
	b.note("the answer of tool %s was refused: %v", Clean(answer.GetToolName()), err)
	if !tooLarge(err) || answer.GetError() != "" {
		return
	}
	answer.Result = &agentdv1.RunRequest_ToolCallResponse_Error{Error: "the tool's result was refused: " + err.Message}
	// A daemon may have recorded the refusal itself: then the call is settled.
	if err := b.send(ctx, answer); err != nil && ctx.Err() == nil && err.Code == agentdv1.ErrorCode_ERROR_CODE_UNSPECIFIED {
		b.note("the error of tool %s was refused: %v", Clean(answer.GetToolName()), err)
	}
}

// send sends one answer, and returns why it was refused.
func (b *toolbox) send(ctx context.Context, answer *agentdv1.RunRequest_ToolCallResponse) *Error {
	c := b.owner.Conn
	req := &agentdv1.SubmitToolResultsRequest{SessionId: b.session, TurnId: b.turn(), Results: []*agentdv1.RunRequest_ToolCallResponse{answer}}
	resp, err := persist(ctx, b.owner, c.SubmitToolResults, req)
	if err != nil {
		return c.explain(err)
	}
	for _, r := range resp.GetRefused() {
		return refusal(r.GetError(), nil)
	}
	return nil
}

// tooLarge tells whether an answer was refused for its size, by the daemon or by
// what reads requests before it.
func tooLarge(e *Error) bool {
	return !e.Retryable && (e.Code == agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED || connect.CodeOf(e.Err) == connect.CodeResourceExhausted)
}
