package daemon_test

import (
	"context"
	"log/slog"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// appends notes what each append writes.
type appends struct {
	store.Store

	mu    sync.Mutex
	kinds [][]record.Kind // protected by mu
}

func (s *appends) Append(ctx context.Context, b store.Batch) error {
	var kinds []record.Kind
	for _, rec := range b.Records {
		kinds = append(kinds, rec.Kind)
	}
	s.mu.Lock()
	s.kinds = append(s.kinds, kinds)
	s.mu.Unlock()
	return s.Store.Append(ctx, b)
}

// TestAppendsOfATurn: a turn of one agent costs one append for its start, one for each response that asks for tools
// (with the event that gives it the results before), one for each result, and one for its last response and its end.
// It is the same when its tools take so long that the engine is let go meanwhile.
func TestAppendsOfATurn(t *testing.T) {
	for name, long := range map[string]time.Duration{"at once": 0, "hibernates": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
				if err != nil {
					t.Fatal(err)
				}
				s := &appends{Store: memory}
				d := agentdtest.Start(t, agentdtest.Config{Logger: slog.New(slog.DiscardHandler), Scripts: map[string]string{
					"looks": "answers:\n" +
						"  - {when: {step: 1}, calls: [{name: look, args: {}}]}\n" +
						"  - {when: {step: 2}, text: once more, calls: [{name: look, args: {}}]}\n" +
						"  - {when: {}, text: done}",
				}}, testdaemon.WithStore(s))
				c := connectDialer(d.HTTPClient(), d.URL).open(t, execute(llm("root", "scripted/looks", "look"), "Look twice.", tool("look", "{}")))
				for msg := c.next(); msg.GetEnd() == nil; msg = c.next() {
					if call := msg.GetToolCall(); call != nil {
						engineRuns(t, true)
						time.Sleep(long)
						engineRuns(t, long == 0)
						c.send(resultFor(call))
					}
				}
				want := [][]record.Kind{
					{record.KindTurnStarted},
					{record.KindEvent}, {record.KindToolResult},
					{record.KindEvent, record.KindEvent}, {record.KindToolResult},
					{record.KindEvent, record.KindEvent, record.KindTurnEnded},
				}
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				if !slices.EqualFunc(s.kinds, want, slices.Equal) {
					t.Errorf("the appends are %v, want %v", s.kinds, want)
				}
			})
		})
	}
}

// engineRuns holds whether a goroutine of the caller's bubble runs a turn by the engine.
func engineRuns(t *testing.T, want bool) {
	t.Helper()
	synctest.Wait()
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	bubble := regexp.MustCompile(`synctest bubble \d+`)
	mine := bubble.FindString(string(stacks)) // the caller's is the first
	runs := false
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		runs = runs || bubble.FindString(stack) == mine && strings.Contains(stack, "adkbridge.(*Runner).runTurn(")
	}
	if mine == "" || runs != want {
		t.Errorf("the engine runs in %q: %v, want %v", mine, runs, want)
	}
}
