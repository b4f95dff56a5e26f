package gemini_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/modeltest"
)

// frame is one event of the stream.
func frame(v any) string {
	data, err := rawjson.Marshal(v)
	if err != nil {
		panic(err)
	}
	return "data: " + string(data) + "\r\n\r\n"
}

// object is a JSON object.
type object = map[string]any

// encodeOlder puts an answer into the form of Gemini 2.5: calls in a row share a
// chunk, and the finish reason comes with the last piece.
func encodeOlder(a modeltest.Response) modeltest.Wire { return encode(a, true) }

// encodeNewer puts it into the form of Gemini 3: a chunk for each call, then one
// with an empty text and the finish reason.
func encodeNewer(a modeltest.Response) modeltest.Wire { return encode(a, false) }

func encode(a modeltest.Response, grouped bool) modeltest.Wire {
	var chunks [][]any
	inCalls := false
	for _, p := range a.Pieces {
		part := object{"text": p.Text}
		if p.Thought != "" {
			part = object{"text": p.Thought, "thought": true}
		}
		if p.Call != nil {
			call := object{"name": p.Call.Name, "args": json.RawMessage(p.Call.Args)}
			if p.Call.ID != "" {
				call["id"] = p.Call.ID
			}
			part = object{"functionCall": call}
		}
		if grouped && inCalls && p.Call != nil {
			chunks[len(chunks)-1] = append(chunks[len(chunks)-1], part)
		} else {
			chunks = append(chunks, []any{part})
		}
		inCalls = p.Call != nil
	}
	if !grouped || len(chunks) == 0 {
		chunks = append(chunks, []any{object{"text": ""}})
	}
	finish := a.Finish
	if finish == "" {
		finish = genai.FinishReasonStop
	}
	var w modeltest.Wire
	for i, parts := range chunks {
		last := i == len(chunks)-1
		cand := object{"content": object{"role": "model", "parts": parts}, "index": 0}
		if last {
			cand["finishReason"] = finish
		}
		// Usage is cumulative: only the last chunk's counts.
		share := func(n int64) int64 { return n * int64(i+1) / int64(len(chunks)) }
		w.Frames = append(w.Frames, frame(object{
			"candidates": []any{cand},
			"usageMetadata": object{
				"promptTokenCount": a.Usage.Prompt, "cachedContentTokenCount": a.Usage.Cached,
				"candidatesTokenCount": share(a.Usage.Completion - a.Usage.Thoughts), "thoughtsTokenCount": share(a.Usage.Thoughts),
				"totalTokenCount": share(a.Usage.Total),
			},
			"modelVersion": "gemini-served",
		}))
	}
	return w
}

func encodeError(status int, code, message string) string {
	data, err := json.Marshal(object{"error": object{"code": status, "status": code, "message": message}})
	if err != nil {
		panic(err)
	}
	return string(data)
}

// finish is a stream that ends with that reason after some text.
func finish(reason string) modeltest.Wire {
	return encodeOlder(modeltest.Response{Pieces: []modeltest.Piece{{Text: "half an ans"}}, Finish: genai.FinishReason(reason)})
}

func refusals() map[string]modeltest.Refusal {
	out := map[string]modeltest.Refusal{
		"prompt blocked": {Kind: model.KindBlocked, Wire: modeltest.Wire{Frames: []string{
			frame(object{"promptFeedback": object{"blockReason": "SAFETY"}, "usageMetadata": object{"promptTokenCount": 5}}),
		}}},
		"context too long": {Kind: model.KindContextTooLong, Wire: modeltest.Wire{Status: 400, Frames: []string{
			encodeError(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
		}}},
		"key not valid": {Kind: model.KindAuth, Wire: modeltest.Wire{Status: 400, Frames: []string{
			`[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]`,
		}}},
		"overloaded in the stream": {Kind: model.KindUnavailable, Wire: modeltest.Wire{Frames: []string{
			finish("STOP").Frames[0], frame(object{"error": object{"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}),
		}}},
		"quota in the stream": {Kind: model.KindRateLimited, Wire: modeltest.Wire{Frames: []string{
			frame(object{"error": object{"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED"}}),
		}}},
		"unspecified": {Kind: model.KindUnavailable, Wire: finish("FINISH_REASON_UNSPECIFIED")},
	}
	for _, r := range []string{"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"} {
		out[r] = modeltest.Refusal{Kind: model.KindBlocked, Wire: finish(r)}
	}
	for _, r := range []string{"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "SOMETHING_NEW"} {
		out[r] = modeltest.Refusal{Kind: model.KindUnavailable, Wire: finish(r)}
	}
	return out
}

func TestConformance(t *testing.T) {
	for _, c := range []struct {
		name, model string
		encode      func(modeltest.Response) modeltest.Wire
	}{
		{"Gemini 2.5", "gemini-2.5-flash", encodeOlder},
		{"Gemini 3", "gemini-3-flash-preview", encodeNewer},
	} {
		t.Run(c.name, func(t *testing.T) {
			modeltest.Run(t, modeltest.Harness{
				Open: func(_ testing.TB, baseURL, serverKey string) model.Provider {
					return gemini.New(gemini.Config{APIKey: serverKey, BaseURL: baseURL})
				},
				Model:       c.model,
				Encode:      c.encode,
				EncodeError: encodeError,
				Refusals:    refusals(),
				Can: modeltest.Can{
					Thoughts: true, CallsWithoutID: true, CallIDs: true, ArgsText: true, CachedUsage: true, ThoughtsUsage: true, EarlyUsage: true,
				},
			})
		})
	}
}

// BadArgs is not in the capabilities above, since arguments travel as a JSON
// value; one that is no object must still be noted.
func TestArgsThatAreNoObject(t *testing.T) {
	for _, args := range []string{`"text"`, `[1]`, `7`} {
		resp := generate(t, "gemini-2.5-flash", frame(json.RawMessage(fmt.Sprintf(
			`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%s}}]},"finishReason":"STOP"}]}`, args))))
		p := resp.Content.Parts[0]
		if p.PartMetadata[seam.MetaArgsError] == nil || p.PartMetadata[seam.MetaArgs] != args {
			t.Errorf("arguments %s: metadata %v", args, p.PartMetadata)
		}
	}
}
