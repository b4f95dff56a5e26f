package pgserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// patience bounds how long a server may take to start or to stop.
const patience = 2 * time.Minute

// cluster is the data of a server and, while it runs, its processes.
type cluster struct {
	bin, dir, addr, password string
	args                     []string

	// running is the postmaster, the parent of all others; nil while there is none.
	running *exec.Cmd
	// guard ends the server and removes the folder when this process has ended; the open end of its pipe tells it.
	guard *exec.Cmd
	pipe  io.Closer
}

// watch waits until nobody holds its standard input open, then ends the server of the folder $1, by force if it must,
// and removes the folder.
const watch = `
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && { cat "/proc/$pid/cmdline" || ps -o command= -p "$pid"; } 2>/dev/null | grep -aqF "$1"; then
  children=$(for stat in /proc/[0-9]*/stat; do
    { read -r child _ _ parent _ <"$stat"; } 2>/dev/null && [ "$parent" = "$pid" ] && echo "$child"
  done)
  kill -CONT "$pid" $children
  kill -QUIT "$pid"
  try=0
  while [ -e "$1/data/postmaster.pid" ] && [ $((try += 1)) -lt 50 ]; do sleep 0.1; done
  [ ! -e "$1/data/postmaster.pid" ] || kill -KILL "$pid" $children
fi
for try in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf "$1" && exit
  sleep 1
done`

// newCluster makes a cluster and starts its server.
func newCluster(bin, addr string, o Options) (_ *cluster, err error) {
	c := &cluster{bin: bin, addr: addr, password: rand.Text(), args: settings(addr, o)}
	if c.dir, err = os.MkdirTemp("", "pgserver-"); err != nil {
		return nil, err
	}
	if err := c.setUp(); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	return c, nil
}

func (c *cluster) setUp() error {
	//nolint:gosec // the argument is a folder of ours
	c.guard = exec.CommandContext(context.Background(), "/bin/sh", "-c", watch, "sh", c.dir)
	pipe, err := c.guard.StdinPipe()
	if err != nil {
		return err
	}
	ownGroup(c.guard)
	if err := c.guard.Start(); err != nil {
		return err
	}
	c.pipe = pipe
	secret := filepath.Join(c.dir, "secret")
	if err := os.WriteFile(secret, []byte(c.password), 0o600); err != nil {
		return err
	}
	if err := hand(c.dir, secret); err != nil {
		return err
	}
	initdb := c.command("initdb", "--no-sync", "--username=postgres", "--auth=password", "--pwfile="+secret,
		"--encoding=UTF8", "--locale=C", "--locale-provider=icu", "--icu-locale=en-US", c.data())
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	if err := c.start(); err != nil {
		return err
	}
	return c.do(context.Background(), "CREATE ROLE "+role+" LOGIN PASSWORD '"+c.password+"'")
}

// command is a program of PostgreSQL, which refuses to run as root.
func (c *cluster) command(name string, args ...string) *exec.Cmd {
	//nolint:gosec // programs that whoever runs the tests has installed
	cmd := exec.CommandContext(context.Background(), filepath.Join(c.bin, name), args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "TZ=UTC")
	ownGroup(cmd)
	asOther(cmd)
	return cmd
}

func (c *cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *cluster) start() error {
	if c.running != nil {
		return errors.New("the server runs")
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := c.command("postgres", append([]string{"-D", c.data()}, c.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return err
	}
	c.running = cmd
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.ready(ctx)
}

// ready waits until the server answers.
func (c *cluster) ready(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.do(ctx, "SELECT 1")
		if err == nil {
			return nil
		}
		if exited(c.running.Process.Pid) {
			c.running = nil
			return fmt.Errorf("the server ended:\n%s", c.logged())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w\n%s", err, c.logged())
		case <-tick.C:
		}
	}
}

// stop has the server end in an orderly way.
func (c *cluster) stop(how os.Signal) error {
	if c.running == nil {
		return errors.New("no server runs")
	}
	process := c.running.Process
	if err := process.Signal(how); err != nil {
		return err
	}
	late := time.AfterFunc(patience, func() { _ = process.Kill() })
	defer late.Stop()
	return c.wait()
}

func (c *cluster) kill() error {
	if err := c.freeze(); err != nil {
		return err
	}
	all := append(children(c.running.Process.Pid), c.running.Process.Pid)
	for _, pid := range all {
		if err := kill(pid); err != nil {
			return err
		}
	}
	if err := c.wait(); err != nil {
		return err
	}
	return poll(func() bool {
		for _, pid := range all {
			if !gone(pid) {
				return false
			}
		}
		return true
	})
}

// wait waits for the end of the postmaster; how it ended is no matter.
func (c *cluster) wait() error {
	err := c.running.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return err
	}
	c.running = nil
	return nil
}

// freeze stops the postmaster first: it starts no more children then.
func (c *cluster) freeze() error {
	if c.running == nil {
		return errors.New("no server runs")
	}
	pid := c.running.Process.Pid
	if err := freeze(pid); err != nil {
		return err
	}
	for _, child := range children(pid) {
		if err := freeze(child); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) thaw() error {
	if c.running == nil {
		return errors.New("no server runs")
	}
	pid := c.running.Process.Pid
	for _, child := range children(pid) {
		if err := thaw(child); err != nil {
			return err
		}
	}
	return thaw(pid)
}

// remove ends the server and removes its data.
func (c *cluster) remove() (err error) {
	if c.running != nil {
		err = errors.Join(c.thaw(), c.stop(immediately))
	}
	if c.pipe != nil {
		err = errors.Join(err, c.pipe.Close(), c.guard.Wait())
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

// logged is the end of the server's log.
func (c *cluster) logged() []byte {
	text, err := os.ReadFile(filepath.Join(c.dir, "log"))
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(text[max(0, len(text)-8<<10):])
}

// poll waits until done says so.
func poll(done func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end.C:
			return errors.New("a process of the server does not obey")
		}
	}
	return nil
}
