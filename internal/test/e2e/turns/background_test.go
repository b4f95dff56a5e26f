package turns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// team are models of a parent and of its children: what each has read, by its agent, and what it does at each call.
type team struct {
	mu     sync.Mutex // protects the fields below
	read   map[string][]string
	calls  map[string]int
	script map[string][]func(ctx context.Context) []*genai.Part
}

func (tm *team) model(string) harness.Generate {
	return func(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
		agent := "boss"
		if in := req.Config.SystemInstruction; in != nil && len(in.Parts) > 0 {
			agent, _, _ = strings.Cut(in.Parts[0].Text, ":")
		}
		tm.mu.Lock()
		var last []string
		for _, p := range req.Contents[len(req.Contents)-1].Parts {
			if r := p.FunctionResponse; r != nil {
				last = append(last, fmt.Sprint(r.Name, " ", r.Response))
			} else {
				last = append(last, p.Text)
			}
		}
		tm.read[agent] = append(tm.read[agent], strings.Join(last, "; "))
		n := tm.calls[agent]
		tm.calls[agent]++
		out := &genai.Content{Role: genai.RoleModel}
		script := tm.script[agent]
		tm.mu.Unlock()
		if n < len(script) {
			out.Parts = script[n](ctx)
		}
		if len(out.Parts) == 0 {
			emit(model.Delta{Text: "so be it"})
			out.Parts = []*genai.Part{genai.NewPartFromText("so be it")}
		}
		return &model.Response{
			Content: out, FinishReason: genai.FinishReasonStop, Model: "m", Usage: model.Usage{Prompt: 5, Completion: 5, Total: 10},
		}, nil
	}
}

func (tm *team) reads(agent string) []string {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	return slices.Clone(tm.read[agent])
}

func asks(calls ...string) func(context.Context) []*genai.Part {
	return func(context.Context) (parts []*genai.Part) {
		for _, c := range calls {
			name, args, _ := strings.Cut(c, " ")
			parts = append(parts, adapter.NewCall("", name, args))
		}
		return parts
	}
}

func speaks(context.Context) []*genai.Part { return nil }

// An agent spawns children, which work in sessions of their own beside it and after it. It looks at them, tells them
// something, waits for one and stops another; what they report is in front of its next turn, once.
func TestBackgroundAgents(t *testing.T) {
	told, never := make(chan struct{}), make(chan struct{})
	tm := &team{read: map[string][]string{}, calls: map[string]int{}}
	blocks := func(on chan struct{}) func(context.Context) []*genai.Part {
		return func(ctx context.Context) []*genai.Part {
			select {
			case <-on:
			case <-ctx.Done():
			}
			return nil
		}
	}
	tm.script = map[string][]func(context.Context) []*genai.Part{
		"boss": {
			asks(`spawn_agent {"name":"finder","system_prompt":"finder: look for {key}","goal":"find it","tools":[]}`),
			asks(`spawn_agent {"name":"sleeper","system_prompt":"sleeper: sleep","goal":"sleep","extras":"well"}`,
				`spawn_agent {"name":"no one","system_prompt":"x","goal":"y"}`,
				`spawn_agent {"name":"smith","system_prompt":"x","goal":"y","tools":["hammer"]}`),
			asks(`list_agents {}`, `check_agent {"name":"nobody"}`, `message_agent {"name":"finder","text":"look below"}`),
			func(context.Context) []*genai.Part {
				close(told)
				return asks(`wait_agent {"name":"finder"}`)(t.Context())
			},
			asks(`stop_agent {"name":"sleeper"}`, `check_agent {"name":"finder"}`),
		},
		"finder":  {asks(`report_alert {"text":"a trace"}`), blocks(told), asks(`report_done {"state":"done","detail":"it was below"}`), speaks},
		"sleeper": {blocks(never)},
	}
	d := harness.StartDaemon(t, agentdtest.Config{Providers: []model.Provider{harness.Provider{Name: "team", Model: tm.model}}})
	c := d.Client()
	boss := client.LLM("boss", "team/m", client.Instruction("boss: lead"), client.BackgroundAgents(client.Background{}))
	id := ""
	var seen []string
	for e, err := range c.Run(t.Context(), boss, "go") {
		if err != nil {
			t.Fatal(err)
		}
		if e.SessionID != "" {
			id = e.SessionID
		}
		if g, is := e.Data.(*client.GoalEvent); is {
			seen = append(seen, strings.TrimSpace(fmt.Sprint(g.Kind, " ", g.Child.Name, " ", g.Child.Report, " ", g.Child.Text)))
		}
	}
	slices.Sort(seen)
	want := []string{
		"child_reported finder  a trace", "child_reported finder completed it was below", "child_reported finder started",
		"child_reported sleeper started", "child_reported sleeper stopped context_cancelled", "child_spawned finder", "child_spawned sleeper",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("events:\n%s", strings.Join(seen, "\n"))
	}
	want = []string{
		"go",
		"spawn_agent map[branch:bg.finder name:finder status:running]",
		"spawn_agent map[branch:bg.sleeper name:sleeper status:running]; " +
			`spawn_agent map[error:subagent "no one" refused: its name must be of letters, digits, _ and - alone, at most 64]; ` +
			`spawn_agent map[error:subagent "smith" refused: you have no tool "hammer" to give; you have: none]`,
		"list_agents map[agents:[map[branch:bg.finder name:finder status:running] map[branch:bg.sleeper name:sleeper status:running]]]; " +
			`check_agent map[error:there is no agent "nobody"; you have spawned: "finder", "sleeper"]; message_agent map[branch:bg.finder name:finder status:running]`,
		"wait_agent map[branch:bg.finder name:finder result:it was below status:completed]",
		"stop_agent map[branch:bg.sleeper error:context_cancelled name:sleeper status:stopped]; " +
			"check_agent map[branch:bg.finder name:finder result:it was below status:completed]",
	}
	if got := tm.reads("boss"); !slices.Equal(got, want) {
		t.Errorf("the parent reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{"find it", "report_alert map[ack:true]", "[Inbox]\n- look below\n\n---\n\ncontinue", "report_done map[ack:true]"}
	if got := tm.reads("finder"); !slices.Equal(got, want) {
		t.Errorf("the child reads %q", got)
	}
	for _, err := range c.Run(t.Context(), boss, "and?", client.WithSessionID(id)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := tm.reads("boss")
	if last := got[len(got)-1]; last != "[Background reports]\n- [finder] a trace\n- [finder] (completed) it was below\n"+
		"- [sleeper] (stopped) context_cancelled\n\n---\n\nand?" {
		t.Errorf("the next turn reads %q", last)
	}
}

// Tools of children are those of their parent: whoever serves the session runs them, also after the turn that has
// spawned them, at each depth, and knows which child asks.
func TestServeBackgroundAgents(t *testing.T) {
	over := make(chan struct{})
	later := func(calls ...string) func(context.Context) []*genai.Part {
		return func(ctx context.Context) []*genai.Part {
			select {
			case <-over: // the turn of the parent
			case <-ctx.Done():
			}
			return asks(calls...)(ctx)
		}
	}
	tm := &team{read: map[string][]string{}, calls: map[string]int{}, script: map[string][]func(context.Context) []*genai.Part{
		"boss": {asks(`spawn_agent {"name":"scout","system_prompt":"scout: look","goal":"look","tools":["look"]}`), speaks},
		"scout": {
			later(`look {"at":"north"}`, `spawn_agent {"name":"reader","system_prompt":"reader: read","goal":"read"}`),
			asks(`wait_agent {"name":"reader"}`), asks(`report_done {"state":"done","detail":"seen"}`), speaks,
		},
		"reader": {asks(`look {"at":"below"}`), asks(`report_alert {"text":"it is there"}`, `report_done {"state":"done","detail":"read"}`), speaks},
	}}
	d := harness.StartDaemon(t, agentdtest.Config{Providers: []model.Provider{harness.Provider{Name: "team", Model: tm.model}}})
	c := d.Client()
	type where struct {
		At string `json:"at"`
	}
	var mu sync.Mutex // protects the fields below
	var looked, said, seen []string
	if err := client.AddTool(c, "look", "Looks somewhere.", func(ctx context.Context, in where) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		looked = append(looked, client.CallFrom(ctx).Child()+" "+in.At)
		return "seen " + in.At, nil
	}); err != nil {
		t.Fatal(err)
	}
	boss := client.LLM("boss", "team/m", client.Instruction("boss: lead"), client.Tools("look"), client.BackgroundAgents(client.Background{}))
	id := ""
	for e, err := range c.Run(t.Context(), boss, "go") {
		if err != nil {
			t.Fatal(err)
		}
		if e.SessionID != "" {
			id = e.SessionID
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- c.Serve(ctx, id, client.WithProgress(func(turn int, e *client.Event) {
			if _, is := e.Data.(*client.ToolCallAnswered); is {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, fmt.Sprint(turn, " ", strings.TrimPrefix(e.SessionID, id), " ", e.Lineage.Branch, " ", e.Lineage.Depth))
			}
		}), client.WithOnAlert(func(e *client.ChildEvent) {
			mu.Lock()
			said = append(said, e.Name+" "+e.Report+" "+e.Text)
			mu.Unlock()
			if e.Name == "scout" && e.Ended {
				cancel()
			}
		}))
	}()
	close(over)
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	slices.Sort(looked)
	slices.Sort(seen)
	if want := []string{"scout north", "scout.reader below"}; !slices.Equal(looked, want) {
		t.Errorf("looked: %q", looked)
	}
	if want := []string{"reader  it is there", "reader completed read", "scout completed seen"}; !slices.Equal(said, want) {
		t.Errorf("said: %q", said)
	}
	if want := []string{"1 :sub:bg.scout bg.scout 1", "1 :sub:bg.scout:sub:bg.reader bg.scout.bg.reader 2"}; !slices.Equal(seen, want) {
		t.Errorf("seen: %q", seen)
	}
}
