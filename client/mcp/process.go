package mcp

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxTail is how many bytes of a program's standard error are kept.
	maxTail = 4 << 10
	// drainTime is how long what an ended program has started, and what left its group, may hold its output open.
	drainTime = time.Second
)

// process is a server that is a program. It leads a process group of its own, which ends with it.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	errs   *tail

	ended chan struct{} // closed when the program and its group are gone, and its errors are read
	err   error         // how it ended; set before ended is closed
}

// startProcess starts a program. Its caller owes a stop.
func startProcess(c serverConfig) (*process, error) {
	var files []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	inR, inW, err1 := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	err := errors.Join(err1, err2, err3)
	p := &process{stdin: inW, stdout: outR, errs: &tail{}, ended: make(chan struct{})}
	if err == nil {
		//nolint:gosec,noctx // running what the user's file names is what this is for; stop ends it
		p.cmd = exec.Command(c.Command, c.Args...)
		p.cmd.Env = environment(os.LookupEnv, c.Env)
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
		leadGroup(p.cmd)
		err = p.cmd.Start()
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no program %q", c.Command)
		}
		return nil, fmt.Errorf("the program cannot be run: %w", err)
	}
	for _, f := range []*os.File{inR, outW, errW} {
		f.Close()
	}
	go p.watch(errR)
	return p, nil
}

// watch waits for the end of the program, ends what it has started, and reads what it says on its standard error.
func (p *process) watch(errR *os.File) {
	defer close(p.ended)
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, maxTail)
		for {
			n, err := errR.Read(buf)
			p.errs.add(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	p.err = p.cmd.Wait()
	signalGroup(p.cmd, kill)
	// What has left the group may hold the pipes.
	deadline := time.Now().Add(drainTime)
	_ = errR.SetReadDeadline(deadline)
	_ = p.stdout.SetReadDeadline(deadline)
	<-read
	errR.Close()
}

// stop closes the program's standard input and asks its group to end, and after grace ends it. It returns when
// the group is gone. It may be called more than once.
func (p *process) stop(grace time.Duration) {
	p.stdin.Close()
	select {
	case <-p.ended:
	default:
		signalGroup(p.cmd, terminate)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.ended:
		case <-timer.C:
			signalGroup(p.cmd, kill)
			<-p.ended
		}
	}
	p.stdout.Close()
}

// why explains an error of the connection by how the program ended and by what it said last.
func (p *process) why(err error) error {
	select {
	case <-p.ended:
		how := "exit status 0"
		if p.err != nil {
			how = p.err.Error()
		}
		err = fmt.Errorf("the program has ended (%s)", how)
	case <-time.After(drainTime / 10): // it may be about to end
	}
	if said := p.errs.text(); said != "" {
		return fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

// transport is the program's standard input and output.
func (p *process) transport() sdk.Transport {
	return &sdk.IOTransport{Reader: output{p.stdout}, Writer: input{p.stdin}}
}

// writeTime is how long a program may take to read what is written to it.
const writeTime = 30 * time.Second

// input is the program's standard input. A program that does not read would hold up whoever writes.
type input struct{ *os.File }

func (i input) Write(p []byte) (int, error) {
	_ = i.SetWriteDeadline(time.Now().Add(writeTime))
	return i.File.Write(p)
}

// output is read until the process closes it: the SDK ends a session by closing the input.
type output struct{ *os.File }

func (output) Close() error { return nil }

// environment is what a program gets: little of this process's, and its own.
func environment(lookup func(string) (string, bool), own map[string]string) []string {
	env := map[string]string{}
	for _, name := range inherited {
		if value, ok := lookup(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, own)
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// inherited are the variables that a program gets of this process's environment.
var inherited = append([]string{
	"PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE", "LC_ALL", "LC_ADDRESS", "LC_COLLATE", "LC_CTYPE", "LC_IDENTIFICATION",
	"LC_MEASUREMENT", "LC_MESSAGES", "LC_MONETARY", "LC_NAME", "LC_NUMERIC", "LC_PAPER", "LC_TELEPHONE", "LC_TIME",
}, systemVariables...)

// tail keeps the end of what is written.
type tail struct {
	mu  sync.Mutex // protects the fields below
	b   []byte
	cut bool
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > maxTail {
		t.b, t.cut = append(t.b[:0], t.b[len(t.b)-maxTail:]...), true
	}
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.b), "\uFFFD"))
	if t.cut {
		text = "…" + text
	}
	return text
}
