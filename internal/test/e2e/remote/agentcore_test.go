package remote_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

const harnessARN = "arn:aws:bedrock-agentcore:eu-central-1:123456789012:harness/desk"

// harness is a harness of AgentCore: InvokeHarness over an event stream.
type harness struct {
	*seenBy
	steps  []step
	http   *httptest.Server
	at     map[string]int // steps that are done, by session
	cuts   map[int]bool
	last   map[string]int // the step at which a result was taken
	bodies map[string]string
	stop   chan struct{}
}

func newHarness(t *testing.T, steps []step) *harness {
	h := &harness{seenBy: newSeen(), steps: steps, at: map[string]int{}, cuts: map[int]bool{}, bodies: map[string]string{}, last: map[string]int{}, stop: make(chan struct{})}
	h.http = httptest.NewServer(http.HandlerFunc(h.invoke))
	t.Cleanup(func() {
		close(h.stop)
		h.http.CloseClientConnections()
		h.http.Close()
	})
	return h
}

func (h *harness) file() string {
	return fmt.Sprintf("desk: {kind: agentcore, arn: %q, url: %q, key_env: DESK_KEY}\n", harnessARN, h.http.URL)
}

func frame(w io.Writer, kind string, v any) {
	payload, _ := json.Marshal(v)
	m := eventstream.Message{Payload: payload}
	m.Headers.Set(":message-type", eventstream.StringValue("event"))
	m.Headers.Set(":event-type", eventstream.StringValue(kind))
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	if kind == "internalServerException" || kind == "validationException" || kind == "runtimeClientError" {
		m.Headers.Set(":message-type", eventstream.StringValue("exception"))
		m.Headers.Set(":exception-type", eventstream.StringValue(kind))
	}
	_ = eventstream.NewEncoder().Encode(w, m)
}

func (h *harness) invoke(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	var body struct {
		Messages []struct {
			Role    string
			Content []struct {
				Text       string
				ToolResult *struct {
					ToolUseID string
					Content   []struct{ Text string }
					Status    string
				}
			}
		}
		SystemPrompt []struct{ Text string }
	}
	_ = json.Unmarshal(data, &body)
	id := r.Header.Get("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id")
	h.mu.Lock()
	h.auth = append(h.auth, r.Header.Get("Authorization"))
	if _, ok := h.at[id]; !ok {
		h.at[id] = 0
		h.sessions++
		h.specs = append(h.specs, fmt.Sprint(body.SystemPrompt))
	}
	at := h.at[id]
	if at > 0 && h.bodies[id] == string(data) { // the answer was lost: it is asked again
		at--
		h.at[id]--
	}
	for _, m := range body.Messages {
		for _, c := range m.Content {
			if m.Role == "user" && c.Text != "" && h.last[id] != at+1 {
				h.messages = append(h.messages, c.Text)
				h.last[id] = at + 1
			}
			if res := c.ToolResult; res != nil && h.last[id+res.ToolUseID] != at { // a cut answer is asked again
				h.last[id+res.ToolUseID] = at
				h.answers[id+res.ToolUseID]++
				h.errors[id+res.ToolUseID] = res.Status == "error"
				h.texts[id+res.ToolUseID] = res.Content[0].Text
			}
		}
	}
	st := step{say: "the script has ended"}
	if at < len(h.steps) {
		st = h.steps[at]
	}
	cut := st.cut && !h.cuts[at]
	h.cuts[at] = true
	if !cut {
		h.at[id]++
		h.bodies[id] = string(data)
	}
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	var out bytes.Buffer
	frame(&out, "messageStart", map[string]string{"role": "assistant"})
	block := 0
	if st.uses != "" {
		frame(&out, "contentBlockStart", map[string]any{"contentBlockIndex": block, "start": map[string]any{"toolUse": map[string]string{"toolUseId": "own", "name": st.uses}}})
		frame(&out, "contentBlockDelta", map[string]any{"contentBlockIndex": block, "delta": map[string]any{"toolUse": map[string]string{"input": `{"x":1}`}}})
		frame(&out, "contentBlockStop", map[string]any{"contentBlockIndex": block})
		frame(&out, "messageStop", map[string]string{"stopReason": "tool_use"})
		frame(&out, "messageStart", map[string]string{"role": "user"})
		frame(&out, "contentBlockStart", map[string]any{"contentBlockIndex": 0, "start": map[string]any{"toolResult": map[string]string{"toolUseId": "own", "status": "success"}}})
		frame(&out, "contentBlockDelta", map[string]any{"contentBlockIndex": 0, "delta": map[string]any{"toolResult": []any{map[string]string{"text": "found"}}}})
		frame(&out, "contentBlockStop", map[string]any{"contentBlockIndex": 0})
		frame(&out, "messageStop", map[string]string{"stopReason": "tool_result"})
		frame(&out, "messageStart", map[string]string{"role": "assistant"})
	}
	if st.say != "" {
		for word := range strings.SplitAfterSeq(st.say, " ") {
			frame(&out, "contentBlockDelta", map[string]any{"contentBlockIndex": block, "delta": map[string]string{"text": word}})
		}
		frame(&out, "contentBlockStop", map[string]any{"contentBlockIndex": block})
		block++
	}
	_, _ = w.Write(out.Bytes())
	_ = http.NewResponseController(w).Flush()
	out.Reset()
	switch {
	case cut:
		panic(http.ErrAbortHandler)
	case st.hangs:
		select {
		case <-r.Context().Done():
		case <-h.stop:
		}
		return
	case st.fails != "":
		frame(&out, "runtimeClientError", map[string]string{"message": st.fails})
		_, _ = w.Write(out.Bytes())
		return
	}
	stop := "end_turn"
	for i, name := range st.calls {
		stop = "tool_use"
		use := map[string]string{"toolUseId": fmt.Sprintf("use-%d-%d", at, i), "name": name}
		frame(&out, "contentBlockStart", map[string]any{"contentBlockIndex": block, "start": map[string]any{"toolUse": use}})
		frame(&out, "contentBlockDelta", map[string]any{"contentBlockIndex": block, "delta": map[string]any{"toolUse": map[string]string{"input": fmt.Sprintf(`{"q":%d}`, i+1)}}})
		frame(&out, "contentBlockStop", map[string]any{"contentBlockIndex": block})
		block++
	}
	if st.stop != "" {
		stop = st.stop
	}
	frame(&out, "messageStop", map[string]string{"stopReason": stop})
	frame(&out, "metadata", map[string]any{"usage": map[string]int{"inputTokens": 7, "outputTokens": 3, "totalTokens": 10}, "metrics": map[string]int{"latencyMs": 1}})
	_, _ = w.Write(out.Bytes())
}
