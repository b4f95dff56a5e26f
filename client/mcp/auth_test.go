//go:build unix

package mcp_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client/mcp"
)

// guarded is an MCP server that wants a token, and the authorization server that gives it.
type guarded struct {
	*httptest.Server
	mu        sync.Mutex
	valid     string // the token that is taken
	issued    int
	challenge string
	redirect  string
	refreshes int
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{}
	life, end := context.WithCancel(context.Background())
	server := newServer(life, "plain")
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	mux := http.NewServeMux()
	say := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		ok := g.valid != "" && r.Header.Get("Authorization") == "Bearer "+g.valid
		g.mu.Unlock()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+g.URL+`/.well-known/oauth-protected-resource/mcp"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{"resource": g.URL + "/mcp", "authorization_servers": []string{g.URL}})
	})
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{
			"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token",
			"registration_endpoint": g.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			RedirectURIs []string `json:"redirect_uris"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		g.mu.Lock()
		g.redirect = in.RedirectURIs[0]
		g.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		say(w, map[string]any{"client_id": "c1", "redirect_uris": in.RedirectURIs, "token_endpoint_auth_method": "none"})
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.challenge = q.Get("code_challenge")
		if q.Get("redirect_uri") != g.redirect || q.Get("client_id") != "c1" || q.Get("resource") != g.URL+"/mcp" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		http.Redirect(w, r, g.redirect+"?"+url.Values{"code": {"code1"}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		g.mu.Lock()
		defer g.mu.Unlock()
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		switch {
		case r.Form.Get("grant_type") == "refresh_token" && r.Form.Get("refresh_token") == "again":
			g.refreshes++
		case r.Form.Get("code") == "code1" && base64.RawURLEncoding.EncodeToString(sum[:]) == g.challenge:
		default:
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		g.issued++
		g.valid = fmt.Sprintf("token%d", g.issued)
		say(w, map[string]any{"access_token": g.valid, "token_type": "Bearer", "expires_in": 11, "refresh_token": "again"})
	})
	g.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		end()
		for session := range server.Sessions() {
			session.Close()
		}
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

// TestOAuth: a person allows the use of a server once; Build waits meanwhile, longer than for a server. An expired token
// is replaced without a question.
func TestOAuth(t *testing.T) {
	g := newGuarded(t)
	asked := 0
	opens := func(ctx context.Context, server, address string) error {
		asked++
		if server != "s" || !strings.HasPrefix(address, g.URL+"/authorize?") {
			t.Errorf("asked for %s to open %s", server, address)
		}
		<-time.After(time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			return err
		}
		browser := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := browser.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	entry := map[string]any{"transport": "http", "url": g.URL + "/mcp"}
	s := build(t, map[string]any{"s": entry}, nil, mcp.OnAuthorize(opens),
		mcp.Quick(700*time.Millisecond, 10*time.Second, time.Millisecond, time.Second))[0]
	if s.Status != mcp.StatusOK || asked != 1 {
		t.Fatalf("status %s after %d questions: %v", s.Status, asked, s.Err)
	}
	gives(t, s, "s_echo", map[string]any{"text": "in"}, "in")
	<-time.After(1500 * time.Millisecond) // a token is replaced 10 s before it expires
	gives(t, s, "s_echo", map[string]any{"text": "still"}, "still")
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refreshes == 0 || asked != 1 {
		t.Errorf("%d refreshes, %d questions", g.refreshes, asked)
	}
}

// TestOAuthRefused: without a person, or one who refuses, the server has failed.
func TestOAuthRefused(t *testing.T) {
	g := newGuarded(t)
	entry := map[string]any{"transport": "http", "url": g.URL + "/mcp"}
	if s := build(t, map[string]any{"s": entry}, nil)[0]; s.Status != mcp.StatusError || !strings.Contains(s.Err.Error(), "401") {
		t.Errorf("without a person: %s, %v", s.Status, s.Err)
	}
	asked := 0
	refuses := mcp.OnAuthorize(func(context.Context, string, string) error {
		asked++
		return errors.New("not today")
	})
	if s := build(t, map[string]any{"s": entry}, nil, refuses)[0]; s.Status != mcp.StatusError || !strings.Contains(s.Err.Error(), "not today") {
		t.Errorf("refused: %s, %v", s.Status, s.Err)
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	entry["headers"] = map[string]string{"authorization": "Bearer wrong"}
	asks := mcp.OnAuthorize(func(context.Context, string, string) error { t.Error("asked"); return nil })
	if s := build(t, map[string]any{"s": entry}, nil, asks)[0]; s.Status != mcp.StatusError {
		t.Error("a wrong token is taken")
	}
}
