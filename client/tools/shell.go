package tools

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

// shellText is how much of the output of a command is returned.
var shellText = conf.OutputCap{KiB: 64, Lines: 2000}

const (
	// shellTime is how long a command takes without timeout_seconds, and maxShellTime how long it may take.
	shellTime    = 30
	maxShellTime = 3600
	// maxCommand is the longest command, in bytes.
	maxCommand = 64 << 10
)

type bashIn struct {
	Command        string `json:"command"`
	TimeoutSeconds int    `json:"timeout_seconds,omitempty" jsonschema:"when to end it: 30 by default, 3600 at most"`
	Background     bool   `json:"background,omitempty" jsonschema:"return at once, with an id for bash_output"`
}

type bashOut struct {
	ExitCode int    `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	TimedOut bool   `json:"timed_out"`
	ID       string `json:"id,omitempty"`
}

func (r *Registry) bash(ctx context.Context, in bashIn) (*bashOut, error) {
	switch {
	case in.Command == "":
		return nil, errors.New("the command is empty")
	case len(in.Command) > maxCommand:
		return nil, fmt.Errorf("the command has %d bytes, at most %d are allowed", len(in.Command), maxCommand)
	case in.TimeoutSeconds < 0 || in.TimeoutSeconds > maxShellTime:
		return nil, fmt.Errorf("timeout_seconds must be 1 to %d, it is %d", maxShellTime, in.TimeoutSeconds)
	case in.TimeoutSeconds == 0:
		in.TimeoutSeconds = shellTime
	}
	if err := r.allowed(ctx, "bash", permit.Command, in.Command, permit.Execute); err != nil {
		return nil, err
	}
	call := client.CallFrom(ctx)
	if in.Background {
		job, err := r.jobs.start(call, in.Command, r.cfg.Root)
		if err != nil {
			return nil, err
		}
		return &bashOut{ID: job}, nil
	}
	if err := call.Begin(); err != nil {
		return nil, err
	}
	limit := r.cfg.Cap("bash", shellText)
	stdout, stderr := newClip(limit), newClip(limit)
	stdout.maxWire, stderr.maxWire = wireRoom/2, wireRoom/2
	script, err := toolcmd.Shell{Script: in.Command, Dir: r.cfg.Root, Stdout: stdout, Stderr: stderr}.Start()
	if err != nil {
		return nil, fmt.Errorf("the command cannot be run: %w", err)
	}
	out := &bashOut{}
	timer := time.NewTimer(time.Duration(in.TimeoutSeconds) * time.Second)
	defer timer.Stop()
	select {
	case <-script.Done():
	case <-timer.C:
		out.TimedOut = true
		script.Kill()
	case <-ctx.Done():
		script.Kill()
	}
	<-script.Done()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	out.ExitCode, out.Stdout, out.Stderr = script.ExitCode(), stdout.text(), stderr.text()
	return out, nil
}

type bashOutputIn struct {
	ID     string `json:"id"`
	Offset int64  `json:"offset,omitempty" jsonschema:"the first byte to return: 0, or next_offset of the last time"`
}

type bashOutputOut struct {
	Output     string `json:"output"`
	NextOffset int64  `json:"next_offset"`
	Running    bool   `json:"running"`
	ExitCode   int    `json:"exit_code"`
}

func (r *Registry) bashOutput(ctx context.Context, in bashOutputIn) (*bashOutputOut, error) {
	j, err := r.jobs.find(client.CallFrom(ctx).SessionID(), in.ID)
	if err != nil {
		return nil, err
	}
	limit := r.cfg.Cap("bash", shellText)
	return j.read(in.Offset, limit)
}

type bashKillIn struct {
	ID string `json:"id"`
}

type bashKillOut struct {
	Status string `json:"status"`
}

func (r *Registry) bashKill(ctx context.Context, in bashKillIn) (*bashKillOut, error) {
	j, err := r.jobs.find(client.CallFrom(ctx).SessionID(), in.ID)
	if err != nil {
		return nil, err
	}
	select {
	case <-j.script.Done():
		return &bashKillOut{"it had ended"}, nil
	default:
	}
	j.script.Kill()
	select {
	case <-j.script.Done():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &bashKillOut{"killed"}, nil
}

const (
	// maxJobs is how many commands of a session may run in the background.
	maxJobs = 8
	// maxAllJobs is how many there are of all sessions, ended ones included.
	maxAllJobs = 64
	// keptOutput is how much is kept of what a command in the background says, its end.
	keptOutput = 1 << 20
)

// jobs are the commands in the background. Each ends with the run that has asked for it.
type jobs struct {
	mu     sync.Mutex // protects the fields below
	byID   map[jobKey]*job
	order  []jobKey // the oldest first
	last   int
	closed bool
	ends   sync.WaitGroup // the goroutines that end jobs with their runs
	stop   chan struct{}  // closed by close
}

type jobKey struct{ session, id string }

// job is a command in the background.
type job struct {
	script *toolcmd.Script

	mu    sync.Mutex // protects the fields below
	kept  []byte     // the end of what it has said
	total int64      // how much it has said
}

// start starts a command that runs until the run of the call is over.
func (js *jobs) start(call *client.Call, command, dir string) (id string, err error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	session := call.SessionID()
	if js.closed {
		return "", errors.New("the tools are closed")
	}
	if js.byID == nil {
		js.byID, js.stop = map[jobKey]*job{}, make(chan struct{})
	}
	running := 0
	for key, j := range js.byID {
		select {
		case <-j.script.Done():
		default:
			if key.session == session {
				running++
			}
		}
	}
	if running >= maxJobs {
		return "", fmt.Errorf("%d commands run in the background, the limit: end one with bash_kill", running)
	}
	js.forgetLocked()
	if len(js.byID) >= maxAllJobs {
		return "", fmt.Errorf("%d commands of all sessions run in the background, the limit: try again later",
			len(js.byID))
	}
	if err := call.Begin(); err != nil {
		return "", err
	}
	j := &job{}
	if j.script, err = (toolcmd.Shell{Script: command, Dir: dir, Stdout: j, Stderr: j}).Start(); err != nil {
		return "", fmt.Errorf("the command cannot be run: %w", err)
	}
	js.last++
	key := jobKey{session, fmt.Sprintf("bg-%d", js.last)}
	js.byID[key] = j
	js.order = append(js.order, key)
	js.ends.Go(func() {
		select {
		case <-j.script.Done():
		case <-call.Ended():
			j.script.Kill()
		case <-js.stop:
			j.script.Kill()
		}
		<-j.script.Done()
	})
	return key.id, nil
}

// forgetLocked forgets the oldest that have ended, while there are too many.
func (js *jobs) forgetLocked() {
	for i := 0; i < len(js.order) && len(js.byID) >= maxAllJobs; {
		j := js.byID[js.order[i]]
		select {
		case <-j.script.Done():
			delete(js.byID, js.order[i])
			js.order = append(js.order[:i], js.order[i+1:]...)
		default:
			i++
		}
	}
}

func (js *jobs) find(session, id string) (*job, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if j := js.byID[jobKey{session, id}]; j != nil {
		return j, nil
	}
	return nil, fmt.Errorf("there is no command %q in the background; it may have ended with an earlier turn", id)
}

// close ends all and waits for that.
func (js *jobs) close() {
	js.mu.Lock()
	if !js.closed && js.stop != nil {
		close(js.stop)
	}
	js.closed = true
	js.mu.Unlock()
	js.ends.Wait()
}

// Write takes what the command says, on either output.
func (j *job) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.total += int64(len(p))
	j.kept = append(j.kept, p...)
	if len(j.kept) > 2*keptOutput {
		j.kept = append([]byte(nil), j.kept[len(j.kept)-keptOutput:]...)
	}
	return len(p), nil
}

// read returns what the command has said from a byte on, as much as fits.
func (j *job) read(offset int64, limit conf.OutputCap) (*bashOutputOut, error) {
	running := true
	select {
	case <-j.script.Done():
		running = false
	default:
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if offset < 0 || offset > j.total {
		return nil, fmt.Errorf("offset must be 0 to %d, what the command has said so far; it is %d", j.total, offset)
	}
	lost := ""
	first := j.total - int64(len(j.kept))
	if offset < first {
		lost = fmt.Sprintf("[%d bytes are no longer kept]\n", first-offset)
		offset = first
	}
	kept := newClip(limit)
	_, _ = kept.Write(j.kept[offset-first:])
	text := kept.kept
	if kept.cut || running {
		text = wholeRunes(text)
	}
	out := &bashOutputOut{Output: lost + valid(text), NextOffset: offset + int64(len(text)), Running: running}
	if !running {
		out.ExitCode = j.script.ExitCode()
	}
	return out, nil
}
