package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// equalParts reports whether two lists of parts are the same.
func equalParts(a, b []*agentdv1.Part) bool {
	return slices.EqualFunc(a, b, func(a, b *agentdv1.Part) bool { return proto.Equal(a, b) })
}

func TestPromptHasParts(t *testing.T) {
	sent := make(chan *agentdv1.RunRequest_ExecuteRequest, 1)
	url := serve(t, func(_ context.Context, s *peer) error {
		sent <- s.execute
		return steps(s.started, func() error { return s.end(true, "") })
	})
	picture := []byte("\x89PNG")
	opt := client.WithParts(client.Text("see"), client.Inline("image/png", picture))
	more := client.WithParts(client.FileURI("application/pdf", "gs://b/doc.pdf"))
	if _, err := dial(t, url).Do(t.Context(), llm(), "", opt, more, client.WithRawPayloads()); err != nil {
		t.Fatal(err)
	}
	got := <-sent
	want := []*agentdv1.Part{
		{Content: &agentdv1.Part_Text{Text: "see"}},
		{Content: &agentdv1.Part_Inline{Inline: &agentdv1.InlineData{MimeType: "image/png", Data: picture}}},
		{Content: &agentdv1.Part_File{File: &agentdv1.FileUri{MimeType: "application/pdf", Uri: "gs://b/doc.pdf"}}},
	}
	if !equalParts(got.GetUserParts(), want) || got.GetUserPrompt() != "" || !got.GetRawPayloads() {
		t.Errorf("sent %v", got)
	}
}

// wrongParts are parts that cannot be sent, and what is said of them.
var wrongParts = map[string]struct {
	part client.Part
	want string
}{
	"nothing":    {client.Part{}, "client.Inline"},
	"two":        {client.Part{Text: "x", Data: []byte("x"), MIMEType: "image/png"}, "more than one of Text, Data, URI and ToolName"},
	"no text":    {client.Text(""), "it is empty"},
	"long text":  {client.Text(strings.Repeat("x", 1<<20+1)), "got 1048577 bytes"},
	"broken":     {client.Text("\xff"), "UTF-8"},
	"empty file": {client.Inline("image/png", nil), `of type "image/png" is empty`},
	"no type":    {client.Inline("", []byte("x")), "media type"},
	"parameters": {client.Inline("text/plain; charset=x", []byte("x")), "media type"},
	"no uri":     {client.FileURI("image/png", ""), `of type "image/png" is empty`},
	"long uri":   {client.FileURI("image/png", strings.Repeat("x", 8193)), "got 8193 bytes"},
	"uri's type": {client.FileURI("image", "gs://x"), "media type"},
	"no tool":    {client.ToolReference(""), "it is empty"},
	"bad tool":   {client.ToolReference("a b"), `"a b" is no name of a tool`},
}

func TestWrongPartsAreNotSent(t *testing.T) {
	c := dial(t, serve(t, func(context.Context, *peer) error {
		t.Error("something was sent")
		return nil
	}))
	refused := func(t *testing.T, want string, parts ...client.Part) {
		t.Helper()
		_, err := c.Do(t.Context(), llm(), "hi", client.WithParts(parts...))
		if !errors.Is(err, client.ErrInvalidRequest) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "client.WithParts") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for name, tc := range wrongParts {
		t.Run(name, func(t *testing.T) {
			refused(t, "part 2: ", client.Text("x"), tc.part)
			refused(t, tc.want, tc.part)
		})
	}
	refused(t, "part 2: a reference to a tool is for the result of a tool", client.Text("x"), client.ToolReference("fetch"))
	refused(t, "65 parts, at most 64", slices.Repeat([]client.Part{client.Text("x")}, 65)...)
}

func TestResultsWithParts(t *testing.T) {
	picture := client.Inline("image/png", []byte("\x89PNG"))
	tests := map[string]struct {
		result any
		output string
		parts  int
		fails  string
	}{
		"text and parts": {client.ToolOutput{Output: "a picture", Parts: []client.Part{picture, client.Text("of a cat")}}, "a picture", 2, ""},
		"a pointer":      {&client.ToolOutput{Output: place{City: "A"}, Parts: []client.Part{picture}}, `{"city":"A"}`, 1, ""},
		"a reference":    {client.ToolOutput{Output: "found", Parts: []client.Part{picture, client.ToolReference("fetch")}}, "found", 2, ""},
		"parts alone":    {client.ToolOutput{Parts: []client.Part{picture}}, "", 1, ""},
		"no parts":       {client.ToolOutput{Output: []int{1}}, "[1]", 0, ""},
		"nothing":        {client.ToolOutput{}, "null", 0, ""},
		"nil":            {(*client.ToolOutput)(nil), "null", 0, ""},
		"an error":       {client.ToolOutput{Output: errors.New("torn"), Parts: []client.Part{picture}}, "", 0, "torn"},
		"too many":       {client.ToolOutput{Parts: slices.Repeat([]client.Part{picture}, 65)}, "", 0, "at most 64"},
		"too large":      {client.ToolOutput{Parts: []client.Part{client.Inline("image/png", make([]byte, 5000))}}, "", 0, "at most 4096"},
	}
	for name, tc := range wrongParts {
		tests["wrong part: "+name] = struct {
			result any
			output string
			parts  int
			fails  string
		}{client.ToolOutput{Parts: []client.Part{tc.part}}, "", 0, "the tool's result: part 1: "}
	}
	url, scripts := scripted(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := dial(t, url, client.WithMaxMessageBytes(4096))
			mustAdd(t, client.AddTool(c, "it", "does it", func(context.Context, struct{}) (any, error) { return test.result, nil }))
			got := callTool(t, c, scripts, "it", "{}")
			if got.GetOutput() != test.output || len(got.GetParts()) != test.parts || !strings.Contains(got.GetError(), test.fails) || (test.fails == "") != (got.GetError() == "") {
				t.Errorf("got %v", got)
			}
			if test.parts > 0 && !proto.Equal(got.GetParts()[0], picture.Proto()) {
				t.Errorf("got %v", got.GetParts()[0])
			}
		})
	}
}

// A result with parts is the same when the call is repeated: from memory, and from the
// disk after a restart. The caller sees it once.
func TestPartsAreSentAgain(t *testing.T) {
	url, scripts := scripted(t)
	dir := t.TempDir()
	var runs atomic.Int32
	buffer := []byte("picture")
	begin := func() *client.Client {
		c := dial(t, url, client.WithToolJournal(dir))
		mustAdd(t, client.AddTool(c, "look", "looks", func(context.Context, struct{}) (any, error) {
			n := runs.Add(1)
			return client.ToolOutput{Output: fmt.Sprint("look ", n), Parts: []client.Part{client.Inline("image/png", buffer)}}, nil
		}))
		return c
	}
	var results [][]byte
	ask := func(c *client.Client) {
		t.Helper()
		scripts <- func(_ context.Context, s *peer) error {
			for range 2 {
				if err := s.call("same", "look", "{}"); err != nil {
					return err
				}
				m, err := s.toolResult()
				if err != nil {
					return err
				}
				data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
				if err != nil {
					return err
				}
				results = append(results, data)
			}
			return s.end(true, "")
		}
		if _, err := c.Do(t.Context(), llm("look"), "hi"); err != nil {
			t.Error(err)
		}
		copy(buffer, "changed") // the tool's own affair
	}
	c := begin()
	ask(c)
	ask(c)
	ask(begin())
	if runs.Load() != 1 || len(results) != 6 || !bytes.Contains(results[0], []byte("picture")) {
		t.Fatalf("%d runs, answers %q", runs.Load(), results)
	}
	for i, a := range results {
		if !bytes.Equal(a, results[0]) {
			t.Errorf("answer %d is %q, want %q", i, a, results[0])
		}
	}
}

// The client that returns a result sees its parts at once, and not a second time when the
// server has them; a result of another client is an event.
func TestPartsInEvents(t *testing.T) {
	mine, other := client.Inline("image/png", []byte("mine")), client.Inline("image/png", []byte("other"))
	for name, tc := range map[string]struct {
		recorded client.Part
		want     []client.Part
	}{
		"own":       {mine, []client.Part{mine}},
		"another's": {other, []client.Part{mine, other}},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(_ context.Context, s *peer) error {
				if err := steps(s.started, func() error { return s.call("1", "look", "{}") }); err != nil {
					return err
				}
				if _, err := s.toolResult(); err != nil {
					return err
				}
				return steps(
					func() error {
						return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: &agentdv1.ToolCallAnswered{
							ToolCallId: "1", ToolName: "look", Parts: []*agentdv1.Part{tc.recorded.Proto()}, Result: &agentdv1.ToolCallAnswered_Output{Output: ""},
						}}})
					},
					func() error {
						return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageInjected{MessageInjected: &agentdv1.MessageInjected{
							UserPrompt: "see", UserParts: []*agentdv1.Part{other.Proto()},
						}}})
					},
					func() error {
						return s.send(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_TurnQueued{TurnQueued: &agentdv1.TurnQueued{
							SessionId: session, UserParts: []*agentdv1.Part{mine.Proto()},
						}}})
					},
					func() error { return s.end(true, "") },
				)
			})
			c := dial(t, url)
			mustAdd(t, client.AddTool(c, "look", "looks", func(context.Context, struct{}) (any, error) {
				return client.ToolOutput{Parts: []client.Part{mine}}, nil
			}))
			var results, said, waits []client.Part
			for event, err := range c.Run(t.Context(), llm("look"), "hi") {
				switch {
				case err != nil:
					t.Fatal(err)
				case as[*client.ToolCallAnswered](event) != nil:
					results = append(results, as[*client.ToolCallAnswered](event).Parts...)
				case as[*client.MessageInjected](event) != nil:
					said = as[*client.MessageInjected](event).Parts
				case as[*client.TurnQueued](event) != nil:
					waits = as[*client.TurnQueued](event).Parts
				}
			}
			if !reflect.DeepEqual(results, tc.want) || !reflect.DeepEqual(said, []client.Part{other}) || !reflect.DeepEqual(waits, []client.Part{mine}) {
				t.Errorf("told %v, said %v, waits %v", results, said, waits)
			}
		})
	}
}

func TestDeferredTools(t *testing.T) {
	sent := make(chan []*agentdv1.Tool, 1)
	c := dial(t, serve(t, func(_ context.Context, s *peer) error {
		sent <- s.execute.GetTools()
		return steps(s.started, func() error { return s.end(true, "") })
	}))
	nothing := func(context.Context, struct{}) (any, error) { return nil, nil }
	mustAdd(t, client.AddTool(c, "a", "rare", nothing, client.Deferred()))
	mustAdd(t, client.AddTool(c, "b", "common", nothing))
	mustAdd(t, client.AddRawTool(c, "c", "rare", func(context.Context, json.RawMessage) (any, error) { return nil, nil }, client.Deferred()))
	if _, err := c.Do(t.Context(), llm("a", "b", "c"), "hi"); err != nil {
		t.Fatal(err)
	}
	if got := <-sent; len(got) != 3 || !got[0].GetDeferred() || got[1].GetDeferred() || !got[2].GetDeferred() {
		t.Errorf("sent %v", got)
	}
}
