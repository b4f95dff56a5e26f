package gestalt_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// realHost is a gestaltd on loopback with agentd as the provider of its agents. What the host keeps is in an IndexedDB
// provider that stays when the host goes.
type realHost struct {
	t       *testing.T
	program string
	dir     string
	address string
	env     map[string]string // of agentd
	post    string            // where the plugin's operations are

	cmd   *exec.Cmd // the last process
	log   *output   // of all
	ended chan struct{}
	err   error // how the last one ended; to be read then
}

// newRealHost is a host that is not started; nil if there is none.
func newRealHost(t *testing.T, agents string) *realHost {
	t.Helper()
	gestaltd, indexeddb := os.Getenv("AGENTD_GESTALTD"), os.Getenv("AGENTD_GESTALT_INDEXEDDB")
	if gestaltd == "" || indexeddb == "" {
		fmt.Println("NOT RUN: AGENTD_GESTALTD and AGENTD_GESTALT_INDEXEDDB name no gestaltd and no IndexedDB provider")
		return nil
	}
	h := &realHost{t: t, program: gestaltd, dir: t.TempDir(), log: &output{}}
	t.Cleanup(func() {
		h.end(syscall.SIGKILL)
		if text := h.log.String(); t.Failed() {
			t.Logf("the log of the host ends with:\n%s", text[max(0, len(text)-8000):])
		}
	})
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), bin, "gestalt-provider", "--package="+h.path("agentd")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h.write("agents.yaml", agents)
	// By this name the host gives plugins parts of it.
	h.standIn("indexeddb/relationaldb", "indexeddb", relays, h.store(indexeddb))
	h.standIn("externalcredentials", "external_credentials", noCredentials)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *realHost) path(name string) string { return filepath.Join(h.dir, name) }

func (h *realHost) write(name, text string) {
	h.t.Helper()
	err := os.MkdirAll(filepath.Dir(h.path(name)), 0o700)
	if err == nil {
		err = os.WriteFile(h.path(name), []byte(text), 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// object writes a file of YAML, which JSON is.
func (h *realHost) object(name string, of map[string]any) {
	h.t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(name, string(text))
}

// standIn makes a provider of this program.
func (h *realHost) standIn(name, kind string, args ...string) {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	h.object(name+"/manifest.yaml", map[string]any{
		"kind": kind, "source": "github.com/apzuk3/agentd/" + name, "version": "0.0.1", "displayName": name, "spec": map[string]any{},
		"entrypoint": map[string]any{"artifactPath": "program", "args": args},
		"artifacts":  []any{map[string]any{"os": runtime.GOOS, "arch": runtime.GOARCH, "path": "program"}},
	})
	data, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(h.path(name+"/program"), data, 0o700)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// store starts an IndexedDB provider by its manifest and returns its socket. It ends with the test.
func (h *realHost) store(manifest string) string {
	h.t.Helper()
	data, err := os.ReadFile(manifest)
	if err != nil {
		h.t.Fatal(err)
	}
	var m struct {
		Entrypoint struct {
			ArtifactPath string `yaml:"artifactPath"`
			Args         []string
		}
	}
	if err := yaml.Unmarshal(data, &m); err != nil || m.Entrypoint.ArtifactPath == "" {
		h.t.Fatalf("AGENTD_GESTALT_INDEXEDDB: %s has no entrypoint.artifactPath (%v): docs/gestalt.md says how to build one", manifest, err)
	}
	socket := h.path("store.sock")
	cmd := exec.Command(filepath.Join(filepath.Dir(manifest), m.Entrypoint.ArtifactPath), m.Entrypoint.Args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "TMPDIR=" + h.dir, "GESTALT_PLUGIN_SOCKET=" + socket, "GESTALT_PLUGIN_NAME=main"}
	cmd.Stdout, cmd.Stderr = h.log, h.log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	h.await("the IndexedDB provider", func() bool {
		_, err := os.Lstat(socket)
		return err == nil
	})
	return socket
}

// plugin makes a plugin with two operations, which are requests to an address.
func (h *realHost) plugin(address string) {
	h.t.Helper()
	h.post = address
	operation := func(name, parameter string) map[string]any {
		return map[string]any{
			"name": name, "description": name + " somebody", "method": http.MethodPost, "path": "/" + name,
			"parameters": []any{map[string]any{"name": parameter, "type": "string", "in": "body", "required": true}},
		}
	}
	h.object("post/manifest.yaml", map[string]any{
		"kind": "plugin", "source": "github.com/apzuk3/agentd/post", "version": "0.0.1", "displayName": "Post",
		"spec": map[string]any{
			"connections": map[string]any{"default": map[string]any{"mode": "none", "auth": map[string]any{"type": "none"}}},
			"surfaces": map[string]any{"rest": map[string]any{
				"connection": "default", "baseUrl": address, "operations": []any{operation("greet", "name"), operation("send", "to")},
			}},
		},
	})
}

// configure writes a configuration and returns its file; more is of agentd's.
func (h *realHost) configure(name string, more map[string]any) string {
	h.t.Helper()
	from := func(file string) map[string]any { return map[string]any{"path": h.path(file)} }
	_, port, err := net.SplitHostPort(h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	config := map[string]any{"agents": h.path("agents.yaml"), "data": h.path("data")}
	maps.Copy(config, more)
	all := map[string]any{
		"apiVersion": "gestaltd.config/v5",
		"server": map[string]any{
			"baseUrl": "http://" + h.address, "public": map[string]any{"host": "127.0.0.1", "port": json.Number(port)},
			"encryptionKey": "a-key-of-a-test",
			"providers":     map[string]any{"indexeddb": "main", "externalCredentials": "none"},
		},
		"providers": map[string]any{
			"indexeddb":           map[string]any{"main": map[string]any{"source": from("indexeddb/relationaldb/manifest.yaml")}},
			"externalCredentials": map[string]any{"none": map[string]any{"source": from("externalcredentials/manifest.yaml")}},
			"agent": map[string]any{"agentd": map[string]any{
				"source": from("agentd/manifest.yaml"), "env": h.env, "config": config,
			}},
		},
	}
	if h.post != "" {
		all["plugins"] = map[string]any{"post": map[string]any{"source": from("post/manifest.yaml")}}
	}
	h.object(name, all)
	return h.path(name)
}

// command is a command of the host.
func (h *realHost) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "TMPDIR=" + h.dir}
	cmd.Dir = h.dir
	return cmd
}

// start starts the host and waits until it is ready.
func (h *realHost) start() {
	h.t.Helper()
	cmd := h.command("serve", "--config", h.path("config.yaml"))
	cmd.Stdout, cmd.Stderr = h.log, h.log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := make(chan struct{})
	h.cmd, h.ended = cmd, ended
	go func() { // ends with the process
		h.err = cmd.Wait()
		close(ended)
	}()
	h.await("the host", func() bool {
		select {
		case <-ended:
			h.t.Fatalf("the host has ended: %v", h.err)
		default:
		}
		res, err := http.Get("http://" + h.address + "/ready")
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	})
}

// end ends the host by a signal, and waits for it.
func (h *realHost) end(signal syscall.Signal) {
	if h.cmd == nil {
		return
	}
	_ = h.cmd.Process.Signal(signal) // it may have ended
	<-h.ended
	h.cmd = nil
}

func (h *realHost) await(what string, so func() bool) {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("%s: not within a minute", what)
		}
	}
}

// answer is an object of the host's API.
type answer struct {
	ID, SessionID, TurnID, Provider, Model, ClientRef, State, Status, StatusMessage, OutputText, Type, Title, Prompt string
	ExecutionRef                                                                                                     string
	Metadata, Request, Resolution, StructuredOutput                                                                  map[string]any
	Messages                                                                                                         []map[string]any
	CreatedBy                                                                                                        *struct{ SubjectID string }
	CreatedAt, UpdatedAt, LastTurnAt, StartedAt, CompletedAt, ResolvedAt                                             *time.Time
	Error                                                                                                            string
}

// call sends a request to the host, and returns the body of the answer, which has to have a status.
func (h *realHost) call(method, path string, body any, want int) []byte {
	h.t.Helper()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			h.t.Fatal(err)
		}
		sent = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute) // the host may have lost the end of a stream
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+h.address+"/api/v1/agent"+path, sent)
	if err != nil {
		h.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		h.t.Fatal(err)
	}
	if res.StatusCode != want {
		h.t.Fatalf("%s %s: %s, want %d: %s", method, path, res.Status, want, got)
	}
	return got
}

// do is call for an object.
func (h *realHost) do(method, path string, body any, want int) (out answer) {
	h.t.Helper()
	if err := json.Unmarshal(h.call(method, path, body, want), &out); err != nil {
		h.t.Fatal(err)
	}
	return out
}

// list is call for a list.
func (h *realHost) list(path string) (out []answer) {
	h.t.Helper()
	if err := json.Unmarshal(h.call(http.MethodGet, path, nil, http.StatusOK), &out); err != nil {
		h.t.Fatal(err)
	}
	return out
}

// turn is a turn as it is now.
func (h *realHost) turn(id string) answer {
	h.t.Helper()
	return h.do(http.MethodGet, "/turns/"+id, nil, http.StatusOK)
}

// prompt makes a turn.
func (h *realHost) prompt(session, text string) answer {
	h.t.Helper()
	return h.do(http.MethodPost, "/sessions/"+session+"/turns", map[string]any{"messages": []any{map[string]any{"role": "user", "text": text}}}, http.StatusCreated)
}

// stream reads the events of a turn after a number, until it is over, or a person is asked.
func (h *realHost) stream(turn string, after int) []*gestaltv1.AgentTurnEvent {
	h.t.Helper()
	text := h.call(http.MethodGet, fmt.Sprintf("/turns/%s/events/stream?until=blocked_or_terminal&after=%d", turn, after), nil, http.StatusOK)
	var events []json.RawMessage
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		switch data, ok := strings.CutPrefix(s.Text(), "data: "); {
		case ok:
			events = append(events, json.RawMessage(data))
		case s.Text() != "" && !strings.HasPrefix(s.Text(), ":"):
			h.t.Fatalf("the stream says %q", s.Text())
		}
	}
	return h.read(events)
}

// events lists the events of a turn.
func (h *realHost) events(turn string) []*gestaltv1.AgentTurnEvent {
	h.t.Helper()
	var events []json.RawMessage
	if err := json.Unmarshal(h.call(http.MethodGet, "/turns/"+turn+"/events", nil, http.StatusOK), &events); err != nil {
		h.t.Fatal(err)
	}
	return h.read(events)
}

// read reads events, whose JSON is that of the protocol but for what the host adds to the display.
func (h *realHost) read(texts []json.RawMessage) (out []*gestaltv1.AgentTurnEvent) {
	h.t.Helper()
	for _, text := range texts {
		e := &gestaltv1.AgentTurnEvent{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, e); err != nil {
			h.t.Fatalf("event %s: %v", text, err)
		}
		out = append(out, e)
	}
	return out
}

// over waits until a turn is over, which has to end like that.
func (h *realHost) over(turn, want string) answer {
	h.t.Helper()
	for h.stream(turn, 0); ; { // it returns when a person is asked, too
		got := h.turn(turn)
		if slices.Contains([]string{"succeeded", "failed", "canceled", "waiting_for_input"}, got.Status) {
			if got.Status != want {
				h.t.Fatalf("turn %s is %s, want %s: %s", turn, got.Status, want, got.StatusMessage)
			}
			return got
		}
	}
}
