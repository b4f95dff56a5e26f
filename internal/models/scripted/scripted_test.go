package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// open opens a script given as YAML.
func open(t *testing.T, script string) model.LLM {
	t.Helper()
	s, err := scripted.Parse([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	p, err := scripted.New(scripted.Config{Scripts: map[string]*scripted.Script{"s": s}})
	if err != nil {
		t.Fatal(err)
	}
	return openAs(t, p, "s")
}

func openAs(t *testing.T, p *scripted.Provider, name string) model.LLM {
	t.Helper()
	llm, err := p.Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return modelcall.Guard(llm, modelcall.Limits{Provider: "scripted"})
}

// talk is a conversation under construction.
type talk struct{ req *model.Request }

func newTalk(system string, functions ...*genai.FunctionDeclaration) *talk {
	return &talk{&model.Request{Config: &genai.GenerateContentConfig{
		SystemInstruction: genai.NewContentFromText(system, genai.RoleUser),
		Tools:             []*genai.Tool{{FunctionDeclarations: functions}},
	}}}
}

func (c *talk) user(text string) *talk {
	c.req.Contents = append(c.req.Contents, genai.NewContentFromText(text, genai.RoleUser))
	return c
}

func (c *talk) model(content *genai.Content) *talk {
	c.req.Contents = append(c.req.Contents, content)
	return c
}

func (c *talk) result(name string, response map[string]any) *talk {
	c.req.Contents = append(c.req.Contents, genai.NewContentFromFunctionResponse(name, response, genai.RoleUser))
	return c
}

// ask makes one call and returns the response and its deltas.
func ask(t *testing.T, llm model.LLM, c *talk) (*model.Response, []string) {
	t.Helper()
	var deltas []string
	resp, err := llm.Generate(t.Context(), c.req, func(d model.Delta) { deltas = append(deltas, d.Text) })
	if err != nil {
		t.Fatal(err)
	}
	return resp, deltas
}

func text(resp *model.Response) string { return adapter.Text(resp.Content) }

func TestMatchesByPlace(t *testing.T) {
	llm := open(t, `
answers:
  - thoughts: I should greet.
    text: ["Let me ", "greet."]
    calls:
      - name: greet
        id: call_7
        args: {name: "{{last_word}}", times: 9007199254740993, deep: [{who: "{{last_user}}"}]}
    usage: {prompt: 10, completion: 5, cached: 2, thoughts: 1}
  - text: 'It says: {{tool_result "greet"}}'
    finish: MAX_TOKENS
`)
	c := newTalk("").user("Say hi to Alice!")
	resp, deltas := ask(t, llm, c)
	if want := []string{"I ", "should ", "greet.", "Let me ", "greet."}; !reflect.DeepEqual(deltas, want) {
		t.Errorf("deltas %q, want %q", deltas, want)
	}
	call := resp.Content.Parts[2]
	if want := `{"deep":[{"who":"Say hi to Alice!"}],"name":"Alice","times":9007199254740993}`; call.PartMetadata[seam.MetaArgs] != want {
		t.Errorf("arguments %v, want %s", call.PartMetadata, want)
	}
	if call.FunctionCall.ID != "call_7" || call.FunctionCall.Args["times"] != json.Number("9007199254740993") {
		t.Errorf("call %+v", call.FunctionCall)
	}
	if want := (model.Usage{Prompt: 10, Completion: 5, Cached: 2, Thoughts: 1, Total: 15}); resp.Usage != want {
		t.Errorf("usage %+v, want %+v", resp.Usage, want)
	}

	c.model(resp.Content).result("greet", map[string]any{"output": "Hello, Alice!"})
	for range 3 { // stateless: the same request gets the same answer
		resp, _ = ask(t, llm, c)
		if text(resp) != "It says: Hello, Alice!" || resp.FinishReason != genai.FinishReasonMaxTokens {
			t.Errorf("answer %q, %s", text(resp), resp.FinishReason)
		}
		if resp.Usage.Completion != 4 || resp.Usage.Prompt == 0 || resp.Usage.Total != resp.Usage.Prompt+4 {
			t.Errorf("counted usage %+v", resp.Usage)
		}
	}

	_, err := llm.Generate(t.Context(), c.model(resp.Content).user("more").req, func(model.Delta) {})
	wantKind(t, err, model.KindInvalid, "no answer for call 3 (step 1)")
}

func wantKind(t *testing.T, err error, kind model.Kind, message string) {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != kind || !strings.Contains(e.Message, message) {
		t.Fatalf("error %v, want %s with %q", err, kind, message)
	}
}

func TestMatchesByCondition(t *testing.T) {
	llm := open(t, `
answers:
  - when: {system: "^pirate"}
    text: arr
  - when: {user: "(?i)weather", has_tool: forecast, step: 1}
    text: asking
  - when: {after_tool: forecast}
    text: told
  - when: {call: 3}
    text: third
  - when: {}
    text: "{{call}}.{{step}} {{system}}"
`)
	said := genai.NewContentFromText("x", genai.RoleModel)
	forecast := &genai.FunctionDeclaration{Name: "forecast"}
	for _, c := range []struct {
		talk *talk
		want string
	}{
		{newTalk("pirate").user("weather"), "arr"},
		{newTalk("sys", forecast).user("Weather?"), "asking"},
		{newTalk("sys").user("Weather?"), "1.1 sys"},
		{newTalk("sys", forecast).user("Weather?").model(said).result("forecast", nil), "told"},
		{newTalk("sys", forecast).user("Weather?").model(said).result("forecast", nil).user("thanks"), "2.1 sys"},
		{newTalk("sys").user("a").model(said).user("b").model(said).user("c"), "third"},
		{newTalk("sys").user("a").model(said).result("other", nil), "2.2 sys"},
	} {
		resp, _ := ask(t, llm, c.talk)
		if text(resp) != c.want {
			t.Errorf("answer %q, want %q", text(resp), c.want)
		}
	}
}

func TestFailures(t *testing.T) {
	for kind, want := range map[string]model.Kind{
		"rate_limited": model.KindRateLimited, "auth": model.KindAuth, "unavailable": model.KindUnavailable, "timeout": model.KindTimeout,
		"invalid": model.KindInvalid, "blocked": model.KindBlocked, "context_too_long": model.KindContextTooLong,
		"truncate": model.KindUnavailable, "panic": model.KindUnavailable,
	} {
		t.Run(kind, func(t *testing.T) {
			llm := open(t, "answers: [{text: [a, b, c], error: {kind: "+kind+", message: 'about {{last_user}}', after: 2, status: 429, retry_after: 3s}}]")
			var deltas []string
			_, err := llm.Generate(t.Context(), newTalk("").user("you").req, func(d model.Delta) { deltas = append(deltas, d.Text) })
			wantKind(t, err, want, "")
			if !slices.Equal(deltas, []string{"a", "b"}) {
				t.Errorf("deltas %q, want two", deltas)
			}
			e, _ := errors.AsType[*model.Error](err)
			if kind != "truncate" && kind != "panic" && (e.Message != "about you" || e.Status != 429 || e.RetryAfter != 3*time.Second) {
				t.Errorf("error %+v", e)
			}
		})
	}
	t.Run("hang", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			llm := open(t, "answers: [{text: [a], error: {kind: hang, after: 1}}]")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := llm.Generate(ctx, newTalk("").user("you").req, func(model.Delta) {}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		})
	})
}

// TestTries: an answer may fail at first and come with a later try; what the
// failure took is told if the script says it.
func TestTries(t *testing.T) {
	const script = `answers:
  - {when: {try: 1}, error: {kind: unavailable, status: 503}, usage: {prompt: 3}}
  - {when: {try: 2}, error: {kind: truncate}}
  - {when: {}, text: "There."}`
	talk := newTalk("").user("x")
	_, err := open(t, script).Generate(t.Context(), talk.req, func(model.Delta) {})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Usage == nil || *e.Usage != (model.Usage{Prompt: 3, Total: 3}) {
		t.Errorf("the first try, which nobody counts: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		resp, err := modelcall.WithRetry(open(t, script), modelcall.Retry{}).Generate(t.Context(), talk.req, func(model.Delta) {})
		if err != nil || text(resp) != "There." || !slices.Equal(resp.Failed, []model.Usage{{Prompt: 3, Total: 3}}) {
			t.Errorf("got %+v, %v", resp, err)
		}
	})
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		llm := open(t, "answers: [{delay: 1s, chunk_delay: 100ms, text: [a, b, c]}]")
		start := time.Now()
		ask(t, llm, newTalk("").user("x"))
		if got := time.Since(start); got != 1300*time.Millisecond {
			t.Errorf("took %v, want 1.3s", got)
		}
	})
}

func TestArgsText(t *testing.T) {
	resp, _ := ask(t, open(t, `{"answers": [{"calls": [{"name": "f", "args_text": "{\"broken\": "}, {"name": "g"}]}]}`), newTalk("").user("x"))
	first, second := resp.Content.Parts[0], resp.Content.Parts[1]
	if first.PartMetadata[seam.MetaArgs] != `{"broken": ` || first.PartMetadata[seam.MetaArgsError] == nil || len(first.FunctionCall.Args) != 0 {
		t.Errorf("broken arguments: %+v, %v", first.FunctionCall, first.PartMetadata)
	}
	if second.PartMetadata[seam.MetaArgs] != "{}" || second.FunctionCall.ID != "" {
		t.Errorf("no arguments: %+v, %v", second.FunctionCall, second.PartMetadata)
	}
}

func TestParseRefuses(t *testing.T) {
	for script, want := range map[string]string{
		"":                               "at least one answer",
		"answers: []":                    "at least one answer",
		"answers: [{txt: hi}]":           "txt",
		"answers: [{text: {a: b}}]":      "string or a list",
		"answers: [{calls: [{id: x}]}]":  "answer 1: call 1 has no name",
		"answers: [{error: {kind: no}}]": `answer 1: error kind "no"`,
		"answers: [{text: '{{nope}}'}]":  "nope",
		"answers: [{when: {user: '('}}]": "when.user",
		"answers: [{text: a}, {calls: [{name: f, args: {}, args_text: '{}'}]}]": "answer 2: call 1 has both",
		"\x00": "",
	} {
		if _, err := scripted.Parse([]byte(script)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v, want %q", script, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("answers: [{text: [a, '{{last_user}}'], calls: [{name: f, args: {a: 1}}]}]"))
	f.Add([]byte(`{"answers": [{"when": {"user": "x"}, "error": {"kind": "truncate"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := scripted.Parse(data)
		if err == nil && len(s.Responses) == 0 {
			t.Fatal("a script without answers")
		}
	})
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", "answers: [{text: from yaml}]")
	write("b.json", `{"answers": [{"text": "from json"}]}`)
	write("bad.yaml", "answers: 7")
	write("big.yaml", "#"+strings.Repeat("x", 1<<20))
	write("notes.txt", "no script")
	secret := filepath.Join(filepath.Dir(dir), "secret.yaml")
	if err := os.WriteFile(secret, []byte("answers: [{text: secret}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	memory := &scripted.Script{Responses: []scripted.Response{{Text: scripted.Chunks{"from memory"}}}}
	p, err := scripted.New(scripted.Config{Dir: dir, Scripts: map[string]*scripted.Script{"c": memory}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "from yaml", "b": "from json", "c": "from memory"} {
		if resp, _ := ask(t, openAs(t, p, name), newTalk("").user("x")); text(resp) != want || resp.Model != name {
			t.Errorf("script %s says %q as %q, want %q", name, text(resp), resp.Model, want)
		}
	}
	for name, want := range map[string]string{
		"bad": "parse script", "big": "larger than", "none": `no script "none"`, "notes": "no script",
		"../secret": "script name", "a/b": "script name", "": "script name", "link": "escapes",
	} {
		_, err := p.Open(name, "")
		wantKind(t, err, model.KindUnavailable, want)
	}
	if got, want := p.Describe().Models, []string{"a", "b", "bad", "big", "c", "demo", "link"}; !slices.Equal(got, want) {
		t.Errorf("models %v, want %v", got, want)
	}
	write("a.yaml", "answers: [{text: changed}]")
	if resp, _ := ask(t, openAs(t, p, "a"), newTalk("").user("x")); text(resp) != "changed" {
		t.Errorf("after a change of the file: %q", text(resp))
	}
}

func TestNewRefuses(t *testing.T) {
	good := &scripted.Script{Responses: []scripted.Response{{Text: scripted.Chunks{"x"}}}}
	for name, s := range map[string]*scripted.Script{"a/b": good, "nil": nil, "empty": {}} {
		if _, err := scripted.New(scripted.Config{Scripts: map[string]*scripted.Script{name: s}}); err == nil {
			t.Errorf("New accepts the script %q: %+v", name, s)
		}
	}
}

// A script plays for the functions that a model would be told of: deferred ones when
// a result refers to them.
func TestFoundFunctions(t *testing.T) {
	llm := open(t, `answers:
  - {when: {has_tool: later}, text: "{{tool_result \"find\"}}"}
  - {text: not yet}
`)
	c := newTalk("", &genai.FunctionDeclaration{Name: "find"}, &genai.FunctionDeclaration{Name: "later"}).user("go")
	c.req.Deferred = []string{"later"}
	said := func() string {
		t.Helper()
		resp, err := llm.Generate(t.Context(), c.req, func(model.Delta) {})
		if err != nil {
			t.Fatal(err)
		}
		return adapter.Text(resp.Content)
	}
	if got := said(); got != "not yet" {
		t.Errorf("said %q before the function was found", got)
	}
	result := &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "find", Response: map[string]any{"output": "one"}}}
	c.model(&genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{adapter.NewCall("1", "find", "{}")}})
	c.req.Contents = append(c.req.Contents, &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{seam.Refer(result, "later")}})
	if got, want := said(), "one\n\nYou can call the tool later now."; got != want {
		t.Errorf("said %q, want %q", got, want)
	}
}
