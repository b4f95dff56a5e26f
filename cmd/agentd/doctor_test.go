package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDoctor: what works is ok, what does not is named with what would be right, and only that fails the command.
func TestDoctor(t *testing.T) {
	s := startShell(t, nil)
	dir, data := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	s.env = map[string]string{"XDG_DATA_HOME": data}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, ".agents", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	said := s.says(true, "doctor")
	contains(t, said, "ok    settings  the defaults, without ", "; mode ask\n", "ok    journal ", "ok    daemon    "+s.url, "warn  models    the daemon has no key", "ok    clock ")
	if left, err := os.ReadDir(filepath.Join(data, "agentd")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	write("config.json", `{"version": 1, "permissions": {"mode": "plan"}}`)
	write("skills/x/SKILL.md", "---\nname: y\ndescription: A skill.\n---\n")
	write("mcp.json", `{"version": 1, "servers": {"gone": {"transport": "stdio", "command": "no-such-program"}}}`)
	if err := os.WriteFile(filepath.Join(dir, "CLAUDE.md"), []byte("Rules."), 0o600); err != nil {
		t.Fatal(err)
	}
	s.tty, s.stdout, s.stderr = true, nil, nil
	if code := s.run("doctor"); code != exitError {
		t.Errorf("exit code %d", code)
	}
	contains(t, s.stdout.String(), "config.json; mode plan", "CLAUDE.md, 6 bytes", "ok    skills    1 can be loaded", "warn  skills ", `the name "y" must be that of the folder, "x"`,
		`fail  mcp       gone: there is no program "no-such-program"`)
	write("mcp.json", "{")
	write("config.json", `{"version": 1, "modes": 1}`)
	s.env["AGENTD_URL"], s.stdout = "http://127.0.0.1:1", nil
	if code := s.run("doctor"); code != exitError {
		t.Errorf("exit code %d", code)
	}
	contains(t, s.stdout.String(), `fail  settings  `, `unknown field "modes"`, "fail  daemon    http://127.0.0.1:1: ", "agentd serve starts one")
}

// TestDoctorClock: a daemon whose clock is wrong is noticed.
func TestDoctorClock(t *testing.T) {
	s := startShell(t, nil)
	t.Chdir(t.TempDir())
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for skew, want := range map[time.Duration]string{
		0: "ok    clock", -20 * time.Second: "warn  clock     the daemon's clock is -20s", 10 * time.Minute: "fail  clock     the daemon's clock is 10m0s",
	} {
		front := httptest.NewServer(&httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) },
			ModifyResponse: func(r *http.Response) error {
				r.Header.Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
				return nil
			},
		})
		s.url, s.tty, s.stdout, s.stderr = front.URL, true, nil, nil
		s.run("doctor", "--http1")
		front.Close()
		contains(t, s.stdout.String(), want)
	}
}
