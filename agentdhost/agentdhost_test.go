package agentdhost_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/agentdhost"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/examples/provider/acme"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		os.Exit(code)
	}))
}

// talk is what the model acme/rocket-1 of a host at url says.
func talk(t *testing.T, url string, opts ...client.Option) (text string) {
	t.Helper()
	agent := &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "acme/rocket-1"}}}
	for event, err := range client.New(url, opts...).Run(t.Context(), agent, "Hello?") {
		if err != nil {
			t.Fatal(err)
		}
		if event.OutputChunk != nil {
			text += event.OutputChunk.Content
		}
	}
	return text
}

// newVendor is a provider that says which key it was given.
func newVendor(t *testing.T) model.Provider {
	t.Helper()
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"text\":%q}\n\ndata: {\"done\":{\"usage\":{\"Prompt\":1,\"Completion\":2,\"Total\":3}}}\n\n", "I heard "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		vendor.Close()
	})
	return acme.New(vendor.URL, "canary-acme")
}

func nowhere(string) string { return "" }

var quiet = slog.New(slog.DiscardHandler)

// A host serves a provider that is a value, whose key is nowhere in the record, on
// loopback, and ends twice.
func TestHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	host, err := agentdhost.New(agentdhost.Config{
		Addr: "127.0.0.1:0", RecordTo: file, Providers: []model.Provider{newVendor(t)}, Getenv: nowhere, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	text := talk(t, "http://"+host.Addr().String())
	for range 2 {
		if err := host.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if text != "I heard Bearer canary-acme" {
		t.Errorf("the model says %q", text)
	}
	data, err := os.ReadFile(file)
	if err != nil || bytes.Contains(data, []byte("canary")) || !strings.Contains(string(data), "I heard Bearer ***") {
		t.Errorf("recorded %s, %v", data, err)
	}
	select {
	case err := <-host.Failed():
		t.Errorf("failed: %v", err)
	default:
	}
}

// A host with Authenticate may listen where others reach it, knows who asks, and refuses
// who is nobody.
func TestAuthenticate(t *testing.T) {
	host, err := agentdhost.New(agentdhost.Config{
		Addr: "0.0.0.0:0", Providers: []model.Provider{newVendor(t)}, Getenv: nowhere, Logger: quiet,
		Authenticate: func(r *http.Request) (agentdhost.Principal, error) {
			token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok {
				return agentdhost.Principal{}, errors.New("no token")
			}
			return agentdhost.Principal{ID: token, Tenant: "acme", Role: agentdhost.Caller}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	_, port, err := net.SplitHostPort(host.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	url := "http://127.0.0.1:" + port
	agent := &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "acme/rocket-1"}}}
	text := ""
	for event, err := range client.New(url).Run(t.Context(), agent, "Hello?", client.WithHeader("Authorization", "Bearer ann")) {
		if err != nil {
			t.Fatal(err)
		}
		if event.OutputChunk != nil {
			text += event.OutputChunk.Content
		}
	}
	if text != "I heard Bearer canary-acme" {
		t.Errorf("the model says %q", text)
	}
	refused := 0
	for _, err := range client.New(url).Run(t.Context(), agent, "Hello?") {
		if refused++; !errors.Is(err, client.ErrUnauthenticated) {
			t.Errorf("a caller without a token: %v", err)
		}
	}
	if refused != 1 {
		t.Errorf("a caller without a token: %d events", refused)
	}
}

// A host that does not listen is served by a server of the caller's, and answers
// nothing once it is shut down.
func TestHandlerOnly(t *testing.T) {
	host, err := agentdhost.New(agentdhost.Config{HandlerOnly: true, Providers: []model.Provider{newVendor(t)}, Getenv: nowhere, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if host.Addr() != nil {
		t.Errorf("it listens at %v", host.Addr())
	}
	mux := http.NewServeMux()
	mux.Handle("/", host.Handler())
	srv := httptest.NewUnstartedServer(mux)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	if text := talk(t, srv.URL, client.WithHTTPClient(srv.Client())); text != "I heard Bearer canary-acme" {
		t.Errorf("the model says %q", text)
	}
	if err := host.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after the shutdown: status %d, want 503", resp.StatusCode)
	}
}

// A listener that ends by itself is told on Failed.
func TestFailed(t *testing.T) {
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, err := agentdhost.New(agentdhost.Config{Listener: listener, Getenv: nowhere, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-host.Failed(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("failed with %v", err)
	}
	if err := host.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	for want, cfgs := range map[string][]agentdhost.Config{
		"want host:port":         {{Addr: "here"}},
		"authenticates":          {{Addr: ":0"}, {Addr: "0.0.0.0:0"}, {Addr: "[::]:0"}, {Addr: "192.0.2.1:80"}, {Addr: "host.example:80"}, {Listener: abroad{}}},
		"neither Addr nor":       {{HandlerOnly: true, Addr: "127.0.0.1:0"}, {HandlerOnly: true, Listener: abroad{}}},
		"provider 0 is nil":      {{HandlerOnly: true, Providers: []model.Provider{nil}}},
		"second one of the name": {{HandlerOnly: true, Providers: []model.Provider{newVendor(t), newVendor(t)}}},
		"claim models":           {{HandlerOnly: true, Providers: []model.Provider{claimer{}}}},
		"listen on \"192.0.2.1":  {{Insecure: true, Addr: "192.0.2.1:80"}},
	} {
		for _, cfg := range cfgs {
			cfg.Getenv, cfg.Logger = nowhere, quiet
			if _, err := agentdhost.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %s", cfg, err, want)
			}
		}
	}
}

// abroad is a listener that other machines reach.
type abroad struct{ net.Listener }

func (abroad) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }
func (abroad) Close() error   { return nil }

// claimer claims models of another provider.
type claimer struct{ model.Provider }

func (claimer) Describe() model.Description {
	return model.Description{Name: "claimer", Prefixes: []string{"gpt-"}}
}

// Over a loopback address a host answers to the names that it is given, and to no others.
func TestAllowedHosts(t *testing.T) {
	host, err := agentdhost.New(agentdhost.Config{
		Addr: "127.0.0.1:0", AllowedHosts: []string{"agents.example"}, Getenv: nowhere, Logger: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	for name, want := range map[string]int{"agents.example": http.StatusOK, "evil.example": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host.Addr().String()+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = name
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
