package toolcmd

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// holdTime is how long what has left the group of a script may hold the script's output open.
const holdTime = 5 * time.Second

// Shell is a script for /bin/sh. It runs in a process group of its own, so that what it has started ends with it;
// only what makes a session of its own survives. It reads an empty input and has the environment that the package's
// doc says, also without all names that end in _API_KEY.
type Shell struct {
	Script string
	// Dir is the folder that it runs in; "" is the current one.
	Dir string
	// Stdout and Stderr get what it says. Each is written by one goroutine at a time, and by none after Done. They may
	// be the same writer if its Write may be called concurrently.
	Stdout, Stderr io.Writer
}

// Script is a Shell that runs. Its methods may be called from any goroutine.
type Script struct {
	cmd    *exec.Cmd
	copies sync.WaitGroup
	ends   []*os.File // which the copies read
	done   chan struct{}
	code   int
}

// Start starts a script. It ends by itself or by Kill; whoever starts it waits for Done.
func (s Shell) Start() (*Script, error) {
	//nolint:gosec // running what it is given is what this is for
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", s.Script) // it ends by Kill
	cmd.Dir = s.Dir
	for _, kv := range environment(os.Environ(), nil) {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasSuffix(strings.ToUpper(name), "_API_KEY") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	leadGroup(cmd)
	run := &Script{cmd: cmd, done: make(chan struct{})}
	var theirs []*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			_ = f.Close()
		}
	}
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(theirs, run.ends...))
			return nil, err
		}
		run.ends, theirs = append(run.ends, r), append(theirs, w)
	}
	cmd.Stdout, cmd.Stderr = theirs[0], theirs[1]
	err := cmd.Start()
	closeAll(theirs)
	if err != nil {
		closeAll(run.ends)
		return nil, err
	}
	for i, to := range []io.Writer{s.Stdout, s.Stderr} {
		from := run.ends[i]
		run.copies.Go(func() { _, _ = io.Copy(to, from) })
	}
	go run.reap()
	return run, nil
}

// reap waits for the script's end and ends what it has left behind.
func (s *Script) reap() {
	defer close(s.done)
	err := s.cmd.Wait()
	s.killGroup()
	s.code = s.cmd.ProcessState.ExitCode()
	if err != nil && s.code == 0 {
		s.code = -1 // it could not be waited for
	}
	for _, f := range s.ends { // a pipe of the system can have a deadline
		_ = f.SetReadDeadline(time.Now().Add(holdTime))
	}
	s.copies.Wait()
	for _, f := range s.ends {
		_ = f.Close()
	}
}

// Kill ends the script and all of its group.
func (s *Script) Kill() {
	select {
	case <-s.done:
	default:
		s.killGroup()
	}
}

// Done is closed when nothing of the script runs any more and all that it has said is written.
func (s *Script) Done() <-chan struct{} { return s.done }

// ExitCode returns the script's exit code, -1 if a signal has ended it. Done must be closed.
func (s *Script) ExitCode() int { return s.code }
