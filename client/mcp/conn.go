package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// times are how long things may take; tests have shorter ones.
type times struct {
	start    time.Duration // until a server is connected and has listed what it has
	request  time.Duration // a request that is no tool call
	call     time.Duration // a tool call, without the time in which a person is asked
	retry    time.Duration // before the first attempt to connect again
	retryMax time.Duration
	steady   time.Duration // a connection that has lasted so long makes the attempts start anew
	kill     time.Duration // from SIGTERM to SIGKILL
}

var usualTimes = times{
	start: 10 * time.Second, request: 30 * time.Second, call: 10 * time.Minute,
	retry: time.Second, retryMax: 30 * time.Second, steady: time.Minute, kill: 3 * time.Second,
}

// attempts are how often a lost connection is made again before the server has failed.
const attempts = 5

// conn is one connection to a server.
type conn struct {
	session *sdk.ClientSession // nil if it was never made
	process *process           // nil for HTTP
	web     *web               // nil for stdio
	life    context.Context    // ends with the connection
	end     context.CancelFunc
	lost    chan struct{} // closed when the connection is lost
	lose    func()        // closes lost, once
	watcher sync.WaitGroup
}

// connect makes a connection. Its caller owes the connection a close, also if there is an error.
func (s *Server) connect(ctx context.Context) (*conn, error) {
	c := &conn{lost: make(chan struct{})}
	c.life, c.end = context.WithCancel(s.life)
	c.lose = sync.OnceFunc(func() { close(c.lost) })
	var transport sdk.Transport
	var err error
	if s.cfg.Transport == stdio {
		if c.process, err = startProcess(s.cfg); err == nil {
			transport = c.process.transport()
		}
	} else if c.web, err = newWeb(s.cfg, c.lose); err == nil {
		transport = c.web.transport(s.auth)
		// A server that does not answer would keep the SDK in its goodbyes.
		stop := context.AfterFunc(ctx, c.web.abort)
		defer stop()
	}
	if err != nil {
		return c, err
	}
	ctx, seen := withOutcome(ctx)
	if c.session, err = s.sdkClient(c).Connect(ctx, transport, nil); err != nil {
		if status := seen.refusal(); status != nil && !errors.Is(err, errNotAllowed) {
			err = status
		}
		err = c.why(ctx, err)
		return c, err
	}
	c.watcher.Go(func() {
		_ = c.session.Wait()
		c.lose()
	})
	return c, nil
}

// why explains an error of the connection.
func (c *conn) why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if c.process != nil {
		return c.process.why(err)
	}
	return err
}

// close ends the connection and what belongs to it. Calls that are under way end first.
func (c *conn) close(grace time.Duration) {
	c.end()
	if c.process != nil {
		c.process.stop(grace)
	}
	if c.web != nil {
		defer c.web.close()
		timer := time.AfterFunc(grace, c.web.abort)
		defer timer.Stop()
	}
	if c.session != nil {
		_ = c.session.Close()
	}
	c.watcher.Wait()
}

// sdkClient returns the client of one connection, for the notices of its server. There are neither roots nor sampling.
func (s *Server) sdkClient(c *conn) *sdk.Client {
	return sdk.NewClient(&sdk.Implementation{Name: "agentd", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{},
		ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return s.elicit(ctx, c, r)
		},
		ToolListChangedHandler:     func(context.Context, *sdk.ToolListChangedRequest) { s.listAgain() },
		PromptListChangedHandler:   func(context.Context, *sdk.PromptListChangedRequest) { s.listAgain() },
		ResourceListChangedHandler: func(context.Context, *sdk.ResourceListChangedRequest) { s.listAgain() },
	})
}

// within returns a context that ends with ctx, with the connection, and after d.
func (c *conn) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("the server has not answered within %s", d))
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// rejected is the code by which the SDK says that a message has not passed its transport.
const rejected = -32005

// answered reports whether err is what the server said, in place of a failure on the way to it.
func answered(err error) bool {
	var said *jsonrpc.Error
	return errors.As(err, &said) && said.Code != rejected && !errors.Is(err, sdk.ErrConnectionClosed)
}

// request makes a request of the current connection, which it waits for. It makes it once more if the connection was
// lost and the request may be repeated.
func (s *Server) request(ctx context.Context, repeat bool, do func(context.Context, *conn) error) error {
	for try := 0; ; try++ {
		c, err := s.current(ctx)
		if err != nil {
			return err
		}
		at, seen := withOutcome(ctx)
		err = do(at, c)
		switch {
		case err == nil:
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case answered(err):
			return s.hidden.hide(err)
		case errors.Is(err, errSlow):
			return err
		}
		happened := c.web == nil || seen.mayHaveRun()
		// Of a connection that has ended meanwhile, err may say no more than that it was canceled.
		gone := errors.Is(err, sdk.ErrSessionMissing) || c.life.Err() != nil || c.isLost()
		if status := seen.refusal(); status != nil && !gone {
			if happened && !repeat {
				return fmt.Errorf("the MCP server %s failed, and the call may have happened: %w", s.Name, status)
			}
			return fmt.Errorf("the MCP server %s failed: %w", s.Name, status)
		}
		c.lose()
		if happened && !repeat {
			return fmt.Errorf(
				"the connection to the MCP server %s was lost during the call, which may have happened: %w",
				s.Name, s.hidden.hide(err))
		}
		if try > 0 {
			return fmt.Errorf("the connection to the MCP server %s was lost: %w", s.Name, s.hidden.hide(err))
		}
	}
}

// errSlow is the cause of the end of a call that takes too long.
var errSlow = errors.New("the MCP server has taken too long; the call may have happened")

// callTool calls a tool of the server.
func (s *Server) callTool(ctx context.Context, t *sdk.Tool, args json.RawMessage) (*sdk.CallToolResult, error) {
	var res *sdk.CallToolResult
	err := s.request(ctx, mayRepeat(t), func(ctx context.Context, c *conn) error {
		ctx, done := s.calling(ctx, c)
		defer done()
		var err error
		res, err = c.session.CallTool(ctx, &sdk.CallToolParams{Name: t.Name, Arguments: args})
		if err != nil && errors.Is(context.Cause(ctx), errSlow) {
			return errSlow
		}
		return err
	})
	return res, err
}

// mayRepeat reports whether a second call of the tool does no harm, as its server says.
func mayRepeat(t *sdk.Tool) bool {
	return t.Annotations != nil && (t.Annotations.ReadOnlyHint || t.Annotations.IdempotentHint)
}

// calling returns the context of a tool call: it ends with the connection, and when the call has taken too long.
func (s *Server) calling(ctx context.Context, c *conn) (context.Context, func()) {
	ctx, done := s.timed(ctx, s.b.times.call, errSlow)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() {
		stop()
		cancel()
		done()
	}
}

// timed returns a context that ends with a cause after a time, without the time in which a person is asked.
func (s *Server) timed(ctx context.Context, limit time.Duration, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &work{ctx: ctx, limit: limit, timer: time.AfterFunc(limit, func() {
		if !s.asking() {
			cancel(cause)
		}
	})}
	s.mu.Lock()
	s.active[w] = struct{}{}
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		delete(s.active, w)
		s.mu.Unlock()
		w.timer.Stop()
		cancel(nil)
	}
}

// work is under way and has a time limit.
type work struct {
	ctx   context.Context // for questions that the server asks on its behalf
	limit time.Duration
	timer *time.Timer // ends the work, unless a person is being asked
}
