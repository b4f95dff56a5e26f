package chaos

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutantsFlag = flag.Bool("chaos.mutants", false, "TestMutants breaks copies of the source")

// change is a text of the source, which stands there once, and what takes its place.
type change struct{ file, old, now string }

// mutant breaks a promise of replicas, and names the tests that find it.
type mutant struct {
	changes []change
	pkg     string
	tests   string
}

// mutants are the mistakes that the prototype taught, or that are near.
var mutants = map[string]mutant{
	"an append without its epoch": {
		changes: []change{
			{"session/store/postgres/append.go", " AND epoch <= $9::bigint", ""},
			{"session/store/postgres/append.go", "case b.Epoch < s.epoch:", "case false:"},
		},
		pkg: "./session/store/postgres", tests: "^(TestStore|TestTwo)$",
	},
	"no window of death": {
		changes: []change{
			{
				"internal/cluster/view.go",
				"anew := v.trouble || v.looked.IsZero() || began.Sub(v.looked) > v.ttl/3", "anew := v.looked.IsZero()",
			},
			{"internal/cluster/view.go", "if v.trouble || now.Sub(v.looked) > v.ttl/3 {", "if v.looked.IsZero() {"},
		},
		pkg: "./internal/cluster", tests: "^TestWindowBeginsAnew$",
	},
	"a repeat that is confirmed by a read": {
		changes: []change{
			{"session/store/postgres/append.go", "return t.confirm()\n", "return nil\n"},
			{"session/store/postgres/sessions.go", "WHERE id = $1 FOR UPDATE`", "WHERE id = $1`"}, // a lock is a write too
		},
		pkg: "./session/store/postgres", tests: "^TestRepeatWaitsForTheStandby$",
	},
	"a claim that leaves the epoch as it is": {
		changes: []change{
			{"internal/cluster/owners.go", "SET owner = $2, epoch = epoch + 1,\n\tdue_at", "SET owner = $2,\n\tdue_at"},
		},
		pkg: "./internal/cluster", tests: "^(TestClaim|TestOneOfManyClaims)$",
	},
	"a release of what somebody else owns": {
		changes: []change{{
			"internal/cluster/owners.go",
			"WHERE id = $1 AND owner = $2 AND epoch = $3`", "WHERE id = $1 AND $2::bigint > 0 AND $3::bigint > 0`",
		}},
		pkg: "./internal/cluster", tests: "^(TestClaim|TestDue)$",
	},
	"a checkpoint in an append of its own": {
		changes: []change{{
			"session/internal/live/queue.go",
			"entries = slices.Concat(entries, drops, st.entries)", `if len(st.entries) > 0 {
		if _, err := s.commit(context.Background(), entries...); err != nil {
			return nil, err
		}
		entries = nil
	}
	entries = slices.Concat(entries, drops, st.entries)`,
		}},
		pkg: "./internal/test/chaos", tests: goalPoints,
	},
	"an inbox that is drained twice": {
		changes: []change{{"session/internal/goal/goal.go", "		s.drain(f.Goal.Inbox)\n", ""}},
		pkg:     "./internal/test/chaos", tests: goalPoints,
	},
	"a message that is injected again under its key": {
		changes: []change{{"session/internal/live/goal.go", "case g.HasKey(key):", "case false:"}},
		pkg:     "./internal/test/chaos", tests: goalPoints,
	},
	"a pause that stops nothing": {
		changes: []change{
			{"session/internal/goal/goal.go", `case !s.IsOpen(), s.Turn != "", s.Paused:`, `case !s.IsOpen(), s.Turn != "":`},
		},
		pkg: "./internal/test/chaos", tests: goalPoints,
	},
	"a goal that goes on without what it has used": {
		changes: []change{{"session/goal.go", "Resumed: true, Totals: g.Totals}", "Resumed: true}"}},
		pkg:     "./internal/test/chaos", tests: goalPoints,
	},
	"a limit that is one turn too late": {
		changes: []change{{"session/internal/goal/goal.go", "t.Turns >= l.Turns", "t.Turns > l.Turns"}},
		pkg:     "./internal/test/chaos", tests: goalPoints,
	},
	"a turn that does not wait": {
		changes: []change{{"session/internal/goal/goal.go", "case s.Wait != 0 && !over:", "case false:"}},
		pkg:     "./internal/test/chaos", tests: goalPoints,
	},
	"a done tool that ends the goal for another reason": {
		changes: []change{{
			"session/internal/goal/goal.go", "agentdv1.GoalReason_GOAL_REASON_COMPLETED, e.Said.Detail",
			"agentdv1.GoalReason_GOAL_REASON_WALLCLOCK_EXCEEDED, e.Said.Detail",
		}},
		pkg: "./internal/test/chaos", tests: goalPoints,
	},
	"a use of a session that puts its goal off": {
		changes: []change{{"session/goal.go", "s.GoalDue(); due && wait == 0 {", "s.GoalDue(); due && wait < 0 {"}},
		pkg:     "./session", tests: "^TestGoalGoesOnWhileItsSessionIsUsed$",
	},
	"a done tool that a replay forgets": {
		changes: []change{{"adkbridge/verifier.go", "	t.setGoal(ev, m)\n", ""}},
		pkg:     "./internal/test/chaos", tests: goalPoints,
	},
}

// goalPoints runs goals, and kills their daemons at some records.
const goalPoints = "^TestKillPoints$/^shapes$/^goal"

// TestMutants breaks the source, and has the tests that should find it do so.
func TestMutants(t *testing.T) {
	if !*mutantsFlag {
		t.Skip("make mutants runs it")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range mutants {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) { m.isFound(t, root) })
	}
}

func (m *mutant) isFound(t *testing.T, root string) {
	texts, replaced := map[string][]byte{}, map[string]string{}
	for _, c := range m.changes {
		source := filepath.Join(root, c.file)
		text, err := texts[source], error(nil)
		if text == nil {
			text, err = os.ReadFile(source)
		}
		if n := bytes.Count(text, []byte(c.old)); err != nil || n != 1 {
			t.Fatalf("%s has %q %d times, want once: change the mutant as the source has changed: %v", c.file, c.old, n, err)
		}
		texts[source] = bytes.Replace(text, []byte(c.old), []byte(c.now), 1)
		replaced[source] = filepath.Join(t.TempDir(), "broken.go")
		if err := os.WriteFile(replaced[source], texts[source], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err == nil {
		err = os.WriteFile(list, overlay, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-overlay", list, "-run", m.tests, m.pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s does not find it in %s", m.tests, m.pkg)
	case !bytes.Contains(out, []byte("--- FAIL: ")):
		t.Errorf("the tests do not run: %v\n%s", err, out)
	}
}
