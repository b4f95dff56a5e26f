package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

// TestKillGoal kills the daemon before and after each record of a goal: one that calls a tool of its client, is paused
// and told something meanwhile, goes on, waits for a time and ends. What the log says is what it says without, and the
// totals are; no model call that was recorded is made again, the tool runs once, and the client sees each turn once. By
// itself it kills at a few places, others in each run.
func TestKillGoal(t *testing.T) {
	t.Parallel()
	whole := (&goalPoint{}).run(t)
	if n := whole.result.Turns; n != 3 || whole.calls != 6 || whole.result.InputTokens != 60 {
		t.Fatalf("undisturbed it has %d turns in %d model calls: %+v", n, whole.calls, whole.result)
	}
	kills, missed := 0, 0
	for i := range 2 * (whole.records + 1) {
		if (i+int(*seedFlag%uint64(*strideFlag)))%*strideFlag != 0 {
			continue
		}
		at := fmt.Sprintf("%s:%d", []string{"before", "after"}[i%2], i/2)
		got := (&goalPoint{at: at}).run(t)
		if diff := cmp.Diff(whole.story, got.story); diff != "" {
			t.Errorf("killed %s, it is not the same (-undisturbed +killed):\n%s", at, diff)
		}
		if got.calls > whole.calls+1 { // the one that was under way is made again
			t.Errorf("killed %s: %d model calls, %d without", at, got.calls, whole.calls)
		}
		if kills++; got.unreached {
			missed++
		}
		if t.Failed() {
			return // what is wrong at one record is so at many
		}
	}
	t.Logf("%d kills at the %d records of a goal, %d of them past its end", kills, whole.records, missed)
}

// goalPoint is one goal whose daemon is killed at a record.
type goalPoint struct {
	at string // see crashAt; "" is never

	calls atomic.Int64 // of the model
}

// goalTold is what became of it.
type goalTold struct {
	result  *client.GoalResult
	story   []string // what the log says, without what may differ
	records int
	calls   int64
	// unreached is that of told.
	unreached bool
}

// answer plays the model.
func (p *goalPoint) answer(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
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
	call := func(name, args string) {
		out.Calls = []providertest.ToolCall{{ID: fmt.Sprint("call_", len(req.Items)), Name: name, Args: args}}
	}
	switch {
	case results > 0:
		out.Text = []string{"so ", "be ", "it"}
	case strings.HasSuffix(prompt, "sort it"):
		call("look", "{}")
	case strings.HasSuffix(prompt, "continue"):
		call("schedule_next_turn", `{"wake_in_sec":1,"next_prompt":"look again"}`)
	default:
		call("report_done", `{"state":"done","detail":"all sorted"}`)
	}
	return out
}

func (p *goalPoint) run(t *testing.T) (out goalTold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pointLimit)
	defer cancel()
	_, provider := fakeprovider.Start(t, p.answer)
	d := newDaemon(t, os.Args[0], provider, asDaemon+"=1")
	d.start(crashAt + "=" + p.at)
	clnt := client.New(d.url(), client.WithReconnect(client.ReconnectPolicy{
		Base: time.Millisecond, Cap: 20 * time.Millisecond, Dial: true,
	}), client.WithToolJournal(filepath.Join(t.TempDir(), "journal")))
	defer clnt.CloseIdleConnections()
	handle := make(chan *client.Goal, 1)
	looked := 0
	err := client.AddTool(clnt, "look", "Looks.", func(ctx context.Context, _ struct{}) (string, error) {
		looked++
		g := <-handle
		return "a mess", errors.Join(g.Pause(ctx), g.Inject(ctx, "by the way"))
	})
	if err != nil {
		t.Fatal(err)
	}
	var turns []int
	texts := map[int]string{}
	var failed error
	var driver sync.WaitGroup
	driver.Go(func() {
		var g *client.Goal
		g, failed = clnt.StartGoal(ctx, client.GoalSpec{
			Agent: client.LLM("root", "gpt-chaos", client.Tools("look")), Goal: "sort it", Schedule: true,
		}, client.WithProgress(func(n int, e *client.Event) {
			if !slices.Contains(turns, n) {
				turns = append(turns, n)
			}
			switch e.Data.(type) {
			case *client.OutputChunk:
				texts[n] += e.OutputChunk.Content
			case *client.MessageRetracted: // an answer that was not recorded is said again
				texts[n] = ""
			}
		}))
		if failed != nil {
			return
		}
		handle <- g
		for rest(ctx, 2*time.Millisecond) { // until it waits behind its first turn
			if now, err := clnt.GetGoal(ctx, g.SessionID()); err == nil && now.Turns > 0 && now.TurnID == "" {
				break
			}
		}
		if failed = g.Resume(ctx); failed == nil {
			out.result, failed = g.Wait(ctx)
		}
	})
	if p.at != "" {
		abandon := d.abandon()
		unwatch := context.AfterFunc(ctx, abandon)
		var unreached atomic.Bool
		go func() { // until the driver ends, at pointLimit at the latest: the log may end before the record
			driver.Wait()
			unreached.Store(ctx.Err() == nil)
			abandon()
		}()
		state := d.await()
		unwatch()
		out.unreached = unreached.Load()
		if status, ok := state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || ctx.Err() != nil {
			t.Fatalf("killed %s: the daemon ended with %v: %v", p.at, state, d.complaints())
		}
		d.start()
	}
	driver.Wait()
	d.stop()
	if failed != nil {
		t.Fatalf("killed %s: %v: %v", p.at, failed, d.complaints())
	}
	records := readRecords(t, d.dir, out.result.SessionID)
	if n := number(t, p.at); out.unreached && n <= len(records) {
		t.Errorf("killed %s: %d records were written, and the daemon lived", p.at, len(records))
	}
	want := map[int]string{1: "so be it", 2: "so be it", 3: "so be it"}
	if diff := cmp.Diff(want, texts); diff != "" || !slices.Equal(turns, []int{1, 2, 3}) || looked != 1 {
		t.Errorf("killed %s: the client has seen the turns %v, run the tool %d times, and read:\n%s", p.at, turns, looked, diff)
	}
	for _, text := range d.complaints() {
		t.Errorf("killed %s: %s", p.at, text)
	}
	out.story, out.records, out.calls = storyOfGoal(t, records), len(records), p.calls.Load()
	return out
}

// storyOfGoal is what a log says of a goal, in order: its own facts, the prompts and ends of its turns, and their tools.
func storyOfGoal(t *testing.T, records []record.Record) (out []string) {
	t.Helper()
	read := func(rec record.Record, f any) {
		if err := json.Unmarshal(rec.Data, f); err != nil {
			t.Fatalf("record %d (%s): %v", rec.Seq, rec.Kind, err)
		}
	}
	for _, rec := range records {
		said := ""
		switch rec.Kind {
		case record.KindGoalStarted:
			var f record.GoalStarted
			read(rec, &f)
			said = f.Goal
		case record.KindGoalCheckpointed:
			var f record.GoalCheckpointed
			read(rec, &f)
			said = fmt.Sprint(f.Turn != "", f.Totals, f.Final, f.Detail, f.Stop, f.Failure, f.Prompt, f.Wait)
		case record.KindGoalResumed:
			var f record.GoalResumed
			read(rec, &f)
			said = f.Action.String()
		case record.KindGoalEnded:
			var f record.GoalEnded
			read(rec, &f)
			said = fmt.Sprint(f.Reason, f.Totals, f.Final, f.Detail, f.Message)
		case record.KindMessageInjected:
			var f record.MessageInjected
			read(rec, &f)
			said = f.Text
		case record.KindTurnStarted:
			var f record.TurnStarted
			read(rec, &f)
			said = f.Prompt
		case record.KindTurnEnded:
			var f record.TurnEnded
			read(rec, &f)
			said = fmt.Sprint(f.Completed, f.Message)
		case record.KindToolCall:
			var f record.ToolCall
			read(rec, &f)
			said = f.Name
		case record.KindToolResult:
			var f record.ToolResult
			read(rec, &f)
			said = fmt.Sprint(f.Error)
			if f.Output != nil {
				said += *f.Output
			}
		case record.KindGoalPaused:
		default:
			continue
		}
		out = append(out, string(rec.Kind)+": "+said)
	}
	return out
}
