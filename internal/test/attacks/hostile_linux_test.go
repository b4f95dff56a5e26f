package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// What TestHostile states: memory is asserted, the factor only where -attacks.factor says so.
const (
	hostileMiB = 1024
	injected   = "INJECTED-BY-A-CALLER"
)

var factor = flag.Float64("attacks.factor", 0, "how many times longer the median turn of an honest client may take while all attack at once; 0 is any")

// foe is a hostile client. It attacks until ctx is done, and counts what the server did about it.
type foe struct {
	name string
	run  func(ctx context.Context, a *attacker)
}

var foes = []foe{
	{"rapid resets", rapidResets},
	{"floods of CONTINUATION, SETTINGS and PING", frameFloods},
	{"slow headers, slow bodies and silent connections", slowClients},
	{"giant messages", giants},
	{"deep nesting", deepNesting},
	{"thousands of streams", manyStreams},
	{"compression bombs", zipBombs},
	{"schema bombs", schemaBombs},
	{"a prompt in each string", promptEverywhere},
	{"lines for the log", logLines},
}

// attacker is a foe with a tenant of its own, whose rate is its own, and a connection of its own.
type attacker struct {
	*bed
	name, key       string
	hc              *http.Client
	sessions        agentdv1connect.SessionServiceClient
	session, turnID string // of its tenant: a turn that waits for a client

	mu     sync.Mutex // protects counts
	counts map[string]int
}

// renew starts a turn that waits.
func (a *attacker) renew(ctx context.Context) {
	agent, tools := worker()
	ex := execute(agent, "go", nil)
	ex.Tools = tools
	req := connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex})
	req.Header().Set("Authorization", "Bearer "+a.key)
	if resp, err := a.sessions.CreateTurn(ctx, req); err == nil { // else the last one is good enough
		a.session, a.turnID = resp.Msg.GetTurn().GetSessionId(), resp.Msg.GetTurn().GetId()
	}
}

// count notes what became of something.
func (a *attacker) count(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts[what]++
}

// orders are what the process of the foes gets, in the environment variable foesVariable.
type orders struct {
	Addr  string        // of the daemon
	Keys  []string      // one for each foe
	For   time.Duration // how long they attack
	Tells string        // a file, for a list of what became of it: a map for each foe
}

const foesVariable = "AGENTD_TEST_FOES"

// TestFoes is the process of the foes, which come from elsewhere: what they take of this machine is what nobody else
// wants.
func TestFoes(t *testing.T) {
	text := os.Getenv(foesVariable)
	if text == "" {
		t.Skip("TestHostile runs it, in a process of its own")
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, addr: o.Addr, log: &tail{}}
	ctx, cancel := context.WithTimeout(t.Context(), o.For)
	defer cancel()
	var wg sync.WaitGroup
	told := make([]map[string]int, len(foes))
	for i, f := range foes {
		told[i] = map[string]int{}
		hc := b.newClient()
		a := &attacker{bed: b, name: f.name, key: o.Keys[i], hc: hc, counts: told[i],
			sessions: agentdv1connect.NewSessionServiceClient(hc, b.url())}
		wg.Go(func() { f.run(ctx, a) })
	}
	wg.Wait()
	if err := os.WriteFile(o.Tells, must(json.Marshal(told)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unleash runs the foes to their end, and returns what became of each.
func unleash(b *bed) []map[string]int {
	b.Helper()
	o := orders{Addr: b.addr, For: 4 * quiet(), Tells: filepath.Join(b.TempDir(), "told")}
	for i := range foes {
		o.Keys = append(o.Keys, createKey(b, fmt.Sprint("foe", i)))
	}
	b.honest = []client.Option{client.WithAPIKey(createKey(b, "honest"))}
	b.before = b.measure(func() { time.Sleep(2 * quiet()) })
	cmd := exec.CommandContext(b.Context(), "nice", "-n", "19", os.Args[0], "-test.run=^TestFoes$",
		fmt.Sprint("-attacks.share=", *share))
	cmd.Env = append(os.Environ(), foesVariable+"="+string(must(json.Marshal(o))))
	b.during = b.measure(func() {
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Errorf("the foes: %v: %s", err, out)
		}
	})
	var told []map[string]int
	if err := json.Unmarshal(must(os.ReadFile(o.Tells)), &told); err != nil {
		b.Fatal(err)
	}
	return told
}

// TestHostile has all foes attack one daemon at once, beside an honest client of another tenant whose turns all complete.
func TestHostile(t *testing.T) {
	if *share <= 0 {
		t.Skip("make attacks runs it")
	}
	b := newBed(t, build(t), "--log-format", "json", "--log-level", "info")
	lines := &logLinesSeen{to: b.log}
	b.stderr = lines
	b.start()
	from := b.memory()
	told := unleash(b)
	to := b.memory()
	after := b.measure(func() { time.Sleep(quiet()) })
	b.stop()

	if to > hostileMiB {
		t.Errorf("the process had %d MiB, at most %d are allowed", to, hostileMiB)
	}
	times := b.during.median().Seconds() / b.before.median().Seconds()
	if *factor > 0 && times > *factor {
		t.Errorf("the median turn of the honest client took %.1f times as long, at most %g are allowed", times, *factor)
	}
	if lines.torn > 0 {
		t.Errorf("%d lines of the log are no JSON of ours, such as %q", lines.torn, lines.first)
	}
	var table strings.Builder
	for i, f := range foes {
		if len(told[i]) == 0 {
			t.Errorf("%s: nothing happened", f.name)
		}
		fmt.Fprintf(&table, "| %s |", f.name)
		for _, what := range slices.Sorted(maps.Keys(told[i])) {
			fmt.Fprintf(&table, " %s: %d;", what, told[i][what])
		}
		table.WriteString("\n")
	}
	t.Logf("memory %d MiB before, %d MiB after all; honest turns: before %v, during %v (%.1f times), after %v; %d lines of log\n%s",
		from, to, b.before, b.during, times, after, lines.lines, table.String())
}

// createKey has the daemon's command make an API key of a tenant, which closes the daemon.
func createKey(b *bed, tenant string) string {
	b.Helper()
	cmd := exec.Command(b.bin, "keys", "create", "caller", "--tenant", tenant, "--data", b.data)
	cmd.Env = []string{"HOME=" + b.data}
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("agentd keys create: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// logLinesSeen checks each line of a daemon's log: it is one JSON object, and nothing that a caller sent begins a line or
// moves a terminal's cursor.
type logLinesSeen struct {
	to *tail

	rest  []byte
	lines int
	torn  int
	first string
}

func (l *logLinesSeen) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			break
		}
		l.rest = bytes.Clone(rest)
		l.lines++
		var of struct{ Time, Level, Msg string }
		ours := json.Unmarshal(line, &of) == nil && of.Time != "" && of.Level != "" && !strings.HasPrefix(of.Msg, injected)
		if ours = ours && !bytes.ContainsRune(line, '\x1b') && len(line) < 32<<10; !ours {
			if l.torn++; l.torn == 1 {
				l.first = fmt.Sprintf("%.300s", line)
			}
		}
	}
	return l.to.Write(p)
}

// pause waits, or less if ctx is done; it tells whether the attack goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// jitter keeps foes from walking in step.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
