package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// blockedAnswer is an answer that a provider, or its model, refuses.
type blockedAnswer struct {
	wire   providertest.Wire
	status int // 0 is 200, and an event stream
	body   []string
	text   string   // what was shown before
	says   []string // of the message
	tokens int32    // in total
}

// blockedAnswers repeat what the user has said, which no log may hold.
var blockedAnswers = map[string]blockedAnswer{
	"Gemini, the prompt": {wire: providertest.Gemini, body: []string{
		`{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT","blockReasonMessage":"no: ` + promptCanary + `","safetyRatings":[{"category":"HARM_CATEGORY_HARASSMENT","probability":"HIGH","blocked":true},{"category":"HARM_CATEGORY_HATE_SPEECH","probability":"LOW"}]},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`,
	}, says: []string{"the prompt was blocked with PROHIBITED_CONTENT", "HARM_CATEGORY_HARASSMENT (HIGH)", "no: " + promptCanary}, tokens: 4},
	"Gemini, half way": {wire: providertest.Gemini, body: []string{
		`{"candidates":[{"content":{"role":"model","parts":[{"text":"Half."}]},"index":0}]}`,
		`{"candidates":[{"finishReason":"SAFETY","index":0,"safetyRatings":[{"category":"HARM_CATEGORY_DANGEROUS_CONTENT","probability":"MEDIUM","blocked":true}]}],"usageMetadata":{"promptTokenCount":4,"candidatesTokenCount":3,"totalTokenCount":7}}`,
	}, text: "Half.", says: []string{"the model stopped with SAFETY", "HARM_CATEGORY_DANGEROUS_CONTENT (MEDIUM)"}, tokens: 7},
	"Gemini, the prompt, behind text": {wire: providertest.Gemini, body: []string{
		`{"candidates":[{"content":{"role":"model","parts":[{"text":"Half."}]},"index":0}]}`,
		`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`,
	}, text: "Half.", says: []string{"the prompt was blocked with SAFETY"}, tokens: 4},
	"Gemini, a call before": {wire: providertest.Gemini, body: []string{
		`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"look","args":{}}}]},"index":0}]}`,
		`{"candidates":[{"finishReason":"RECITATION","finishMessage":"` + promptCanary + `","index":0}],"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`,
	}, says: []string{"the model stopped with RECITATION"}, tokens: 4},
	"Anthropic": {wire: providertest.Anthropic, body: []string{
		`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Half."}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"about ` + promptCanary + `"}},"usage":{"output_tokens":3}}`,
		`{"type":"message_stop"}`,
	}, text: "Half.", says: []string{"the model refused to answer: cyber: about " + promptCanary}, tokens: 8},
	"Anthropic, nothing said": {wire: providertest.Anthropic, body: []string{
		`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}`,
		`{"type":"message_delta","delta":{"stop_reason":"refusal"},"usage":{"output_tokens":1}}`,
		`{"type":"message_stop"}`,
	}, says: []string{"the model refused to answer"}, tokens: 6},
	"Anthropic, a status": {
		wire: providertest.Anthropic, status: 400,
		body: []string{`{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`},
		says: []string{"Output blocked by content filtering policy"},
	},
	"chat, the filter": {wire: providertest.OpenAIChat, body: []string{
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"Half."}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter","content_filter_results":{"hate":{"filtered":true,"severity":"high"},"violence":{"filtered":false,"severity":"safe"}}}]}`,
		`{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":3,"total_tokens":7}}`,
		`[DONE]`,
	}, text: "Half.", says: []string{"the provider's content filter stopped the answer: hate (high)"}, tokens: 7},
	"chat, a refusal": {wire: providertest.OpenAIChat, body: []string{
		`{"choices":[{"index":0,"delta":{"role":"assistant","refusal":"I will not say "}}]}`,
		`{"choices":[{"index":0,"delta":{"refusal":"` + promptCanary + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":3,"total_tokens":7}}`,
		`[DONE]`,
	}, says: []string{"the model refused to answer: I will not say " + promptCanary}, tokens: 7},
	"chat, Azure's prompt filter": {
		wire: providertest.OpenAIChat, status: 400,
		body: []string{`{"error":{"message":"The prompt triggered the policy","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation","content_filter_result":{"jailbreak":{"filtered":true,"detected":true},"hate":{"filtered":false,"severity":"safe"}}}}}`},
		says: []string{"content_filter", "The prompt triggered the policy: jailbreak"},
	},
	"Responses, the filter": {wire: providertest.OpenAIResponses, body: []string{
		`{"type":"response.output_text.delta","output_index":0,"delta":"Half."}`,
		`{"type":"response.incomplete","response":{"status":"incomplete","model":"m","incomplete_details":{"reason":"content_filter"},"output":[],"usage":{"input_tokens":4,"output_tokens":3,"total_tokens":7}}}`,
	}, text: "Half.", says: []string{"the provider's content filter stopped the answer"}, tokens: 7},
	"Responses, a refusal": {wire: providertest.OpenAIResponses, body: []string{
		`{"type":"response.output_text.delta","output_index":0,"delta":"Half."}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Half."}]}}`,
		`{"type":"response.refusal.delta","output_index":1,"delta":"I will not say ` + promptCanary + `"}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","content":[{"type":"refusal","refusal":"I will not say ` + promptCanary + `"}]}}`,
		`{"type":"response.completed","response":{"status":"completed","model":"m","output":[],"usage":{"input_tokens":4,"output_tokens":3,"total_tokens":7}}}`,
	}, text: "Half.", says: []string{"the model refused to answer: I will not say " + promptCanary}, tokens: 7},
	"Responses, a failure": {wire: providertest.OpenAIResponses, body: []string{
		`{"type":"response.failed","response":{"status":"failed","error":{"code":"invalid_prompt","message":"flagged: ` + promptCanary + `"},"usage":{"input_tokens":4,"output_tokens":0,"total_tokens":4}}}`,
	}, says: []string{"invalid_prompt", "flagged: " + promptCanary}, tokens: 4},
}

// serve answers every call with it.
func (b blockedAnswer) serve(w http.ResponseWriter, _ *http.Request) {
	if b.status != 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(b.status)
		_, _ = io.WriteString(w, b.body[0])
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, data := range b.body {
		_, _ = io.WriteString(w, "data: "+data+"\n\n")
	}
}

// TestBlocked: what a provider or its model refuses fails the turn once, with the
// provider's reason, the usage and what was shown; no tool is called, and the
// session goes on.
func TestBlocked(t *testing.T) {
	const code = agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED
	for name, b := range blockedAnswers {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, b.wire)
			f.handle(http.HandlerFunc(b.serve))
			got := f.turn("", "look")
			checkFailed(t, got, code, 1, append(b.says, wireProviders[b.wire].Describe().Name+": ")...)
			if got.errors[0].GetRetryable() || len(f.calls()) != 1 {
				t.Errorf("retryable %v after %d calls", got.errors[0].GetRetryable(), len(f.calls()))
			}
			// What is on its way is shown to who is there; one who reads slowly may find
			// that the turn has failed already.
			if text := got.text["root"]; text != b.text && text != "" {
				t.Errorf("text %q, want %q", got.text, b.text)
			}
			if u := got.end.GetUsageSummary().GetTotalUsage(); u.GetTotalTokens() != b.tokens {
				t.Errorf("usage %v, want %d tokens", u, b.tokens)
			}
			service := agentdv1connect.NewSessionServiceClient(f.d.HTTPClient(), f.d.URL)
			resp, err := service.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: got.session}))
			if err != nil {
				t.Fatal(err)
			}
			turn := resp.Msg.GetTurn()
			if turn.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_FAILED || turn.GetStopReason() != agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED ||
				!strings.Contains(turn.GetStatusMessage(), b.says[0]) {
				t.Errorf("turn %v", turn)
			}

			f.serve(nil, hello)
			if again := f.turn(got.session); again.text["root"] != "Hello." || !again.end.GetCompleted() {
				t.Errorf("the next turn: %v", again.msgs)
			}
		})
	}
}
