package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/internal/test/heldaddr"
)

// keyPrefix begins the key that a daemon has for the provider; behind it stands
// its epoch.
const keyPrefix = "chaos-"

// readyLimit is how long a daemon may take to be ready before the test gives up;
// what it takes is measured.
const readyLimit = 30 * time.Second

// build builds the real daemon, as the tests are built.
func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "agentd")
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", bin}, raceFlags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "github.com/apzuk3/agentd/cmd/agentd")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// process is agentd in a process of its own, and its successors: on one port and
// one folder. One goroutine may start and stop it.
type process struct {
	t    testing.TB
	path string // of the binary
	args []string
	env  []string
	addr string
	dir  string // of its data
	home string // what it may see as its home

	// next numbers the processes, if those of several daemons have numbers together.
	next func() int
	// expected are texts of errors that are no faults.
	expected []string

	mu    sync.Mutex // protects the fields below
	epoch int        // rises with each process
	log   []string   // lines that are no daemon's business: faults
	last  string     // line of the log
	// recent are the last lines of the log.
	recent []string

	cmd  *exec.Cmd // nil: none runs
	read sync.WaitGroup
}

// newDaemon returns a daemon that does not run yet.
func newDaemon(t testing.TB, path, provider string, env ...string) *process {
	d := &process{t: t, path: path, args: []string{"serve"}, dir: t.TempDir(), home: t.TempDir(), addr: heldaddr.New(t)}
	d.env = append([]string{
		"HOME=" + d.home, "GORACE=atexit_sleep_ms=0 halt_on_error=1", "OPENAI_BASE_URL=" + provider + "/v1",
		"AGENTD_ADDR=" + d.addr, "AGENTD_ADMIN_ADDR=off", "AGENTD_DATA=" + d.dir, "AGENTD_LOG_LEVEL=warn", "AGENTD_LOG_FORMAT=json",
		"AGENTD_SHUTDOWN_GRACE=150ms", "AGENTD_HANDOVER_GRACE=150ms", "AGENTD_HIBERNATE_AFTER=5ms",
		"AGENTD_QUARANTINE_AFTER=0", // no turn is to blame for kills that come from outside
	}, env...)
	t.Cleanup(d.kill)
	return d
}

// createKey makes an API key, which closes the daemon to whoever has none.
func (d *process) createKey() string {
	d.t.Helper()
	cmd := exec.Command(d.path, "keys", "create", "chaos")
	cmd.Env = d.env
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("make an API key: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func (d *process) url() string { return "http://" + d.addr }

// spawn starts a process and does not wait for it.
func (d *process) spawn(env ...string) {
	d.t.Helper()
	d.mu.Lock()
	if d.next != nil {
		d.epoch = d.next()
	} else {
		d.epoch++
	}
	epoch := d.epoch
	d.mu.Unlock()
	cmd := exec.Command(d.path, d.args...)
	cmd.Env = append(append([]string{fmt.Sprintf("OPENAI_API_KEY=%s%d", keyPrefix, epoch)}, d.env...), env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.cmd = cmd
	d.read.Go(func() { d.listen(stderr) })
}

// listen reads a process's log to its end and keeps what should not be there.
func (d *process) listen(r io.Reader) {
	lines := bufio.NewReader(r)
	raw := false
	for {
		line, err := lines.ReadString('\n')
		foreseen := slices.ContainsFunc(d.expected, func(text string) bool { return strings.Contains(line, text) })
		if !strings.HasPrefix(line, "{") && strings.TrimSpace(line) != "" && !foreseen {
			raw = true // the runtime speaks
		}
		wrong := (strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "is incomplete")) && !foreseen
		if raw || wrong || strings.Contains(line, keyPrefix) {
			d.mu.Lock()
			if len(d.log) < mostLines {
				d.log = append(d.log, line)
			}
			d.mu.Unlock()
		}
		if err != nil {
			return
		}
		d.mu.Lock()
		if line != "" {
			d.last = line
		}
		if line != "" && !strings.Contains(line, `"call ended"`) {
			d.recent = append(d.recent[max(0, len(d.recent)+1-recentLines):], line)
		}
		d.mu.Unlock()
	}
}

// mostLines bounds how much is kept of what should not be in a log: the stacks of all goroutines are, when a process
// has to be ended that does not end. recentLines is how much is kept of all.
const (
	mostLines   = 5000
	recentLines = 30
)

// lately returns the last lines of the log.
func (d *process) lately() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.recent, "")
}

func (d *process) lastLine() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// start starts a process and waits until it is ready, which takes what it
// returns.
func (d *process) start(env ...string) time.Duration {
	d.t.Helper()
	from := time.Now()
	d.spawn(env...)
	if err := d.ready(); err != nil {
		d.t.Fatalf("the daemon is not ready after %v: %v: %v", time.Since(from), err, d.complaints())
	}
	return time.Since(from)
}

// ready waits until the daemon answers /readyz.
func (d *process) ready() error {
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), readyLimit)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url()+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !rest(ctx, 2*time.Millisecond) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// kill ends the process at once, if one runs.
func (d *process) kill() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill()
	d.await()
}

// abandon returns what kills the process that runs now, from any goroutine.
func (d *process) abandon() func() {
	p := d.cmd.Process
	return func() { _ = p.Kill() }
}

// await waits for the process to end and returns how it did.
func (d *process) await() *os.ProcessState {
	d.read.Wait()
	_ = d.cmd.Wait()
	state := d.cmd.ProcessState
	d.cmd = nil
	return state
}

// stop ends the process softly and fails the test unless it ended cleanly.
func (d *process) stop() {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Error(err)
	}
	if state := d.await(); !state.Success() {
		d.t.Errorf("the daemon ended with %v: %v", state, d.complaints())
	}
}

func (d *process) complaints() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log
}

// rest waits for a while and reports whether ctx still goes on.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
