package treetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/agentfile"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/model"
)

// turnTime bounds a turn: it waits for nobody.
const turnTime = 30 * time.Second

// Outcome is what came of a case.
type Outcome struct {
	// Transcript is what happened.
	Transcript string
	// Wrong is what fails the case, whatever the transcript should be.
	Wrong []string
}

// Run runs a case. Its error is about this program, not about the case.
func (s *Suite) Run(ctx context.Context, c *Case) (*Outcome, error) {
	r := &runner{c: c, script: newTranscript(c.State), played: map[string]map[int]bool{}, calls: map[string]int{}}
	var extra []model.Provider
	if len(c.scripts) > 0 {
		p, err := scripted.New(scripted.Config{Scripts: c.scripts, Played: r.plays})
		if err != nil {
			return nil, err
		}
		extra = append(extra, p)
	}
	d, err := daemon.New(daemon.Config{
		Addr: "127.0.0.1:0", DataDir: daemon.Memory, ExtraProviders: extra,
		Getenv: func(string) string { return "" }, // no keys
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		now, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel()
		_ = d.Shutdown(now) // its data is in memory
	}()
	if err := d.Start(ctx); err != nil {
		return nil, err
	}
	if err := r.talk(ctx, d.URL(), s.Tree); err != nil {
		return nil, err
	}
	r.leftovers()
	return &Outcome{Transcript: r.script.String(), Wrong: r.wrong}, ctx.Err()
}

// runner runs one case.
type runner struct {
	c      *Case
	script *transcript

	mu     sync.Mutex // protects the fields below
	played map[string]map[int]bool
	calls  map[string]int // results given, by tool
	people int            // replies given
	wrong  []string
}

func (r *runner) plays(script string, answer int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.played[script] == nil {
		r.played[script] = map[int]bool{}
	}
	r.played[script][answer] = true
}

func (r *runner) wrongLockedf(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// talk runs a turn for each prompt.
func (r *runner) talk(ctx context.Context, url string, tree *agentfile.File) error {
	set, attached, err := r.tools(tree)
	if err != nil {
		return err
	}
	var opts []client.Option
	for name := range attached {
		opts = append(opts, client.WithAttachment(name, attached[name]))
	}
	conn := client.New(url, opts...)
	defer conn.CloseIdleConnections()
	session := conn.NewSession(r.c.tree)
	for i, prompt := range r.c.Prompts {
		send := []client.SendOption{
			client.WithTools(set), client.WithPrompter(r), client.WithFailureEvents(), client.WithConcurrency(1),
			client.WithTimeout(turnTime),
		}
		if i == 0 && r.c.State != nil {
			send = append(send, client.WithInitialState(r.c.State))
		}
		r.script.prompt(prompt)
		for event, err := range session.Stream(ctx, prompt, send...) {
			if event != nil {
				r.script.event(event)
			}
			if err != nil {
				r.script.fail(err)
			}
		}
		r.script.end()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// tools are those of the tree, which give what the case says; attached are those of MCP servers, by the names of these.
func (r *runner) tools(tree *agentfile.File) (set *client.ToolSet, attached map[string]*client.ToolSet, err error) {
	set, attached = client.NewToolSet(), map[string]*client.ToolSet{}
	names := map[string]bool{}
	for _, t := range tree.Tools {
		names[t.GetName()] = true
		if err := r.tool(set, t.GetName(), t.GetDescription(), cli.ToolOptions(t.Tool)...); err != nil {
			return nil, nil, err
		}
	}
	for _, a := range talkers(r.c.tree) {
		for _, name := range a.GetLlm().GetToolNames() {
			if !names[name] {
				names[name] = true
				err = errors.Join(err, r.tool(set, name, "A tool of agentd run."))
			}
		}
		for _, m := range a.GetLlm().GetMcpAttachments() {
			server := m.GetMcpName()
			if attached[server] != nil {
				continue
			}
			attached[server] = client.NewToolSet()
			for name := range r.c.Tools {
				if strings.HasPrefix(name, server+"_") {
					names[name] = true
					err = errors.Join(err, r.tool(attached[server], name, "A tool of "+server+"."))
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.c.Tools)) {
		if !names[name] {
			r.wrong = append(r.wrong, fmt.Sprintf("tools: no agent of the tree has the tool %q", name))
		}
	}
	return set, attached, err
}

// tool adds a tool.
func (r *runner) tool(to *client.ToolSet, name, description string, opts ...client.ToolOption) error {
	return client.AddRawTool(to, name, description, func(context.Context, json.RawMessage) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		results := r.c.Tools[name]
		i := r.calls[name]
		r.calls[name]++
		switch {
		case i >= len(results):
			r.wrongLockedf("tools: call %d of %s has no result", i+1, name)
			return "", errors.New("the case has no result for this call")
		case results[i].Error != "":
			return "", errors.New(results[i].Error)
		}
		return results[i].Output, nil
	}, opts...)
}

// Prompt is that of client.Prompter.
func (r *runner) Prompt(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if in.Refused != nil {
		r.wrongLockedf("people: reply %d is refused: %s", r.people, in.Refused.Message)
		return client.Deny("the case has no reply that can be taken"), nil
	}
	r.people++
	if r.people > len(r.c.People) {
		r.wrongLockedf("people: question %d has no reply", r.people)
		return client.Deny("the case has no reply to this question"), nil
	}
	return r.c.People[r.people-1].resolution(), nil
}

// leftovers finds what the case says and nobody has asked for.
func (r *runner) leftovers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, agent := range slices.Sorted(maps.Keys(r.c.scripts)) {
		for i := range r.c.scripts[agent].Responses {
			if !r.c.unused[agent] && !r.played[agent][i] {
				r.wrongLockedf("answers: answer %d of %s was not played", i+1, agent)
			}
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(r.c.Tools)) {
		if n, all := r.calls[tool], len(r.c.Tools[tool]); n < all {
			r.wrongLockedf("tools: %d of the %d results of %s were asked for", n, all, tool)
		}
	}
	if r.people < len(r.c.People) {
		r.wrongLockedf("people: %d of the %d replies were asked for", r.people, len(r.c.People))
	}
}
