package gemini

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
)

// player is an llm that reads a stream from memory.
type player struct {
	llm
	body string
}

func (p *player) Generate(ctx context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
	return p.read(ctx, &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(p.body))}, emit)
}

// Whatever a stream holds, reading it ends in an *Error or in a response that
// passes the guard and is what the bytes say.
func FuzzStream(f *testing.F) {
	for _, stream := range providertest.Streams(f, providertest.Gemini) {
		f.Add(stream)
	}
	f.Add(`{"candidates":[{"content":{"parts":[{"text":"a","thought":true},{"text":"b","thoughtSignature":"eA=="}]},"finishReason":"STOP"}],"usageMetadata":{"totalTokenCount":3}}`)
	f.Add(`{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":[1]}}},{"executableCode":{}},null]},"finishReason":"MAX_TOKENS"}]}`)
	f.Add(`{"error":{"code":429,"message":"x","details":[{"retryDelay":"1s"}]}}`)
	f.Add(`{"promptFeedback":{"blockReason":"OTHER"}}`)
	f.Add(`{"candidates":[{"index":1,"finishReason":"STOP"},{"finishReason":"SAFETY","finishMessage":"no"}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if strings.HasPrefix(body, "{") { // One event.
			body = "data: " + strings.ReplaceAll(body, "\n", "\ndata: ") + "\n\n"
		}
		p := &player{llm: llm{model: "m", secret: "canary-key-0123456789"}, body: body}
		resp, err := modelcall.Guard(p, modelcall.Limits{Provider: name}).Generate(t.Context(), nil, func(model.Delta) {})
		if (resp == nil) == (err == nil) {
			t.Fatalf("response %v and error %v", resp, err)
		}
		e, ok := errors.AsType[*model.Error](err)
		if err != nil && !ok {
			t.Fatalf("error %T", err)
		}
		if ok {
			if _, panicked := errors.AsType[*modelcall.PanicError](err); panicked {
				t.Fatalf("panic on %q", body)
			}
			if e.RetryAfter < 0 {
				t.Fatalf("negative retry after: %v", e)
			}
			return
		}
		if difference := providertest.Differs(providertest.Gemini, providertest.Hear(providertest.Gemini, body), heard(resp)); difference != "" {
			t.Errorf("a wrong success: %s", difference)
		}
	})
}

// heard is what an answer says, in the terms of what its stream says.
func heard(resp *model.Response) providertest.Heard {
	var h providertest.Heard
	if resp.Content == nil {
		return h
	}
	for _, p := range resp.Content.Parts {
		switch {
		case p.FunctionCall != nil:
			args, _ := p.PartMetadata[seam.MetaArgs].(string)
			h.Calls++
			h.Args += args
		case p.Thought:
			h.Thoughts += p.Text
		default:
			h.Text += p.Text
		}
	}
	return h
}

// TestRefusalUsage: a refused answer has its price.
func TestRefusalUsage(t *testing.T) {
	for _, event := range []string{
		`{"candidates":[{"finishReason":"SAFETY"}],"usageMetadata":{"promptTokenCount":3,"totalTokenCount":3}}`,
		`{"promptFeedback":{"blockReason":"OTHER"},"usageMetadata":{"promptTokenCount":3,"totalTokenCount":3}}`,
	} {
		p := &player{llm: llm{model: "m"}, body: "data: " + event + "\n\n"}
		_, err := p.Generate(t.Context(), nil, func(model.Delta) {})
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != model.KindBlocked || e.Usage == nil || *e.Usage != (model.Usage{Prompt: 3, Total: 3}) {
			t.Errorf("%s: error %+v, want a blocked one with the usage", event, err)
		}
	}
}

func TestDecodeSignature(t *testing.T) {
	for in, want := range map[string]string{"": "", "+/8=": "\xfb\xff", "-_8": "\xfb\xff", "YWI=": "ab"} {
		got, err := decodeSignature(in)
		if err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("decodeSignature(%q) = %q, %v", in, got, err)
		}
	}
	if _, err := decodeSignature("no base64!"); err == nil {
		t.Error("nonsense was decoded")
	}
}
