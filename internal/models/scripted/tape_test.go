package scripted_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/record"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// tapeScript has an answer of every kind.
const tapeScript = `
answers:
  - when: {user: flaky, try: 1}
    error: {kind: unavailable, status: 503, message: overloaded, retry_after: 1ms}
    usage: {prompt: 7}
  - when: {user: forbidden}
    error: {kind: auth, status: 403, message: go away}
  - when: {after_tool: greet}
    text: 'The tool says: {{tool_result "greet"}}'
    finish: MAX_TOKENS
  - when: {}
    thoughts: I will greet them.
    text: Just a moment.
    calls: [{name: greet, id: abc, args: {name: "{{last_word}}", n: 10000000000000000001}}, {name: greet}]
    usage: {prompt: 10, completion: 5, cached: 2, thoughts: 1}
`

// taping records what a script answers to requests, into dir/tape.jsonl.
func taping(t *testing.T, dir string, script string, reqs ...asked) []outcome {
	t.Helper()
	rec, err := record.Open(filepath.Join(dir, "tape.jsonl"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	llm := rec.Wrap(modelcall.WithRetry(open(t, script), modelcall.Retry{}), record.Source{Provider: "scripted", Model: "scripted/s"})
	var out []outcome
	for _, req := range reqs {
		out = append(out, replay(t, llm, req))
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// outcome is all that a caller sees of a call.
type outcome struct {
	text, thoughts string
	pieces         int
	resp           *model.Response
	err            string
	retries        int
}

// asked is a request of an agent.
type asked struct {
	*model.Request
	info modelcall.Info
}

func replay(t *testing.T, llm model.LLM, a asked) (o outcome) {
	t.Helper()
	a.info.OnRetry = func(modelcall.FailedTry) error { o.retries++; return nil }
	resp, err := llm.Generate(modelcall.With(t.Context(), a.info), a.Request, func(d model.Delta) {
		o.pieces++
		if d.Thought {
			o.thoughts += d.Text
		} else {
			o.text += d.Text
		}
	})
	if o.resp = resp; err != nil {
		o.err = err.Error()
		if _, ok := errors.AsType[*model.Error](err); !ok {
			t.Errorf("%v is no *model.Error", err)
		}
	}
	return o
}

// replaying opens what taping has written.
func replaying(t *testing.T, dir, name string) model.LLM {
	t.Helper()
	p, err := scripted.New(scripted.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return modelcall.WithRetry(openAs(t, p, name), modelcall.Retry{Base: time.Nanosecond})
}

// by makes a request that of an agent.
func by(agent string, req *model.Request) asked {
	return asked{req, modelcall.Info{Path: []string{"root", agent}}}
}

func sameOutcome(t *testing.T, got, want outcome) {
	t.Helper()
	if got.text != want.text || got.thoughts != want.thoughts || got.pieces != want.pieces || got.err != want.err || got.retries != want.retries {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if (got.resp == nil) != (want.resp == nil) {
		t.Fatalf("response %+v, want %+v", got.resp, want.resp)
	}
	if got.resp == nil {
		return
	}
	g, err := rawjson.Marshal(got.resp)
	if err != nil {
		t.Fatal(err)
	}
	w, err := rawjson.Marshal(want.resp)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g, w) {
		t.Errorf("response\n%s, want\n%s", g, w)
	}
}

// What was recorded comes back the same, strictly and leniently: text in pieces,
// calls, usage, failed tries, errors.
func TestTapeIsEqual(t *testing.T) {
	dir := t.TempDir()
	greet := &genai.FunctionDeclaration{Name: "greet"}
	first := by("a", newTalk("be brief", greet).user("greet Bob").req)
	reqs := []asked{first}
	recorded := taping(t, dir, tapeScript, first)
	response := recorded[0].resp.Content
	then := newTalk("be brief", greet).user("greet Bob").model(response)
	then.req.Contents = append(then.req.Contents, &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{
		genai.NewPartFromFunctionResponse("greet", map[string]any{"output": "hello"}),
	}})
	more := []asked{
		by("a", then.req),
		by("b", newTalk("be brief").user("be flaky").req),
		by("c", newTalk("be brief").user("forbidden").req),
	}
	reqs, recorded = append(reqs, more...), append(recorded, taping(t, dir, tapeScript, more...)...)
	if recorded[0].pieces < 4 || recorded[2].retries != 1 || !strings.Contains(recorded[3].err, "go away") || recorded[1].resp.FinishReason != "MAX_TOKENS" {
		t.Fatalf("recorded %+v", recorded)
	}
	for _, name := range []string{"tape", "tape:strict"} {
		llm := replaying(t, dir, name)
		for i, req := range slices.Backward(reqs) { // the order is the requests' own
			sameOutcome(t, replay(t, llm, req), recorded[i])
		}
	}
}

// A request that differs is answered by its number and the user's words, or
// refused with the difference.
func TestTapeDiffers(t *testing.T) {
	dir := t.TempDir()
	one := by("a", newTalk("be brief").user("first").req)
	other := by("a", newTalk("be brief").user("second").req)
	taping(t, dir, `answers: [{when: {}, text: "You said {{last_user}}"}]`, one, other)
	for name, c := range map[string]struct {
		req          asked
		text, strict string
	}{
		"other instruction":  {by("a", newTalk("be long").user("second").req), "You said second", `config.systemInstruction.parts[0].text: recorded "be brief", got "be long"`},
		"other words":        {by("a", newTalk("be brief").user("third").req), "You said first", `(call 1 of the file): contents[0].parts[0].text: recorded "first", got "third"`},
		"without a path":     {asked{Request: newTalk("be long").user("second").req}, "You said second", `call 1 of agent any is not the recorded one`},
		"other agent":        {by("z", newTalk("be brief").user("first").req), "", `has no call 1 of agent root/z: it has 2 calls, of root/a`},
		"more calls than it": {by("a", newTalk("be brief").user("first").model(genai.NewContentFromText("x", genai.RoleModel)).user("y").req), "", `has no call 2 of agent root/a`},
	} {
		t.Run(name, func(t *testing.T) {
			got := replay(t, replaying(t, dir, "tape"), c.req)
			if got.text != c.text || c.text == "" && !strings.Contains(got.err, c.strict) {
				t.Errorf("lenient: %q, error %s", got.text, got.err)
			}
			got = replay(t, replaying(t, dir, "tape:strict"), c.req)
			if !strings.Contains(got.err, c.strict) || got.text != "" {
				t.Errorf("strict: %q, error %s; want %s", got.text, got.err, c.strict)
			}
		})
	}
}

// A file that changes is read again; one that is broken says where.
func TestTapeFiles(t *testing.T) {
	dir := t.TempDir()
	p, err := scripted.New(scripted.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open("tape", ""); err == nil {
		t.Fatal("a tape that is not there can be opened")
	}
	one := by("a", newTalk("s").user("first").req)
	taping(t, dir, `answers: [{text: "old"}]`, one)
	if got := replay(t, openAs(t, p, "tape"), one); got.text != "old" {
		t.Errorf("%+v", got)
	}
	if err := os.Remove(filepath.Join(dir, "tape.jsonl")); err != nil {
		t.Fatal(err)
	}
	taping(t, dir, `answers: [{text: "changed"}]`, one)
	if got := replay(t, openAs(t, p, "tape:strict"), one); got.text != "changed" {
		t.Errorf("%+v", got)
	}
	if got := p.Describe().Models; !slices.Equal(got, []string{"demo", "tape"}) {
		t.Errorf("models: %v", got)
	}
	for name, c := range map[string]struct{ text, want string }{
		"broken": {"what\n", "line 1"},
		"empty":  {"", "no recorded call has a response"},
		"silent": {`{"agentd_record":1,"request":{"contents":[]},"error":{"kind":"canceled","message":"x"}}` + "\n", "no recorded call has a response"},
		"odd":    {`{"agentd_record":1,"request":[],"error":{"kind":"auth","message":"x"}}` + "\n", "call 1: request"},
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Open(name, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := p.Open("demo:strict", ""); err == nil || !strings.Contains(err.Error(), "only recorded calls") {
		t.Errorf("%v", err)
	}
}

// A call that another model took over is played as that one answered it; one that
// failed for good is not.
func TestTapeFallback(t *testing.T) {
	dir := t.TempDir()
	ask := func(text, message string) asked {
		req := by("a", newTalk("be brief").user(text).req)
		req.info.Session, req.info.Turn, req.info.MessageID = "s", "t", message
		return req
	}
	taken, lost := ask("hello", "t/a#0"), ask("good bye", "t/a#1")
	taping(t, dir, `answers: [{when: {}, error: {kind: unavailable, status: 400, message: down}}]`, taken)
	fallback := taping(t, dir, `answers: [{when: {}, text: Hello from another one.}]`, taken)
	failed := taping(t, dir, `answers: [{when: {}, error: {kind: auth, status: 401, message: go away}}]`, lost)
	for _, name := range []string{"tape", "tape:strict"} {
		llm := replaying(t, dir, name)
		sameOutcome(t, replay(t, llm, taken), fallback[0])
		sameOutcome(t, replay(t, llm, lost), failed[0])
	}
}
