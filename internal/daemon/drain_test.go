package daemon_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// kept is a store that outlives its daemon.
type kept struct{ store.Store }

func (kept) Close() error { return nil }

// renamed are scripts of a provider whose calls a breaker may suspend.
type renamed struct{ counted }

func (*renamed) Describe() model.Description { return model.Description{Name: "fake", Keyless: true} }

// drained is a daemon on a store that outlives it, and a client with the tool work.
type drained struct {
	*agentdtest.Daemon
	client *client.Client
	asked  atomic.Int64 // how often the tool was asked for
}

// serve starts the daemon and its client. The tool works until its context ends, but at once on the last one.
func (d *drained) serve(t *testing.T, db store.Store, models model.Provider, logger *buffer, last bool) {
	t.Helper()
	d.Daemon = agentdtest.Start(t, agentdtest.Config{
		Providers: []model.Provider{models}, Logger: daemon.NewLogger(logger, daemon.LogConfig{JSON: true}),
	}, testdaemon.WithStore(kept{db}),
		testdaemon.WithRetry(modelcall.Retry{Base: time.Minute, MaxWait: time.Minute, MaxRetryAfter: time.Hour}),
		testdaemon.WithBreaker(modelcall.BreakerConfig{Failures: 3, CoolDown: 10 * time.Minute}))
	d.client = d.Client(client.WithReconnect(client.ReconnectPolicy{Off: true}))
	err := client.AddTool(d.client, "work", "Works", func(ctx context.Context, _ struct{}) (any, error) {
		d.asked.Add(1)
		if !last {
			<-ctx.Done()
		}
		return "worked", nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrain stops a daemon at what a turn does, and has the next one finish the turn.
func TestDrain(t *testing.T) {
	const (
		second  = time.Second
		between = `"finished":0,"suspended_between_steps":1,"model_calls_cut_off":0}`
	)
	both := &agentdv1.Agent{Name: "both", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{
		Agents: []*agentdv1.Agent{llm("a", "fake/works", "work"), llm("b", "fake/talks")},
	}}}
	for name, tc := range map[string]struct {
		agent  *agentdv1.Agent
		after  time.Duration // from the start of the turn to that of the stop
		took   time.Duration // until the client is told, within a second
		asked  int64         // how often the first daemon asked for the tool
		calls  int64         // made by the first daemon
		total  int64         // with those of the next one
		logged string
	}{
		"a tool call":           {llm("a", "fake/works", "work"), second, 0, 1, 1, 2, between},
		"a model call":          {llm("a", "fake/thinks", "work"), second, 4 * second, 0, 1, 2, between},
		"the last model call":   {llm("a", "fake/talks"), second, 4 * second, 0, 1, 1, `"finished":1,"suspended_between_steps":0,"model_calls_cut_off":0}`},
		"a long model call":     {llm("a", "fake/broods"), second, 8 * second, 0, 1, 2, `"finished":0,"suspended_between_steps":0,"model_calls_cut_off":1,"turns_cut_off":1,"turns":"`},
		"a wait before a retry": {llm("a", "fake/fails"), second, 0, 0, 1, 3, between},
		"a cool-down":           {llm("a", "fake/down"), 5 * time.Minute, 0, 0, 3, 7, between},
		// The response of b is recorded; its agent ends, and a waits for its tool.
		"a tool call and a model call": {both, second, 4 * second, 1, 2, 3, between},
		// The first agent ends, and the model of the second one is not called.
		"the next model call": {sequence("s", llm("a", "fake/talks"), llm("b", "fake/talks")), second, 4 * second, 0, 1, 2, between},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := db.Close(); err != nil {
						t.Error(err)
					}
				}()
				models := &renamed{counted{Provider: drainScripts(t)}}
				var log buffer
				var first, next drained
				first.serve(t, db, models, &log, false)
				session, over := make(chan string, 1), make(chan struct{})
				var told time.Time // when the turn had ended, or was suspended
				var lost error
				go func() {
					defer close(over)
					for event, err := range first.client.Run(t.Context(), tc.agent, "go") {
						lost = err
						if err == nil && as[*client.TurnStarted](event) != nil {
							session <- event.SessionID
						}
					}
					told = time.Now()
				}()
				id := <-session
				time.Sleep(tc.after)
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 8*second)
				defer cancel()
				if err := first.Shutdown(ctx); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took >= tc.took+2*second { // streams end after their turns
					t.Errorf("the stop took %v, want %v", took, tc.took)
				}
				<-over
				if took := told.Sub(begun); took < tc.took || took >= tc.took+second {
					t.Errorf("the client was told after %v, want %v", took, tc.took)
				}
				if finished := strings.HasPrefix(tc.logged, `"finished":1`); finished && lost != nil ||
					!finished && (lost == nil || !strings.Contains(lost.Error(), "attach again")) {
					t.Errorf("the client was told %v; the turn has finished: %v", lost, finished)
				}
				if asked, calls := first.asked.Load(), models.calls.Load(); asked != tc.asked || calls != tc.calls {
					t.Errorf("the tool was asked for %d times, %d model calls were made; want %d and %d", asked, calls, tc.asked, tc.calls)
				}
				if !strings.Contains(log.String(), tc.logged) {
					t.Errorf("want %s in the log:\n%s", tc.logged, log.String())
				}
				if strings.Contains(tc.logged, "turns_cut_off") && !strings.Contains(log.String(), `"turns":"`+id+"/") {
					t.Errorf("the log does not name the turn:\n%s", log.String())
				}
				next.serve(t, db, models, &log, true)
				completed := false
				for event, err := range next.client.Attach(t.Context(), id) {
					if err != nil {
						t.Fatal(err)
					}
					completed = completed || event.End != nil && event.End.Completed
				}
				if calls := models.calls.Load(); !completed || calls != tc.total {
					t.Errorf("completed: %v, with %d model calls, want %d", completed, calls, tc.total)
				}
			})
		})
	}
}

// drainScripts are what the models of TestDrain say.
func drainScripts(t *testing.T) *scripted.Provider {
	t.Helper()
	scripts := map[string]*scripted.Script{}
	for name, text := range map[string]string{
		"works":  `answers: [{calls: [{name: work}]}, {text: done}]`,
		"thinks": `answers: [{delay: 5s, calls: [{name: work}]}, {text: done}]`,
		"talks":  `answers: [{when: {}, delay: 5s, text: done}]`,
		"broods": `answers: [{delay: 1m, text: done}]`,
		"fails":  `answers: [{when: {try: 1}, error: {kind: unavailable, retry_after: 30s}}, {when: {}, text: done}]`,
		"down":   `answers: [{when: {try: 5}, text: done}, {when: {}, error: {kind: unavailable, retry_after: 1m}}]`,
	} {
		var err error
		if scripts[name], err = scripted.Parse([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := scripted.New(scripted.Config{Scripts: scripts})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
