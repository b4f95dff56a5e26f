package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/backoff"
)

// Status says whether a server can be used.
type Status string

// The states of a server. One that is being connected again is ok.
const (
	StatusOK    Status = "ok"
	StatusError Status = "error"
)

// Server is an MCP server. Its fields say what Build has found and do not change; see [Server.State].
// Its methods may be used concurrently.
type Server struct {
	Name   string
	Status Status
	Tools  []string // the names that models know, in order
	Err    error    // why Status is StatusError

	b      *builder
	prefix string // of the names that models know
	cfg    serverConfig
	hidden secrets
	auth   *authorizer // nil for none
	set    *client.ToolSet
	told   map[string]bool    // the notices of tools that are left out; the builder's mutex protects it
	life   context.Context    // ends with Close
	end    context.CancelFunc // ends life
	first  chan struct{}      // closed when the server is connected for the first time, or has failed
	done   chan struct{}      // closed when everything has ended
	again  chan struct{}      // holds one value when what the server has may have changed

	mu        sync.Mutex    // protects the fields below
	conn      *conn         // nil while there is none
	err       error         // why there will be none any more
	changed   chan struct{} // closed, and replaced, when conn or err changes
	list      listing
	offered   []string // the names of the tools
	active    map[*work]struct{}
	questions int // that a person is being asked
}

// State is what a server is now.
type State struct {
	Status Status
	Tools  []string // the names that models know, in order
	Err    error    // why Status is StatusError
}

// State returns what the server is now: it may have other tools than at first, or have failed.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := State{Status: StatusOK, Tools: slices.Clone(s.offered), Err: s.err}
	if s.err != nil {
		state.Status = StatusError
	}
	return state
}

// ToolSet returns the server's tools, for [client.WithAttachment] or [client.WithTools]. It is always the same set;
// what it holds changes with the server, for runs that start from then on and give their agent: a turn that continues
// a session without one keeps the tools of the turn before. It is empty if the server has failed at first; the calls of
// tools of a server that has failed later are tool errors.
func (s *Server) ToolSet() *client.ToolSet { return s.set }

// Close ends the server: calls that are under way are canceled, a program has its standard input closed and gets
// SIGTERM, and 3 s later SIGKILL, as does what it has started. It returns when that is done. It may be called again.
func (s *Server) Close() error {
	s.end()
	<-s.done
	return nil
}

// run connects the server, and again when the connection is lost, until Close. failed is why it is not even tried.
func (s *Server) run(failed error) {
	defer close(s.done)
	defer s.end()
	if s.b.authorize != nil && s.cfg.Transport == httpTransport && !s.cfg.hasAuthorization() {
		s.auth = newAuthorizer(s)
		defer s.auth.close()
	}
	if failed != nil {
		s.fail(failed)
		close(s.first)
		return
	}
	c, err := s.open()
	if err != nil {
		s.fail(err)
	}
	close(s.first)
	for n := 0; err == nil; n++ {
		began := time.Now()
		s.attend(c)
		s.setConn(nil, nil)
		c.close(s.b.times.kill)
		if s.life.Err() != nil {
			s.fail(errClosed)
			return
		}
		if time.Since(began) >= s.b.times.steady {
			n = 0
		}
		for c, err = nil, errors.New("the connection was lost again and again"); n < attempts && err != nil; n++ {
			if backoff.Wait(s.life, backoff.Bound(s.b.times.retry, s.b.times.retryMax, n)) != nil {
				s.fail(errClosed)
				return
			}
			if c, err = s.open(); err == nil {
				s.b.publish(s)
				break
			}
			c.close(s.b.times.kill)
		}
		if err != nil {
			s.fail(err)
			s.b.notice(fmt.Sprintf("the MCP server %s is lost: %v", s.Name, err))
			return
		}
	}
	c.close(s.b.times.kill)
}

var errClosed = errors.New("it was closed")

// open connects, and asks what the server has. Its caller owes the connection a close, also if there is an error.
func (s *Server) open() (*conn, error) {
	ctx, done := s.timed(s.life, s.b.times.start, fmt.Errorf("not connected within %s", s.b.times.start))
	defer done()
	c, err := s.connect(ctx)
	if err != nil {
		return c, s.hidden.hide(err)
	}
	list, err := s.listAll(ctx, c)
	if err != nil {
		return c, s.hidden.hide(c.why(ctx, err))
	}
	s.setList(list)
	s.setConn(c, nil)
	return c, nil
}

// attend keeps the list of what the server has until the connection ends.
func (s *Server) attend(c *conn) {
	for {
		select {
		case <-s.life.Done():
			return
		case <-c.lost:
			return
		case <-s.again:
		}
		ctx, cancel := c.within(s.life, s.b.times.request)
		list, err := s.listAll(ctx, c)
		cancel()
		if err != nil {
			select {
			case <-c.lost:
			case <-s.life.Done():
			default:
				err = s.hidden.hide(err)
				s.b.notice(fmt.Sprintf("the MCP server %s does not say what it has now: %v", s.Name, err))
			}
			continue
		}
		s.setList(list)
		s.b.publish(s)
	}
}

// listAgain has the list of what the server has made again, soon.
func (s *Server) listAgain() {
	select {
	case s.again <- struct{}{}:
	default: // it is to be made already
	}
}

// fail ends the server for its callers.
func (s *Server) fail(err error) { s.setConn(nil, err) }

func (s *Server) setConn(c *conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn, s.err = c, err
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) setList(l listing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = l
}

// current returns the connection, for which it waits while one is being made.
func (s *Server) current(ctx context.Context) (*conn, error) {
	for {
		s.mu.Lock()
		c, err, changed := s.conn, s.err, s.changed
		s.mu.Unlock()
		switch {
		case err != nil:
			return nil, fmt.Errorf("the MCP server %s cannot be used: %w", s.Name, err)
		case c != nil && !c.isLost():
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (c *conn) isLost() bool {
	select {
	case <-c.lost:
		return true
	default:
		return false
	}
}
