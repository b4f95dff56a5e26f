package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
)

// Option configures a [Build].
type Option func(*builder)

// OnNotice has f called with what is worth a line: that a tool was left out, that a question was declined, that
// a server was lost. It may be called concurrently. By default each is a line on standard error.
func OnNotice(f func(text string)) Option {
	return func(b *builder) { b.notice = f }
}

// Build connects to the servers of dir/mcp.json, all at once, and returns them in the order of their names; none
// without the file. Its error is about the file itself, and no server is started then. A server that is not
// connected within 10 s, or whose entry refers to a variable that is not set, has StatusError and hurts no other.
// ctx is for the time of Build; a server lives until its Close.
//
// A tool has the name <server>_<tool>, at most 64 of [A-Za-z0-9_]; other characters become _, and a digit at
// the beginning gets a _ before it. A name that is longer, or that another tool has, is cut to 58 and gets 6 hex digits
// of a hash.
//
// Each call asks the gate, which must not be nil, about the tool mcp with the tool's name: mcp:files_* is a rule.
// A nil elicit declines what servers ask, with one notice.
func Build(ctx context.Context, dir string, gate *permit.Gate, elicit Elicitor, opts ...Option) ([]*Server, error) {
	if gate == nil {
		return nil, errors.New("mcp.Build: the gate is missing")
	}
	configs, err := readFile(dir)
	if err != nil {
		return nil, fmt.Errorf("mcp.Build: %w", err)
	}
	b := newBuilder(gate, elicit, opts)
	var servers []*Server
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		s := b.server(ctx, name)
		var err error
		s.cfg, s.hidden, err = configs[name].expand(os.LookupEnv)
		s.start(err)
		servers = append(servers, s)
	}
	b.begin(ctx, servers)
	return servers, nil
}

// start connects the server; failed is why it is not even tried.
func (s *Server) start(failed error) { go s.run(failed) }

// builder is what the servers of a Build share.
type builder struct {
	gate   *permit.Gate // nil for none
	elicit Elicitor
	notice func(string)
	// authorize shows a person where to allow the use of a server; nil for none.
	authorize func(ctx context.Context, server, url string) error
	times     times
	sep       string // between the names of server and tool
	declined  sync.Once

	mu      sync.Mutex // protects the fields below, and what servers offer
	names   names
	servers []*Server // that have begun
	defers  bool      // their tools are deferred
}

func newBuilder(gate *permit.Gate, elicit Elicitor, opts []Option) *builder {
	b := &builder{gate: gate, elicit: elicit, times: usualTimes, sep: "_", names: names{}}
	b.notice = func(text string) { fmt.Fprintln(os.Stderr, "mcp: "+text) }
	for _, opt := range opts {
		opt(b)
	}
	return b
}

func (b *builder) server(ctx context.Context, name string) *Server {
	s := &Server{
		Name: name, prefix: name, b: b, set: client.NewToolSet(), first: make(chan struct{}), done: make(chan struct{}),
		again: make(chan struct{}, 1), changed: make(chan struct{}), active: map[*work]struct{}{},
	}
	if b.gate != nil {
		s.set.Unattended(b.gate.Unattended)
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	return s
}

// begin waits until each server is connected or has failed, and publishes what they have, in the order of their names.
func (b *builder) begin(ctx context.Context, servers []*Server) {
	for _, s := range servers {
		select {
		case <-s.first:
		case <-ctx.Done():
			s.end()
			<-s.first
		}
	}
	b.mu.Lock()
	b.servers = servers
	b.mu.Unlock()
	for _, s := range servers {
		b.publish(s)
		state := s.State()
		s.Status, s.Tools, s.Err = state.Status, state.Tools, state.Err
	}
}
