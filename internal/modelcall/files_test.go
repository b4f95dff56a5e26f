package modelcall_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// reader takes images, and in results only those by URI. It keeps the request.
type reader struct{ got *model.Request }

func (r *reader) Generate(_ context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	r.got = req
	return &model.Response{FinishReason: genai.FinishReasonStop}, nil
}

func (*reader) takes(f model.File) error {
	if strings.HasPrefix(f.MIMEType, "image/") && (!f.Result || f.URI != "") {
		return nil
	}
	return &model.Error{Kind: model.KindInvalid, Provider: "reader", Message: "no " + f.MIMEType}
}

func inline(mimeType, data string) *genai.Part {
	return &genai.Part{InlineData: &genai.Blob{MIMEType: mimeType, Data: []byte(data)}}
}

func atURI(mimeType, uri string) *genai.Part {
	return &genai.Part{FileData: &genai.FileData{MIMEType: mimeType, FileURI: uri}}
}

func textResponse(response map[string]any, parts ...*genai.FunctionResponsePart) *genai.Part {
	return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "t", Response: response, Parts: parts}}
}

// A guarded model is told in words of the files that it does not take, whoever
// they are from, and the conversation stays what it is for others.
func TestFilesInWords(t *testing.T) {
	png, wav := inline("image/png", "png"), inline("audio/wav", "sound")
	seen := &genai.FunctionResponsePart{FileData: &genai.FunctionResponseFileData{MIMEType: "image/png", FileURI: "u"}}
	unseen := &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: "image/png", Data: []byte("png")}}
	contents := []*genai.Content{
		{Role: genai.RoleUser, Parts: []*genai.Part{{Text: "hi"}, png}},
		{Role: genai.RoleUser, Parts: []*genai.Part{{Text: "hear"}, wav, atURI("video/mp4", "gs://b/f"), png}},
		{Role: genai.RoleModel, Parts: []*genai.Part{wav, {FunctionCall: &genai.FunctionCall{ID: "1", Name: "t"}}}},
		{Role: genai.RoleUser, Parts: []*genai.Part{
			textResponse(map[string]any{"output": "text"}, seen, unseen), textResponse(map[string]any{"output": ""}, unseen),
			textResponse(map[string]any{"a": 1}, unseen), textResponse(nil, unseen), textResponse(map[string]any{"output": "text"}, seen),
		}},
	}
	before := describe(contents)
	r := &reader{}
	llm := modelcall.Wrap(r, modelcall.Circuit{}, r.takes, modelcall.Limits{Provider: "reader"})
	if _, err := llm.Generate(t.Context(), &model.Request{Contents: contents, Config: &genai.GenerateContentConfig{}}, func(model.Delta) {}); err != nil {
		t.Fatal(err)
	}
	if got := describe(contents); got != before {
		t.Errorf("the conversation was changed to\n%s", got)
	}
	if r.got.Contents[0] != contents[0] || r.got.Contents[2] != contents[2] || r.got.Contents[1].Parts[3] != png || r.got.Contents[3].Parts[4] != contents[3].Parts[4] {
		t.Error("what the model takes was copied")
	}
	want := `hi [image/png, 3 bytes]
hear [audio/wav, 5 bytes, not shown to you] [video/mp4, gs://b/f, not shown to you] [image/png, 3 bytes]
[audio/wav, 5 bytes] call
{"output":"text\n\n[image/png, 3 bytes, not shown to you]"} [image/png, u]` +
		` {"output":"[image/png, 3 bytes, not shown to you]"} {"a":1,"files":"[image/png, 3 bytes, not shown to you]"} {"files":"[image/png, 3 bytes, not shown to you]"} {"output":"text"} [image/png, u]
`
	if got := describe(r.got.Contents); got != want {
		t.Errorf("the model is told\n%s\nwant\n%s", got, want)
	}
	if got := words.WithoutFiles(contents[0]); len(got.Parts) != 2 || got.Parts[1].Text != "[image/png, 3 bytes, not shown to you]" {
		t.Errorf("without files: %+v", got.Parts)
	}
	if plain := (&genai.Content{Parts: []*genai.Part{{Text: "x"}}}); words.WithoutFiles(plain) != plain {
		t.Error("what has no files was copied")
	}
}

// describe is what contents hold.
func describe(contents []*genai.Content) string {
	var b strings.Builder
	for _, c := range contents {
		var texts []string
		for _, p := range c.Parts {
			switch {
			case p.FunctionCall != nil:
				texts = append(texts, "call")
			case p.FunctionResponse != nil:
				data, err := rawjson.Marshal(p.FunctionResponse.Response)
				if err != nil {
					data = []byte(err.Error())
				}
				texts = append(texts, string(data))
				for _, f := range p.FunctionResponse.Parts {
					texts = append(texts, words.DescribeResultFile(f))
				}
			default:
				texts = append(texts, p.Text+words.DescribeFile(p))
			}
		}
		b.WriteString(strings.Join(texts, " ") + "\n")
	}
	return b.String()
}

// A model that does not say what it takes is given all files.
func TestFilesOfSilentModels(t *testing.T) {
	var got *model.Request
	llm := modelcall.Wrap(silent(func(req *model.Request) { got = req }), modelcall.Circuit{}, nil, modelcall.Limits{})
	req := &model.Request{Contents: []*genai.Content{{Role: genai.RoleUser, Parts: []*genai.Part{inline("a/b", "x")}}}, Config: &genai.GenerateContentConfig{}}
	if _, err := llm.Generate(t.Context(), req, func(model.Delta) {}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Contents, req.Contents) {
		t.Errorf("the model is told %+v", got.Contents)
	}
}

type silent func(*model.Request)

func (s silent) Generate(_ context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	s(req)
	return &model.Response{FinishReason: genai.FinishReasonStop}, nil
}

// What the user says is texts and files in order, files on lines of their own.
func TestSaidOf(t *testing.T) {
	for want, parts := range map[string][]*genai.Part{
		"ab":                          {{Text: "a"}, {Text: "no", Thought: true}, {Text: "b"}},
		"a\n[x/y, 2 bytes]\nb":        {{Text: "a"}, inline("x/y", "zz"), {}, {Text: "b"}},
		"[x/y, 2 bytes]\n[x/y, u://]": {inline("x/y", "zz"), atURI("x/y", "u://")},
		"":                            {textResponse(nil)},
	} {
		if got := words.Said(&genai.Content{Parts: parts}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A file in words takes what its type and its address take, however large it is, and
// however many there are.
func TestFilesInWordsAreSmall(t *testing.T) {
	large := make([]byte, 1<<20)
	kind, uri := "audio/"+strings.Repeat("x", 250), "gs://"+strings.Repeat("y", 2000)
	var parts []*genai.Part
	for range 500 {
		file := &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{MIMEType: kind, Data: large}}
		parts = append(parts, &genai.Part{InlineData: &genai.Blob{MIMEType: kind, Data: large}}, atURI(kind, uri), textResponse(nil, file))
	}
	said := &genai.Content{Role: genai.RoleUser, Parts: parts}
	most := len(parts) * (len(kind) + len(uri) + 64)
	if n := len(words.Said(said)); n == 0 || n > most {
		t.Errorf("what was said takes %d bytes, want at most %d", n, most)
	}
	size := 0
	for _, p := range words.WithoutFiles(said).Parts {
		size += len(p.Text)
		if r := p.FunctionResponse; r != nil {
			note, _ := r.Response["output"].(string)
			size += len(note)
		}
	}
	if size == 0 || size > most {
		t.Errorf("files in words take %d bytes, want at most %d", size, most)
	}
}
