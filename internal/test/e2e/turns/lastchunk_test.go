package turns

import (
	"context"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/model"
)

// Who comes later is told the same end of a failed turn, at the same places, as
// who saw the beginning of the answer that failed.
func TestLastChunksOfAFailedTurn(t *testing.T) {
	d := harness.StartDaemon(t, agentdtest.Config{
		Providers: []model.Provider{harness.Provider{Name: "torn", Model: func(agent string) harness.Generate {
			return func(_ context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
				emit(model.Delta{Text: "half an ans"})
				return nil, &model.Error{Kind: model.KindUnavailable, Provider: "torn", Message: "cut"}
			}
		}}},
	})
	c := d.Client()
	id := ""
	told := func(seq func(func(*client.Event, error) bool)) (at []int64) {
		for e, err := range seq {
			if err != nil {
				return at
			}
			if harness.As[*client.TurnStarted](e) != nil {
				id = e.SessionID
			}
			if e.OutputChunk != nil && e.OutputChunk.Last {
				at = append(at, e.Seq)
			}
		}
		return at
	}
	live := told(c.Run(t.Context(), harness.LLMAgent("root", "torn/x", "hi"), "go"))
	later := told(c.Attach(t.Context(), id))
	if len(live) != 1 || !slices.Equal(live, later) {
		t.Errorf("last chunks at %v for who was there, at %v for who came later", live, later)
	}
}
