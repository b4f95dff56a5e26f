package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
	"github.com/apzuk3/agentd/client/mcp"
	"github.com/apzuk3/agentd/client/memory"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/skills"
	"github.com/apzuk3/agentd/internal/cli"
)

const (
	// skewWarns and skewFails are how far the clocks of this computer and of the daemon may be apart: above the first
	// times look wrong, above the second tokens and schedules fail.
	skewWarns = 5 * time.Second
	skewFails = time.Minute
	// doctorTime bounds one question to the daemon.
	doctorTime = 10 * time.Second
)

type doctorCmd struct {
	daemonFlags `embed:""`
}

// Help is shown below the flags.
func (*doctorCmd) Help() string {
	return `It looks at what agentd run needs here: the settings of the project, what is written down for agents,
skills, MCP servers, which it starts and ends, the daemon, its clock, and whether it has keys of model providers.
Nothing is changed but that the folder for data is made.

Each line is ok, warn or fail. The exit code is 1 when one is fail.

Examples:

  agentd doctor

  agentd doctor --url https://agents.example.com`
}

// finding is what came of one check.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn or fail
	Text   string `json:"text"`
}

// findings are those of one command. They may be added to concurrently: MCP servers are looked at all at once.
type findings struct {
	mu     sync.Mutex // protects the fields below
	all    []finding
	failed bool
}

func (f *findings) okf(check, format string, args ...any)   { f.addf(check, "ok", format, args...) }
func (f *findings) warnf(check, format string, args ...any) { f.addf(check, "warn", format, args...) }
func (f *findings) failf(check, format string, args ...any) { f.addf(check, "fail", format, args...) }

func (f *findings) addf(check, result, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, finding{check, result, fmt.Sprintf(format, args...)})
	f.failed = f.failed || result == "fail"
}

// Run looks at everything and prints what it found.
func (c *doctorCmd) Run(p *process) error {
	ctx, stop := p.context()
	defer stop()
	f := &findings{}
	c.project(ctx, f)
	keepsJournal(p, f)
	if c.daemon(ctx, p, f) {
		c.clock(ctx, f)
	}
	for _, one := range f.all {
		if err := c.print(p, one); err != nil {
			return err
		}
	}
	if f.failed {
		return &codedError{code: exitError, err: errors.New("something does not work")}
	}
	return nil
}

func (c *doctorCmd) print(p *process, one finding) error {
	if c.json(p) {
		return p.printJSON(one)
	}
	_, err := fmt.Fprintf(p.stdout, "%-4s  %-8s  %s\n", one.Result, one.Check, cli.Clean(one.Text))
	return err
}

// project looks at what the current folder has.
func (c *doctorCmd) project(ctx context.Context, f *findings) {
	cfg, err := conf.Load(".")
	if err != nil {
		f.failf("settings", "%v", err)
		return
	}
	gate, err := permit.New(cfg, nil)
	if err != nil {
		f.failf("settings", "%s: %v", cfg.Path(), err)
		return
	}
	where := cfg.Path()
	if _, err := os.Stat(where); errors.Is(err, fs.ErrNotExist) {
		where = "the defaults, without " + where
	}
	f.okf("settings", "%s; mode %s", where, cfg.Permissions.Mode)
	known := skills.Load(cfg.Root)
	layers, warnings := memory.Layers(cfg.Root, "")
	for _, l := range layers[1:] {
		f.okf("memory", "%s, %d bytes", l.Source, l.Size)
	}
	for _, w := range warnings {
		f.warnf("memory", "%s", w)
	}
	if n := len(known.All()); n > 0 {
		f.okf("skills", "%d can be loaded", n)
	}
	for _, w := range known.Warnings {
		f.warnf("skills", "%s", w)
	}
	servers, err := mcp.Build(ctx, filepath.Join(cfg.Root, conf.Folder), gate, nil, mcp.OnNotice(func(text string) {
		f.warnf("mcp", "%s", text)
	}))
	if err != nil {
		f.failf("mcp", "%v", err)
	}
	for _, s := range servers {
		if s.Err != nil {
			f.failf("mcp", "%s: %v", s.Name, s.Err)
		} else {
			f.okf("mcp", "%s has %d tools", s.Name, len(s.Tools))
		}
	}
	for _, s := range servers {
		_ = s.Close()
	}
}

// keepsJournal looks whether results of tools can be kept.
func keepsJournal(p *process, f *findings) {
	dir, err := dataDir(runtime.GOOS, p.env)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	var made *os.File
	if err == nil {
		made, err = os.CreateTemp(dir, ".doctor-*")
	}
	if err != nil {
		f.warnf("journal", "what tools have begun cannot be kept, so that a killed agentd run may repeat it: %v", err)
		return
	}
	_ = made.Close()
	_ = os.Remove(made.Name())
	f.okf("journal", "%s can be written", dir)
}

// daemon looks at the daemon, and reports whether there is one.
func (c *doctorCmd) daemon(ctx context.Context, p *process, f *findings) bool {
	conn, err := cli.Dial(c.URL, c.options(p)...)
	if err != nil {
		f.failf("daemon", "--url: %v", err)
		return false
	}
	defer conn.Close()
	ctx, stop := context.WithTimeout(ctx, doctorTime)
	defer stop()
	begun := time.Now()
	known, err := conn.Client.Capabilities(ctx)
	if err != nil {
		f.failf("daemon", "%s: %v; agentd serve starts one, --url or AGENTD_URL names another", cli.Clean(c.URL), err)
		return false
	}
	f.okf("daemon", "%s, version %s, %d ms away", cli.Clean(c.URL), known.Version, time.Since(begun).Milliseconds())
	keys(f, known)
	return true
}

// keys looks whether the daemon can ask a model.
func keys(f *findings, known *client.Capabilities) {
	var with, without []string
	for _, p := range known.Providers {
		switch {
		case p.Name == "echo", p.Name == "scripted", p.Name == "script": // they need none and know nothing
		case p.HasKey:
			with = append(with, p.Name)
		default:
			without = append(without, p.Name)
		}
	}
	if len(with) == 0 {
		f.warnf("models", "the daemon has no key of a model provider: callers bring their own, for %s",
			strings.Join(without, ", "))
		return
	}
	f.okf("models", "keys for %s", strings.Join(with, ", "))
}

// clock compares the clocks of this computer and the daemon, by the date of an HTTP answer.
func (c *doctorCmd) clock(ctx context.Context, f *findings) {
	ctx, stop := context.WithTimeout(ctx, doctorTime)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, c.URL, http.NoBody)
	if err != nil {
		f.warnf("clock", "%v", err)
		return
	}
	begun := time.Now()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		f.warnf("clock", "the daemon's time is not known: %v", err)
		return
	}
	_ = resp.Body.Close()
	there, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		f.warnf("clock", "the daemon does not say what time it is")
		return
	}
	// The date has whole seconds: it is up to one in the past.
	skew := there.Add(500 * time.Millisecond).Sub(begun.Add(time.Since(begun) / 2)).Round(time.Second)
	switch apart := skew.Abs(); {
	case apart > skewFails:
		f.failf("clock", "the daemon's clock is %s from this one: set one of them", skew)
	case apart > skewWarns:
		f.warnf("clock", "the daemon's clock is %s from this one", skew)
	default:
		f.okf("clock", "within %s of the daemon's", skewWarns)
	}
}
