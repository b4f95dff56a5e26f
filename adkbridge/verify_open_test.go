package adkbridge

import (
	"testing"
)

// TestVerifyOpenTurn cuts the log of a turn of parallel agents after each record: an
// agent at the end of the log does not keep the others from their events in it.
func TestVerifyOpenTurn(t *testing.T) {
	for _, tc := range replayTrees() {
		if tc.name != "parallel" && tc.name != "nested" && tc.name != "agents as tools" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.steps)
			w.state = map[string]any{"seen": "s"}
			if tc.ask {
				w.tools = append(w.tools, offer("loop_continue"))
			}
			w.state = map[string]any{"seen": "nothing"}
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
