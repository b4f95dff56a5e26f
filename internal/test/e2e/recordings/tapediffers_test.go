package recordings

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// tapedRequest asks for all that a request can ask for.
func tapedRequest(agent *agentdv1.Agent) *agentdv1.RunRequest {
	l := agent.GetLlm()
	l.Instruction = strings.Repeat("Be brief. ", 100) + "Say hello."
	l.ToolNames, l.BuiltinTools = []string{"look", "find"}, []string{"web_search", "tool_search"}
	l.OutputSchema = new(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}`)
	l.Generation = &agentdv1.GenerationSettings{
		Temperature: new(0.5), TopP: new(0.9), MaxOutputTokens: 100,
		Thinking:   &agentdv1.Thinking{Amount: &agentdv1.Thinking_Effort_{Effort: agentdv1.Thinking_EFFORT_LOW}},
		ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_NONE},
		Cache:      &agentdv1.PromptCache{Mode: agentdv1.PromptCache_MODE_ON},
	}
	m := harness.StartTurn(agent, "look", "find")
	ex := m.GetExecute()
	ex.Tools[0].InputSchema = new(`{"type":"object","properties":{"where":{"type":"string"}}}`)
	ex.Tools[1].Deferred = true
	ex.UserPrompt = harness.PromptCanary
	ex.UserParts = []*agentdv1.Part{
		client.Inline("text/plain", []byte("Hello, file.")).Proto(),
		client.Inline("application/pdf", []byte(strings.Repeat("%PDF", 5000))).Proto(),
	}
	return m
}

// TestTapeDiffers plays a recorded call to requests that differ: played strictly
// each is refused with what differs, and leniently it gets the recorded answer.
func TestTapeDiffers(t *testing.T) {
	dir := t.TempDir()
	f := harness.NewFaultyWith(t, providertest.OpenAIResponses, agentdtest.Config{
		RecordTo: filepath.Join(dir, "calls.jsonl"),
	})
	answer := harness.Hello
	answer.Text = `{"word":"hello"}`
	f.Serve(nil, answer)
	asked := tapedRequest(f.Agent())
	talk := func(d *agentdtest.Daemon, m *agentdv1.RunRequest) *harness.Dialogue {
		t.Helper()
		return harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL)}.Talk(m, nil)
	}
	if got := talk(f.D, asked); !got.End.GetCompleted() {
		t.Fatalf("%v", got.Msgs)
	}
	if err := f.D.Close(); err != nil {
		t.Fatal(err)
	}
	played := harness.NewFaultyWith(t, f.Wire, agentdtest.Config{ScriptsDir: dir})
	for name, c := range map[string]struct {
		change func(ex *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent)
		want   []string
	}{
		"nothing": {func(*agentdv1.RunRequest_ExecuteRequest, *agentdv1.LlmAgent) {}, nil},
		"instruction": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.Instruction = strings.Replace(l.GetInstruction(), "Say hello.", "Say good bye.", 1)
			}, []string{`config.systemInstruction.parts[0].text: recorded "…`, `Be brief. Say hello.`, `Be brief. Say good bye.`},
		},
		"prompt": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) { ex.UserPrompt = "other" },
			[]string{`contents[0].parts[0].text: recorded "` + harness.PromptCanary + `", got "other"`},
		},
		"small file": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) {
				ex.UserParts[0] = client.Inline("text/plain", []byte("Hello, other file.")).Proto()
			}, []string{`contents[0].parts[1].inlineData.data: recorded "`},
		},
		"large file": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) {
				ex.UserParts[1] = client.Inline("application/pdf", []byte(strings.Repeat("%PDG", 5000))).Proto()
			}, []string{`contents[0].parts[2].inlineData.data: recorded "sha256:`, `(20000 bytes)", got "sha256:`},
		},
		"file's type": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) {
				ex.UserParts[0] = client.Inline("text/csv", []byte("Hello, file.")).Proto()
			}, []string{`contents[0].parts[1].inlineData.mimeType: recorded "text/plain", got "text/csv"`},
		},
		"no file": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) { ex.UserParts = ex.UserParts[:1] },
			[]string{`contents[0].parts[2]: recorded {"inlineData":`, `got nothing`},
		},
		"tool's schema": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) {
				ex.Tools[0].InputSchema = new(`{"type":"object","properties":{"where":{"type":"number"}}}`)
			}, []string{`config.tools[0].functionDeclarations[0].parametersJsonSchema.properties.where.type: recorded "string", got "number"`},
		},
		"tool's description": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) { ex.Tools[0].Description = "looks" },
			[]string{`config.tools[0].functionDeclarations[0].description: recorded "the tool look", got "looks"`},
		},
		"no provider tool": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.BuiltinTools = l.GetBuiltinTools()[1:]
			},
			[]string{`config.tools[1]: recorded {"googleSearch":{}}, got nothing`},
		},
		"more provider tools": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.BuiltinTools = append(l.BuiltinTools, "url_context")
			}, []string{`config.tools[2]: recorded nothing, got {"urlContext":{}}`},
		},
		"other deferred tools": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, _ *agentdv1.LlmAgent) {
				ex.Tools[0].Deferred, ex.Tools[1].Deferred = true, false
			}, []string{`deferred[0]: recorded "find", got "look"`},
		},
		"no deferred tools": {
			func(ex *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				ex.Tools[1].Deferred, l.BuiltinTools = false, l.GetBuiltinTools()[:1]
			}, []string{`deferred: recorded ["find"], got nothing`},
		},
		"output schema": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.OutputSchema = new(`{"type":"object","properties":{"word":{"type":"string"}}}`)
			}, []string{`config.responseJsonSchema.required: recorded ["word"], got nothing`},
		},
		"temperature": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.Generation.Temperature = new(0.25)
			},
			[]string{`config.temperature: recorded 0.5, got 0.25`},
		},
		"top p": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) { l.Generation.TopP = nil },
			[]string{`config.topP: recorded 0.9, got nothing`},
		},
		"longest answer": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) { l.Generation.MaxOutputTokens = 7 },
			[]string{`config.maxOutputTokens: recorded 100, got 7`},
		},
		"stop texts": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.Generation.StopSequences = []string{"END"}
			}, []string{`config.stopSequences: recorded nothing, got ["END"]`},
		},
		"seed": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) { l.Generation.Seed = new(int32(7)) },
			[]string{`config.seed: recorded nothing, got 7`},
		},
		"thinking": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) { l.Generation.Thinking = nil },
			[]string{`config.thinkingConfig: recorded {"thinkingLevel":"LOW"}, got nothing`},
		},
		"tool choice": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.Generation.ToolChoice = &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED}
			}, []string{`config.toolConfig.functionCallingConfig.mode: recorded "NONE", got "ANY"`},
		},
		"no cache": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) { l.Generation.Cache = nil },
			[]string{`cache: recorded {}, got nothing`},
		},
		"cache for longer": {
			func(_ *agentdv1.RunRequest_ExecuteRequest, l *agentdv1.LlmAgent) {
				l.Generation.Cache.Ttl = durationpb.New(time.Hour)
			}, []string{`cache.ttl: recorded nothing, got "1h0m0s"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := proto.CloneOf(asked)
			c.change(m.GetExecute(), m.GetExecute().GetAgent().GetLlm())
			m.GetExecute().GetAgent().GetLlm().Model = tapes[0]
			if got := talk(played.D, m); !got.End.GetCompleted() || got.Text["root"] != answer.Text {
				t.Errorf("leniently: %v", got.Msgs)
			}
			m.GetExecute().GetAgent().GetLlm().Model = tapes[1]
			got := talk(played.D, m)
			if c.want == nil {
				if !got.End.GetCompleted() {
					t.Errorf("strictly: %v", got.Msgs)
				}
				return
			}
			harness.CheckFailed(t, got, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, 1, append(c.want, "is not the recorded one (call 1 of the file): ")...)
			if text := got.Errors[0].GetMessage(); len(text) > 700 {
				t.Errorf("the difference is told in %d bytes: %s", len(text), text)
			}
		})
	}
}
