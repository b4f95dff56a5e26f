package daemon_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/session/limits"
)

// lookThenSay calls a tool once for each thing that the user says, and then speaks.
func lookThenSay(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
	u := providertest.Usage{Prompt: 1, Completion: 2, Total: 3}
	req, err := c.Request()
	if err != nil {
		return fakeprovider.Reply{Status: 400, Message: err.Error()}
	}
	if req.Items[len(req.Items)-1].Kind == providertest.User {
		call := providertest.ToolCall{ID: fmt.Sprintf("c%d", len(req.Items)), Name: "look", Args: "{}"}
		return fakeprovider.Reply{Calls: []providertest.ToolCall{call}, Usage: u}
	}
	return fakeprovider.Reply{Text: []string{"done"}, Usage: u}
}

func seeds(texts ...string) []*agentdv1.SeedMessage {
	var out []*agentdv1.SeedMessage
	for _, text := range texts {
		role, content, _ := strings.Cut(text, ": ")
		out = append(out, &agentdv1.SeedMessage{Role: role, Content: content})
	}
	return out
}

// saidIn is what the model of a call has received, in order.
func saidIn(t *testing.T, c *fakeprovider.Call) (system string, said []string) {
	t.Helper()
	req, err := c.Request()
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range req.Items {
		said = append(said, string(it.Kind)+": "+it.Text)
	}
	return req.System, said
}

// begunRequest is a request with all that is said of a turn besides its prompt.
func begunRequest(mode agentdv1.InstructionMode) *agentdv1.RunRequest_ExecuteRequest {
	tree := llm("root", "claude-x", "look")
	tree.GetLlm().Instruction = "own"
	if mode == agentdv1.InstructionMode_INSTRUCTION_MODE_REPLACE {
		tree.GetLlm().Instruction = "own {unset}" // which needs state, were it used
	}
	return &agentdv1.RunRequest_ExecuteRequest{
		Agent: tree, UserPrompt: "go on", Tools: []*agentdv1.Tool{{Name: "look", Description: "looks"}},
		SessionId: new("chat"), Create: true, TurnId: "one",
		SeedMessages:    seeds("user: hello", "assistant: hi there", "user: a", "user: b"),
		Instruction:     "caller",
		InstructionMode: mode,
		Labels:          map[string]string{"channel": "c1"},
		Author:          "ann",
		Metadata:        map[string]string{"dir_path": "/srv/a", "empty": ""},
	}
}

func answerAll(t *testing.T, c agentdv1connect.SessionServiceClient, turn *agentdv1.Turn) *agentdv1.Turn {
	t.Helper()
	turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{
		{ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "white"}},
	}})
	return until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
}

// TestBegunConversation: what a request says of a turn besides its prompt is what the model, its tools, and lists get, to
// the byte the same after a restart in the middle of the turn, in the turn after it, and in a replay.
func TestBegunConversation(t *testing.T) {
	t.Parallel()
	const unset, appended, prepended, replaced = agentdv1.InstructionMode_INSTRUCTION_MODE_UNSPECIFIED,
		agentdv1.InstructionMode_INSTRUCTION_MODE_APPEND, agentdv1.InstructionMode_INSTRUCTION_MODE_PREPEND, agentdv1.InstructionMode_INSTRUCTION_MODE_REPLACE
	for mode, system := range map[agentdv1.InstructionMode]string{
		unset: "server\n\nown\n\ncaller", appended: "server\n\nown\n\ncaller",
		prepended: "server\n\ncaller\n\nown", replaced: "server\n\ncaller",
	} {
		var bodies [2][]string
		for i, restarts := range []bool{false, true} {
			provider, url := fakeprovider.Start(t, lookThenSay)
			cfg := daemon.Config{
				Addr: "127.0.0.1:0", DataDir: t.TempDir(), Turns: limits.Limits{Instruction: "server"},
				Providers: daemon.Providers{AnthropicAPIKey: "k", AnthropicBaseURL: url},
			}
			d, err := daemon.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := wires(t, d)["gRPC"]
			turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: begunRequest(mode)}).GetTurn()
			turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
			if restarts {
				stop(t, d)
				if d, err = daemon.New(cfg); err != nil {
					t.Fatal(err)
				}
				if err := d.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				c = wires(t, d)["gRPC"]
			}
			turn = call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: "chat", TurnId: turn.GetId()}).GetTurn()
			if m := turn.GetPendingToolCalls()[0].GetMetadata(); !maps.Equal(m, map[string]string{"dir_path": "/srv/a", "empty": ""}) || turn.GetAuthor() != "ann" {
				t.Errorf("%v, restarted: %v: metadata %v of %q", mode, restarts, m, turn.GetAuthor())
			}
			answerAll(t, c, turn)
			next := execute(nil, "more").GetExecute()
			next.SessionId, next.InitialStateJson = new("chat"), `{"unset": "x"}`
			answerAll(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: next}).GetTurn())
			for _, asked := range provider.Calls() {
				bodies[i] = append(bodies[i], string(asked.Body))
			}
			first, said := saidIn(t, provider.Calls()[1])
			want := []string{"user: hello", "assistant: hi there", "user: a", "user: b", "user: go on", "call: ", "result: white"}
			if !strings.HasPrefix(first, system+"\n\nYou are an agent.") || !slices.Equal(said, want) {
				t.Errorf("%v, restarted: %v: the model received %q, %q", mode, restarts, first, said)
			}
			last, said := saidIn(t, provider.Last())
			if !strings.HasPrefix(last, "server\n\nown") || strings.Contains(last, "caller") || !slices.Equal(said[:5], want[:5]) || len(said) != 11 {
				t.Errorf("%v, restarted: %v: the next turn's model received %q, %q", mode, restarts, last, said)
			}
			for label, n := range map[string]int{"c1": 1, "c2": 0} {
				of := &agentdv1.ListSessionsRequest{Labels: map[string]string{"channel": label}}
				if list := call(t, c.ListSessions, of).GetSessions(); len(list) != n {
					t.Errorf("sessions of channel %s: %v", label, list)
				}
			}
			stop(t, d)
			if rep, err := daemon.Replay(t.Context(), daemon.Config{DataDir: cfg.DataDir}, "chat"); err != nil || rep.Divergence != nil || rep.Turns != 2 {
				t.Errorf("%v, restarted: %v: replay: %+v, %v", mode, restarts, rep, err)
			}
		}
		if !slices.Equal(bodies[0], bodies[1]) {
			t.Errorf("%v: after a restart the models received\n%s\nwithout one\n%s", mode, strings.Join(bodies[1], "\n"), strings.Join(bodies[0], "\n"))
		}
	}
}

// TestTurnOnFork: a turn on a fork of a session that runs a turn has what the session has said, and the session stays as
// it is; a repeat finds the turn, and a request that is refused leaves no fork.
func TestTurnOnFork(t *testing.T) {
	t.Parallel()
	provider, url := fakeprovider.Start(t, lookThenSay)
	d := start(t, daemon.Config{DataDir: filepath.Join(t.TempDir(), "data"), Providers: daemon.Providers{AnthropicAPIKey: "k", AnthropicBaseURL: url}})
	c := wires(t, d)["gRPC"]
	parentTurn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: begunRequest(0)}).GetTurn()
	until(t, c, parentTurn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	parent := func() *agentdv1.Session {
		return call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: "chat"}).GetSession()
	}
	before := parent()
	ask := func() *agentdv1.RunRequest_ExecuteRequest {
		ex := execute(nil, "elsewhere").GetExecute()
		ex.SessionId, ex.Fork, ex.IdempotencyKey, ex.Labels = new("chat"), true, "k", map[string]string{"thread": "t1"}
		return ex
	}
	turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ask()}).GetTurn()
	if again := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ask()}).GetTurn(); again.GetId() != turn.GetId() || again.GetSessionId() != turn.GetSessionId() {
		t.Errorf("asked twice: %v and %v", turn, again)
	}
	answerAll(t, c, turn)
	if _, said := saidIn(t, provider.Last()); !slices.Equal(said[:5], []string{"user: hello", "assistant: hi there", "user: a", "user: b", "user: go on"}) ||
		!slices.Contains(said, "user: elsewhere") {
		t.Errorf("the fork's model received %q", said)
	}
	fork := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: turn.GetSessionId()}).GetSession()
	if fork.GetForkedFrom() != "chat" || !maps.Equal(fork.GetLabels(), map[string]string{"thread": "t1"}) {
		t.Errorf("the fork is %v", fork)
	}
	// On Run, the response has the id of the fork.
	other := ask()
	other.IdempotencyKey = ""
	run := connectDialer(h2c(t), d.URL()).open(t, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: other}})
	if id := run.next().GetExecute().GetSessionId(); id == "" || id == "chat" || id == fork.GetId() {
		t.Errorf("Run on a fork is in session %q", id)
	}
	if err := run.s.CloseRequest(); err != nil {
		t.Error(err)
	}
	sessions := func() int { return len(call(t, c.ListSessions, &agentdv1.ListSessionsRequest{}).GetSessions()) }
	n := sessions()
	bad := ask()
	bad.IdempotencyKey, bad.Agent = "other", llm("root", "nobody/knows")
	if _, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: bad})); err == nil || sessions() != n {
		t.Errorf("a fork of a turn that was refused: %v, %d sessions, before %d", err, sessions(), n)
	}
	if after := parent(); !proto.Equal(before, after) {
		t.Errorf("the parent is now %v, was %v", after, before)
	}
	answerAll(t, c, parentTurn)
}

// TestLabelsOfTurns: a turn sets labels of a session that there is and leaves its others.
func TestLabelsOfTurns(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	c := wires(t, d)["gRPC"]
	ask := func(labels map[string]string) *agentdv1.RunRequest_ExecuteRequest {
		ex := lookRequest("go")
		ex.SessionId, ex.Create, ex.Labels = new("s"), true, labels
		return ex
	}
	for i, step := range []struct {
		set, want map[string]string
		version   int64
	}{
		{map[string]string{"a": "1", "b": "1"}, map[string]string{"a": "1", "b": "1"}, 1},
		{map[string]string{"a": "2", "c": "1"}, map[string]string{"a": "2", "b": "1", "c": "1"}, 2},
		{map[string]string{"a": "2"}, map[string]string{"a": "2", "b": "1", "c": "1"}, 2},
		{nil, map[string]string{"a": "2", "b": "1", "c": "1"}, 2},
	} {
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ask(step.set)}).GetTurn()
		until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
		if _, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: func() *agentdv1.RunRequest_ExecuteRequest {
			busy := ask(map[string]string{"busy": "1"})
			busy.OnBusy = agentdv1.OnBusy_ON_BUSY_REJECT
			busy.SeedMessages = seeds("user: x")
			return busy
		}()})); err == nil {
			t.Errorf("step %d: seeds of a session that there is were taken", i)
		}
		answerAll(t, c, turn)
		if s := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: "s"}).GetSession(); !maps.Equal(s.GetLabels(), step.want) || s.GetVersion() != step.version {
			t.Errorf("step %d: %v", i, s)
		}
	}
}

// TestRefusedConversation: what is wrong is refused before anything is made, and the refusal names the field.
func TestRefusedConversation(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}, Turns: limits.Limits{MaxPromptBytes: 1000}})
	c := wires(t, d)["Connect, JSON, HTTP/1.1"]
	known := call(t, c.CreateSession, &agentdv1.CreateSessionRequest{}).GetSession().GetId()
	const invalid, exceeded, none = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
	many := map[string]string{}
	for i := range 65 {
		many[fmt.Sprint(i)] = "x"
	}
	type request = agentdv1.RunRequest_ExecuteRequest
	for name, r := range map[string]struct {
		change func(ex *request)
		code   agentdv1.ErrorCode
		field  string
	}{
		"seeds of a session that there is": {func(ex *request) { ex.SessionId, ex.SeedMessages = &known, seeds("user: x") }, invalid, "execute.seed_messages"},
		"seeds, create, there is one":      {func(ex *request) { ex.SessionId, ex.Create, ex.SeedMessages = &known, true, seeds("user: x") }, invalid, "execute.seed_messages"},
		"seeds and fork":                   {func(ex *request) { ex.SessionId, ex.Fork, ex.SeedMessages = &known, true, seeds("user: x") }, invalid, "execute.seed_messages"},
		"a role":                           {func(ex *request) { ex.SeedMessages = seeds("user: x", "system: x") }, invalid, "execute.seed_messages[1].role"},
		"an empty seed":                    {func(ex *request) { ex.SeedMessages = seeds("user: ") }, invalid, "execute.seed_messages[0].content"},
		"a blank seed":                     {func(ex *request) { ex.SeedMessages = seeds("user:  ") }, invalid, "execute.seed_messages[0].content"},
		"long seeds": {func(ex *request) {
			ex.SeedMessages = seeds("user: "+strings.Repeat("x", 600), "user: "+strings.Repeat("x", 600))
		}, exceeded, "execute.seed_messages"},
		"many seeds":                    {func(ex *request) { ex.SeedMessages = seeds(slices.Repeat([]string{"user: x"}, 513)...) }, invalid, "execute.seed_messages"},
		"fork of nothing":               {func(ex *request) { ex.Fork = true }, invalid, "execute.session_id"},
		"fork of one that there is not": {func(ex *request) { ex.SessionId, ex.Fork = new("none"), true }, none, ""},
		"fork and create":               {func(ex *request) { ex.SessionId, ex.Fork, ex.Create = &known, true, true }, invalid, "execute.create"},
		"a mode that there is not":      {func(ex *request) { ex.Instruction, ex.InstructionMode = "x", 9 }, invalid, "execute.instruction_mode"},
		"a mode of nothing":             {func(ex *request) { ex.InstructionMode = agentdv1.InstructionMode_INSTRUCTION_MODE_REPLACE }, invalid, "execute.instruction"},
		"many labels":                   {func(ex *request) { ex.Labels = many }, invalid, "execute.labels"},
		"an empty label":                {func(ex *request) { ex.Labels = map[string]string{"a": ""} }, invalid, `execute.labels["a"]`},
		"much metadata":                 {func(ex *request) { ex.Metadata = many }, invalid, "execute.metadata"},
		"long metadata":                 {func(ex *request) { ex.Metadata = map[string]string{"a": strings.Repeat("x", 1025)} }, invalid, `execute.metadata["a"]`},
		"a long author":                 {func(ex *request) { ex.Author = strings.Repeat("x", 257) }, invalid, "execute.author"},
	} {
		ex := lookRequest("go")
		r.change(ex)
		_, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
		if err == nil {
			t.Errorf("%s: was taken", name)
			continue
		}
		e := details(t, err)
		fields := e.GetViolations()
		if e.GetCode() != r.code || r.field != "" && (len(fields) == 0 || fields[0].GetField() != r.field) {
			t.Errorf("%s: %v", name, e)
		}
	}
	if list := call(t, c.ListSessions, &agentdv1.ListSessionsRequest{}).GetSessions(); len(list) != 1 {
		t.Errorf("%d sessions, want the one", len(list))
	}
}

// TestSeedsAreCompacted: a history that the session began with is summarized as any other, also where the summary ends
// within it.
func TestSeedsAreCompacted(t *testing.T) {
	t.Parallel()
	summaries := 0
	provider, url := fakeprovider.Start(t, func(ctx context.Context, c *fakeprovider.Call) fakeprovider.Reply {
		if strings.Contains(string(c.Body), "You write the memory") {
			summaries++
			return fakeprovider.Reply{Text: []string{"they met"}, Usage: providertest.Usage{Prompt: 1, Completion: 2, Total: 3}}
		}
		return fakeprovider.Say("done")(ctx, c)
	})
	cfg := daemon.Config{Addr: "127.0.0.1:0", DataDir: t.TempDir(), Providers: daemon.Providers{AnthropicAPIKey: "k", AnthropicBaseURL: url}}
	d, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := wires(t, d)["gRPC"]
	ex := execute(llm("root", "claude-x"), "go on").GetExecute()
	ex.Agent.GetLlm().Compaction = &agentdv1.Compaction{AtShare: 0.5, ContextTokens: 2000}
	ex.SessionId, ex.Create = new("chat"), true
	long := strings.Repeat("x", 2000)
	ex.SeedMessages = seeds("user: first "+long, "assistant: second "+long, "user: third "+long, "assistant: fourth")
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	if summaries != 1 {
		t.Fatalf("%d summaries", summaries)
	}
	check := func(when string, want ...string) {
		t.Helper()
		_, said := saidIn(t, provider.Last())
		if !strings.Contains(said[0], "they met") || strings.Contains(said[0], "first") || !slices.Equal(said[1:], want) {
			t.Errorf("%s the model received %.300q", when, said)
		}
	}
	check("at first", "assistant: fourth", "user: go on")
	for _, e := range call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: "chat", TurnId: turn.GetId()}).GetEvents() {
		if m := e.GetHistoryCompacted(); m != nil && m.GetThroughSeq() < 0 {
			t.Errorf("compacted through %d", m.GetThroughSeq())
		}
	}
	stop(t, d)
	d = start(t, cfg)
	c = wires(t, d)["gRPC"]
	next := execute(nil, "more").GetExecute()
	next.SessionId = new("chat")
	until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: next}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	check("after a restart", "assistant: fourth", "user: go on", "assistant: done", "user: more")
}
