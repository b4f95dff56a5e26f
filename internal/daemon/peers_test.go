package daemon_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
)

// peer is a tool of other people that calls SessionService.
type peer struct {
	name string
	// command is how to call a method; the message is in the file.
	command func(method, message, file string) []string
	// framed is that a stream goes in as it is on the wire, and comes out so.
	framed bool
}

// peers are the tools, in the folder bin, for a daemon at the address.
func peers(bin, addr string) []peer {
	const service = "agentd.v1.SessionService"
	buf := func(opts ...string) func(method, message, file string) []string {
		return func(method, message, _ string) []string {
			args := append([]string{filepath.Join(bin, "buf"), "curl"}, opts...)
			return append(args, "--data", message, "http://"+addr+"/"+service+"/"+method)
		}
	}
	grpcurl := func(opts ...string) func(method, message, file string) []string {
		return func(method, message, _ string) []string {
			args := append([]string{filepath.Join(bin, "grpcurl"), "-plaintext"}, opts...)
			return append(args, "-d", message, addr, service+"/"+method)
		}
	}
	return []peer{
		{name: "buf curl, gRPC, reflection v1", command: buf("--protocol", "grpc", "--http2-prior-knowledge", "--reflect-protocol", "grpc-v1")},
		{name: "buf curl, gRPC-Web, reflection v1alpha", command: buf("--protocol", "grpcweb", "--http2-prior-knowledge", "--reflect-protocol", "grpc-v1alpha")},
		{name: "buf curl, Connect, reflection v1", command: buf("--protocol", "connect", "--http2-prior-knowledge", "--reflect-protocol", "grpc-v1")},
		{name: "buf curl, Connect, HTTP/1.1, proto files", command: buf("--protocol", "connect", "--schema", ".")},
		{name: "grpcurl, reflection", command: grpcurl()},
		{name: "grpcurl, proto files", command: grpcurl("-import-path", "proto", "-import-path", ".cache/protovalidate", "-proto", "agentd/v1/sessions.proto")},
		{name: "curl, HTTP/1.1", framed: true, command: func(method, message, file string) []string {
			body, kind := message, "application/json"
			if method == "WatchTurn" {
				body, kind = "@"+file, "application/connect+json"
			}
			return []string{"curl", "--http1.1", "--silent", "--show-error", "--fail-with-body", "--no-buffer", "--header", "Content-Type: " + kind,
				"--data-binary", body, "http://" + addr + "/" + service + "/" + method}
		}},
	}
}

// TestPeers has a turn with a tool call be run by tools that others use, with
// what they know of the protocol from reflection and from the proto files. It
// needs the tools, which scripts/peers builds, in the folder that AGENTD_PEERS
// names.
func TestPeers(t *testing.T) {
	bin := os.Getenv("AGENTD_PEERS")
	if bin == "" {
		t.Skip("scripts/peers runs this test")
	}
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	addr := strings.TrimPrefix(d.URL(), "http://")
	for _, p := range peers(bin, addr) {
		t.Run(p.name, func(t *testing.T) { p.turn(t) })
	}
	t.Run("lists", func(t *testing.T) {
		for name, args := range map[string][]string{
			"grpcurl":               {filepath.Join(bin, "grpcurl"), "-plaintext", addr, "list"},
			"buf curl, v1":          {filepath.Join(bin, "buf"), "curl", "--http2-prior-knowledge", "--reflect-protocol", "grpc-v1", "--list-services", d.URL()},
			"buf curl, v1alpha":     {filepath.Join(bin, "buf"), "curl", "--http2-prior-knowledge", "--reflect-protocol", "grpc-v1alpha", "--list-services", d.URL()},
			"grpcurl, of a service": {filepath.Join(bin, "grpcurl"), "-plaintext", addr, "list", "agentd.v1.SessionService"},
		} {
			out := string(command(t, args))
			want := []string{"agentd.v1.Agentd", "agentd.v1.SessionService"}
			if strings.HasSuffix(name, "service") {
				want = []string{"CreateTurn", "WatchTurn", "ForkSession", "ResolveInteraction"}
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("%s does not list %s: %s", name, w, out)
				}
			}
		}
	})
}

// command runs a tool in the root of the repository and returns what it prints.
func command(t *testing.T, args []string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "NO_PROXY=*")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, out, stderr.String())
	}
	return out
}

// printed is what the tools print of the messages that matter here.
type printed struct {
	Turn struct {
		ID         string `json:"id"`
		SessionID  string `json:"sessionId"`
		Status     string `json:"status"`
		OutputText string `json:"outputText"`
		Usage      struct {
			Calls string `json:"modelCalls"` // 64 bits are text in JSON
		} `json:"usage"`
	} `json:"turn"`
	Refused []json.RawMessage `json:"refused"`
	Event   struct {
		Seq      string `json:"seq"`
		ToolCall struct {
			ID    string `json:"toolCallId"`
			Name  string `json:"toolName"`
			Input string `json:"toolInput"`
		} `json:"toolCall"`
		OutputChunk struct {
			Content string `json:"content"`
		} `json:"outputChunk"`
		End *struct {
			Completed bool `json:"completed"`
		} `json:"end"`
	} `json:"event"`
}

func (p peer) call(t *testing.T, method, message string) printed {
	t.Helper()
	out := command(t, p.command(method, message, ""))
	var got printed
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v: %s", method, err, out)
	}
	return got
}

// turn runs a turn: it calls a tool, gets its result, and says the result.
func (p peer) turn(t *testing.T) {
	turn := p.call(t, "CreateTurn", `{"execute":{"userPrompt":"go","tools":[{"name":"look","description":"looks"}],`+
		`"agent":{"name":"root","llm":{"model":"scripted/asks","toolNames":["look"]}}}}`).Turn
	if turn.ID == "" || turn.SessionID == "" {
		t.Fatalf("the turn is %+v", turn)
	}
	named := fmt.Sprintf(`"sessionId":%q,"turnId":%q`, turn.SessionID, turn.ID)
	events := p.watch(t, `{`+named+`,"toolNames":["look"]}`)
	var text, seq string
	for {
		m, err := events()
		if err != nil {
			t.Fatalf("the stream has no end after %q: %v", text, err)
		}
		if m.Event.Seq == "" {
			t.Errorf("an event without a position: %+v", m)
		}
		seq = m.Event.Seq
		text += m.Event.OutputChunk.Content
		if call := m.Event.ToolCall; call.ID != "" {
			if call.Name != "look" || strings.ReplaceAll(call.Input, " ", "") != `{"where":"north"}` {
				t.Errorf("the call is %+v", call)
			}
			body := fmt.Sprintf(`{%s,"results":[{"toolCallId":%q,"output":"fog and 日本"}]}`, named, call.ID)
			if got := p.call(t, "SubmitToolResults", body); len(got.Refused) != 0 || got.Turn.ID != turn.ID {
				t.Errorf("the result is answered with %+v", got)
			}
		}
		if m.Event.End != nil {
			if !m.Event.End.Completed {
				t.Errorf("the end is %+v", m)
			}
			break
		}
	}
	if _, err := events(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end comes %v", err)
	}
	if want := "Let me look. fog and 日本"; text != want || seq == "" {
		t.Errorf("text %q, want %q", text, want)
	}
	got := p.call(t, "GetTurn", `{`+named+`}`).Turn
	if got.Status != "TURN_STATUS_SUCCEEDED" || got.OutputText != "fog and 日本" || got.Usage.Calls != "2" {
		t.Errorf("the turn is %+v", got)
	}
}

// watch follows a turn. The events come from the tool as it prints them.
func (p peer) watch(t *testing.T, message string) (next func() (printed, error)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "message")
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	if err := os.WriteFile(file, append(frame, message...), 0o600); err != nil {
		t.Fatal(err)
	}
	args := p.command("WatchTurn", message, file)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "../..", append(os.Environ(), "NO_PROXY=*"), 10*time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if ended {
			return
		}
		ended = true
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v\n%s", args, err, stderr.String())
		}
	}
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	dec := json.NewDecoder(out)
	return func() (m printed, err error) {
		if p.framed {
			err = p.frame(out, &m)
		} else {
			err = dec.Decode(&m)
		}
		if errors.Is(err, io.EOF) {
			end()
		}
		return m, err
	}
}

// frame reads a message as it is on the wire; io.EOF for the last one.
func (peer) frame(r io.Reader, m *printed) error {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("the stream breaks off: %w", io.ErrUnexpectedEOF)
	}
	data := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(r, data); err != nil {
		return fmt.Errorf("the stream breaks off: %w", io.ErrUnexpectedEOF)
	}
	if head[0]&2 != 0 {
		if bytes.Contains(data, []byte(`"error"`)) {
			return fmt.Errorf("the stream ends with %s", data)
		}
		return io.EOF
	}
	return json.Unmarshal(data, m)
}
