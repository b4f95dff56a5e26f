// Package toolcmd runs programs as tools, on the client.
//
// The arguments of a call go to the program's standard input, as JSON, with a
// line end; what it writes to its standard output is the result. No shell takes
// part. An exit code other than 0 is a tool error with the end of what the
// program wrote to its standard error. Output and errors are bounded; when the
// context ends, the program is killed, on Unix with all it has started.
//
// A program gets the environment of this process without what gives access to model
// providers and to the daemon, unless Command.Pass names it: GEMINI_API_KEY,
// GOOGLE_API_KEY, the secrets of other providers (such as ANTHROPIC_AUTH_TOKEN and
// OPENAI_API_KEY; withheld has the whole list) and of AGENTD_ variables, and an
// AGENTD_URL that holds a password. It is care against accidents, no wall: programs
// of one user can read each other's environments where the system lets them.
//
// The package imports the standard library alone. It knows neither the protocol
// nor agents.
package toolcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// MaxOutput is how many bytes a program may say.
	MaxOutput = 1 << 20
	// tail is how many bytes of its standard error are kept.
	tail = 4 << 10
	// reapTime is how long what a killed program has started may hold its output
	// open.
	reapTime = 2 * time.Second
)

// Command is a program that runs a tool.
type Command struct {
	// Args are the program and its arguments. A program with a slash in its name
	// is looked up from Base, any other one in PATH.
	Args []string
	// Base is a folder; "" is the current one. The program itself runs in the
	// current folder.
	Base string
	// Env is added to the environment of this process, as NAME=value.
	Env []string
	// Pass names variables of the environment that the program gets though they are
	// withheld: keys of model providers and secrets of agentd, see the package's doc.
	Pass []string
}

// errOutput stops a program that says too much.
var errOutput = fmt.Errorf("the tool's output has more than %d bytes", MaxOutput)

// Run runs the program with input and returns what it said, without the line
// ends behind it. Errors are written for a model to read. It may be called from
// any goroutine and leaves none behind.
func Run(ctx context.Context, c Command, input string) (string, error) {
	if len(c.Args) == 0 {
		return "", errors.New("the tool has no command")
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	program := c.Args[0]
	if strings.ContainsRune(program, '/') && !filepath.IsAbs(program) {
		program = filepath.Join(c.Base, program)
		if !filepath.IsAbs(program) {
			program = "." + string(filepath.Separator) + program
		}
	}
	//nolint:gosec // running what the user's file names is what this is for
	cmd := exec.CommandContext(ctx, program, c.Args[1:]...)
	cmd.Env = append(environment(os.Environ(), c.Pass), c.Env...)
	cmd.Stdin = strings.NewReader(input + "\n")
	out, diag := &limited{full: func() { stop(errOutput) }}, &last{}
	cmd.Stdout, cmd.Stderr = out, diag
	cmd.WaitDelay = reapTime
	killGroup(cmd)
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", failure(c.Args[0], err, diag.text())
	}
	text := strings.TrimRight(strings.ToValidUTF8(out.b.String(), "\uFFFD"), "\r\n")
	if len(text) > MaxOutput { // what is no UTF-8 has grown
		return "", errOutput
	}
	return text, nil
}

// failure says why a program failed, with the end of what it said about it.
func failure(name string, err error, said string) error {
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		text := fmt.Sprintf("the tool failed: %s", e.ProcessState)
		if said != "" {
			text += ": " + said
		}
		return errors.New(text)
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the tool cannot be run: there is no program %q", name)
	}
	return fmt.Errorf("the tool cannot be run: %w", err)
}

// limited keeps what fits, and calls full when more comes. It is written by one
// goroutine and read after that has ended.
type limited struct {
	b    bytes.Buffer
	full func()
}

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > MaxOutput {
		l.full()
		return 0, errOutput
	}
	return l.b.Write(p)
}

// last keeps the end of what is written.
type last struct {
	b   []byte
	cut bool
}

func (l *last) Write(p []byte) (int, error) {
	l.b = append(l.b, p[max(0, len(p)-tail):]...)
	if len(l.b) > tail {
		l.b, l.cut = append(l.b[:0], l.b[len(l.b)-tail:]...), true
	}
	return len(p), nil
}

func (l *last) text() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(l.b), "\uFFFD"))
	if l.cut {
		text = "…" + text
	}
	return text
}
