package providertest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/anthropic"
	"github.com/apzuk3/agentd/model/gemini"
	"github.com/apzuk3/agentd/model/openai"
)

// TestHistories runs the recordings that need more than prompts and tool results:
// each recorded request is translated to what the engine would ask, and asked;
// what is sent says the same as the recorded one, and what comes back is what was
// recorded.
func TestHistories(t *testing.T) {
	for _, rec := range providertest.All(t) {
		conv, err := providertest.Expect(rec)
		if err != nil {
			t.Errorf("%s: %v", rec.Name, err)
			continue
		}
		if conv.Needs() == "" {
			continue
		}
		t.Run(rec.Name, func(t *testing.T) { runHistory(t, rec, conv) })
	}
}

// runHistory asks each request of a recording.
func runHistory(t *testing.T, rec *providertest.Recording, conv *providertest.Conversation) {
	var steps []providertest.Step
	for _, s := range conv.Sessions {
		for _, turn := range s.Turns {
			steps = append(steps, turn.Steps...)
		}
	}
	for i, e := range rec.Calls() {
		req, err := requestOf(e)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := e.EventStream()
		if err != nil {
			t.Fatal(err)
		}
		recorded, err := providertest.ParseRequest(e.URL, e.Request)
		if err != nil {
			t.Fatal(err)
		}
		sent := &sender{answer: stream}
		var p model.Provider
		switch e.Wire {
		case providertest.OpenAIChat:
			p = openai.New(openai.Config{APIKey: apiKey, BaseURL: strings.TrimSuffix(e.URL, "/chat/completions"), Transport: sent})
		case providertest.OpenAIResponses:
			p = openai.New(openai.Config{APIKey: apiKey, Transport: sent})
		case providertest.Anthropic:
			p = anthropic.New(anthropic.Config{APIKey: apiKey, Transport: sent})
		default:
			p = gemini.New(gemini.Config{APIKey: apiKey, Transport: sent})
		}
		llm, err := p.Open(recorded.Model, "")
		if err != nil {
			t.Fatal(err)
		}
		resp, err := modelcall.Guard(llm, modelcall.Limits{}).Generate(t.Context(), req, func(model.Delta) {})
		if err != nil {
			t.Fatal(err)
		}
		d := &adapterDriver{wire: e.Wire}
		d.compare(t, resp, steps[i])
		if err := providertest.CheckHistory(sent.body, e.Wire, recorded.Items); err != nil {
			t.Errorf("request %d: %v\n%s", i, err, sent.body)
		}
		if want, got := fieldsOf(e.Request), fieldsOf(sent.body); want != got {
			t.Errorf("request %d says %s, recorded %s", i, got, want)
		}
		var answer object
		if json.Unmarshal(e.JSON, &answer) == nil {
			for _, item := range list(answer, "output") {
				ns := str(item, "namespace")
				if ns != "" && !slices.ContainsFunc(resp.Content.Parts, func(p *genai.Part) bool {
					return p.FunctionCall != nil && p.PartMetadata[seam.MetaOpaque] == `{"namespace":"`+ns+`"}`
				}) {
					t.Errorf("answer %d: namespace %q of a call is not kept", i, ns)
				}
			}
		}
	}
}

// fieldsOf are the deferrals, the searches for tools, the references to tools, and
// the namespaces of calls in a request.
func fieldsOf(body []byte) string {
	var req object
	if err := json.Unmarshal(body, &req); err != nil {
		return err.Error()
	}
	var out []string
	for _, d := range list(req, "tools") {
		if later, _ := d["defer_loading"].(bool); later {
			out = append(out, "deferred "+str(d, "name"))
		} else if strings.HasPrefix(str(d, "type"), "tool_search") {
			out = append(out, str(d, "type"))
		}
	}
	slices.Sort(out)
	for _, item := range list(req, "input") {
		if ns := str(item, "namespace"); ns != "" {
			out = append(out, str(item, "name")+" in "+ns)
		}
	}
	for _, m := range list(req, "messages") {
		for _, b := range list(m, "content") {
			for _, c := range list(b, "content") {
				if str(c, "type") == "tool_reference" {
					out = append(out, str(b, "tool_use_id")+" finds "+str(c, "tool_name"))
				}
			}
		}
	}
	return strings.Join(out, ", ")
}

// translation is a recorded request becoming one of ours.
type translation struct {
	req   *model.Request
	names map[string]string // of the functions, by call id
}

// requestOf translates a recorded request.
func requestOf(e *providertest.Exchange) (*model.Request, error) {
	tr := &translation{&model.Request{Config: &genai.GenerateContentConfig{}}, map[string]string{}}
	var body object
	if err := json.Unmarshal(e.Request, &body); err != nil {
		return nil, err
	}
	switch e.Wire {
	case providertest.Gemini:
		return tr.req, tr.gemini(e.Request)
	case providertest.OpenAIChat:
		tr.chat(body)
	case providertest.OpenAIResponses:
		tr.responses(body)
	case providertest.Anthropic:
		tr.anthropic(body)
	}
	return tr.req, tr.tools(body)
}

func (tr *translation) add(role string, parts ...*genai.Part) {
	tr.req.Contents = append(tr.req.Contents, &genai.Content{Role: role, Parts: parts})
}

func (tr *translation) call(id, name, args string) {
	tr.names[id] = name
	tr.add(genai.RoleModel, called(id, id, name, args, nil))
}

func (tr *translation) result(id, output string, parts ...*genai.FunctionResponsePart) {
	tr.add(genai.RoleUser, answered(id, tr.names[id], map[string]any{"output": output}, parts...))
}

func raw(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // It was JSON a moment ago.
	}
	return string(b)
}

// tools declares what the recorded request declares.
func (tr *translation) tools(body object) error {
	var tool genai.Tool
	for _, d := range list(body, "tools") {
		kind := str(d, "type")
		if strings.HasPrefix(kind, "tool_search") {
			tr.req.ToolSearch = true
			continue
		}
		if kind != "" && kind != "function" && kind != "custom" {
			return fmt.Errorf("a tool that OpenAI runs (%s)", kind)
		}
		if later, _ := d["defer_loading"].(bool); later {
			tr.req.Deferred = append(tr.req.Deferred, str(d, "name"))
		}
		if fn, ok := d["function"].(object); ok {
			d = fn
		}
		schema := d["parameters"]
		if schema == nil {
			schema = d["input_schema"]
		}
		tool.FunctionDeclarations = append(tool.FunctionDeclarations, &genai.FunctionDeclaration{
			Name: str(d, "name"), Description: str(d, "description"), ParametersJsonSchema: schema,
		})
	}
	if len(tool.FunctionDeclarations) > 0 {
		tr.req.Config.Tools = []*genai.Tool{&tool}
	}
	return nil
}

// chatMedia are the types of the media that chat's wire links to.
var chatMedia = map[string]string{"image_url": "image/png", "video_url": "video/mp4", "document_url": "application/pdf"}

func (tr *translation) chat(body object) {
	for _, m := range list(body, "messages") {
		role := map[string]string{"assistant": genai.RoleModel}[str(m, "role")]
		var parts []*genai.Part
		if s := str(m, "content"); s != "" {
			parts = append(parts, text(s))
		}
		for _, c := range list(m, "content") {
			kind := str(c, "type")
			link := str(c, kind)
			if o, ok := c[kind].(object); ok {
				link = str(o, "url")
			}
			if kind == "text" {
				parts = append(parts, text(str(c, "text")))
			} else {
				parts = append(parts, &genai.Part{FileData: &genai.FileData{FileURI: link, MIMEType: chatMedia[kind]}})
			}
		}
		switch str(m, "role") {
		case "system":
			tr.req.Config.SystemInstruction = asked(parts...)
			continue
		case "tool":
			tr.result(str(m, "tool_call_id"), str(m, "content"))
			continue
		}
		if len(parts) > 0 {
			tr.add(role, parts...)
		}
		for _, c := range list(m, "tool_calls") {
			fn, _ := c["function"].(object)
			tr.call(str(c, "id"), str(fn, "name"), str(fn, "arguments"))
		}
	}
}

// responses translates messages, calls and results; anything else is an item of
// OpenAI's own, which goes back as it came.
func (tr *translation) responses(body object) {
	for _, item := range list(body, "input") {
		switch kind := str(item, "type"); {
		case str(item, "role") == "user":
			tr.add(genai.RoleUser, text(str(item, "content")))
		case kind == "function_call":
			tr.call(str(item, "call_id"), str(item, "name"), str(item, "arguments"))
			if ns := str(item, "namespace"); ns != "" {
				last := tr.req.Contents[len(tr.req.Contents)-1]
				maps.Copy(last.Parts[0].PartMetadata, owned("openai", `{"namespace":"`+ns+`"}`))
			}
		case kind == "function_call_output":
			tr.result(str(item, "call_id"), str(item, "output"))
		default:
			tr.add(genai.RoleModel, &genai.Part{PartMetadata: owned("openai", raw(item))})
		}
	}
}

func (tr *translation) anthropic(body object) {
	for _, s := range list(body, "system") {
		tr.req.Config.SystemInstruction = asked(text(str(s, "text")))
	}
	for _, m := range list(body, "messages") {
		for _, b := range list(m, "content") {
			switch str(b, "type") {
			case "text":
				tr.add(map[string]string{"assistant": genai.RoleModel}[str(m, "role")], text(str(b, "text")))
			case "tool_use":
				tr.call(str(b, "id"), str(b, "name"), raw(b["input"]))
			case "tool_result":
				var output string
				var media []*genai.FunctionResponsePart
				var found []string
				for _, c := range list(b, "content") {
					output += str(c, "text")
					if name := str(c, "tool_name"); name != "" {
						found = append(found, name)
					}
					if source, ok := c["source"].(object); ok {
						media = append(media, &genai.FunctionResponsePart{InlineData: &genai.FunctionResponseBlob{
							MIMEType: str(source, "media_type"), Data: []byte(str(source, "data")),
						}})
					}
				}
				tr.result(str(b, "tool_use_id"), output, media...)
				last := tr.req.Contents[len(tr.req.Contents)-1]
				last.Parts[0] = seam.Refer(last.Parts[0], found...)
			}
		}
	}
}

var (
	snakeKey      = regexp.MustCompile(`"[a-z]+(_[a-z]+)+":`)
	signatureText = regexp.MustCompile(`"thoughtSignature":\s*"[^"]*"`)
)

// gemini decodes the request with the SDK's own types, which know camelCase and
// base64's usual alphabet only.
func (tr *translation) gemini(body []byte) error {
	body = snakeKey.ReplaceAllFunc(body, func(key []byte) []byte {
		words := strings.Split(string(key), "_")
		for i := range words[1:] {
			words[i+1] = strings.ToUpper(words[i+1][:1]) + words[i+1][1:]
		}
		return []byte(strings.Join(words, ""))
	})
	body = signatureText.ReplaceAllFunc(body, func(s []byte) []byte {
		return bytes.ReplaceAll(bytes.ReplaceAll(s, []byte("-"), []byte("+")), []byte("_"), []byte("/"))
	})
	var r geminiRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return err
	}
	for _, c := range r.Contents {
		for _, p := range c.Parts {
			p.PartMetadata = owned("gemini", "")
			if p.FunctionCall != nil {
				p.PartMetadata[seam.MetaCallID] = p.FunctionCall.ID
			}
		}
	}
	tr.req.Contents = r.Contents
	cfg := tr.req.Config
	cfg.SystemInstruction, cfg.Tools, cfg.ToolConfig = r.SystemInstruction, r.Tools, r.ToolConfig
	if r.GenerationConfig != nil {
		for _, m := range r.GenerationConfig.ResponseModalities {
			cfg.ResponseModalities = append(cfg.ResponseModalities, string(m))
		}
	}
	return nil
}
