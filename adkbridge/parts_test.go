package adkbridge

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

func textPart(s string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Text{Text: s}}
}

func filePart(mimeType string, data []byte) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: mimeType, Data: data}}}
}

func uriPart(mimeType, uri string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: mimeType, Uri: uri}}}
}

// describe is what contents say, files in words.
func describe(contents []*genai.Content) string {
	var b strings.Builder
	for _, c := range contents {
		b.WriteString(c.Role + ":")
		for _, p := range c.Parts {
			switch {
			case p.FunctionCall != nil:
				b.WriteString(" call " + p.FunctionCall.Name)
			case p.FunctionResponse != nil:
				b.WriteString(" result " + jsonText(p.FunctionResponse.Response))
				for _, f := range p.FunctionResponse.Parts {
					b.WriteString(" " + words.DescribeResultFile(f))
				}
			case p.Text != "":
				b.WriteString(" " + p.Text)
			default:
				b.WriteString(" " + words.DescribeFile(p))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestPartsInPrompts gives one agent files from the user and from its tools, and lets
// another one see them, now and in a fresh process; a replay writes the same log.
func TestPartsInPrompts(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search", "fetch"), say("A"), say("A2")}, "b": {say("B"), say("B2")}})
	png := []byte{0, 1, 255}
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		if tc.GetToolName() == "search" {
			return session.ClientResult{Output: new(`{"n":1}`), Parts: record.Parts{filePart("image/png", png), textPart("more"), uriPart("video/mp4", "gs://b/f")}}
		}
		return session.ClientResult{Parts: record.Parts{filePart("image/gif", png)}}
	}
	tree := seq("root", llm("a"), llm("b"))
	turn, err := w.manager.Start(t.Context(), session.Request{
		Agent: tree, Tools: w.tools, Prompt: "go", Parts: record.Parts{textPart("there"), filePart("audio/wav", png), uriPart("application/pdf", "https://x/y")},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.session = turn.SessionID()
	w.follow(turn).ok(t)
	w.checkAll()
	const asked = "user: go there [audio/wav, 3 bytes] [application/pdf, https://x/y]\n"
	const own = asked + "model: call search call fetch\n" +
		`user: result {"output":{"n":1},"text":"more"} [image/png, 3 bytes] [video/mp4, gs://b/f]` + ` result {"output":""} [image/gif, 3 bytes]` + "\n"
	const other = asked + "user: For context: [a] called tool `search` with parameters: {\"q\":1} [a] called tool `fetch` with parameters: {\"q\":1}\n" +
		"user: For context: [a] `search` tool returned result: {\"output\":{\"n\":1},\"text\":\"more\"} [image/png, 3 bytes] [video/mp4, gs://b/f]" +
		" [a] `fetch` tool returned result: {\"output\":\"\"} [image/gif, 3 bytes]\n" + "user: For context: [a] said: A\n"
	if got := describe(w.script.seen("a")[1].contents); got != own {
		t.Errorf("a is told\n%s\nwant\n%s", got, own)
	}
	if got := describe(w.script.seen("b")[0].contents); got != other {
		t.Errorf("b is told\n%s\nwant\n%s", got, other)
	}
	w.runner = New(Config{Resolve: w.script.Resolve})
	w.restart()
	w.run(tree, "again").ok(t)
	if got := describe(w.script.seen("a")[2].contents); !strings.HasPrefix(got, own) {
		t.Errorf("a is told by a fresh process\n%s\nwant\n%s", got, own)
	}
	data := w.script.seen("a")[2].contents[0].Parts[2].InlineData.Data
	if !bytes.Equal(data, png) {
		t.Errorf("the file is %v, want %v", data, png)
	}
	rep, err := Verify(t.Context(), w.session, w.turnLog("").Records, nil)
	if err != nil || rep.Divergence != nil || rep.Turns != 2 {
		t.Errorf("replay: %+v, error %v", rep, err)
	}
}

// TestPartsInjected says files to a running turn, with a text and without.
func TestPartsInjected(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search"), say("A")}})
	png := filePart("image/png", []byte("png"))
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		if m.GetToolCall() == nil {
			return
		}
		for _, prompt := range []string{"", "mind"} {
			req := session.Request{SessionID: turn.SessionID(), Prompt: prompt, Parts: record.Parts{textPart("the"), png}, OnBusy: agentdv1.OnBusy_ON_BUSY_INJECT}
			if _, err := w.manager.Start(t.Context(), req); err != nil {
				t.Error(err)
			}
		}
	}
	var messages []*agentdv1.MessageInjected
	watch := w.watch
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		watch(turn, m)
		if m.GetMessageInjected() != nil {
			messages = append(messages, m.GetMessageInjected())
		}
	}
	w.run(llm("a"), "go").ok(t)
	w.checkAll()
	if got, want := describe(w.script.seen("a")[1].contents), "user: the [image/png, 3 bytes]\nuser: mind the [image/png, 3 bytes]\n"; !strings.HasSuffix(got, want) {
		t.Errorf("the model is told\n%s", got)
	}
	if len(messages) != 2 {
		t.Fatalf("%d messages are shown, want 2", len(messages))
	}
	for i, want := range []string{"", "mind"} {
		m := messages[i]
		if m.GetUserPrompt() != want || len(m.GetUserParts()) != 2 || m.GetUserParts()[0].GetText() != "the" || string(m.GetUserParts()[1].GetInline().GetData()) != "png" {
			t.Errorf("message %d is %v, want %q and two parts", i, m, want)
		}
	}
}

// TestPartsOfResults: a text among the parts of a result joins its output, which
// stays a value if it is one.
func TestPartsOfResults(t *testing.T) {
	for name, tc := range map[string]struct {
		output string
		parts  record.Parts
		want   map[string]any
	}{
		"no texts":        {"x", record.Parts{filePart("a/b", []byte("x"))}, map[string]any{"output": "x"}},
		"only texts":      {"", record.Parts{textPart("a"), textPart("b")}, map[string]any{"output": "a\n\nb"}},
		"text and texts":  {"x", record.Parts{textPart("a")}, map[string]any{"output": "x\n\na"}},
		"object":          {`{"a":"b"}`, record.Parts{textPart("x")}, map[string]any{"output": map[string]any{"a": "b"}, "text": "x"}},
		"list":            {`["b"]`, record.Parts{textPart("x")}, map[string]any{"output": []any{"b"}, "text": "x"}},
		"object, a file":  {`{"a":"b"}`, record.Parts{uriPart("a/b", "x")}, map[string]any{"a": "b"}},
		"an empty object": {`{}`, record.Parts{textPart("x")}, map[string]any{"output": map[string]any{}, "text": "x"}},
	} {
		res := record.ToolResult{Outcome: record.Returned, Output: &tc.output, Parts: tc.parts}
		if got := withTexts(resultOf(res), tc.parts); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: the model sees %v, want %v", name, got, tc.want)
		}
	}
}

// pickyModels is a model that takes files of one type.
type pickyModels struct {
	script
	takes string
}

func (p *pickyModels) Resolve(name string, keys map[string]string) (Model, error) {
	m, err := p.script.Resolve(name, keys)
	m.Takes = func(f model.File) error {
		if f.MIMEType == p.takes || name == "m/b" && f.MIMEType == "audio/wav" {
			return nil
		}
		return errors.New("no " + f.MIMEType)
	}
	return m, err
}

// TestUnsupportedParts refuses a file that no model of a tree takes.
func TestUnsupportedParts(t *testing.T) {
	named := func(name string) *agentdv1.Agent {
		a := llm(name, tools())
		a.GetLlm().Model = "m/" + name
		return a
	}
	r := New(Config{Resolve: (&pickyModels{takes: "image/png"}).Resolve})
	for name, tc := range map[string]struct {
		tree  *agentdv1.Agent
		parts record.Parts
		says  string
	}{
		"one model":           {named("a"), record.Parts{filePart("image/png", []byte("x")), textPart("x"), filePart("audio/wav", []byte("x"))}, `user_parts[2]: no model of the tree takes it: model "m/a": no audio/wav`},
		"by URI":              {named("a"), record.Parts{uriPart("audio/wav", "x")}, `user_parts[0]`},
		"another model takes": {seq("root", named("a"), named("b")), record.Parts{filePart("audio/wav", []byte("x"))}, ""},
		"neither takes":       {seq("root", named("a"), named("b")), record.Parts{filePart("video/mp4", []byte("x"))}, `user_parts[0]`},
		"texts":               {named("a"), record.Parts{textPart("x")}, ""},
	} {
		err := r.Check(t.Context(), &record.Spec{Prompt: "go", Agent: tc.tree, Parts: tc.parts}, nil)
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.says != "" && (err == nil || fault.As(err).Code != codeInvalid || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: error %v, want INVALID_REQUEST with %s", name, err, tc.says)
		}
	}
}
