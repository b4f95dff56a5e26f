package gemini

import (
	"io"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// TestFilesOfResults: where a file of a result stands depends on the model, on its
// type, and on where it is.
func TestFilesOfResults(t *testing.T) {
	file := func(kind, uri string) *genai.FunctionResponsePart {
		if uri != "" {
			return &genai.FunctionResponsePart{FileData: &genai.FunctionResponseFileData{MIMEType: kind, FileURI: uri}}
		}
		return &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: kind, Data: []byte("x")}}
	}
	const (
		inside = `{"functionResponse":{"name":"f","response":{"a":1},"parts":[`
		bare   = `{"functionResponse":{"name":"f","response":{"a":1}}},{"functionResponse":{"name":"g","response":{}}},`
		png    = `{"inlineData":{"mimeType":"image/png","data":"eA=="}}`
	)
	for _, c := range []struct {
		model  string
		vertex bool
		file   *genai.FunctionResponsePart
		want   string
	}{
		{"gemini-3-pro", false, file("image/png", ""), inside + png + `]}},{"functionResponse":{"name":"g","response":{}}}`},
		{"gemini-3-pro", false, file("audio/wav", ""), bare + `{"inlineData":{"data":"eA==","mimeType":"audio/wav"}}`},
		{"gemini-3-pro", false, file("image/png", "https://x/y"), bare + `{"fileData":{"fileUri":"https://x/y","mimeType":"image/png"}}`},
		{"gemini-3-pro", true, file("image/png", "gs://x/y"), inside + `{"fileData":{"fileUri":"gs://x/y","mimeType":"image/png"}}]}},{"functionResponse":{"name":"g","response":{}}}`},
		{"gemini-3-pro", true, file("video/mp4", "gs://x/y"), bare + `{"fileData":{"fileUri":"gs://x/y","mimeType":"video/mp4"}}`},
		{"gemini-2.5-flash", false, file("image/png", ""), bare + `{"inlineData":{"data":"eA==","mimeType":"image/png"}}`},
	} {
		l := &llm{model: c.model, vertex: c.vertex}
		req := &model.Request{Contents: []*genai.Content{{Role: genai.RoleUser, Parts: []*genai.Part{
			{FunctionResponse: &genai.FunctionResponse{Name: "f", Response: map[string]any{"a": 1}, Parts: []*genai.FunctionResponsePart{nil, c.file}}},
			{FunctionResponse: &genai.FunctionResponse{Name: "g"}},
		}}}}
		body, err := l.body(req, []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body.Reader())
		if want := `{"contents":[{"role":"user","parts":[` + c.want + `]}]}`; err != nil || string(got) != want {
			t.Errorf("%s, Vertex %t: %s, error %v, want %s", c.model, c.vertex, got, err, want)
		}
	}
}
