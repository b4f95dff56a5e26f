package echo_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/echo"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

func open(t *testing.T, cfg echo.Config) model.LLM {
	t.Helper()
	llm, err := echo.New(cfg).Open("echo", "ignored")
	if err != nil {
		t.Fatal(err)
	}
	return modelcall.Guard(llm, modelcall.Limits{Provider: "echo"})
}

func request(contents ...*genai.Content) *model.Request {
	return &model.Request{Contents: contents, Config: &genai.GenerateContentConfig{SystemInstruction: genai.NewContentFromText("be an echo", genai.RoleUser)}}
}

func TestEcho(t *testing.T) {
	req := request(
		genai.NewContentFromText("first", genai.RoleUser),
		genai.NewContentFromText("first", genai.RoleModel),
		genai.NewContentFromText("say  hi\nto Alice", genai.RoleUser),
		&genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{FunctionResponse: &genai.FunctionResponse{Name: "f"}}}},
	)
	var got []string
	resp, err := open(t, echo.Config{}).Generate(t.Context(), req, func(d model.Delta) { got = append(got, d.Text) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"say  ", "hi\n", "to ", "Alice"}; !reflect.DeepEqual(got, want) {
		t.Errorf("deltas %q, want %q", got, want)
	}
	want := &model.Response{
		Content: genai.NewContentFromText("say  hi\nto Alice", genai.RoleModel), FinishReason: genai.FinishReasonStop,
		Usage: model.Usage{Prompt: 9, Completion: 4, Total: 13}, Model: "echo",
	}
	if !reflect.DeepEqual(resp, want) {
		t.Errorf("response %+v, want %+v", resp, want)
	}
}

// Files are said in words, also without a text.
func TestEchoOfFiles(t *testing.T) {
	png := &genai.Part{InlineData: &genai.Blob{MIMEType: "image/png", Data: make([]byte, 68)}}
	film := &genai.Part{FileData: &genai.FileData{MIMEType: "video/mp4", FileURI: "gs://b/film"}}
	for want, parts := range map[string][]*genai.Part{
		"[image/png, 68 bytes]": {png},
		"look:\n[image/png, 68 bytes]\n[video/mp4, gs://b/film]\nwell?": {{Text: "look:"}, png, film, {Text: "well?"}},
	} {
		resp, err := open(t, echo.Config{}).Generate(t.Context(), request(&genai.Content{Role: genai.RoleUser, Parts: parts}), func(model.Delta) {})
		if err != nil {
			t.Fatal(err)
		}
		if got := adapter.Text(resp.Content); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEchoOfNothing(t *testing.T) {
	resp, err := open(t, echo.Config{}).Generate(t.Context(), request(), func(model.Delta) { t.Error("a delta") })
	if err != nil || resp.Content != nil || resp.FinishReason != genai.FinishReasonStop {
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestEchoStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		n := 0
		_, err := open(t, echo.Config{Delay: time.Second}).Generate(ctx, request(genai.NewContentFromText("a b c d", genai.RoleUser)), func(model.Delta) { n++ })
		if !errors.Is(err, context.DeadlineExceeded) || n != 2 {
			t.Errorf("%d deltas, error %v", n, err)
		}
	})
}
