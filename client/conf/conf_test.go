package conf_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apzuk3/agentd/client/conf"
)

// project makes a folder with a configuration, unless text is "", and returns it without links.
func project(t *testing.T, text string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if text != "" {
		write(t, filepath.Join(dir, ".agents", "config.json"), text)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, dir string) *conf.Config {
	t.Helper()
	c, err := conf.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDefaults: a project without a file asks, has 50 steps and sends no spans.
func TestDefaults(t *testing.T) {
	dir := project(t, "")
	c := load(t, dir)
	if c.Root != dir || c.Permissions.Mode != "ask" || c.Agent.MaxSteps != 50 || c.Otel.Exporter != "none" || c.PlanMode != "off" {
		t.Errorf("got %+v", c)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, ".agents", "config.json"), string(data))
	if again, err := json.Marshal(load(t, dir)); err != nil || !bytes.Equal(again, data) {
		t.Errorf("read as\n%s, not\n%s (%v)", again, data, err)
	}
}

// TestLookup: the nearest file upwards counts, then the nearest .agents folder, then the folder itself.
func TestLookup(t *testing.T) {
	dir := project(t, `{"version": 1, "model": "outer"}`)
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(filepath.Join(dir, "a", ".agents"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if c := load(t, deep); c.Root != dir || c.Model != "outer" {
		t.Errorf("got root %s, model %s", c.Root, c.Model)
	}
	write(t, filepath.Join(dir, "a", ".agents", "config.json"), `{"version": 1, "model": "inner"}`)
	if c := load(t, deep); c.Root != filepath.Join(dir, "a") || c.Model != "inner" {
		t.Errorf("got root %s, model %s", c.Root, c.Model)
	}
	bare := project(t, "")
	for _, sub := range []string{".agents", "x/y"} {
		if err := os.MkdirAll(filepath.Join(bare, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if c := load(t, filepath.Join(bare, "x", "y")); c.Root != bare {
		t.Errorf("got root %s", c.Root)
	}
	t.Setenv("HOME", bare) // whose .agents belongs to no project
	if c := load(t, filepath.Join(bare, "x", "y")); c.Root != filepath.Join(bare, "x", "y") {
		t.Errorf("below the home folder: got root %s", c.Root)
	}
	if _, err := conf.Load(filepath.Join(bare, "gone")); err == nil {
		t.Error("a folder that is not there has a configuration")
	}
}

// TestRefused: what the file must not say is refused with its path and the key.
func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                          "unexpected end",
		`{}`:                         "version must be 1, it is none",
		`{"version": 2}`:             "version must be 1, it is 2",
		`{"version": 1, "mode": ""}`: `unknown field "mode"`,
		`{"version": 1, "agent": {"max_steps": 0}}`:                        "agent.max_steps must be at least 1",
		`{"version": 1, "permissions": {"mode": "yes"}}`:                   `permissions.mode must be one of ask, allow, plan, acceptEdits, yolo, it is "yes"`,
		`{"version": 1, "permissions": {"allow": "x"}}`:                    "permissions.allow",
		`{"version": 1, "path_scope": {"allow_paths": [{"path": "x"}]}}`:   "path_scope.allow_paths[0].access must be one of r, w, rw",
		`{"version": 1, "path_scope": {"allow_paths": [{"access": "r"}]}}`: "path_scope.allow_paths[0].path is missing",
		`{"version": 1, "plan_mode": "on"}`:                                "plan_mode must be one of",
		`{"version": 1, "otel": {"exporter": "file"}}`:                     "otel.exporter must be one of",
		`{"version": 1, "tool_output": {"bash": {"kib": 64}}}`:             "tool_output.bash: kib and lines must be at least 1",
		`{"version": 1, "pricing": {"m": {"input": -1}}}`:                  "pricing.m: prices",
		`{"version": 1, "model": "` + strings.Repeat("x", 1<<20) + `"}`:    "more than 1048576 bytes",
	} {
		dir := project(t, text)
		_, err := conf.Load(dir)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), filepath.Join(dir, ".agents", "config.json")) {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

// TestUpdate: changes of several owners of one file are all in it, and no reader ever finds half of one.
func TestUpdate(t *testing.T) {
	dir := project(t, "")
	var all sync.WaitGroup
	stop := make(chan struct{})
	read := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				read <- n
				return
			default:
			}
			if _, err := conf.Load(dir); err != nil {
				t.Error(err)
			}
			n++
		}
	}()
	c := load(t, dir)
	for i := range 20 {
		all.Go(func() {
			rule := "bash:" + strings.Repeat("x", i+1)
			err := c.Update(func(c *conf.Config) { c.Permissions.Allow = append(c.Permissions.Allow, rule) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(stop)
	if n := <-read; n == 0 {
		t.Error("nothing was read meanwhile")
	}
	if got := load(t, dir).Permissions.Allow; len(got) != 20 || len(c.Permissions.Allow) != 20 {
		t.Errorf("the file has %q, the configuration %q", got, c.Permissions.Allow)
	}
	left, err := os.ReadDir(filepath.Join(dir, ".agents"))
	if err != nil || len(left) != 1 {
		t.Errorf("there are %v (%v)", left, err)
	}
}

// TestUpdateRefused: a change that makes no sense changes nothing.
func TestUpdateRefused(t *testing.T) {
	text := `{"version": 1, "model": "m"}`
	dir := project(t, text)
	c := load(t, dir)
	if err := c.Update(func(c *conf.Config) { c.PlanMode = "maybe" }); err == nil || c.PlanMode != "off" {
		t.Errorf("got %v, plan_mode %s", err, c.PlanMode)
	}
	write(t, c.Path(), "{")
	if err := c.Update(func(c *conf.Config) { c.Model = "n" }); err == nil || c.Model != "m" {
		t.Errorf("got %v, model %s", err, c.Model)
	}
	if data, err := os.ReadFile(c.Path()); err != nil || string(data) != "{" {
		t.Errorf("the file is %q (%v)", data, err)
	}
	if err := (&conf.Config{}).Update(func(*conf.Config) {}); err == nil {
		t.Error("a configuration without a place is written")
	}
}

// TestCap: the file's word on a tool goes before the tool's own, and that before the file's word on all.
func TestCap(t *testing.T) {
	c := load(t, project(t, `{"version": 1, "tool_output": {"bash": {"kib": 1, "lines": 2}, "default": {"kib": 3, "lines": 4}}}`))
	own := conf.OutputCap{KiB: 256, Lines: 5000}
	for tool, want := range map[string][2]conf.OutputCap{
		"bash":      {{KiB: 1, Lines: 2}, {KiB: 1, Lines: 2}},
		"read_file": {{KiB: 3, Lines: 4}, own},
	} {
		if got := [2]conf.OutputCap{c.Cap(tool, conf.OutputCap{}), c.Cap(tool, own)}; got != want {
			t.Errorf("%s: %v, want %v", tool, got, want)
		}
	}
	if got := load(t, project(t, "")).Cap("glob", conf.OutputCap{}); got != (conf.OutputCap{KiB: 32, Lines: 500}) {
		t.Errorf("got %v", got)
	}
}

// TestUpdatesOfOthers: what several who have loaded the same file write at the same time is all in it.
func TestUpdatesOfOthers(t *testing.T) {
	dir := project(t, `{"version": 1}`)
	var wg sync.WaitGroup
	for i := range 20 {
		c := load(t, dir)
		wg.Go(func() {
			err := c.Update(func(c *conf.Config) { c.Permissions.Allow = append(c.Permissions.Allow, fmt.Sprint("x", i)) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(load(t, dir).Permissions.Allow); n != 20 {
		t.Errorf("%d of 20 are left", n)
	}
}
