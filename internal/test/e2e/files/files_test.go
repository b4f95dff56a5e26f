package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// picture holds every byte there is.
var picture = func() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// looker is a model that calls the tool "look" once in each turn. It keeps what it
// was asked, and refuses the files that refuse names.
type looker struct {
	mu     sync.Mutex
	asked  [][]*genai.Content
	refuse string
}

func (l *looker) open(string) harness.Generate {
	return func(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked = append(l.asked, req.Contents)
		for _, c := range req.Contents {
			for _, p := range c.Parts {
				if l.refuse != "" && p.InlineData != nil && p.InlineData.MIMEType == l.refuse {
					return nil, &model.Error{Kind: model.KindInvalid, Provider: "eye", Message: "could not process " + l.refuse}
				}
			}
		}
		b := &adapter.Builder{Provider: "eye", Emit: emit}
		if last := req.Contents[len(req.Contents)-1]; last.Parts[0].FunctionResponse == nil {
			b.Part(adapter.NewCall("", "look", "{}"))
		} else {
			b.Text("I have seen it.")
		}
		return &model.Response{Content: b.Content(), FinishReason: genai.FinishReasonStop, Model: "eye"}, nil
	}
}

// last is what the model was asked last.
func (l *looker) last() []*genai.Content {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[len(l.asked)-1]
}

// fileModels are models of the wires' providers.
var fileModels = map[providertest.Wire]string{
	providertest.Anthropic: "anthropic/claude-sonnet-4-5", providertest.OpenAIChat: "openai-chat/gpt-5",
	providertest.OpenAIResponses: "openai-responses/gpt-5", providertest.Gemini: "gemini/gemini-3-pro",
}

// TestFiles sends files with prompts and results: models are given them byte for
// byte, in all turns to come, and whoever watches sees them.
func TestFiles(t *testing.T) {
	eye := &looker{}
	d := harness.StartDaemon(t, agentdtest.Config{
		Providers: []model.Provider{harness.Provider{Name: "eye", Model: eye.open}},
	})
	clnt := d.Client()
	addTool(t, clnt, "look", "Takes a picture.", func(context.Context, struct{}) (any, error) {
		return client.ToolOutput{Output: "a picture", Parts: []client.Part{
			client.Inline("image/png", picture), client.Text("and one more"), client.FileURI("image/jpeg", "https://example.com/a.jpg?x=<1>&y"),
		}}, nil
	})
	said := []client.Part{client.Text("first this <b>"), client.Inline("image/png", picture), client.FileURI("application/pdf", "gs://bucket/ä.pdf")}
	agent := harness.LLMAgent("root", "eye/1", "", "look")
	session := ""
	var results []*client.ToolCallAnswered
	turn := func(prompt string, parts ...client.Part) {
		t.Helper()
		opts := []client.RunOption{client.WithParts(parts...)}
		if session != "" {
			opts = append(opts, client.WithSessionID(session))
		}
		for event, err := range clnt.Run(t.Context(), agent, prompt, opts...) {
			switch {
			case err != nil:
				t.Fatal(err)
			case harness.As[*client.TurnStarted](event) != nil:
				session = event.SessionID
			case harness.As[*client.ToolCallAnswered](event) != nil:
				results = append(results, harness.As[*client.ToolCallAnswered](event))
			}
		}
	}
	turn("What is it?", said...)
	turn("", said[1])
	turn("And now?")

	prompts, answers := 0, 0
	for _, c := range eye.last() {
		for _, p := range c.Parts {
			if fr := p.FunctionResponse; fr != nil {
				answers++
				if fr.Response["output"] != "a picture\n\nand one more" || len(fr.Parts) != 2 || !bytes.Equal(fr.Parts[0].InlineData.Data, picture) ||
					fr.Parts[0].InlineData.MIMEType != "image/png" || fr.Parts[1].FileData.FileURI != "https://example.com/a.jpg?x=<1>&y" {
					t.Errorf("the model is given the result %+v", fr)
				}
			}
		}
		if c.Role != genai.RoleUser || c.Parts[0].FunctionResponse != nil {
			continue
		}
		prompts++
		switch prompts {
		case 1:
			if len(c.Parts) != 4 || c.Parts[0].Text != "What is it?" || c.Parts[1].Text != "first this <b>" || !bytes.Equal(c.Parts[2].InlineData.Data, picture) ||
				c.Parts[3].FileData.FileURI != "gs://bucket/ä.pdf" || c.Parts[3].FileData.MIMEType != "application/pdf" {
				t.Errorf("the model is told %+v", c.Parts)
			}
		case 2:
			if len(c.Parts) != 1 || !bytes.Equal(c.Parts[0].InlineData.Data, picture) {
				t.Errorf("the model is told %+v by a file alone", c.Parts)
			}
		}
	}
	if prompts != 3 || answers != 3 {
		t.Errorf("the model is told %d prompts and %d results, want 3 of each", prompts, answers)
	}
	for _, r := range results {
		if r.Output != "a picture" || len(r.Parts) != 3 || !bytes.Equal(r.Parts[0].Data, picture) || r.Parts[1].Text != "and one more" ||
			r.Parts[2].URI != "https://example.com/a.jpg?x=<1>&y" {
			t.Errorf("who watches sees %+v", r)
		}
	}
	if len(results) != 3 {
		t.Errorf("who watches sees %d results, want 3", len(results))
	}
}

// TestFilesLarge: what fits a message goes all the way: to the model, now and in the
// next turn, and to whoever watches.
func TestFilesLarge(t *testing.T) {
	eye := &looker{}
	d := harness.StartDaemon(t, agentdtest.Config{
		Providers: []model.Provider{harness.Provider{Name: "eye", Model: eye.open}},
	})
	clnt := d.Client()
	large := bytes.Repeat(picture, 14<<10) // 3.5 MiB
	addTool(t, clnt, "look", "Looks.", func(context.Context, struct{}) (any, error) {
		return client.ToolOutput{Parts: []client.Part{client.Inline("image/png", large)}}, nil
	})
	shown, session := 0, ""
	for range 2 {
		opts := []client.RunOption{client.WithParts(client.Inline("image/png", large))}
		if session != "" {
			opts = append(opts, client.WithSessionID(session))
		}
		for event, err := range clnt.Run(t.Context(), harness.LLMAgent("root", "eye/1", "", "look"), "", opts...) {
			switch {
			case err != nil:
				t.Fatal(err)
			case harness.As[*client.TurnStarted](event) != nil:
				session = event.SessionID
			case harness.As[*client.ToolCallAnswered](event) != nil && len(harness.As[*client.ToolCallAnswered](event).Parts) == 1 && bytes.Equal(harness.As[*client.ToolCallAnswered](event).Parts[0].Data, large):
				shown++
			}
		}
	}
	files := 0
	for _, c := range eye.last() {
		for _, p := range c.Parts {
			if p.InlineData != nil && bytes.Equal(p.InlineData.Data, large) || p.FunctionResponse != nil && bytes.Equal(p.FunctionResponse.Parts[0].InlineData.Data, large) {
				files++
			}
		}
	}
	if shown != 2 || files != 4 {
		t.Errorf("%d results are shown whole and the model is told %d files, want 2 and 4", shown, files)
	}
}

// TestFilesRefused: a file that no model of the tree takes is refused before
// anything happens; one that a provider refuses makes its turn fail, and not those
// that follow.
func TestFilesRefused(t *testing.T) {
	t.Run("by what the adapter knows", func(t *testing.T) {
		for _, wire := range providertest.Wires {
			if wire == providertest.Gemini { // which takes files of any kind
				continue
			}
			name := fileModels[wire]
			f := harness.NewFaulty(t, wire)
			srv := providertest.NewServer(t, providertest.Invent(wire, harness.Hello), nil)
			f.Use(fakeprovider.Through(srv))
			run := func(agent *agentdv1.Agent, part client.Part) error {
				for _, err := range f.D.Client().Run(t.Context(), agent, "hi", client.WithParts(client.Text("see"), part)) {
					if err != nil {
						return err
					}
				}
				return nil
			}
			sound := client.Inline("audio/flac", []byte("x"))
			err := run(harness.LLMAgent("root", name, ""), sound)
			if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.ErrInvalidRequest || !strings.Contains(err.Error(), "user_parts[1]") ||
				!strings.Contains(err.Error(), fmt.Sprintf("%q", name)) || !strings.Contains(err.Error(), `"audio/flac"`) {
				t.Errorf("%s: error %v, want INVALID_REQUEST with the part, the model and the type", name, err)
			}
			if n := len(srv.Received()); n != 0 {
				t.Errorf("%s: %d model calls were made", name, n)
			}
			// Together with a model that takes anything it is told in words.
			if err := run(harness.SequentialAgent("root", harness.LLMAgent("words", name, ""), harness.LLMAgent("ears", "echo", "")), sound); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if body := string(srv.Received()[0].Body); !strings.Contains(body, "[audio/flac, 1 bytes, not shown to you]") {
				t.Errorf("%s: the model was asked %s", name, body)
			}
		}
	})
	t.Run("by the provider", func(t *testing.T) {
		eye := &looker{refuse: "image/png"}
		d := harness.StartDaemon(t, agentdtest.Config{
			Providers: []model.Provider{harness.Provider{Name: "eye", Model: eye.open}},
		})
		clnt := d.Client()
		addTool(t, clnt, "look", "Looks.", func(context.Context, struct{}) (any, error) { return "nothing", nil })
		agent, session := harness.LLMAgent("root", "eye/1", "", "look"), ""
		run := func(opts ...client.RunOption) error {
			if session != "" {
				opts = append(opts, client.WithSessionID(session))
			}
			for event, err := range clnt.Run(t.Context(), agent, "Look.", opts...) {
				if err != nil {
					return err
				}
				if harness.As[*client.TurnStarted](event) != nil {
					session = event.SessionID
				}
			}
			return nil
		}
		err := run(client.WithParts(client.Inline("image/png", picture)))
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Code != client.ErrInvalidRequest || !strings.Contains(err.Error(), "could not process") {
			t.Errorf("error %v, want the provider's", err)
		}
		if err := run(); err != nil {
			t.Errorf("the session cannot go on: %v", err)
		}
		if got := eye.last()[0].Parts; len(got) != 2 || got[1].Text != "[image/png, 256 bytes, not shown to you]" {
			t.Errorf("the model is told %+v", got)
		}
	})
}

// TestFilesByTool: a file of a tool's result that the model does not take is told
// to it in words, and the turn goes on.
func TestFilesByTool(t *testing.T) {
	for _, wire := range providertest.Wires {
		t.Run(string(wire), func(t *testing.T) {
			f := harness.NewFaulty(t, wire)
			look := providertest.Answer{Calls: []providertest.ToolCall{{Name: "look", Args: `{}`}}, Usage: harness.Hello.Usage}
			srv := providertest.NewServer(t, providertest.Invent(wire, look, harness.Hello), nil)
			f.Use(fakeprovider.Through(srv))
			clnt := f.D.Client()
			addTool(t, clnt, "look", "Looks.", func(context.Context, struct{}) (any, error) {
				return &client.ToolOutput{Parts: []client.Part{client.Inline("image/png", []byte("png")), client.Inline("audio/flac", []byte("film"))}}, nil
			})
			for _, err := range clnt.Run(t.Context(), harness.LLMAgent("root", fileModels[wire], "", "look"), "Look.") {
				if err != nil {
					t.Fatal(err)
				}
			}
			received := srv.Received()
			body := string(received[len(received)-1].Body)
			var compact bytes.Buffer
			if err := json.Compact(&compact, []byte(body)); err != nil {
				t.Fatal(err)
			}
			const png, film = "cG5n", "ZmlsbQ=="
			inWords := strings.Contains(body, "[audio/flac, 4 bytes, not shown to you]")
			if !strings.Contains(body, png) || strings.Contains(body, film) == inWords || inWords != (wire != providertest.Gemini) {
				t.Errorf("the model is asked %s", compact.String())
			}
		})
	}
}

func addTool[T any](t testing.TB, c *client.Client, name, description string, handler func(context.Context, T) (any, error)) {
	t.Helper()
	if err := client.AddTool(c, name, description, handler); err != nil {
		t.Fatal(err)
	}
}

// TestFilesQueued says a file, and nothing else, while a turn runs: it waits, or is
// a message of that turn, and the model is given it.
func TestFilesQueued(t *testing.T) {
	for name, busy := range map[string]client.OnBusy{"enqueued": client.OnBusyEnqueue, "injected": client.OnBusyInject} {
		t.Run(name, func(t *testing.T) {
			eye := &looker{}
			d := harness.StartDaemon(t, agentdtest.Config{
				Providers: []model.Provider{harness.Provider{Name: "eye", Model: eye.open}},
			})
			clnt := d.Client()
			called, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			addTool(t, clnt, "look", "Takes a picture.", func(context.Context, struct{}) (any, error) {
				once.Do(func() {
					close(called)
					<-release
				})
				return "nothing", nil
			})
			session := make(chan string, 1)
			first := make(chan error, 1)
			go func() { // ends with its turn
				var failed error
				for event, err := range clnt.Run(t.Context(), harness.LLMAgent("root", "eye/1", "", "look"), "Look!") {
					failed = err
					if event != nil && harness.As[*client.TurnStarted](event) != nil {
						session <- event.SessionID
					}
				}
				first <- failed
			}()
			id := <-session
			<-called
			turns, ends := map[string]bool{}, 0
			for event, err := range clnt.Run(t.Context(), nil, "", client.WithSessionID(id), client.WithParts(client.Inline("image/png", picture)), client.WithOnBusy(busy)) {
				if err != nil {
					t.Fatal(err)
				}
				if harness.As[*client.TurnQueued](event) != nil {
					close(release)
				}
				if harness.As[*client.TurnStarted](event) != nil {
					turns[event.TurnID] = true
				}
				if event.End != nil {
					ends++
				}
			}
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			if len(turns) != 1 || ends != 1 {
				t.Errorf("its client was told of %d turns and %d ends", len(turns), ends)
			}
			shown := 0
			for _, c := range eye.last() {
				for _, p := range c.Parts {
					if p.InlineData != nil && bytes.Equal(p.InlineData.Data, picture) {
						shown++
					}
				}
			}
			if shown != 1 {
				t.Errorf("the model was given the picture %d times in the last call", shown)
			}
		})
	}
}
