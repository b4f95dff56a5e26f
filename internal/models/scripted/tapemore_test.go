package scripted_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/record"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// responder is a model that is a function.
type responder func(req *model.Request, emit func(model.Delta)) (*model.Response, error)

func (a responder) Generate(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	return a(req, emit)
}

// tries is a model that is a function of the number of the try.
type tries func(try int, emit func(model.Delta)) (*model.Response, error)

func (m tries) Generate(ctx context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
	return m(modelcall.From(ctx).Try, emit)
}

// tapingOf records what a model answers to requests, into dir/tape.jsonl.
func tapingOf(t *testing.T, dir string, llm model.LLM, reqs ...asked) []outcome {
	t.Helper()
	rec, err := record.Open(filepath.Join(dir, "tape.jsonl"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	llm = rec.Wrap(modelcall.WithRetry(llm, modelcall.Retry{Base: time.Nanosecond}), record.Source{Provider: "p", Model: "p/m", Secrets: []string{"canary-key"}})
	var out []outcome
	for _, req := range reqs {
		out = append(out, replay(t, llm, req))
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// called is a request as a call of a turn.
func called(turn string, n int, text string) asked {
	req := by("a", newTalk("be brief").user(text).req)
	req.info.Session, req.info.Turn, req.info.MessageID = "s", turn, fmt.Sprintf("%s/a|#%d", turn, n)
	return req
}

// What a provider has run and the answer cites is played, and so is what was shown
// of an answer that failed; keys are in neither.
func TestTapeOfAllThatIsShown(t *testing.T) {
	dir := t.TempDir()
	cited := responder(func(_ *model.Request, emit func(model.Delta)) (*model.Response, error) {
		b := &adapter.Builder{Provider: "p", Emit: emit}
		b.Text("It is sunny.")
		return &model.Response{
			Content: b.Content(), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Prompt: 1, Completion: 2, Total: 3},
			Provided: &model.Provided{
				Uses:      []model.Use{{ID: "u1", Name: "web_search", Input: `{"q":"sun"}`, Output: `["x"]`}, {Name: "code_execution", Error: "no"}},
				Citations: []model.Cite{{URI: "https://a.example", Title: "A", Text: "sun", Start: 6, End: 11}, {URI: "https://b.example"}},
			},
		}, nil
	})
	breaks := responder(func(_ *model.Request, emit func(model.Delta)) (*model.Response, error) {
		for _, d := range []model.Delta{{Text: "Hm, ", Thought: true}, {Text: "well.", Thought: true}, {Text: "It is "}, {Text: "sun"}} {
			emit(d)
		}
		return nil, &model.Error{Kind: model.KindUnavailable, Provider: "p", Message: "cut short"}
	})
	leaks := responder(func(_ *model.Request, emit func(model.Delta)) (*model.Response, error) {
		emit(model.Delta{Text: "your canary-"})
		emit(model.Delta{Text: "key"})
		return nil, &model.Error{Kind: model.KindBlocked, Provider: "p", Message: "no"}
	})
	leaksUse := responder(func(*model.Request, func(model.Delta)) (*model.Response, error) {
		return &model.Response{FinishReason: genai.FinishReasonStop, Provided: &model.Provided{
			Uses: []model.Use{{Name: "x", Input: `"canary-key"`, Output: `"canary-key"`, Error: "canary-key"}}, Citations: []model.Cite{{URI: "https://x/?k=canary-key"}},
		}}, nil
	})
	var want []outcome
	for i, llm := range []model.LLM{cited, breaks, leaks, leaksUse} {
		want = append(want, tapingOf(t, dir, llm, called("t", i, fmt.Sprint("say ", i)))...)
	}
	if want[0].resp.Provided == nil || want[1].text != "It is sun" || want[1].thoughts != "Hm, well." || want[1].retries != 0 {
		t.Fatalf("%+v", want)
	}
	want[0].pieces, want[1].pieces = 3, 5 // words
	for _, name := range []string{"tape", "tape:strict"} {
		llm := replaying(t, dir, name)
		for i := range 2 {
			sameOutcome(t, replay(t, llm, called("again", i, fmt.Sprint("say ", i))), want[i])
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "tape.jsonl"))
	if err != nil || strings.Contains(string(data), "canary") || strings.Count(string(data), "***") != 5 {
		t.Errorf("%v\n%s", err, data)
	}
}

// Equal requests are answered as they were, call by call of a turn.
func TestTapeOfEqualRequests(t *testing.T) {
	dir := t.TempDir()
	n := 0
	counts := responder(func(_ *model.Request, emit func(model.Delta)) (*model.Response, error) {
		n++
		b := &adapter.Builder{Provider: "p", Emit: emit}
		b.Text(fmt.Sprint("answer ", n))
		return &model.Response{Content: b.Content(), FinishReason: genai.FinishReasonStop}, nil
	})
	tapingOf(t, dir, counts, called("t", 0, "go on"), called("t", 1, "go on"), called("u", 0, "go on"))
	for i, want := range []string{"answer 1", "answer 2", "answer 1"} {
		if got := replay(t, replaying(t, dir, "tape:strict"), called("v", i, "go on")); got.text != want {
			t.Errorf("call %d: %q, want %q", i, got.text, want)
		}
	}
}

// What models took that failed before another one answered is counted.
func TestTapeCountsFailedModels(t *testing.T) {
	dir := t.TempDir()
	fails := tries(func(try int, _ func(model.Delta)) (*model.Response, error) {
		e := &model.Error{Kind: model.KindUnavailable, Provider: "p", Message: "down", Usage: &model.Usage{Prompt: int64(try), Total: int64(try)}}
		e.Final = try == 2
		return nil, e
	})
	ok := tries(func(try int, emit func(model.Delta)) (*model.Response, error) {
		if try == 1 {
			return nil, &model.Error{Kind: model.KindUnavailable, Provider: "q", Message: "busy", Usage: &model.Usage{Prompt: 5, Total: 5}}
		}
		b := &adapter.Builder{Provider: "q", Emit: emit}
		b.Text("Here.")
		return &model.Response{Content: b.Content(), FinishReason: genai.FinishReasonStop, Usage: model.Usage{Total: 9}}, nil
	})
	tapingOf(t, dir, fails, called("t", 0, "hi"), called("t", 1, "bye"))
	tapingOf(t, dir, ok, called("t", 0, "hi"))
	tapingOf(t, dir, fails, called("t", 1, "bye"))
	total := func(us []model.Usage) (sum int64) {
		for _, u := range us {
			sum += u.Total
		}
		return sum
	}
	if got := replay(t, replaying(t, dir, "tape:strict"), called("u", 0, "hi")); got.text != "Here." || total(got.resp.Failed) != 1+2+5 || len(got.resp.Failed) != 3 {
		t.Errorf("%+v: %+v", got, got.resp)
	}
	bye := called("u", 1, "bye")
	_, err := replaying(t, dir, "tape:strict").Generate(modelcall.With(t.Context(), bye.info), bye.Request, func(model.Delta) {})
	if failed, ok := errors.AsType[*model.Error](err); !ok || total(failed.Failed) != 1+2+1 || failed.Usage.Total != 2 || failed.Tries != 2 {
		t.Errorf("%+v", err)
	}
}

// Lines of form 1 do not say what was asked of the cache: it is not compared.
func TestTapeOfForm1(t *testing.T) {
	dir := t.TempDir()
	req := called("t", 0, "hi")
	req.Cache = &model.Cache{TTL: time.Hour, Key: "of this session"}
	tapingOf(t, dir, open(t, `answers: [{text: "Hello."}]`), req)
	file := filepath.Join(dir, "tape.jsonl")
	data, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), `"cache":{"ttl":"1h0m0s"}`) || strings.Contains(string(data), req.Cache.Key) {
		t.Fatalf("%v\n%s", err, data)
	}
	plain := called("u", 0, "hi")
	if got := replay(t, replaying(t, dir, "tape:strict"), plain); !strings.Contains(got.err, `cache: recorded {"ttl":"1h0m0s"}, got nothing`) {
		t.Errorf("%+v", got)
	}
	old := strings.NewReplacer(`"agentd_record":3`, `"agentd_record":1,"later":[]`, `"cache":{"ttl":"1h0m0s"},`, "").Replace(string(data))
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, req := range []asked{req, plain} {
		if got := replay(t, replaying(t, dir, "tape:strict"), req); got.text != "Hello." {
			t.Errorf("%+v", got)
		}
	}
}

// A file of an answer has the address on the tape that it has when the answer is
// told again.
func TestTapeOfAddresses(t *testing.T) {
	dir := t.TempDir()
	draws := responder(func(req *model.Request, _ func(model.Delta)) (*model.Response, error) {
		file := &genai.Part{FileData: &genai.FileData{FileURI: "https://me:secret@files.example/a.png?sig=secret", MIMEType: "image/png"}}
		return &model.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{file}}, FinishReason: genai.FinishReasonStop}, nil
	})
	first := called("t", 0, "draw")
	drawn := tapingOf(t, dir, draws, first)[0].resp.Content
	then := func(c *genai.Content) asked {
		req := called("t", 1, "draw")
		req.Contents = append(req.Contents, c, genai.NewContentFromText("again", genai.RoleUser))
		return req
	}
	tapingOf(t, dir, draws, then(drawn))
	llm := replaying(t, dir, "tape:strict")
	second := replay(t, llm, first).resp.Content
	if got := replay(t, llm, then(second)); got.err != "" || second.Parts[0].FileData.FileURI == drawn.Parts[0].FileData.FileURI {
		t.Errorf("%+v, after %+v", got, second.Parts[0].FileData)
	}
}

// A request with files is the recorded one again, though the tape has no more of some
// than a hash; with another file of that length it is not.
func TestTapeOfFiles(t *testing.T) {
	dir := t.TempDir()
	large := strings.Repeat("x", 2*record.MaxInline)
	asks := func(data string) asked {
		req := called("t", 0, "look")
		result := map[string]any{"mimeType": "text/plain", "data": base64.StdEncoding.EncodeToString([]byte(large))}
		req.Contents = append(req.Contents, genai.NewContentFromParts([]*genai.Part{
			{InlineData: &genai.Blob{MIMEType: "text/plain", Data: []byte(data)}},
			{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "f", Response: result}},
		}, genai.RoleUser))
		return req
	}
	for _, c := range []struct{ data, other string }{
		{"PORT=80", "PORT=81"},
		{"KEY=canary-key", "KEY=canary-kez"},
		{large + "canary-key", large + "canary-kez"},
		{large, large[1:] + "y"},
	} {
		tapingOf(t, dir, open(t, `answers: [{text: "Hello."}]`), asks(c.data))
		llm := replaying(t, dir, "tape:strict")
		if got := replay(t, llm, asks(c.data)); got.text != "Hello." {
			t.Errorf("%.20s: %+v", c.data, got)
		}
		if got := replay(t, llm, asks(c.other)); !strings.Contains(got.err, "contents[1].parts[0].inlineData.data: recorded") {
			t.Errorf("%.20s: %+v", c.other, got)
		}
	}
	tape, err := os.ReadFile(filepath.Join(dir, "tape.jsonl"))
	if err != nil || strings.Contains(string(tape), "canary") || strings.Contains(string(tape), base64.StdEncoding.EncodeToString([]byte("KEY=canary-key"))) {
		t.Errorf("%v\n%.3000s", err, tape)
	}
}

// Agents that play recorded calls may have what providers run; scripts have nothing.
func TestBuiltins(t *testing.T) {
	dir := t.TempDir()
	tapingOf(t, dir, open(t, `answers: [{text: "Hello."}]`), called("t", 0, "hi"))
	p, err := scripted.New(scripted.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	reg, err := models.NewRegistry(p)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"tape": len(scripted.TapeBuiltins()), "tape:strict": len(scripted.TapeBuiltins()), "demo": 0} {
		ref, err := reg.Resolve("scripted/"+name, nil)
		if err != nil || len(ref.Builtins) != want {
			t.Errorf("%s: %q, %v", name, ref.Builtins, err)
		}
	}
}
