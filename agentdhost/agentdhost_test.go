package agentdhost_test

import (
	"bytes"
	"context"
	"fmt"
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
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		os.Exit(code)
	}))
}

var _ = acme.New // which registers itself

// A provider that has registered itself is served, with its key from the
// environment, which is nowhere in the record.
func TestServe(t *testing.T) {
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"text\":%q}\n\ndata: {\"done\":{\"usage\":{\"Prompt\":1,\"Completion\":2,\"Total\":3}}}\n\n", "I heard "+r.Header.Get("Authorization"))
	}))
	defer vendor.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- agentdhost.Serve(ctx, agentdhost.Config{
			Listener: listener, RecordTo: file,
			Getenv: func(name string) string {
				return map[string]string{"ACME_API_KEY": "canary-acme", "ACME_BASE_URL": vendor.URL}[name]
			},
		})
	}()
	agent := &agentdv1.Agent{Name: "a", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "acme/rocket-1"}}}
	text := ""
	for event, err := range client.New("http://"+listener.Addr().String()).Run(t.Context(), agent, "Hello?") {
		if err != nil {
			t.Fatal(err)
		}
		if event.OutputChunk != nil {
			text += event.OutputChunk.Content
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if text != "I heard Bearer canary-acme" {
		t.Errorf("the model says %q", text)
	}
	data, err := os.ReadFile(file)
	if err != nil || bytes.Contains(data, []byte("canary")) || !strings.Contains(string(data), "I heard Bearer ***") {
		t.Errorf("recorded %s, %v", data, err)
	}
}

func TestServeFails(t *testing.T) {
	err := agentdhost.Serve(t.Context(), agentdhost.Config{Addr: "here"})
	if err == nil || !strings.Contains(err.Error(), "want host:port") {
		t.Errorf("%v", err)
	}
}
