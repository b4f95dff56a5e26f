package record_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/record"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// generate is a model that is a function.
type generate func(ctx context.Context, req *model.Request) (*model.Response, error)

func (g generate) Generate(ctx context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	return g(ctx, req)
}

func says(text string) *model.Response {
	return &model.Response{
		Content: genai.NewContentFromText(text, genai.RoleModel), FinishReason: genai.FinishReasonStop,
		Usage: model.Usage{Prompt: 3, Completion: 2, Total: 5}, Model: "served-1",
	}
}

// prompt is a request with parts of the user's.
func prompt(parts ...*genai.Part) *model.Request {
	return &model.Request{
		Contents: []*genai.Content{{Role: genai.RoleUser, Parts: parts}},
		Config:   &genai.GenerateContentConfig{SystemInstruction: genai.NewContentFromText("be brief", genai.RoleUser)},
	}
}

// file opens a recorder; read closes it and reads what it has written.
func file(t *testing.T) (rec *record.Recorder, read func() []record.Line, path string, log *bytes.Buffer) {
	t.Helper()
	path, log = filepath.Join(t.TempDir(), "calls.jsonl"), &bytes.Buffer{}
	rec, err := record.Open(path, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
	})
	return rec, func() []record.Line {
		t.Helper()
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines, err := record.Read(f)
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}, path, log
}

func ask(t *testing.T, llm model.LLM, req *model.Request) (*model.Response, error) {
	t.Helper()
	return llm.Generate(called(t, nil), req, func(model.Delta) {})
}

// called is the context of a call of a turn.
func called(t *testing.T, onRetry func(modelcall.FailedTry) error) context.Context {
	return modelcall.With(t.Context(), modelcall.Info{
		Session: "s", Turn: "e-t", Path: []string{"root", "a"}, MessageID: "e-t/a|#0", OnRetry: onRetry,
	})
}

// A call with failed tries is one line that says all of it.
func TestLine(t *testing.T) {
	rec, read, path, _ := file(t)
	flaky := generate(func(ctx context.Context, _ *model.Request) (*model.Response, error) {
		if modelcall.From(ctx).Try == 1 {
			return nil, &model.Error{Kind: model.KindUnavailable, Provider: "p", Status: 503, Message: "overloaded", Usage: &model.Usage{Prompt: 1, Total: 1}}
		}
		return says("hello"), nil
	})
	retries := 0
	ctx := called(t, func(modelcall.FailedTry) error { retries++; return nil })
	llm := rec.Wrap(modelcall.WithRetry(flaky, modelcall.Retry{Base: time.Nanosecond}), record.Source{Provider: "p", Model: "p/m"})
	resp, err := llm.Generate(ctx, prompt(&genai.Part{Text: "hi <b>"}), func(model.Delta) {})
	if err != nil || resp.Content.Parts[0].Text != "hello" || retries != 1 {
		t.Fatalf("%+v, %v, %d retries", resp, err, retries)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	lines := read()
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	l := lines[0]
	if l.Session != "s" || l.Turn != "e-t" || strings.Join(l.Path, "/") != "root/a" || l.MessageID != "e-t/a|#0" ||
		l.Provider != "p" || l.Model != "p/m" || l.Served != "served-1" || l.Time.IsZero() || l.Duration <= 0 || l.Error != nil {
		t.Errorf("%+v", l)
	}
	if len(l.Tries) != 1 || l.Tries[0].Try != 1 || l.Tries[0].Error.Status != 503 || l.Tries[0].Error.Message != "overloaded" || l.Tries[0].Error.Usage.Total != 1 {
		t.Errorf("tries: %+v", l.Tries)
	}
	if l.Response.Finish != "STOP" || l.Response.Usage != (record.Usage{Prompt: 3, Completion: 2, Total: 5}) ||
		string(l.Response.Content) != `{"parts":[{"text":"hello"}],"role":"model"}` {
		t.Errorf("response: %+v %s", l.Response, l.Response.Content)
	}
	want := `{"config":{"systemInstruction":{"parts":[{"text":"be brief"}],"role":"user"}},"contents":[{"parts":[{"text":"hi <b>"}],"role":"user"}]}`
	if string(l.Request) != want {
		t.Errorf("request:\n%s, want\n%s", l.Request, want)
	}
}

// Failures are lines too.
func TestErrors(t *testing.T) {
	rec, read, _, _ := file(t)
	for _, err := range []error{
		&model.Error{Kind: model.KindRateLimited, Provider: "p", Status: 429, Message: "slow down", RetryAfter: time.Second},
		errors.New("broken"),
		nil,
	} {
		llm := rec.Wrap(generate(func(context.Context, *model.Request) (*model.Response, error) { return nil, err }), record.Source{})
		if _, got := ask(t, llm, prompt()); !errors.Is(got, err) {
			t.Errorf("error %v became %v", err, got)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	llm := rec.Wrap(generate(func(ctx context.Context, _ *model.Request) (*model.Response, error) {
		return nil, model.Usage{Prompt: 9, Total: 9}.Spent(ctx.Err())
	}), record.Source{})
	if _, err := llm.Generate(gone, prompt(), nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var got []string
	for _, l := range read() {
		got = append(got, l.Error.Kind+": "+l.Error.Message)
		if e := l.Error.Model(); (e != nil) != (l.Error.Kind == "rate_limited") || e != nil && (e.RetryAfter != time.Second || e.Status != 429) {
			t.Errorf("%+v is %+v", l.Error, e)
		}
		if u := l.Error.Usage; (u != nil) != (l.Error.Kind == record.Canceled) || u != nil && u.Total != 9 {
			t.Errorf("%+v took %+v", l.Error, u)
		}
	}
	want := "rate_limited: slow down|internal: broken|internal: neither a response nor an error|canceled: context canceled"
	if strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Nothing that opens a door is written: keys wherever they turn up, headers,
// addresses, signatures of files. Long data is a hash in requests.
func TestSecrets(t *testing.T) {
	rec, read, path, _ := file(t)
	data := bytes.Repeat([]byte("picture"), 1000)
	req := prompt(
		&genai.Part{Text: "my key is canary-key"},
		&genai.Part{FileData: &genai.FileData{FileURI: "https://canary-user:canary-pass@files.example/a.png?sig=canary-sig", MIMEType: "image/png"}},
		&genai.Part{InlineData: &genai.Blob{Data: data, MIMEType: "image/png"}},
		&genai.Part{InlineData: &genai.Blob{Data: data[:7], MIMEType: "image/png"}},
	)
	req.Config.HTTPOptions = &genai.HTTPOptions{BaseURL: "https://canary-host", Headers: map[string][]string{"Authorization": {"canary-header"}}}
	response := says("you said canary-key")
	response.Content.Parts = append(response.Content.Parts, &genai.Part{InlineData: &genai.Blob{Data: data, MIMEType: "image/png"}},
		adapter.NewCall("c", "f", `{"canary-key":{"a":["canary-key"]}}`))
	response.FinishReason, response.Model = "canary-key", "canary-key"
	response.Provided = &model.Provided{
		Uses:      []model.Use{{ID: "canary-key", Name: "canary-key", Input: `"canary-key"`, Output: `{"canary-key":1}`, Error: "canary-key"}},
		Citations: []model.Cite{{URI: "https://e/canary-key", Title: "canary-key", Text: "canary-key"}},
	}
	n := 0
	llm := rec.Wrap(generate(func(context.Context, *model.Request) (*model.Response, error) {
		if n++; n == 1 {
			return response, nil
		}
		return nil, &model.Error{Kind: model.KindAuth, Provider: "p", Message: "bad key canary-key"}
	}), record.Source{Secrets: []string{"canary-key", "", "e"}})
	for range 2 {
		_, _ = ask(t, llm, req)
	}
	lines := read()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte("canary")) {
		t.Errorf("the file holds a secret:\n%.3000s", text)
	}
	for _, want := range []string{"my key is ***", "you said ***", "bad key ***", "https://files.example/a.png?sha256=", "sha256:", "(7000 bytes)", "cGljdHVyZQ=="} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the file lacks %q", want)
		}
	}
	var content genai.Content
	if err := json.Unmarshal(lines[0].Response.Content, &content); err != nil || !bytes.Equal(content.Parts[1].InlineData.Data, data) {
		t.Errorf("the answer's data is not whole: %v", err)
	}
	if req.Config.HTTPOptions == nil {
		t.Error("the request has been changed")
	}
}

// Keys are found in files of any size too, and in what only looks like one.
func TestSecretsInFiles(t *testing.T) {
	const key = "canarykey0123456" // also base64, as it is
	env := []byte("OPENAI_API_KEY=" + key + "\n")
	blob := func(data []byte) *genai.Part {
		return &genai.Part{InlineData: &genai.Blob{MIMEType: "text/plain", Data: data}}
	}
	fields := func(data any) map[string]any { return map[string]any{"mimeType": "text/plain", "data": data} }
	for name, c := range map[string]struct {
		part           *genai.Part
		asked, replied string // that the line has for it
	}{
		"small file":        {blob(env), `"data":"sha256:`, `"data":"` + encoded("OPENAI_API_KEY=***\n")},
		"large file":        {blob(append(bytes.Repeat([]byte("x"), record.MaxInline), env...)), `"data":"sha256:`, `"data":"` + encoded(strings.Repeat("x", record.MaxInline)+"OPENAI_API_KEY=***\n")},
		"other file":        {blob([]byte("PORT=80")), `"data":"` + encoded("PORT=80"), `"data":"` + encoded("PORT=80")},
		"no file":           {&genai.Part{FunctionResponse: &genai.FunctionResponse{Name: "f", Response: fields("the key is " + key)}}, `"the key is ***"`, `"the key is ***"`},
		"no file, no space": {&genai.Part{FunctionCall: &genai.FunctionCall{Name: "f", Args: fields(key)}}, `"data":"***"`, `"data":"***"`},
		"file of a result":  {&genai.Part{FunctionResponse: &genai.FunctionResponse{Name: "f", Response: fields(encoded(string(env)))}}, `"data":"sha256:`, `"data":"` + encoded("OPENAI_API_KEY=***\n")},
	} {
		t.Run(name, func(t *testing.T) {
			rec, read, _, _ := file(t)
			llm := rec.Wrap(generate(func(context.Context, *model.Request) (*model.Response, error) {
				return &model.Response{Content: &genai.Content{Role: genai.RoleModel, Parts: []*genai.Part{c.part}}}, nil
			}), record.Source{Secrets: []string{key}})
			if _, err := ask(t, llm, prompt(c.part)); err != nil {
				t.Fatal(err)
			}
			line := read()[0]
			for got, want := range map[string]string{string(line.Request): c.asked, string(line.Response.Content): c.replied} {
				if !strings.Contains(got, want) || strings.Contains(got, key) || strings.Contains(got, encoded(string(env))) {
					t.Errorf("recorded %.300s, want %.300s", got, want)
				}
			}
			var replayed genai.Content
			if err := json.Unmarshal(line.Response.Content, &replayed); err != nil {
				t.Errorf("the answer cannot be read: %v", err)
			}
		})
	}
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// Calls that end at once leave whole lines, also behind a part of a line.
func TestConcurrent(t *testing.T) {
	rec, read, path, _ := file(t)
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"agentd_record":3,"ti`), 0o600); err != nil {
		t.Fatal(err)
	}
	rec, err := record.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprint(i, " "), 2000)
			llm := rec.Wrap(generate(func(context.Context, *model.Request) (*model.Response, error) { return says(text), nil }), record.Source{})
			if _, err := llm.Generate(t.Context(), prompt(&genai.Part{Text: text}), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, l := range read() {
		seen[string(l.Request)] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d different calls, want 50", len(seen))
	}
}

// A file that takes nothing does not fail a call, and is logged once.
func TestFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var log bytes.Buffer
	rec, err := record.Open("/dev/full", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	llm := rec.Wrap(generate(func(context.Context, *model.Request) (*model.Response, error) { return says("x"), nil }), record.Source{})
	for range 3 {
		if _, err := ask(t, llm, prompt()); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "not recorded"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	if strings.Contains(log.String(), "be brief") {
		t.Errorf("the log holds a prompt:\n%s", log.String())
	}
}

// A file that is removed does not fail a call, and is logged once.
func TestRemoved(t *testing.T) {
	rec, _, path, log := file(t)
	llm := rec.Wrap(generate(func(context.Context, *model.Request) (*model.Response, error) { return says("x"), nil }), record.Source{})
	for i := range 4 {
		if i == 1 {
			if log.Len() > 0 {
				t.Error(log)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ask(t, llm, prompt()); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "was removed or replaced"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

func TestRead(t *testing.T) {
	const good = `{"agentd_record":1,"request":{"contents":[]},"error":{"kind":"internal","message":"x"}}`
	for name, c := range map[string]struct {
		text string
		n    int
		err  string
	}{
		"nothing":      {"", 0, ""},
		"lines":        {good + "\n\n" + good + "\n", 2, ""},
		"torn":         {good + "\n" + good[:20], 1, ""},
		"no JSON":      {good + "\nwhat\n", 0, "line 2: "},
		"other":        {"{}\n", 0, "line 1: agentd_record is 0"},
		"torn before":  {good[:20] + "\n" + good + "\n", 1, ""},
		"newer":        {strings.Replace(good, ":1", ":4", 1) + "\n", 0, "agentd_record is 4, want 1 to 3"},
		"no request":   {`{"agentd_record":1,"error":{}}` + "\n", 0, "line 1: no request"},
		"no outcome":   {`{"agentd_record":1,"request":{}}` + "\n", 0, "one of them"},
		"both of them": {`{"agentd_record":1,"request":{},"error":{},"response":{}}` + "\n", 0, "one of them"},
		"too long":     {strings.Repeat(" ", record.MaxLine+1), 0, "longer than"},
	} {
		lines, err := record.Read(strings.NewReader(c.text))
		if len(lines) != c.n || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d lines, error %v; want %d, %q", name, len(lines), err, c.n, c.err)
		}
	}
}

// Ids of calls do not matter, which call a result is of does.
func TestNormal(t *testing.T) {
	const form = `{"contents":[{"parts":[{"functionCall":{"id":%q}},{"functionCall":{"id":%q}}]},{"parts":[{"functionResponse":{"id":%q}}]}],"config":{}}`
	normal := func(ids ...any) any {
		v, err := record.Normal(fmt.Appendf(nil, form, ids...), record.Version)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if d := jsondiff.First(normal("a", "b", "b"), normal("x", "a", "a")); d != nil {
		t.Error(d)
	}
	if d := jsondiff.First(normal("a", "b", "b"), normal("a", "b", "a")); d == nil || d.Path != "contents[1].parts[0].functionResponse.id" {
		t.Error(d)
	}
}

// What other agents have said may come in any order, what one of them has said may
// not, and where the agent itself has spoken does not move.
func TestNormalOfOtherAgents(t *testing.T) {
	normal := func(says ...string) any {
		var contents []*genai.Content
		for _, text := range says {
			c := genai.NewContentFromText(text, genai.RoleModel)
			if strings.HasPrefix(text, "[") {
				c = &genai.Content{Role: genai.RoleUser, Parts: []*genai.Part{{Text: "For context:"}, {Text: text}}}
			}
			contents = append(contents, c)
		}
		req := prompt()
		req.Contents = contents
		asked, err := record.Request(req)
		if err != nil {
			t.Fatal(err)
		}
		v, err := record.Normal(asked, record.Version)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	first := normal("[b] said: 1", "[a] said: 2", "[b] said: 3", "me", "[a] said: 4")
	if d := jsondiff.First(first, normal("[a] said: 2", "[b] said: 1", "[b] said: 3", "me", "[a] said: 4")); d != nil {
		t.Error(d)
	}
	for _, other := range []any{
		normal("[b] said: 3", "[a] said: 2", "[b] said: 1", "me", "[a] said: 4"),
		normal("[b] said: 1", "[b] said: 3", "me", "[a] said: 2", "[a] said: 4"),
	} {
		if jsondiff.First(first, other) == nil {
			t.Errorf("%v is equal", other)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"agentd_record":1,"request":{"contents":[]},"error":{"kind":"internal"}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines, err := record.Read(bytes.NewReader(data))
		if err != nil && lines != nil {
			t.Error("lines and an error")
		}
		for _, l := range lines {
			if _, err := record.Normal(l.Request, l.Version); err != nil {
				t.Errorf("%s: %v", l.Request, err)
			}
		}
	})
}

// A recorded request says what is deferred, and to what results refer; one with the
// provider's search is written as it always was.
func TestDeferred(t *testing.T) {
	result := &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "find"}}
	asked := func(search bool, names ...string) string {
		req := prompt(seam.Refer(result, names...))
		req.Deferred, req.ToolSearch = []string{"a", "b"}, search
		data, err := record.Request(req)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for got, want := range map[string]bool{
		asked(true): false, asked(false): true, asked(false, "a"): true,
	} {
		if !strings.Contains(got, `"deferred":["a","b"]`) || strings.Contains(got, `"toolSearch":false`) != want {
			t.Errorf("recorded %s", got)
		}
	}
	if got := asked(false, "b", "a"); !strings.Contains(got, `"partMetadata":{"agentd.tools":["b","a"]}`) {
		t.Errorf("recorded %s", got)
	}
}
