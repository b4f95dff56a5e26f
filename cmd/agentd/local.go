package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"

	"github.com/apzuk3/agentd/internal/daemon"
)

// keeps reports whether the daemon of --local has a folder.
func (c *runCmd) keeps() bool {
	return c.Data != daemon.Memory && (c.Session != "" || c.Attach != "" || c.Data != "" || c.lasts)
}

// localDir is the folder of the daemon of --local. It is not that of serve, whose open
// turns a local daemon would take over.
func (c *runCmd) localDir(p *process) (string, error) {
	switch {
	case !c.keeps():
		return daemon.Memory, nil
	case c.Data != "":
		return c.Data, nil
	}
	dir, err := dataDir(runtime.GOOS, p.env)
	return filepath.Join(dir, "local"), err
}

// local starts a daemon on loopback for this command.
func (c *runCmd) local(p *process) (url string, stop func(), err error) {
	dir, err := c.localDir(p)
	if err != nil {
		return "", nil, err
	}
	log := daemon.LogConfig{Level: slog.LevelError, Secrets: daemon.Secrets(daemon.Config{Getenv: p.getenv})}
	cfg := daemon.Config{
		Addr:    "127.0.0.1:0",
		DataDir: dir,
		Getenv:  p.getenv,
		Logger:  daemon.NewLogger(p.stderr, log),
		Version: thisRelease().version,
	}
	c.configure(&cfg)
	d, err := daemon.New(cfg)
	if err != nil && dir != daemon.Memory {
		return "", nil, fmt.Errorf("the folder of local sessions is %s (--data names another one): %w", dir, err)
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // at once: the next command on the folder resumes what has not ended
		if err := d.Shutdown(ctx); err != nil {
			p.notef("%v", err)
		}
	}
	if err := d.Start(context.Background()); err != nil {
		stop()
		return "", nil, err
	}
	return d.URL(), stop, nil
}
