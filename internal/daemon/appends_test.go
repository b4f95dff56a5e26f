package daemon_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

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
func TestAppendsOfATurn(t *testing.T) {
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
}
