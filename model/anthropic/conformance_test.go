package anthropic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/modeltest"
)

// frame is one event as Anthropic sends it.
func frame(kind string, fields map[string]any) string {
	fields["type"] = kind
	return fmt.Sprintf("event: %s\ndata: %s\n\n", kind, mustJSON(fields))
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// encoder numbers the content blocks of one answer.
type encoder struct {
	frames []string
	index  int
	open   string // the type of the open block
}

func (e *encoder) start(block map[string]any) {
	e.frames = append(e.frames, frame("content_block_start", map[string]any{"index": e.index, "content_block": block}))
	e.open = block["type"].(string)
}

func (e *encoder) delta(fields map[string]any) {
	e.frames = append(e.frames, frame("content_block_delta", map[string]any{"index": e.index, "delta": fields}))
}

func (e *encoder) stop() {
	if e.open == "" {
		return
	}
	if e.open == "thinking" {
		e.delta(map[string]any{"type": "signature_delta", "signature": "c2ln"})
	}
	e.frames = append(e.frames, frame("content_block_stop", map[string]any{"index": e.index}))
	e.index, e.open = e.index+1, ""
}

// into opens a block of the type unless one is open.
func (e *encoder) into(kind string, block map[string]any) {
	if e.open != kind {
		e.stop()
		e.start(block)
	}
}

func encode(a modeltest.Response) modeltest.Wire {
	u := a.Usage
	e := &encoder{frames: []string{frame("message_start", map[string]any{"message": map[string]any{
		"model": "claude-test-1", "role": "assistant", "content": []any{},
		"usage": map[string]any{
			"input_tokens": u.Prompt - u.CacheWrite - u.Cached, "cache_read_input_tokens": u.Cached, "cache_creation_input_tokens": u.CacheWrite,
			"cache_creation": map[string]any{"ephemeral_5m_input_tokens": u.CacheWrite, "ephemeral_1h_input_tokens": 0},
			"output_tokens":  1,
		},
	}})}}
	stop := "end_turn"
	for _, p := range a.Pieces {
		switch {
		case p.Text != "":
			e.into("text", map[string]any{"type": "text", "text": ""})
			e.delta(map[string]any{"type": "text_delta", "text": p.Text})
		case p.Thought != "":
			e.into("thinking", map[string]any{"type": "thinking", "thinking": "", "signature": ""})
			e.delta(map[string]any{"type": "thinking_delta", "thinking": p.Thought})
		case p.Call != nil:
			stop = "tool_use"
			e.stop()
			e.start(map[string]any{"type": "tool_use", "id": p.Call.ID, "name": p.Call.Name, "input": map[string]any{}})
			half := len(p.Call.Args) / 2
			e.delta(map[string]any{"type": "input_json_delta", "partial_json": ""})
			e.delta(map[string]any{"type": "input_json_delta", "partial_json": p.Call.Args[:half]})
			e.delta(map[string]any{"type": "input_json_delta", "partial_json": p.Call.Args[half:]})
		}
	}
	e.stop()
	if a.Finish == genai.FinishReasonMaxTokens {
		stop = "max_tokens"
	}
	e.frames = append(e.frames,
		frame("ping", map[string]any{}),
		frame("message_delta", map[string]any{
			"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil},
			"usage": map[string]any{"output_tokens": u.Completion, "output_tokens_details": map[string]any{"thinking_tokens": u.Thoughts}},
		}),
		frame("message_stop", map[string]any{}))
	return modeltest.Wire{Frames: e.frames}
}

func errorBody(kind, msg string) string {
	return mustJSON(map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": msg}})
}

// refusal is an answer that begins well and ends with the given frame.
func refusal(kind model.Kind, last string) modeltest.Refusal {
	good := encode(modeltest.Response{Pieces: []modeltest.Piece{{Text: "well"}}})
	return modeltest.Refusal{Kind: kind, Wire: modeltest.Wire{Frames: append(good.Frames[:3:3], last)}}
}

func TestConformance(t *testing.T) {
	streamed := func(kind string) string {
		return "event: error\ndata: " + errorBody(kind, "no") + "\n\n"
	}
	httpError := func(kind model.Kind, status int, msg string) modeltest.Refusal {
		return modeltest.Refusal{Kind: kind, Wire: modeltest.Wire{Status: status, Frames: []string{errorBody("invalid_request_error", msg)}}}
	}
	refused := refusal(model.KindBlocked, "")
	refused.Wire.Frames = append(refused.Wire.Frames[:3],
		frame("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "refusal"}}), frame("message_stop", map[string]any{}))
	transport := http.DefaultTransport
	modeltest.Run(t, modeltest.Harness{
		Open: func(_ testing.TB, baseURL, key string) model.Provider {
			return New(Config{APIKey: key, BaseURL: baseURL, Transport: transport})
		},
		Model:  "claude-sonnet-4-5",
		Encode: encode,
		EncodeError: func(_ int, code, msg string) string {
			return errorBody(code, msg)
		},
		Refusals: map[string]modeltest.Refusal{
			"overloaded":      refusal(model.KindUnavailable, streamed("overloaded_error")),
			"rate limit":      refusal(model.KindRateLimited, streamed("rate_limit_error")),
			"server error":    refusal(model.KindUnavailable, streamed("api_error")),
			"unknown error":   refusal(model.KindUnavailable, streamed("new_error")),
			"key withdrawn":   refusal(model.KindAuth, streamed("authentication_error")),
			"refused":         refused,
			"prompt too long": httpError(model.KindContextTooLong, 400, "prompt is too long: 210000 tokens > 200000 maximum"),
			"no room left":    httpError(model.KindContextTooLong, 400, "input length and `max_tokens` exceed context limit: 190000 + 64000 > 200000"),
			"filtered":        httpError(model.KindBlocked, 400, "Output blocked by content filtering policy"),
			"too large":       httpError(model.KindContextTooLong, 413, "Request exceeds the maximum size"),
			"no stop reason":  refusal(model.KindUnavailable, frame("message_stop", map[string]any{})),
		},
		Can: modeltest.Can{Thoughts: true, CallIDs: true, CallsWithoutID: true, BadArgs: true, ArgsText: true, CachedUsage: true, CacheWriteUsage: true, ThoughtsUsage: true, EarlyUsage: true},
	})
}
