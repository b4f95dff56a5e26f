package attacks

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	share   = flag.Float64("attacks.share", 0, "how much of the attacks to run: 1 is all, 0 none")
	limitMB = flag.Int("attacks.limit", 4096, "address space of the daemon, in MiB, at least 1024")
)

// hang is after which what should end at once counts as hanging.
const hang = 2 * time.Minute

// attack is one of them.
type attack struct {
	name string
	args []string // of the daemon
	most int      // MiB that the process may have at most
	// first is done before run, without measuring the stranger.
	first func(b *bed)
	run   func(b *bed) // says its outcome by b.sayf
	bare  bool         // no stranger: the daemon is not always there
	gone  string       // what no file may hold once the daemon has stopped
}

// TestAttacks runs each attack on a daemon of its own.
func TestAttacks(t *testing.T) {
	if *share <= 0 {
		t.Skip("make attacks runs them")
	}
	bin := build(t)
	var table strings.Builder
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			b := newBed(t, bin, a.args...)
			b.start()
			if !a.bare {
				b.before = b.measure(func() { time.Sleep(quiet()) })
			}
			from := b.memory()
			if a.first != nil {
				a.first(b)
			}
			if a.bare {
				a.run(b)
			} else {
				b.during = b.measure(func() { a.run(b) })
			}
			to := b.memory()
			if to > a.most {
				t.Errorf("the process had %d MiB, at most %d are allowed", to, a.most)
			}
			b.stop()
			if a.gone != "" {
				n := b.found(a.gone)
				if b.sayf("%d times after, and a clean stop", n); n > 0 {
					t.Errorf("%q is in the files %d times", a.gone, n)
				}
			}
			b.start() // nothing that an attack has left kills the next one
			b.ping()
			b.stop()
			fmt.Fprintf(&table, "| %s | %s | %d, %d MiB | %v | %v |\n", a.name, strings.Join(b.said, "; "), from, to, b.before, b.during)
		})
	}
	t.Logf("a limit of %d MiB:\n| Attack | Outcome | Memory before, after | Stranger before: median / longest | during |\n|---|---|---|---|---|\n%s", *limitMB, table.String())
}

// quiet is how long the stranger is measured while nothing else happens.
func quiet() time.Duration { return time.Duration(*share * float64(5*time.Second)) }

// times is n, or less where the attacks do not run whole.
func times(n int) int { return max(int(float64(n)**share), 1) }

// build builds the real daemon without the race detector.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "agentd")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, "github.com/apzuk3/agentd/cmd/agentd")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}
