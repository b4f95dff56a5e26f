//go:build unix

package mcp_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/mcp"
)

// TestFile: what is wrong with the file fails Build, with the place; no file is no server.
func TestFile(t *testing.T) {
	for name, tc := range map[string]struct{ file, err string }{
		"no JSON":           {`{`, "unexpected end"},
		"no version":        {`{"servers":{}}`, "version must be 1, it is missing"},
		"another version":   {`{"version":2}`, "version must be 1, it is 2"},
		"unknown key":       {`{"version":1,"severs":{}}`, `unknown field "severs"`},
		"unknown key of it": {`{"version":1,"servers":{"a":{"transport":"stdio","cmd":"x"}}}`, `unknown field "cmd"`},
		"two values":        {`{"version":1} {}`, "after top-level value"},
		"no transport":      {`{"version":1,"servers":{"a":{"command":"x"}}}`, `servers.a: transport must be "stdio" or "http", it is ""`},
		"sse":               {`{"version":1,"servers":{"a":{"transport":"sse","url":"x"}}}`, `it is "sse"`},
		"no command":        {`{"version":1,"servers":{"a":{"transport":"stdio"}}}`, "servers.a: command is missing"},
		"no url":            {`{"version":1,"servers":{"a":{"transport":"http"}}}`, "servers.a: url is missing"},
		"url of a program":  {`{"version":1,"servers":{"a":{"transport":"stdio","command":"x","url":"y"}}}`, "url and headers are for"},
		"program of a url":  {`{"version":1,"servers":{"a":{"transport":"http","url":"y","env":{}}}}`, "command, args and env are for"},
		"bad variable":      {`{"version":1,"servers":{"a":{"transport":"stdio","command":"x","env":{"A=B":""}}}}`, `"A=B" is no name`},
		"no name":           {`{"version":1,"servers":{"":{"transport":"stdio","command":"x"}}}`, `"" is no name of a server`},
		"wrong type":        {`{"version":1,"servers":[]}`, "cannot unmarshal array"},
	} {
		t.Run(name, func(t *testing.T) {
			servers, err := mcp.Build(t.Context(), folderOf(t, tc.file), yolo(t), nil)
			if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), "mcp.json") || servers != nil {
				t.Errorf("got %v, %v; want an error of the file with %q", servers, err, tc.err)
			}
		})
	}
	if servers, err := mcp.Build(t.Context(), t.TempDir(), yolo(t), nil); err != nil || len(servers) != 0 {
		t.Errorf("without a file: %v, %v", servers, err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "mcp.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := mcp.Build(t.Context(), dir, yolo(t), nil); err == nil {
		t.Error("a folder is no file")
	}
}

// TestOneDead: servers that fail say why, and the live one is used by a turn. No error shows a secret.
func TestOneDead(t *testing.T) {
	t.Setenv("SECRET_TOKEN", "s3cret-value")
	closed := newFront(t, "plain")
	closed.kill()
	refusing := map[string]any{"transport": "http", "url": refusal(t)}
	servers := build(t, map[string]any{
		"live": program(t, "plain"), "dead": program(t, "dead", "TOKEN=${env:SECRET_TOKEN}"),
		"gone":   map[string]any{"transport": "stdio", "command": "no-such-program"},
		"unset":  map[string]any{"transport": "stdio", "command": "x", "args": []string{"${env:NOT_SET_B}", "${env:NOT_SET_A}"}},
		"closed": closed.entry(), "refuses": refusing,
		"address": map[string]any{"transport": "http", "url": "ftp://${env:SECRET_TOKEN}"},
	}, nil)
	want := map[string]string{
		"dead":    "the license has expired: ${env:SECRET_TOKEN}",
		"gone":    `there is no program "no-such-program"`,
		"unset":   "not set in the environment: NOT_SET_A, NOT_SET_B",
		"closed":  "refused",
		"refuses": "it answers 401 Unauthorized",
		"address": "url must be like https://host/path",
	}
	for _, s := range servers {
		switch {
		case s.Name == "live":
			if s.Status != mcp.StatusOK || s.Err != nil || len(s.Tools) == 0 {
				t.Errorf("live: %s, %v, %v", s.Status, s.Err, s.Tools)
			}
			gives(t, s, "live_echo", map[string]any{"text": "alive"}, "alive")
		case s.Status != mcp.StatusError || s.Err == nil || !strings.Contains(s.Err.Error(), want[s.Name]):
			t.Errorf("%s: %s, %v; want an error with %q", s.Name, s.Status, s.Err, want[s.Name])
		case strings.Contains(s.Err.Error(), "s3cret"):
			t.Errorf("%s shows a secret: %v", s.Name, s.Err)
		}
	}
	if len(servers) != len(want)+1 {
		t.Errorf("%d servers", len(servers))
	}
}

// refusal is the address of a server that lets nobody in.
func refusal(t *testing.T) string {
	t.Helper()
	return serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
}

// TestHung: a server that does not answer is given up in time, does not delay the others' use, and is killed.
func TestHung(t *testing.T) {
	hangs := make(chan struct{})
	web := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hangs:
		case <-r.Context().Done():
		}
	})
	defer close(hangs)
	began := time.Now()
	servers := build(t, map[string]any{
		"hung": program(t, "hung"), "live": program(t, "plain"), "web": map[string]any{"transport": "http", "url": web},
	}, nil, mcp.Quick(2*time.Second, time.Minute, time.Millisecond, 50*time.Millisecond))
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("Build took %s", d)
	}
	for _, s := range servers {
		if ok := s.Name == "live"; ok != (s.Status == mcp.StatusOK) {
			t.Errorf("%s: %s, %v", s.Name, s.Status, s.Err)
		} else if !ok && !strings.Contains(s.Err.Error(), "not connected within 2s") {
			t.Errorf("%s: %v", s.Name, s.Err)
		}
	}
	// A Build that is no longer wanted ends at once.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began = time.Now()
	got, err := mcp.Build(ctx, folder(t, map[string]any{"hung": program(t, "hung")}), yolo(t), nil,
		mcp.Quick(time.Minute, time.Minute, time.Millisecond, 50*time.Millisecond))
	if err != nil || got[0].Status != mcp.StatusError || time.Since(began) > 5*time.Second {
		t.Errorf("got %v, %v after %s", got, err, time.Since(began))
	}
	got[0].Close()
}

// TestEnvironment: a program gets little of the environment, and its own variables; an HTTP server gets its headers.
func TestEnvironment(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "canary")
	t.Setenv("LC_ALL", "C")
	t.Setenv("FILES_TOKEN", "token-of-files")
	f := newFront(t, "plain")
	web := f.entry()
	web["headers"] = map[string]string{"Authorization": "Bearer ${env:FILES_TOKEN}"}
	servers := build(t, map[string]any{"p": program(t, "plain", "TOKEN=x${env:FILES_TOKEN}y"), "w": web}, nil)
	env := turn(t.Context(), t, servers[0], "p_environment", nil).Output
	for line := range strings.SplitSeq(env, "\n") {
		name, value, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "MCP_TEST_SERVER", "GORACE":
		case "TOKEN":
			if value != "xtoken-of-filesy" {
				t.Errorf("TOKEN is %q", value)
			}
		default:
			t.Errorf("it gets %s", line)
		}
	}
	if !strings.Contains(env, "TOKEN=x") || !strings.Contains(env, "LC_ALL=C") {
		t.Errorf("it gets %s", env)
	}
	gives(t, servers[1], "w_echo", map[string]any{"text": "x"}, "x")
	for n := len(f.headers); n > 0; n-- {
		if h := <-f.headers; h.Get("Authorization") != "Bearer token-of-files" {
			t.Errorf("a request has the headers %v", h)
		}
	}
}

// TestRedirect: the headers go to the server's host alone.
func TestRedirect(t *testing.T) {
	stolen := make(chan http.Header, 10)
	other := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) { stolen <- r.Header })
	web := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusTemporaryRedirect) })
	s := build(t, map[string]any{"w": map[string]any{
		"transport": "http", "url": web, "headers": map[string]string{"X-Token": "secret"},
	}}, nil)[0]
	if s.Status != mcp.StatusError {
		t.Error("it is connected to another host")
	}
	select {
	case h := <-stolen:
		t.Errorf("another host got %v", h)
	default:
	}
}

// TestClose: a program and what it has started end, also if they ignore SIGTERM; Close may be called again.
func TestClose(t *testing.T) {
	for _, mode := range []string{"plain", "stubborn"} {
		t.Run(mode, func(t *testing.T) {
			s := build(t, map[string]any{"s": program(t, mode)}, nil, mcp.Quick(10*time.Second, time.Minute, time.Millisecond, 300*time.Millisecond))[0]
			server := number(t, turn(t.Context(), t, s, "s_pid", nil).Output)
			child := number(t, turn(t.Context(), t, s, "s_spawn", nil).Output)
			if !alive(server) || !alive(child) {
				t.Fatal("they do not run")
			}
			began := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s.Close()
			if d := time.Since(began); d > 5*time.Second || mode == "stubborn" && d < 300*time.Millisecond {
				t.Errorf("Close took %s", d)
			}
			eventually(t, "both are gone", func() bool { return !alive(server) && !alive(child) })
			fails(t, s, "s_echo", nil, "the MCP server s cannot be used: it was closed")
			if state := s.State(); state.Status != mcp.StatusError {
				t.Errorf("it is %s", state.Status)
			}
		})
	}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// alive reports whether a process runs and is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !regexp.MustCompile(`\) Z `).Match(stat)
}

// TestElicit: a question of a server reaches the elicitor with the call it belongs to; without one it is declined, with
// one notice for all.
func TestElicit(t *testing.T) {
	for name, entry := range wires(t) {
		t.Run(name, func(t *testing.T) {
			var n notices
			s := build(t, map[string]any{"s": entry}, nil, mcp.OnNotice(n.add))[0]
			gives(t, s, "s_ask", nil, "decline <nil>")
			gives(t, s, "s_ask", nil, "decline <nil>")
			if got := strings.Count(n.all(), "asks a question"); got != 1 {
				t.Errorf("%d notices: %s", got, n.all())
			}
			action := "accept"
			asked := func(ctx context.Context, server string, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				if server != "s" || r.Params.Message != "Who are you?" || client.CallFrom(ctx).ID() == "" {
					t.Errorf("asked %q for %s, in the call %q", r.Params.Message, server, client.CallFrom(ctx).ID())
				}
				if action == "" {
					return nil, nil
				}
				return &sdk.ElicitResult{Action: action, Content: map[string]any{"name": "Hal"}}, nil
			}
			s = build(t, map[string]any{"s": entry}, asked)[0]
			gives(t, s, "s_ask", nil, "accept Hal")
			action = ""
			gives(t, s, "s_ask", nil, "cancel <nil>")
		})
	}
}

// TestElicitTakesTime: the time of a call stands still while a person is asked.
func TestElicitTakesTime(t *testing.T) {
	var name any
	asked := func(context.Context, string, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		<-time.After(time.Second)
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": name}}, nil
	}
	s := build(t, map[string]any{"s": program(t, "plain")}, asked, mcp.Quick(10*time.Second, 200*time.Millisecond, time.Millisecond, time.Second))[0]
	name = "Hal"
	gives(t, s, "s_ask", nil, "accept Hal")
	name = "slow"
	fails(t, s, "s_ask", nil, "has taken too long")
	fails(t, s, "s_wait", map[string]any{"text": filepath.Join(t.TempDir(), "log")}, "has taken too long")
	gives(t, s, "s_echo", map[string]any{"text": "x"}, "x")
}
