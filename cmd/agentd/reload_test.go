package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/apzuk3/agentd/client"
)

// reloaded is a serve on a goroutine whose configuration file the test writes.
type reloaded struct {
	t       *testing.T
	file    string
	signals chan os.Signal
	url     string
	lines   chan map[string]any // of the log
	log     strings.Builder     // what was read of lines
}

// startReloaded starts serve with a configuration file.
func startReloaded(t *testing.T, text string, env map[string]string) *reloaded {
	t.Helper()
	r := &reloaded{t: t, file: configOf(t, text), signals: make(chan os.Signal, 2), lines: make(chan map[string]any, 1000)}
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(r.signals, []string{"serve", "--config", r.file, "--log-format=json"}, withoutAdmin(env), io.Discard, in)
		_ = in.Close()
	}()
	go func() { // ends with the log
		defer close(r.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			entry := map[string]any{}
			if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
				t.Errorf("a log line that is no JSON: %s", lines.Text())
			}
			r.lines <- entry
		}
	}()
	t.Cleanup(func() {
		r.signals <- syscall.SIGTERM
		r.until("stopped")
		if code := <-ended; code != exitOK {
			t.Errorf("exit code %d", code)
		}
	})
	r.url = "http://" + r.until("serving")[0]["addr"].(string)
	return r
}

// until returns the lines of the log up to the one with a message, that one first.
func (r *reloaded) until(message string) []map[string]any {
	r.t.Helper()
	var out []map[string]any
	for entry := range r.lines {
		text, _ := json.Marshal(entry)
		r.log.Write(append(text, '\n'))
		if out = append(out, entry); strings.HasPrefix(entry["msg"].(string), message) {
			slices.Reverse(out)
			return out
		}
	}
	r.t.Fatalf("the log has no line %q:\n%s", message, r.log.String())
	return nil
}

// reload writes the file, sends SIGHUP, and returns what the log says of settings: key: old → new.
func (r *reloaded) reload(text, until string) (changed, restart []string, last map[string]any) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.signals <- syscall.SIGHUP
	lines := r.until(until)
	for _, l := range slices.Backward(lines) {
		switch l["msg"] {
		case "a setting has changed":
			changed = append(changed, l["key"].(string)+": "+l["old"].(string)+" → "+l["new"].(string))
		case "a setting needs a restart":
			restart = append(restart, l["key"].(string)+": "+l["old"].(string)+" → "+l["new"].(string))
		}
	}
	return changed, restart, lines[0]
}

// TestReload: SIGHUP changes what may change, says so without secrets, and changes nothing if anything is
// wrong.
func TestReload(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "key")
	writeKey := func(key string) {
		if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeKey("canary-1")
	const base = "addr: 127.0.0.1:0\ndata: ':memory:'\n"
	r := startReloaded(t, base+"max_turns: 5\nanthropic_api_key: ${env:CANARY}\n", map[string]string{"CANARY": "canary-0", "AGENTD_MAX_QUEUED": "3"})
	c := client.New(r.url)
	defer c.CloseIdleConnections()
	hasKey := func(provider string) (has bool) {
		t.Helper()
		caps, err := c.Capabilities(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range caps.Providers {
			has = has || p.Name == provider && p.HasKey
		}
		return has
	}
	if hasKey("gemini") || !hasKey("anthropic") {
		t.Error("the keys of the file are not in force")
	}
	check := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}

	changed, restart, _ := r.reload(base+"max_turns: 6\nmax_conns: 7\nmax_queued: 9\nlog_level: debug\ngemini_api_key_file: "+keyFile+"\n",
		"the configuration was reloaded")
	check("changed", changed, []string{"log_level: info → debug", "max_turns: 5 → 6",
		"gemini_api_key_file:  → " + keyFile, "anthropic_api_key: *** → "})
	check("restart", restart, []string{"max_conns: 4096 → 7"})
	if !hasKey("gemini") || hasKey("anthropic") {
		t.Error("the keys of the new file are not in force")
	}

	_, _, last := r.reload(base+"max_turn: 7\n", "the configuration was not reloaded")
	if text := last["error"].(string); !strings.Contains(text, r.file+`:3:1: unknown key "max_turn"`) {
		t.Errorf("the error is %q", text)
	}
	_, _, last = r.reload(base+"max_turns: 8\nprices: none.yaml\n", "the configuration was not reloaded")
	if text := last["error"].(string); !strings.Contains(text, "none.yaml") {
		t.Errorf("the error is %q", text)
	}
	if !hasKey("gemini") {
		t.Error("a reload that was refused has changed keys")
	}

	// What a file holds is read again, and what needs a restart is said again.
	writeKey("canary-2")
	changed, restart, _ = r.reload(base+"max_turns: 6\nmax_conns: 7\nlog_level: info\ngemini_api_key_file: "+keyFile+"\n",
		"the configuration was reloaded")
	check("changed", changed, []string{"log_level: debug → info", "gemini_api_key_file: " + keyFile + " → " + keyFile})
	check("restart", restart, []string{"max_conns: 4096 → 7"})
	if strings.Contains(r.log.String(), "canary") {
		t.Errorf("the log holds a key: %s", r.log.String())
	}
}

// SIGHUP ends a process whose terminal has closed.
func TestHangUpOfAServer(t *testing.T) {
	signals := make(chan os.Signal, 2)
	out, in := io.Pipe()
	p := &process{signals: signals, env: map[string]string{"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_ADMIN_ADDR": "off", "AGENTD_DATA": ":memory:"}, stdout: io.Discard, stderr: in}
	gone := false // owned by the test until it sends the second signal
	p.hungUp = func() bool { return gone }
	ended := make(chan int, 1)
	go func() {
		ended <- p.run([]string{"serve"})
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	until := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		t.Fatalf("the log has no %q", text)
	}
	until("msg=serving")
	signals <- syscall.SIGHUP
	until("the configuration was reloaded")
	gone = true
	signals <- syscall.SIGHUP
	until("msg=stopped")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
