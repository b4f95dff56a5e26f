package adkbridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/toolutils"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// Agents of a turn of a goal have tools that the bridge runs. What is said with them is in the event of the results,
// where the session finds it; a run that begins again finds it there too.

// scheduleTurnTool is the tool that says when the next turn of a goal begins.
const scheduleTurnTool = "schedule_next_turn"

const (
	// doneGoalText describes the tool that ends a goal, unless the goal says something else.
	doneGoalText = "Ends the work on the goal. Call it with state \"done\" when the goal is reached, " +
		"or when you are sure that it cannot be; say in detail what has come of it. " +
		"Nothing else ends the work: after each of your turns the next one begins."
	maxSaidOfGoal = 16 << 10 // bytes of a detail or a prompt
)

// checkGoal refuses tools of the goal that the tree or the client has, too.
func (p *planner) checkGoal(g *record.GoalTools) error {
	names := []string{g.Done}
	if g.Schedules {
		names = append(names, scheduleTurnTool)
	}
	if g.Reports {
		names = append(names, alertTool, completedTool)
	}
	for _, name := range names {
		switch {
		case !toolNameOK(name):
			return fault.Errorf(codeInvalid,
				"done_tool.name %q: must be a letter or _, then letters, digits and _.:-, at most %d in all",
				cut(name, maxName), maxName).Breaking("done_tool.name", fault.RuleFormat)
		case slices.Contains(reservedTools, name), name == askLoopTool, name == taskDoneTool,
			g.Done == scheduleTurnTool:
			return fault.Errorf(codeInvalid, "done_tool.name %q is reserved", name).
				Breaking("done_tool.name", fault.RuleRange)
		case p.tools[name] != nil:
			return fault.Errorf(codeInvalid, "tool %q is one of the goal's own: offer yours under another name", name).
				Breaking("execute.tools", fault.RuleConflict)
		}
	}
	return nil
}

// isGoalTool reports whether a tool is one of the turn's goal.
func (t *turn) isGoalTool(name string) bool {
	g := t.run.Spec().Goal
	return g != nil && (name == g.Done || g.Schedules && name == scheduleTurnTool ||
		g.Reports && (name == alertTool || name == completedTool))
}

// goalTools returns the tools of the goal, for an agent.
func (t *turn) goalTools() (tools toolbox) {
	g := t.run.Spec().Goal
	if g == nil {
		return nil
	}
	text := g.DoneText
	if text == "" {
		text = doneGoalText
	}
	tools = append(tools, &goalTool{baseTool: baseTool{t: t, name: g.Done, decl: &genai.FunctionDeclaration{
		Name: g.Done, Description: text,
		ParametersJsonSchema: map[string]any{
			"type": "object",
			"properties": map[string]any{
				"state":  map[string]any{"type": "string", "enum": []any{"done"}, "description": `Always "done".`},
				"detail": map[string]any{"type": "string", "description": "What has come of the work."},
			},
			"required": []any{"state"},
		},
	}}, read: readDone})
	if g.Reports {
		tools = append(tools, t.alertTools()...)
	}
	if g.Schedules {
		tools = append(tools, &goalTool{baseTool: baseTool{t: t, name: scheduleTurnTool, decl: scheduleDecl},
			read: t.readSchedule})
	}
	return tools
}

// scheduleDecl declares schedule_next_turn.
var scheduleDecl = &genai.FunctionDeclaration{
	Name: scheduleTurnTool,
	Description: "Says when your next turn begins, in place of at once: to wait for something that takes its time. " +
		"Give wake_at or wake_in_sec, and end your turn.",
	ParametersJsonSchema: map[string]any{
		"type": "object",
		"properties": map[string]any{
			"wake_at": map[string]any{"type": "string",
				"description": "When, in RFC 3339, such as 2026-01-05T09:30:00Z."},
			"wake_in_sec": map[string]any{"type": "integer", "description": "In how many seconds."},
			"next_prompt": map[string]any{"type": "string", "description": "What the next turn is to be told."},
			"detail":      map[string]any{"type": "string", "description": "What you wait for."},
		},
	},
}

// goalTool says something of the goal.
type goalTool struct {
	baseTool
	// read returns what is said and the result for the model, of a call that was made at a time. Its errors are for
	// the model.
	read func(args map[string]any, at time.Time) (*record.GoalSaid, map[string]any, error)
}

var _ tool.Tool = (*goalTool)(nil)

func (g *goalTool) ProcessRequest(_ agent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, g)
}

// Run notes what is said for the event of the results.
func (g *goalTool) Run(ctx agent.Context, args any) (map[string]any, error) {
	return g.runGuarded(ctx, func() (map[string]any, error) {
		m, _ := args.(map[string]any)
		said, out, err := g.read(m, g.t.calledAt(ctx.FunctionCallID()))
		if err != nil {
			return errorResult(err.Error()), nil
		}
		g.t.mu.Lock()
		defer g.t.mu.Unlock()
		if g.t.goalSaid == nil {
			g.t.goalSaid = map[string]*record.GoalSaid{}
		}
		g.t.goalSaid[ctx.FunctionCallID()] = said
		return out, nil
	})
}

// calledAt returns when a call was made: the log has that, so that a run of it comes to the same.
func (t *turn) calledAt(id string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.open {
		if slices.ContainsFunc(o.calls, func(c *genai.FunctionCall) bool { return c.ID == id }) {
			return o.at
		}
	}
	return time.Now() // not reached: a call is appended before it runs
}

// readDone reads the arguments of the tool that ends a goal.
func readDone(args map[string]any, _ time.Time) (*record.GoalSaid, map[string]any, error) {
	if state, _ := args["state"].(string); state != "done" {
		return nil, nil, errors.New(`not taken: "state" must be "done"`)
	}
	detail, err := textArg(args, "detail")
	if err != nil {
		return nil, nil, err
	}
	return &record.GoalSaid{Done: true, Detail: detail}, map[string]any{"ack": true}, nil
}

// readSchedule reads the arguments of schedule_next_turn.
func (t *turn) readSchedule(args map[string]any, now time.Time) (*record.GoalSaid, map[string]any, error) {
	at, hasAt := args["wake_at"]
	in, hasIn := args["wake_in_sec"]
	if hasAt == hasIn {
		return nil, nil, errors.New("not scheduled: give exactly one of wake_at and wake_in_sec")
	}
	var wake time.Time
	if hasAt {
		text, _ := at.(string)
		var err error
		if wake, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, nil, fmt.Errorf(`not scheduled: wake_at %q is no time such as "2026-01-05T09:30:00Z"`,
				cut(text, maxName))
		}
	} else {
		seconds, ok := numberArg(in)
		if !ok || seconds < 0 || seconds != math.Trunc(seconds) || seconds > math.MaxInt32 {
			return nil, nil, fmt.Errorf("not scheduled: wake_in_sec must be a whole number from 0 to %d", math.MaxInt32)
		}
		wake = now.Add(time.Duration(seconds) * time.Second)
	}
	wake = wake.UTC().Truncate(time.Millisecond)
	if most := t.run.Spec().Goal.MaxDefer; most > 0 && wake.Sub(now) > most {
		return nil, nil, fmt.Errorf("not scheduled: %s is %v ahead, at most %v is allowed", wake.Format(time.RFC3339),
			wake.Sub(now).Round(time.Second), most)
	}
	prompt, err := textArg(args, "next_prompt")
	if err != nil {
		return nil, nil, err
	}
	if _, err := textArg(args, "detail"); err != nil {
		return nil, nil, err
	}
	out := map[string]any{"ack": true, "wake_at": wake.Format(time.RFC3339)}
	return &record.GoalSaid{Wake: wake, Prompt: prompt}, out, nil
}

// textArg returns an optional text of the arguments.
func textArg(args map[string]any, name string) (string, error) {
	v, there := args[name]
	if !there || v == nil {
		return "", nil
	}
	text, ok := v.(string)
	switch {
	case !ok:
		return "", fmt.Errorf("not taken: %q must be a text", name)
	case len(text) > maxSaidOfGoal:
		return "", fmt.Errorf("not taken: %q has %d bytes, at most %d are allowed", name, len(text), maxSaidOfGoal)
	}
	return strings.TrimSpace(text), nil
}

// numberArg returns a number of the arguments.
func numberArg(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	}
	return 0, false
}

// setGoal writes what was said of the goal into the event that holds the results of its calls.
func (t *turn) setGoal(ev *adksession.Event, m *meta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.goalSaid) == 0 {
		return
	}
	for _, id := range responses(ev.Content) {
		m.Goal = m.Goal.Add(t.goalSaid[id])
	}
}
