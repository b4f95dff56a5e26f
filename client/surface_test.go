package client_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// What programs say that were written before this package: it has to compile, and to
// do what it did.
func TestDeployedPrograms(t *testing.T) {
	type GreetInput struct {
		Name string `json:"name" jsonschema:"whom to greet"`
	}
	d := agentdtest.Start(t, agentdtest.Config{Addr: "127.0.0.1:0"})
	clnt := client.New(d.URL)
	defer clnt.CloseIdleConnections()
	_ = client.AddTool(clnt, "greet", "Returns a greeting", func(ctx context.Context, in GreetInput) (any, error) {
		return "Hello, " + in.Name + "!", nil
	})
	set := client.NewToolSet()
	_ = client.AddTool[GreetInput](set, "wave", "Waves", func(ctx context.Context, in GreetInput) (any, error) {
		return nil, nil
	})
	agent := &agentdv1.Agent{
		Name: "greeter",
		AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{
			Model: "scripted/demo", Instruction: "Greet people.", ToolNames: []string{"greet"},
		}},
	}
	ctx, text, session := t.Context(), "", ""
	for event, err := range clnt.Run(ctx, agent, "Say hi to Alice", client.WithTools(set)) {
		if err != nil {
			t.Fatal(err)
		}
		if event.OutputChunk != nil {
			text += event.OutputChunk.Content
		}
		session = event.SessionID
		if event.End != nil && !event.End.Completed {
			t.Errorf("ended %+v", event.End)
		}
	}
	if !strings.Contains(text, "Hello, Alice!") {
		t.Errorf("said %q", text)
	}
	ended := false
	for event, err := range clnt.Run(ctx, nil, "Say hi to Bob", client.WithSessionID(session)) {
		if err != nil {
			t.Fatal(err)
		}
		ended = ended || event.End != nil
	}
	if !ended {
		t.Error("the second turn did not end")
	}
}

// A tool says what it returns, or leaves it open; both are inferred.
func TestToolResultTypes(t *testing.T) {
	set := client.NewToolSet()
	mustAdd(t, client.AddTool(set, "a", "d", func(context.Context, place) (place, error) { return place{}, nil }))
	mustAdd(t, client.AddTool[place](set, "b", "d", func(context.Context, place) (string, error) { return "", nil }))
	mustAdd(t, client.AddTool[place, *client.ToolOutput](set, "c", "d", func(context.Context, place) (*client.ToolOutput, error) { return nil, nil }))
	mustAdd(t, client.AddTool(set, "e", "d", func(context.Context, map[string]any) (any, error) { return nil, nil }))
}

// An option that cannot apply does not compile.
func TestWhereOptionsApply(t *testing.T) {
	kinds := map[string]reflect.Type{
		"New": reflect.TypeFor[client.Option](), "Run": reflect.TypeFor[client.RunOption](), "Send": reflect.TypeFor[client.SendOption](),
		"Attach": reflect.TypeFor[client.AttachOption](), "request": reflect.TypeFor[client.RequestOption](),
		"Watch": reflect.TypeFor[client.WatchOption](), "Goal": reflect.TypeFor[client.GoalOption](),
	}
	for want, options := range map[string][]any{
		"New": {
			client.WithHTTPClient, client.WithTLSConfig, client.WithHeartbeatInterval, client.WithGrace, client.WithMaxMessageBytes,
			client.WithMaxResultBytes, client.WithGRPC, client.WithGRPCWeb, client.WithConnectOptions, client.WithLogger,
			client.WithAttachment, client.WithMCPServer, client.WithReconnect, client.WithToolJournal,
		},
		"Watch":                                  {client.WithCursor},
		"New Run Send Attach request Watch Goal": {client.WithHeader, client.WithProviderKey},
		"New Run Send Attach Goal":               {client.WithTimeout, client.WithConcurrency, client.WithToolTimeout, client.WithPrompter},
		"New Run Send Goal": {
			client.WithBudget, client.WithOnBusy, client.WithOnDisconnect, client.WithInstruction, client.WithRawPayloads,
			client.WithInstructionMode, client.WithAuthor, client.WithMetadata,
		},
		"Run Send Attach Goal": {client.WithTools, client.WithControl, client.WithTurnID, client.WithOnLeave, client.WithBeforeCall},
		"Run Send Goal":        {client.WithParts, client.WithIdempotencyKey, client.WithInitialState, client.WithSessionBudget, client.WithLabels, client.WithAgentRef},
		"Send":                 {client.WithAgent},
		"Goal":                 {client.WithProgress},
		"Run":                  {client.WithSessionID, client.WithSessionOrNew, client.WithFork, client.WithSeedMessages},
		"Attach":               {client.WithAfterSeq, client.Observe},
	} {
		for _, option := range options {
			made := reflect.TypeOf(option).Out(0)
			for name, kind := range kinds {
				if got := made.Implements(kind); got != strings.Contains(want, name) {
					t.Errorf("%s, of %s, is an option of %s: %v", made, want, name, got)
				}
			}
		}
	}
}

// What a run leaves continues if it says so, and what an Attach leaves does not.
func TestOnLeave(t *testing.T) {
	t.Run("a run that detaches", func(t *testing.T) {
		s := newDaemon(t)
		c, _ := s.client(t)
		id := ""
		for event, err := range c.Run(t.Context(), actor(), "go", client.WithOnLeave(client.OnLeaveDetach)) {
			if err != nil {
				t.Fatal(err)
			}
			id = event.SessionID
			break
		}
		s.says(t, "done")
		if end := lastEnd(t, follow(c.Attach(t.Context(), id)).rest(t)); !end.Completed {
			t.Errorf("ended %+v", end)
		}
	})
	t.Run("a context that ends before the answer", func(t *testing.T) {
		s := newDaemon(t)
		c, _ := s.client(t)
		ctx, cancel := context.WithCancel(t.Context())
		opts := []client.RunOption{client.WithOnLeave(client.OnLeaveDetach), client.WithIdempotencyKey("k")}
		run := follow(c.Run(ctx, actor(), "go", opts...))
		call := s.next(t) // the turn runs
		cancel()
		for range run.events {
		}
		call.gets(t, reply{text: "done"})
		second := follow(c.Run(t.Context(), actor(), "go", opts...)).rest(t)
		if end := lastEnd(t, second); !end.Completed || textOf(second) != "done" {
			t.Errorf("ended %+v after %q", end, textOf(second))
		}
	})
	t.Run("an attach that cancels", func(t *testing.T) {
		s := newDaemon(t)
		c, _ := s.client(t)
		run := follow(c.Run(t.Context(), actor(), "go"))
		id := run.until(t, isStarted).SessionID
		s.next(t)
		other, _ := s.client(t)
		for _, err := range other.Attach(t.Context(), id, client.WithOnLeave(client.OnLeaveCancel)) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if end := lastEnd(t, run.rest(t)); end.Completed {
			t.Errorf("ended %+v", end)
		}
	})
}
