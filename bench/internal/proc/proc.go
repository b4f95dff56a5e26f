// Package proc runs the servers of a benchmark as processes of their own, each on a core, and reads what they take of
// it. It knows no server.
package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// serving is the message of the line in which a server says where it listens, as addr.
	serving = "serving"
	// startTimeout bounds the start of a process, stopTimeout its end.
	startTimeout = 30 * time.Second
	stopTimeout  = 20 * time.Second
	// maxLog is how much of the end of a process's log is kept, in bytes.
	maxLog = 16 << 10
)

// Process is a server that runs.
type Process struct {
	// URL is where it listens.
	URL string
	// AdminURL is where it serves its operator, "" if it has not said so before.
	AdminURL string
	// Started is how long it took from its start until it said so.
	Started time.Duration

	cmd  *exec.Cmd
	done chan struct{} // closed when the log has ended
	log  tail          // owned by the goroutine that reads it until done is closed
}

type address struct{ url, admin string }

// Start runs a command on a core, "" for any, and waits until it serves.
func Start(ctx context.Context, core string, env []string, command ...string) (*Process, error) {
	if core != "" {
		command = append([]string{"taskset", "-c", core}, command...)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...) //nolint:gosec // ours
	cmd.Env = append(environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", strings.Join(command, " "), err)
	}
	found := make(chan address, 1)
	go p.read(stderr, found)
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case addr := <-found:
		p.Started, p.URL, p.AdminURL = time.Since(began), addr.url, addr.admin
		return p, nil
	case <-p.done:
		err = errors.New("it has ended")
	case <-timer.C:
		err = fmt.Errorf("it does not serve after %s", startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = cmd.Process.Kill()
	<-p.done
	_ = cmd.Wait()
	return nil, fmt.Errorf("start %s: %w; its log ends with:\n%s", strings.Join(command, " "), err, p.log)
}

// environ is the environment without what would set agentd's flags.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AGENTD_") })
}

// read reads the log; it ends with the process.
func (p *Process) read(r io.Reader, found chan<- address) {
	defer close(p.done)
	admin := ""
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		p.log = p.log.with(line)
		var said struct {
			Msg, Addr string
			AdminAddr string `json:"admin_addr"`
		}
		switch err := json.Unmarshal([]byte(line), &said); {
		case err != nil:
		case said.AdminAddr != "":
			admin = "http://" + said.AdminAddr
		case said.Msg == serving:
			select {
			case found <- address{"http://" + said.Addr, admin}:
			default:
			}
		}
	}
}

// Stop ends the process, and fails if it does not end well.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.cmd.Path, err)
	}
	timer := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.done
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w; its log ends with:\n%s", p.cmd.Args, err, p.log)
	}
	return nil
}

// CPU is how much time the process has had on a core, in all its threads, also those that have ended.
func (p *Process) CPU() (time.Duration, error) {
	var ts unix.Timespec
	// The clock of another process, as clock_getcpuclockid makes it: its id, inverted, and CPUCLOCK_SCHED.
	clock := int32(^p.cmd.Process.Pid)<<3 | 2
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("read the CPU clock of %s: %w", p.cmd.Path, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Resident is how much memory of the process is resident, in bytes.
func (p *Process) Resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no VmRSS", p.cmd.Path)
}

// tail is the end of a log.
type tail string

func (t tail) with(line string) tail {
	t += tail(line)
	return t[max(0, len(t)-maxLog):]
}
