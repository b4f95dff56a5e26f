package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// OnAuthorize has f show a person an address where to allow this program the use of a server, by OAuth as the MCP
// specification has it: with its discovery, dynamic registration and PKCE. The program awaits the reply on a port of
// 127.0.0.1, for at most 5 minutes, in which Build waits too. An error of f refuses. The tokens are kept in memory, for
// the life of the server. Without f, or if its headers have an Authorization, a server that wants OAuth has failed.
func OnAuthorize(f func(ctx context.Context, server, url string) error) Option {
	return func(b *builder) { b.authorize = f }
}

const (
	// consentTime is how long a person may take to allow the use of a server.
	consentTime = 5 * time.Minute
	// authTime is how long each request to an authorization server may take.
	authTime = 30 * time.Second
)

// authorizer gets the tokens for one server. It implements [auth.OAuthHandler].
type authorizer struct {
	s    *Server
	http *http.Client
	busy chan struct{} // holds a value while a person is being asked

	mu      sync.Mutex // protects the fields below
	source  oauth2.TokenSource
	refused error // why nobody is asked again
}

// errNotAllowed says that a person, or the authorization server, has not allowed the use of a server.
var errNotAllowed = errors.New("its use was not allowed")

func newAuthorizer(s *Server) *authorizer {
	a := &authorizer{
		s: s, http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}, Timeout: authTime},
		busy: make(chan struct{}, 1),
	}
	return a
}

// TokenSource implements [auth.OAuthHandler].
func (a *authorizer) TokenSource(context.Context) (oauth2.TokenSource, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.source, nil
}

// asks returns what asks the person, and awaits the reply.
func (a *authorizer) asks(back *landing) auth.AuthorizationCodeFetcher {
	return func(ctx context.Context, at *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		if u, err := url.Parse(at.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" {
			return nil, errors.New("the authorization server has no web address")
		}
		if err := a.s.b.authorize(ctx, a.s.Name, at.URL); err != nil {
			return nil, err
		}
		return back.wait(ctx)
	}
}

func (a *authorizer) refusal() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

func (a *authorizer) close() { a.http.CloseIdleConnections() }

// Authorize implements [auth.OAuthHandler]. Requests that are refused at the same time ask one question, and a
// person who refuses is not asked again.
func (a *authorizer) Authorize(ctx context.Context, req *http.Request, resp *http.Response) error {
	select {
	case a.busy <- struct{}{}:
		defer func() { <-a.busy }()
	case <-ctx.Done():
		resp.Body.Close()
		return context.Cause(ctx)
	}
	if err := a.refusal(); err != nil {
		resp.Body.Close()
		return err
	}
	if source, _ := a.TokenSource(ctx); source != nil {
		token, err := source.Token()
		if err == nil && req.Header.Get("Authorization") != "Bearer "+token.AccessToken {
			resp.Body.Close() // another request has been allowed meanwhile
			return nil
		}
	}
	a.s.count(1)
	defer a.s.count(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, consentTime, fmt.Errorf("not allowed within %s", consentTime))
	defer cancel()
	back, err := listen(ctx)
	if err != nil {
		resp.Body.Close()
		return err
	}
	defer back.close()
	h, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{
			Metadata: &oauthex.ClientRegistrationMetadata{
				ClientName: "agentd", RedirectURIs: []string{back.url}, ResponseTypes: []string{"code"},
				GrantTypes: []string{"authorization_code", "refresh_token"}, TokenEndpointAuthMethod: "none",
			},
		},
		RequestRefreshToken: true, AcceptUnadvertisedIss: true, Client: a.http,
		AuthorizationCodeFetcher: a.asks(back),
	})
	if err != nil {
		resp.Body.Close()
		return err
	}
	err = h.Authorize(ctx, req, resp)
	source, _ := h.TokenSource(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.refused = fmt.Errorf("%w: %w", errNotAllowed, err)
		return a.refused
	}
	a.source = source
	return nil
}

// landing is where a browser brings the reply of an authorization server.
type landing struct {
	url    string
	server *http.Server
	served chan struct{}
	reply  chan url.Values
}

func listen(ctx context.Context) (*landing, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &landing{
		url: "http://" + l.Addr().String() + "/callback", served: make(chan struct{}), reply: make(chan url.Values, 1),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		select {
		case b.reply <- r.URL.Query():
		default: // there is one
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("You can close this page.\n"))
	})
	b.server = &http.Server{Handler: mux, ReadHeaderTimeout: authTime}
	go func() {
		defer close(b.served)
		_ = b.server.Serve(l)
	}()
	return b, nil
}

func (b *landing) wait(ctx context.Context) (*auth.AuthorizationResult, error) {
	select {
	case v := <-b.reply:
		if v.Get("code") == "" {
			says := clip(v.Get("error")+" "+v.Get("error_description"), 300)
			return nil, fmt.Errorf("the authorization server says %q", says)
		}
		return &auth.AuthorizationResult{Code: v.Get("code"), State: v.Get("state"), Iss: v.Get("iss")}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close ends the server when the page has been shown.
func (b *landing) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if b.server.Shutdown(ctx) != nil {
		_ = b.server.Close()
	}
	<-b.served
}
