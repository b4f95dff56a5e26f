package client

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"
)

// TokenSource returns the credential for the next request: an API key of agentd, or a token of the issuer that the
// server trusts. It is called for each request, on the goroutine that makes it and several at once, so it keeps what it
// has fetched until that is about to expire. An error counts as a connection that cannot be had.
type TokenSource func(ctx context.Context) (string, error)

// WithAPIKey sends an API key, or a token that does not change, with each request. It must not be sent to a server that
// is reached without TLS over a network.
func WithAPIKey(key string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return key, nil })
}

// WithTokenSource sends what source returns with each request, as "Authorization: Bearer …". A stream whose token has
// expired, or was revoked, is set up again where it was, and a request that is refused for it made again, if source
// then returns another token.
func WithTokenSource(source TokenSource) Option {
	return clientOption(func(c *config) {
		if c.token = source; source == nil {
			c.failf("client.WithTokenSource: want a source, got nil")
		}
	})
}

// authorized sends the credential of a source with each request.
type authorized struct {
	connect.HTTPClient
	source TokenSource
}

// withToken returns a client that sends what source returns; a nil source sends nothing.
func withToken(c connect.HTTPClient, source TokenSource) connect.HTTPClient {
	if source == nil {
		return c
	}
	return authorized{c, source}
}

func (a authorized) Do(req *http.Request) (*http.Response, error) {
	token, err := a.source(req.Context())
	if err != nil {
		return nil, fmt.Errorf("the token of this client: %w", err)
	}
	if sent, ok := req.Context().Value(sentKey{}).(*sentToken); ok {
		sent.last.Store(&token)
	}
	req = req.WithContext(req.Context()) // a copy: the request is not ours
	req.Header = req.Header.Clone()
	req.Header.Set("Authorization", "Bearer "+token)
	return a.HTTPClient.Do(req)
}

// CloseIdleConnections closes those of the client below.
func (a authorized) CloseIdleConnections() {
	if closer, ok := a.HTTPClient.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// sentToken is the last token that was sent for a run, a watch or a request.
type sentToken struct {
	source TokenSource
	last   atomic.Pointer[string]
}

// sentKey is the key of the sentToken in the context of requests.
type sentKey struct{}

// newSentToken returns what notes the tokens of the requests of the context that it returns; nil without a source.
func (c *Client) newSentToken(ctx context.Context) (context.Context, *sentToken) {
	if c.cfg.token == nil {
		return ctx, nil
	}
	s := &sentToken{source: c.cfg.token}
	return context.WithValue(ctx, sentKey{}, s), s
}

// renewed reports whether a request that has failed is worth another try: the server has refused its token, and the
// source has another one, or cannot say so now.
func (s *sentToken) renewed(ctx context.Context, failure *Error) bool {
	if s == nil || failure == nil || failure.Code != ErrUnauthenticated {
		return false
	}
	token, err := s.source(ctx)
	last := s.last.Load()
	return err != nil || last != nil && token != *last
}
