package gestalt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

var update = flag.Bool("update", false, "write the golden transcript")

// transcript is what host and provider say, for people, and the same in each run.
type transcript struct {
	mu    sync.Mutex
	text  strings.Builder
	names *strings.Replacer
	ids   map[string]string // those that are made up, and what stands in their place
	count map[byte]int      // of ids, by their first letter
}

// note writes down a call of the provider.
func (h *host) note(what string, req, reply proto.Message, err error) {
	if h.talk != nil {
		h.talk.mu.Lock()
		defer h.talk.mu.Unlock()
		h.talk.note(what, req, reply, err)
	}
}

// note writes down a call; nil writes nothing.
func (t *transcript) note(what string, req, reply proto.Message, err error) {
	if t == nil {
		return
	}
	fmt.Fprintf(&t.text, "%s\n  > %s\n", what, t.plain(req))
	if err != nil {
		fmt.Fprintf(&t.text, "  < %v: %s\n", status.Code(err), t.names.Replace(status.Convert(err).Message()))
		return
	}
	fmt.Fprintf(&t.text, "  < %s\n", t.plain(reply))
}

var (
	aTime    = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)
	anID     = regexp.MustCompile(`\b(i-|call_)[a-z0-9]{20,}`)
	aVersion = regexp.MustCompile(`"version":"[^"]*"`)
)

// plain is a message as JSON without what differs from run to run.
func (t *transcript) plain(m proto.Message) string {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		return err.Error()
	}
	text := aTime.ReplaceAllString(t.names.Replace(b.String()), `"T"`)
	text = aVersion.ReplaceAllString(text, `"version":"V"`)
	return anID.ReplaceAllStringFunc(text, func(id string) string {
		if t.ids[id] == "" {
			t.count[id[0]]++
			t.ids[id] = fmt.Sprintf("%c%d", id[0], t.count[id[0]])
		}
		return t.ids[id]
	})
}

const desk = `agents:
  - name: desk
    llm: {model: scripted/desk, instruction: "Be brief."}
  - name: other
    llm: {model: scripted/other}
tools:
  - {name: send, description: Sends a letter, needs_approval: true}
`

// deskScripts greet by a tool, and then send a letter.
var deskScripts = map[string]string{
	"desk": `answers:
  - when: {after_tool: send}
    text: [Hello, " Ada"]
  - when: {after_tool: greet}
    calls: [{name: send, id: c2, args: {to: Ada}}]
  - when: {}
    calls: [{name: greet, id: c1, args: {name: Ada}}]
`,
	"other": `answers: [{when: {}, text: "Other."}]`,
}

func deskTools() []*gestaltv1.ListedAgentTool {
	object := `{"type":"object","properties":{"name":{"type":"string"},"to":{"type":"string"}}}`
	return []*gestaltv1.ListedAgentTool{
		{Id: "t1", McpName: "greet", Title: "Greet", Description: "Greets somebody", InputSchema: object},
		{Id: "t2", McpName: "send", Title: "Send", InputSchema: object},
	}
}

// TestTranscript goes through all of it once, and compares what is said with a file that people can read. Run it with
// -update to write the file.
func TestTranscript(t *testing.T) {
	h := newHost(t, desk, deskScripts)
	h.talk = &transcript{ids: map[string]string{}, count: map[byte]int{}, names: strings.NewReplacer(h.dir, "DIR")}
	h.tools, h.paged = deskTools(), 1
	h.execute = func(_ context.Context, req *gestaltv1.ExecuteToolRequest) (*gestaltv1.ExecuteToolResponse, error) {
		if req.GetToolId() == "t1" {
			return &gestaltv1.ExecuteToolResponse{Status: 200, Body: "hi"}, nil
		}
		return &gestaltv1.ExecuteToolResponse{Status: 202, Body: `{"sent":true}`}, nil
	}
	h.start()

	const ann = "user:ann"
	session := h.session("6441", ann, "desk")
	if session.GetState() != gestaltv1.AgentSessionState_AGENT_SESSION_STATE_ACTIVE || session.GetCreatedAt() == nil ||
		!proto.Equal(session.GetCreatedBy(), actor(ann)) {
		t.Errorf("session: %v", session)
	}
	began := h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "f80b", SessionId: "6441", IdempotencyKey: "k1"})
	if began.GetStatus() != running || began.GetStartedAt() == nil {
		t.Errorf("the turn begins as %v", began)
	}
	h.until("f80b", waiting)
	h.must("AgentProvider/ListTurnEvents", &gestaltv1.ListTurnEventsRequest{TurnId: "f80b", Subject: of(ann)}, &gestaltv1.ListTurnEventsResponse{})
	h.must("AgentProvider/GetTurn", &gestaltv1.GetTurnRequest{TurnId: "f80b", Subject: of(ann)}, &gestaltv1.AgentTurn{})
	asked := &gestaltv1.ListInteractionsResponse{}
	h.must("AgentProvider/ListInteractions", &gestaltv1.ListInteractionsRequest{TurnId: "f80b", Subject: of(ann)}, asked)
	if len(asked.GetInteractions()) != 1 {
		t.Fatalf("asked: %v", asked)
	}
	id := asked.GetInteractions()[0].GetId()
	h.must("AgentProvider/GetInteraction", &gestaltv1.GetInteractionRequest{InteractionId: id, Subject: of(ann)}, &gestaltv1.AgentInteraction{})
	approve, err := structpb.NewStruct(map[string]any{"approved": true})
	if err != nil {
		t.Fatal(err)
	}
	h.must("AgentProvider/ResolveInteraction", &gestaltv1.ResolveInteractionRequest{InteractionId: id, Resolution: approve, Subject: of(ann)}, &gestaltv1.AgentInteraction{})
	again := h.call(t.Context(), "AgentProvider/ResolveInteraction", &gestaltv1.ResolveInteractionRequest{InteractionId: id, Resolution: approve, Subject: of(ann)}, &gestaltv1.AgentInteraction{})
	if status.Code(again) != codes.FailedPrecondition {
		t.Errorf("resolved twice: %v", again)
	}
	h.until("f80b", succeeded)
	h.must("AgentProvider/ListTurnEvents", &gestaltv1.ListTurnEventsRequest{TurnId: "f80b", AfterSeq: 4, Subject: of(ann)}, &gestaltv1.ListTurnEventsResponse{})
	h.must("AgentProvider/GetTurn", &gestaltv1.GetTurnRequest{TurnId: "f80b", Subject: of(ann)}, &gestaltv1.AgentTurn{})
	h.must("AgentProvider/GetSession", &gestaltv1.GetSessionRequest{SessionId: "6441", Subject: of(ann)}, &gestaltv1.AgentSession{})
	h.stop()
	golden(t, "testdata/transcript.txt", h.talk.text.String())
}

// golden compares a text with a file.
func golden(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
