package agentdtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/limits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func llm(name, model string, tools ...string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: model, ToolNames: tools}}}
}

type greetInput struct {
	Name string `json:"name" jsonschema:"whom to greet"`
}

// A whole turn, with a tool that takes half an hour, in no time at all.
func TestTurnOnFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{}, testdaemon.WithTurnLimits(limits.Limits{ToolTimeout: time.Hour}))
		clnt := d.Client()
		err := client.AddTool(clnt, "greet", "Returns a greeting", func(ctx context.Context, in greetInput) (any, error) {
			time.Sleep(30 * time.Minute)
			return "Hello, " + in.Name + "!", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		res, err := clnt.Do(t.Context(), llm("greeter", "scripted/demo", "greet"), "Say hi to Alice")
		if err != nil {
			t.Fatal(err)
		}
		if !res.Completed || !strings.Contains(res.Text, "Hello, Alice!") {
			t.Errorf("got %q, completed %v", res.Text, res.Completed)
		}
	})
}

// What a daemon has stored is there for the next one.
func TestDataDir(t *testing.T) {
	dir := t.TempDir()
	d := agentdtest.Start(t, agentdtest.Config{LeakCheck: true, Addr: "127.0.0.1:0", DataDir: dir})
	first, err := d.Client().Do(t.Context(), llm("root", "echo"), "one")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = agentdtest.Start(t, agentdtest.Config{Addr: "127.0.0.1:0", DataDir: dir})
	second, err := d.Client().Do(t.Context(), nil, "two", client.WithSessionID(first.SessionID))
	if err != nil {
		t.Fatal(err)
	}
	if second.SessionID != first.SessionID || second.Text != "two" {
		t.Errorf("got %q in session %q, want two in %q", second.Text, second.SessionID, first.SessionID)
	}
}

func Example() {
	d, err := agentdtest.New(agentdtest.Config{
		Scripts: map[string]string{"hello": `answers: [{text: "Hello from a script."}]`},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	agent := &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "scripted/hello"}}}
	for event, err := range d.Client().Run(context.Background(), agent, "Hi") {
		if err != nil {
			fmt.Println(err)
			return
		}
		if event.OutputChunk != nil {
			fmt.Print(event.OutputChunk.Content)
		}
	}
	// Output: Hello from a script.
}
