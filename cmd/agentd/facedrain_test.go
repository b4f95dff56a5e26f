package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFaceDrains: a daemon that was told to stop refuses messages in the form of a face's protocol while it finishes a
// model call, and says so at the end of a stream; the next daemon takes them.
func TestFaceDrains(t *testing.T) {
	t.Parallel()
	data, scripts := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "slow.yaml"), []byte(`answers: [{when: {}, delay: 3s, text: done}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": data, "AGENTD_SCRIPTS": scripts, "AGENTD_FACE": "managed-agents",
	}
	d := binary(t, env)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	c := &http.Client{Transport: tr}
	ask := func(path, body string) (int, posting) {
		t.Helper()
		return postedBy(t, c, d, path, body)
	}
	_, agent := ask("/v1/agents", `{"name": "a", "model": {"id": "scripted/slow"}}`)
	_, place := ask("/v1/environments", `{"name": "e"}`)
	session := func() string {
		t.Helper()
		_, s := ask("/v1/sessions", fmt.Sprintf(`{"agent": %q, "environment_id": %q}`, agent.ID, place.ID))
		return "/v1/sessions/" + s.ID
	}
	const hello = `{"events": [{"type": "user.message", "content": [{"type": "text", "text": "hello"}]}]}`
	runs, other := session(), session()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+runs+"/events/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	frames := bufio.NewScanner(stream.Body)
	until := func(text string) {
		t.Helper()
		for frames.Scan() {
			if strings.Contains(frames.Text(), text) {
				return
			}
		}
		t.Errorf("the stream has ended before %s: %v", text, frames.Err())
	}
	if status, out := ask(runs+"/events", hello); status != http.StatusOK {
		t.Fatal(status, out)
	}
	until("span.model_request_start")
	d.signal(syscall.SIGTERM)
	for end := time.Now().Add(time.Minute); ; {
		status, out := ask(other+"/events", hello)
		if status == 529 && out.Error.Type == "overloaded_error" && strings.Contains(out.Error.Message, "stopping") {
			break
		}
		if status != http.StatusOK || time.Now().After(end) { // before the signal has come it is taken
			t.Fatalf("a server that stops says %d %+v", status, out)
		}
	}
	if status, out := ask("/v1/agents", `{"name": "b", "model": {"id": "scripted/slow"}}`); status != http.StatusOK {
		t.Errorf("what starts no turn: %d %+v", status, out)
	}
	until(`"stop_reason":{"type":"end_turn"}`)
	until(`"type":"overloaded_error"`)
	if code := d.wait(); code != exitOK {
		t.Fatalf("exit code %d: %s", code, d.log)
	}
	d = binary(t, env)
	if status, out := ask(other+"/events", hello); status != http.StatusOK {
		t.Errorf("the next server says %d %+v", status, out)
	}
}

// posting is what a request of Managed Agents is answered with.
type posting struct {
	ID    string `json:"id"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// posted makes a request of Managed Agents.
func posted(t *testing.T, d *served, path, body string) (status int, out posting) {
	t.Helper()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	return postedBy(t, &http.Client{Transport: tr}, d, path, body)
}

func postedBy(t *testing.T, c *http.Client, d *served, path, body string) (status int, out posting) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, text, err)
	}
	return resp.StatusCode, out
}
