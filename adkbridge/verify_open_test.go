package adkbridge

import (
	"testing"
)

// TestVerifyOpenTurn cuts the log of a turn of parallel agents behind each record:
// an agent that has come to the end of the log keeps none of the others from what
// the log still has of them.
func TestVerifyOpenTurn(t *testing.T) {
	for _, tc := range replayTrees() {
		if tc.name != "parallel" && tc.name != "nested" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.steps)
			if tc.ask {
				w.tools = append(w.tools, offer("loop_continue"))
			}
			turn := w.start(tc.tree, "go")
			w.follow(turn).ok(t)
			recs, err := w.store.Read(t.Context(), w.session, 0, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= len(recs); n++ {
				log := logOfTurn(w.session, turn.ID(), recs[:n])
				rep, err := Verify(t.Context(), w.session, log.Records, nil)
				if err != nil || rep.Divergence != nil || rep.Records != n {
					t.Errorf("%d of %d records: %+v, %v: %v", n, len(recs), rep, err, rep.Divergence)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}
