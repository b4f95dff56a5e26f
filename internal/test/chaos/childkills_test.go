package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/session/record"
)

// TestKillChildren kills the daemon before and after each record of a goal with three background children, whichever
// session the record is of: each child reports something, one of them spawns another, and the goal waits for all of them
// and reads what they say. Every log says what it says without, nobody is spawned twice, each report is read once, and
// what children may spend adds up to no more than is left. By itself it kills at a few places, others in each run.
func TestKillChildren(t *testing.T) {
	t.Parallel()
	whole := (&familyPoint{}).run(t)
	if whole.calls != 27 || len(whole.stories) != 5 {
		t.Fatalf("undisturbed there are %d model calls and %d sessions", whole.calls, len(whole.stories))
	}
	kills := 0
	for i := range 2 * (whole.records + 1) {
		if (i+int(*seedFlag%uint64(*strideFlag)))%*strideFlag != 0 {
			continue
		}
		at := fmt.Sprintf("%s:%d", []string{"before", "after"}[i%2], i/2)
		got := (&familyPoint{at: at}).run(t)
		if diff := cmp.Diff(whole.stories, got.stories); diff != "" {
			t.Errorf("killed %s, it is not the same (-undisturbed +killed):\n%s", at, diff)
		}
		if got.calls > whole.calls+4 { // those that were under way are made again
			t.Errorf("killed %s: %d model calls, %d without", at, got.calls, whole.calls)
		}
		if kills++; t.Failed() {
			return // what is wrong at one record is so at many
		}
	}
	t.Logf("%d kills at the %d records of a goal and its children", kills, whole.records)
}

// families are the sessions of such a goal, behind its own.
var families = []string{"", ":sub:bg.a", ":sub:bg.b", ":sub:bg.c", ":sub:bg.a:sub:bg.deep"}

// familyPoint is one goal with children whose daemon is killed at a record.
type familyPoint struct {
	at    string // see crashAt; "" is never
	calls atomic.Int64
}

// familyTold is what became of it.
type familyTold struct {
	stories map[string][]string // what the logs say, without what may differ, by session behind the root
	records int
	calls   int64
}

// answer plays the models.
func (p *familyPoint) answer(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
	p.calls.Add(1)
	out := fakeprovider.Reply{Usage: providertest.Usage{Prompt: 10, Completion: 5, Total: 15}}
	req, err := c.Request()
	if err != nil {
		return fakeprovider.Reply{Status: 400, Message: err.Error()}
	}
	prompt, results := "", 0
	for _, item := range req.Items {
		if item.Kind == providertest.User {
			prompt, results = item.Text, 0
		}
		if item.Kind == providertest.Result {
			results++
		}
	}
	var script []string // of a turn
	spawn := func(name string) string {
		return fmt.Sprintf(`spawn_agent {"name":%q,"system_prompt":"child %s","goal":"reach it","tools":[],"max_turns":9}`, name, name)
	}
	wait := func(name string) string { return fmt.Sprintf(`wait_agent {"name":%q}`, name) }
	who, _, _ := strings.Cut(strings.TrimPrefix(req.System, "child "), "\n")
	switch last := strings.HasSuffix(prompt, "continue"); {
	case who == "root" && last:
		script = []string{`report_done {"state":"done","detail":"all is there"}`}
	case who == "root":
		script = []string{spawn("a"), spawn("b"), spawn("c"), wait("a"), wait("b"), wait("c")}
	case who == "a" && !last:
		script = []string{`report_alert {"text":"a begins"}`, spawn("deep"), wait("deep")}
	case !last:
		script = []string{fmt.Sprintf(`report_alert {"text":"%s begins"}`, who)}
	default:
		script = []string{fmt.Sprintf(`report_done {"state":"done","detail":"%s is there"}`, who)}
	}
	if results < len(script) {
		name, args, _ := strings.Cut(script[results], " ")
		out.Calls = []providertest.ToolCall{{ID: fmt.Sprint("call_", len(req.Items)), Name: name, Args: args}}
		return out
	}
	out.Text = []string{"so ", "be ", "it"}
	return out
}

func (p *familyPoint) run(t *testing.T) (out familyTold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pointLimit)
	defer cancel()
	_, provider := fakeprovider.Start(t, p.answer)
	d := newDaemon(t, os.Args[0], provider, asDaemon+"=1")
	d.start(crashAt + "=" + p.at)
	clnt := client.New(d.url(), client.WithReconnect(client.ReconnectPolicy{
		Base: time.Millisecond, Cap: 20 * time.Millisecond, Dial: true,
	}))
	defer clnt.CloseIdleConnections()
	type ended struct {
		result *client.GoalResult
		err    error
	}
	driven := make(chan ended, 1)
	go func() {
		g, err := clnt.StartGoal(ctx, client.GoalSpec{
			Agent: client.LLM("root", "gpt-chaos", client.Instruction("child root"), client.BackgroundAgents(client.Background{})),
			Goal:  "find it", MaxInputTokens: 10_000, MaxOutputTokens: 10_000,
		})
		if err != nil {
			driven <- ended{nil, err}
			return
		}
		result, err := g.Wait(ctx)
		driven <- ended{result, err}
	}()
	var end ended
	if p.at != "" {
		abandon := d.abandon()
		over := make(chan ended, 1)
		go func() { // the log may end before the record
			e := <-driven
			over <- e
			abandon()
		}()
		unwatch := context.AfterFunc(ctx, abandon)
		state := d.await()
		unwatch()
		if status, ok := state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || ctx.Err() != nil {
			t.Fatalf("killed %s: the daemon ended with %v: %v", p.at, state, d.complaints())
		}
		d.start()
		end = <-over
	} else {
		end = <-driven
	}
	d.stop()
	if end.err != nil {
		t.Fatalf("killed %s: %v: %v", p.at, end.err, d.complaints())
	}
	for _, text := range d.complaints() {
		t.Errorf("killed %s: %s", p.at, text)
	}
	out.stories, out.calls = map[string][]string{}, p.calls.Load()
	root := end.result.SessionID
	for _, below := range families {
		records := readRecords(t, d.dir, root+below)
		out.records += len(records)
		out.stories[below] = storyOfChildren(t, records)
		p.checkCuts(t, records)
	}
	return out
}

// checkCuts checks that what the children of a session may use, and what has been used before them, is within the budget
// of the turn that has spawned them.
func (p *familyPoint) checkCuts(t *testing.T, records []record.Record) {
	t.Helper()
	var budget, used, held int64
	for _, rec := range records {
		switch rec.Kind {
		case record.KindTurnStarted:
			var f record.TurnStarted
			if err := json.Unmarshal(rec.Data, &f); err != nil {
				t.Fatal(err)
			}
			budget, used = f.Budget.Tokens, 0
		case record.KindChildSpawned:
			var f record.ChildSpawned
			if err := json.Unmarshal(rec.Data, &f); err != nil {
				t.Fatal(err)
			}
			if held += f.Limits.Tokens; f.Limits.Tokens <= 0 || used+held > budget {
				t.Errorf("killed %s: %d tokens are cut out of %d", p.at, held, budget)
			}
		default:
		}
	}
}

// storyOfChildren is what a log says of a goal and of children. What several children do beside each other may be in any
// order, so the lines are sorted, and so are those of prompts.
func storyOfChildren(t *testing.T, records []record.Record) (out []string) {
	t.Helper()
	for _, line := range storyOfGoal(t, records) {
		lines := strings.Split(line, "\n")
		slices.Sort(lines)
		out = append(out, strings.Join(lines, "\n"))
	}
	for _, rec := range records {
		switch rec.Kind {
		case record.KindChildSpawned:
			var f record.ChildSpawned
			if err := json.Unmarshal(rec.Data, &f); err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(rec.Kind, ": ", f.Name, f.Branch, f.Depth, f.Goal, f.Limits.Turns))
		case record.KindChildReported:
			var f record.ChildReported
			if err := json.Unmarshal(rec.Data, &f); err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprint(rec.Kind, ": ", f.Name, f.Kind, f.Text, f.End != nil))
			if f.End != nil {
				out = append(out, fmt.Sprint(f.Name, f.End.Reason, f.End.Totals.Turns))
			}
		default:
		}
	}
	slices.Sort(out)
	return out
}
