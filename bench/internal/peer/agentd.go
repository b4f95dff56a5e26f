package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/bench/internal/script"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// Models are what agentd's agents have for a model, by the wire of its provider.
var Models = map[providertest.Wire]string{
	providertest.Gemini:          script.GeminiModel,
	providertest.OpenAIChat:      "openai-chat/gpt-5-mini",
	providertest.OpenAIResponses: "openai-responses/gpt-5-mini",
	providertest.Anthropic:       "claude-sonnet-4-5",
}

// Environment is what has agentd find all its models at an address.
func Environment(model string) map[string]string {
	return map[string]string{
		"GEMINI_API_KEY": "bench", "GOOGLE_GEMINI_BASE_URL": model,
		"ANTHROPIC_API_KEY": "bench", "ANTHROPIC_BASE_URL": model,
		"OPENAI_API_KEY": "bench", "OPENAI_BASE_URL": model + "/v1",
	}
}

// Agentd is a client of agentd: each turn is a Run.
type Agentd struct {
	stub  agentdv1connect.AgentdClient
	model string
	// header is sent with each request.
	header http.Header
}

// NewAgentd returns the client of a server, whose agents use a model. Each request has the header.
func NewAgentd(url, model string, header http.Header) *Agentd {
	return &Agentd{stub: agentdv1connect.NewAgentdClient(http2(), url), model: model, header: header}
}

// http2 is a transport whose streams share connections.
func http2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: protocols, DisableCompression: true}}
}

// Begin begins a conversation.
func (a *Agentd) Begin() Conversation { return &agentdConversation{server: a} }

// agentdConversation is owned by the goroutine that runs its turn.
type agentdConversation struct {
	server  *Agentd
	session string
}

// run is the stream of a turn.
type run struct {
	turn   Turn
	stream *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	mu     sync.Mutex     // held while a message is sent: a stream takes one at a time
	beside sync.WaitGroup // tools and heartbeats; they end with the context
}

// Turn runs a turn over a stream of its own, as package client does.
func (c *agentdConversation) Turn(ctx context.Context, t Turn) (Heard, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &run{turn: t, stream: c.server.stub.Run(ctx)}
	defer r.beside.Wait()
	defer cancel()
	defer func() { _ = r.stream.CloseResponse() }()
	// A request whose context ends continues until its body ends too.
	context.AfterFunc(ctx, func() { _ = r.stream.CloseRequest() })
	maps.Copy(r.stream.RequestHeader(), c.server.header)
	r.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: c.execute(t)}})
	if t.Heartbeat > 0 {
		r.beside.Go(func() { r.beat(ctx) })
	}
	return c.receive(ctx, r)
}

// send sends a message. Why it could not be sent is what the receiver hears.
func (r *run) send(msg *agentdv1.RunRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.stream.Send(msg)
}

// beat sends heartbeats until ctx ends.
func (r *run) beat(ctx context.Context) {
	ticker := time.NewTicker(r.turn.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{
				Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{},
			}})
		case <-ctx.Done():
			return
		}
	}
}

// work runs the tool: at once, or beside the others that are asked for.
func (r *run) work(ctx context.Context, call *agentdv1.RunResponse_ToolCallRequest) error {
	result, n, err := answerTo(call)
	if err != nil {
		return err
	}
	if r.turn.waits(n) {
		r.turn.Waiting()
		return nil
	}
	answer := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: result}}
	if r.turn.Wait == 0 {
		r.send(answer)
		return nil
	}
	r.beside.Go(func() {
		if backoff.Wait(ctx, r.turn.Wait) == nil {
			r.send(answer)
		}
	})
	return nil
}

func (c *agentdConversation) execute(t Turn) *agentdv1.RunRequest_ExecuteRequest {
	schema := script.Schema
	execute := &agentdv1.RunRequest_ExecuteRequest{
		UserPrompt: t.Prompt(),
		Agent: &agentdv1.Agent{Name: script.Agent, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
			Model: c.server.model, Instruction: script.Instruction, ToolNames: []string{script.Tool},
		}}},
		Tools: []*agentdv1.Tool{{Name: script.Tool, Description: script.ToolDescription, InputSchema: &schema}},
	}
	if t.Waiting != nil {
		execute.OnDisconnect = agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE
	}
	if c.session != "" {
		execute.SessionId = &c.session
	}
	return execute
}

// answerTo is what the tool returns to the n-th call of the conversation.
func answerTo(
	call *agentdv1.RunResponse_ToolCallRequest,
) (result *agentdv1.RunRequest_ToolCallResponse, n int, err error) {
	var in struct{ N int }
	if err := json.Unmarshal([]byte(call.GetToolInput()), &in); err != nil {
		return nil, 0, fmt.Errorf("the input of a tool call: %w", err)
	}
	return &agentdv1.RunRequest_ToolCallResponse{
		ToolCallId: call.GetToolCallId(), ToolName: call.GetToolName(),
		Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: script.Result(in.N)},
	}, in.N, nil
}

// waits reports whether the n-th call of the conversation stays without a result.
func (t Turn) waits(n int) bool { return t.Waiting != nil && n >= t.Past+t.Answers }

// receive hears the turn to its end, runs its tools, and then closes the stream.
func (c *agentdConversation) receive(ctx context.Context, r *run) (Heard, error) {
	var h Heard
	for {
		msg, err := r.stream.Receive()
		if err != nil {
			return h, fmt.Errorf("before the end of the turn: %w", err)
		}
		switch m := msg.GetResponse().(type) {
		case *agentdv1.RunResponse_Execute:
			c.session = m.Execute.GetSessionId()
			h.Session = c.session
		case *agentdv1.RunResponse_OutputChunk_:
			if text := m.OutputChunk.GetContent(); text != "" {
				h.say(text)
			}
			if r.turn.Cancel && h.Canceled.IsZero() {
				h.Canceled = time.Now()
				r.send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{
					Cancel: &agentdv1.RunRequest_CancelRequest{},
				}})
			}
		case *agentdv1.RunResponse_ToolCall:
			h.ToolCalls++
			if err := r.work(ctx, m.ToolCall); err != nil {
				return h, err
			}
		case *agentdv1.RunResponse_Error:
			return h, fmt.Errorf("agentd says: %v", m.Error)
		case *agentdv1.RunResponse_End:
			err := errors.Join(h.end(r.turn, m.End), r.close())
			return h, err
		}
	}
}

// end hears the end of a turn.
func (h *Heard) end(t Turn, end *agentdv1.RunResponse_EndResponse) error {
	h.Ended = time.Now()
	if end.GetCompleted() == t.Cancel {
		return fmt.Errorf("the turn was completed: %t: %s", end.GetCompleted(), end.GetReason())
	}
	h.Aborted = len(end.GetReceipt().GetAbortedModelCalls())
	u := end.GetUsageSummary()
	h.ModelCalls = int(u.GetLlmCalls())
	h.Usage = script.Usage{
		Prompt: int64(u.GetTotalUsage().GetPromptTokens()), Completion: int64(u.GetTotalUsage().GetCompletionTokens()),
	}
	return nil
}

// close closes the client's side, and reads the stream to its end. What follows the end of a turn is no event of it.
func (r *run) close() error {
	if err := r.stream.CloseRequest(); err != nil {
		return err
	}
	for {
		if _, err := r.stream.Receive(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("after the end of the turn: %w", err)
		}
	}
}
