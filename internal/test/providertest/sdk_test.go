package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/jsondiff"
)

// TestSDKs decodes every answer that the server gives with the provider's own
// SDK and compares what it says with what the recording says.
func TestSDKs(t *testing.T) {
	for _, rec := range All(t) {
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			srv := NewServer(t, rec, nil)
			for i, e := range rec.Calls() {
				t.Run(fmt.Sprint("call", i), func(t *testing.T) {
					want, err := answerOf(e)
					if err != nil {
						t.Fatal(err)
					}
					got, err := decode(t.Context(), srv, e.Wire)
					if err != nil {
						t.Fatal(err)
					}
					compare(t, e.Wire, want, got)
				})
			}
			if left := srv.Left(); left != 0 {
				t.Errorf("%d calls were not served", left)
			}
		})
	}
}

func compare(t *testing.T, wire Wire, want, got Answer) {
	t.Helper()
	same := jsondiff.Equal
	if wire == Gemini {
		same = sameFloats
	}
	if got.Status != want.Status || !strings.Contains(got.Message, want.Message) {
		t.Errorf("status %d %q, want %d %q", got.Status, got.Message, want.Status, want.Message)
	}
	if got.Text != want.Text {
		t.Errorf("text %q, want %q", got.Text, want.Text)
	}
	if g, w := strings.Join(got.Thoughts, ""), strings.Join(want.Thoughts, ""); g != w {
		t.Errorf("thoughts %q, want %q", g, w)
	}
	if got.Usage != want.Usage {
		t.Errorf("usage %+v, want %+v", got.Usage, want.Usage)
	}
	if got.Finish != want.Finish {
		t.Errorf("finish %q, want %q", got.Finish, want.Finish)
	}
	if got.Model != want.Model {
		t.Errorf("model %q, want %q", got.Model, want.Model)
	}
	if len(got.Calls) != len(want.Calls) {
		t.Fatalf("%d tool calls, want %d: %v", len(got.Calls), len(want.Calls), got.Calls)
	}
	for i, w := range want.Calls {
		if g := got.Calls[i]; g.ID != w.ID || g.Name != w.Name || !same(g.Args, w.Args) {
			t.Errorf("tool call %d: %v, want %v", i, g, w)
		}
	}
}

// sameFloats compares JSON as Gemini's SDK decodes it: its numbers are floats.
func sameFloats(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

// decode makes one streaming call with the wire's SDK and joins what it brings.
func decode(ctx context.Context, srv *Server, wire Wire) (Answer, error) {
	switch wire {
	case OpenAIChat:
		return decodeChat(ctx, srv)
	case OpenAIResponses:
		return decodeResponses(ctx, srv)
	case Anthropic:
		return decodeAnthropic(ctx, srv)
	default:
		return decodeGemini(ctx, srv)
	}
}

// failed turns an SDK's error into an answer if the provider answered with it.
func failed(err error) (Answer, error) {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return Answer{Status: e.StatusCode, Message: e.Message}, nil
	}
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return Answer{Status: e.StatusCode, Message: e.Error()}, nil
	}
	if e, ok := errors.AsType[genai.APIError](err); ok {
		return Answer{Status: e.Code, Message: e.Message}, nil
	}
	return Answer{}, err
}

func openaiClient(srv *Server) openai.Client {
	return openai.NewClient(openaioption.WithBaseURL(srv.BaseURL(OpenAIChat)), openaioption.WithAPIKey("none"), openaioption.WithMaxRetries(0))
}

func decodeChat(ctx context.Context, srv *Server) (Answer, error) {
	clnt := openaiClient(srv)
	s := clnt.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: "any", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("any")},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	})
	a := Answer{Status: 200}
	var thoughts strings.Builder
	for s.Next() {
		chunk := s.Current()
		a.Model = chunk.Model
		if u := chunk.Usage; u.TotalTokens > 0 {
			a.Usage = Usage{u.PromptTokens, u.CompletionTokens, u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens, 0, u.CompletionTokensDetails.ReasoningTokens, u.PromptTokens + u.CompletionTokens}
		}
		for _, c := range chunk.Choices {
			a.Finish += c.FinishReason
			if !strings.HasPrefix(c.Delta.JSON.Content.Raw(), "[") {
				a.Text += c.Delta.Content
			}
			a.Text += c.Delta.Refusal
			thoughts.WriteString(chatThoughts(c.Delta))
			for _, tc := range c.Delta.ToolCalls {
				if tc.Index >= int64(len(a.Calls)) {
					a.Calls = append(a.Calls, ToolCall{})
				}
				call := &a.Calls[tc.Index]
				call.ID += tc.ID
				call.Name += tc.Function.Name
				call.Args += tc.Function.Arguments
			}
		}
	}
	if err := s.Err(); err != nil {
		return failed(err)
	}
	a.Thoughts = []string{thoughts.String()}
	return a, nil
}

// chatThoughts reads the fields that the SDK does not know.
func chatThoughts(delta openai.ChatCompletionChunkChoiceDelta) string {
	var s string
	for _, field := range []string{"reasoning_content", "reasoning"} {
		if raw := delta.JSON.ExtraFields[field].Raw(); raw != "" && json.Unmarshal([]byte(raw), &s) == nil {
			return s
		}
	}
	var parts []struct {
		Thinking []struct{ Text string }
	}
	if json.Unmarshal([]byte(delta.JSON.Content.Raw()), &parts) == nil {
		for _, p := range parts {
			for _, t := range p.Thinking {
				s += t.Text
			}
		}
	}
	return s
}

func decodeResponses(ctx context.Context, srv *Server) (Answer, error) {
	clnt := openaiClient(srv)
	s := clnt.Responses.NewStreaming(ctx, responses.ResponseNewParams{
		Model: "any", Input: responses.ResponseNewParamsInputUnion{OfString: param.NewOpt("any")},
	})
	a := Answer{Status: 200}
	var thoughts strings.Builder
	args := make(map[int64]string)
	for s.Next() {
		e := s.Current()
		switch e.Type {
		case "response.output_text.delta", "response.refusal.delta":
			a.Text += e.Delta
		case "response.reasoning_summary_text.delta", "response.reasoning_text.delta":
			thoughts.WriteString(e.Delta)
		case "response.function_call_arguments.delta":
			args[e.OutputIndex] += e.Delta
		case "response.function_call_arguments.done":
			if e.Arguments != args[e.OutputIndex] {
				return a, errors.New("the deltas of the arguments do not add up to what is done")
			}
		case "response.output_item.done":
			if e.Item.Type == "function_call" {
				a.Calls = append(a.Calls, ToolCall{ID: e.Item.CallID, Name: e.Item.Name, Args: args[e.OutputIndex]})
			}
		case "response.completed", "response.incomplete", "response.failed":
			a.Finish, a.Model = string(e.Response.Status), e.Response.Model
			if r := e.Response.IncompleteDetails.Reason; r != "" {
				a.Finish = r
			}
			u := e.Response.Usage
			a.Usage = Usage{u.InputTokens, u.OutputTokens, u.InputTokensDetails.CachedTokens, u.InputTokensDetails.CacheWriteTokens, 0, u.OutputTokensDetails.ReasoningTokens, u.InputTokens + u.OutputTokens}
		}
	}
	if err := s.Err(); err != nil {
		return failed(err)
	}
	a.Thoughts = []string{thoughts.String()}
	return a, nil
}

func decodeAnthropic(ctx context.Context, srv *Server) (Answer, error) {
	clnt := anthropic.NewClient(anthropicoption.WithBaseURL(srv.BaseURL(Anthropic)), anthropicoption.WithAPIKey("none"), anthropicoption.WithMaxRetries(0))
	s := clnt.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model: "any", MaxTokens: 1, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("any"))},
	})
	var msg anthropic.Message
	for s.Next() {
		if err := msg.Accumulate(s.Current()); err != nil {
			return Answer{}, err
		}
	}
	if err := s.Err(); err != nil {
		return failed(err)
	}
	u := msg.Usage
	a := Answer{
		Status: 200, Finish: string(msg.StopReason), Model: msg.Model,
		Usage: Usage{
			CacheWrite: u.CacheCreationInputTokens, CacheWriteHour: u.CacheCreation.Ephemeral1hInputTokens,
			Prompt: u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens, Completion: u.OutputTokens, Cached: u.CacheReadInputTokens,
			Total: u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens + u.OutputTokens,
		},
	}
	for _, b := range msg.Content {
		switch b.Type {
		case "text":
			a.Text += b.Text
		case "thinking":
			a.Thoughts = append(a.Thoughts, b.Thinking)
			if b.Signature == "" {
				return a, errors.New("a thought without its signature")
			}
		case "tool_use":
			a.Calls = append(a.Calls, ToolCall{ID: b.ID, Name: b.Name, Args: string(b.Input)})
		}
	}
	return a, nil
}

func decodeGemini(ctx context.Context, srv *Server) (Answer, error) {
	clnt, err := genai.NewClient(ctx, &genai.ClientConfig{
		APIKey: "none", Backend: genai.BackendGeminiAPI, HTTPOptions: genai.HTTPOptions{BaseURL: srv.BaseURL(Gemini)},
	})
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Status: 200}
	for resp, err := range clnt.Models.GenerateContentStream(ctx, "any", genai.Text("any"), nil) {
		if err != nil {
			return failed(err)
		}
		if a.Finish != "" {
			return a, errors.New("a chunk after the one with the finish reason")
		}
		a.Model = resp.ModelVersion
		if u := resp.UsageMetadata; u != nil {
			a.Usage = Usage{int64(u.PromptTokenCount + u.ToolUsePromptTokenCount), int64(u.CandidatesTokenCount + u.ThoughtsTokenCount), int64(u.CachedContentTokenCount), 0, 0, int64(u.ThoughtsTokenCount), int64(u.TotalTokenCount)}
		}
		if f := resp.PromptFeedback; f != nil {
			a.Finish = string(f.BlockReason)
		}
		if len(resp.Candidates) == 0 {
			continue
		}
		a.Finish = string(resp.Candidates[0].FinishReason)
		if resp.Candidates[0].Content == nil {
			continue
		}
		for _, p := range resp.Candidates[0].Content.Parts {
			switch {
			case p.FunctionCall != nil:
				args, err := json.Marshal(p.FunctionCall.Args)
				if err != nil {
					return a, err
				}
				a.Calls = append(a.Calls, ToolCall{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Args: string(args)})
			case p.Thought:
				a.Thoughts = append(a.Thoughts, p.Text)
			default:
				a.Text += p.Text
			}
		}
	}
	return a, nil
}
