package client

import (
	"context"
	"net/http"
)

// configure returns what the client's defaults of a use say; apply adds the options
// of the call itself.
func (c *Client) configure(of use, apply func(*runConfig)) (*runConfig, error) {
	rc := &runConfig{header: make(http.Header), concurrency: DefaultConcurrency, attach: of == useAttach}
	for _, o := range c.cfg.defaults {
		if o.uses&of != 0 {
			o.set(rc)
		}
	}
	apply(rc)
	switch {
	case c.err != nil:
		return nil, c.err
	case c.cfg.err != nil:
		return nil, c.cfg.err
	case rc.err != nil:
		return nil, rc.err
	case of == useRequest:
		return rc, nil
	}
	if err := c.journal.open(); err != nil {
		return nil, errorf(ErrInvalidRequest, "client.WithToolJournal: %w", err)
	}
	return rc, nil
}

func runOptions(opts []RunOption) func(*runConfig) {
	return func(rc *runConfig) {
		for _, o := range opts {
			o.applyRun(rc)
		}
	}
}

func sendOptions(opts []SendOption) func(*runConfig) {
	return func(rc *runConfig) {
		for _, o := range opts {
			o.applySend(rc)
		}
	}
}

func attachOptions(opts []AttachOption) func(*runConfig) {
	return func(rc *runConfig) {
		for _, o := range opts {
			o.applyAttach(rc)
		}
	}
}

// request returns what a request that is no run needs.
func (c *Client) request(opts []RequestOption) (*runConfig, error) {
	return c.configure(useRequest, func(rc *runConfig) {
		for _, o := range opts {
			o.applyRequest(rc)
		}
	})
}

// context returns the context of the run, with its timeout.
func (c *runConfig) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout != 0 {
		return context.WithTimeout(ctx, c.timeout)
	}
	return context.WithCancel(ctx)
}

func (c *runConfig) failf(err error) {
	if c.err == nil {
		c.err = err
	}
}
