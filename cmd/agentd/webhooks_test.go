package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// told is what a receiver was told.
type told struct {
	id   string
	body string
}

// hook is a receiver on loopback. It responds to each request with the status that the test says.
type hook struct {
	*httptest.Server
	key    []byte
	secret string

	mu     sync.Mutex
	status int // 0: it hangs
	all    []told
	came   chan struct{} // holds that something came
}

func newHook(t *testing.T, status int) *hook {
	t.Helper()
	var out bytes.Buffer
	if code := run(nil, []string{"webhooks", "secret"}, nil, &out, io.Discard); code != exitOK {
		t.Fatalf("webhooks secret: exit code %d", code)
	}
	h := &hook{secret: strings.TrimSpace(out.String()), status: status, came: make(chan struct{}, 1000)}
	var err error
	if h.key, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(h.secret, "whsec_")); err != nil {
		t.Fatal(err)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, h.key)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
			t.Errorf("signature %q, want %q", r.Header.Get("webhook-signature"), want)
		}
		h.mu.Lock()
		status := h.status
		h.all = append(h.all, told{r.Header.Get("webhook-id"), string(body)})
		h.mu.Unlock()
		h.came <- struct{}{}
		if status == 0 {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) respond(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *hook) got() []told {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]told(nil), h.all...)
}

// file writes the file of webhooks with this one alone.
func (h *hook) file(t *testing.T, rest string) string {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(h.secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "webhooks.yaml")
	text := fmt.Sprintf("webhooks:\n  phone:\n    url: %s/agentd\n    secret_file: %s\n    allow: [127.0.0.1]\n%s",
		h.URL, secret, rest)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// webhookData is what the tests read of a body.
type webhookData struct {
	Type string
	Data struct {
		SessionID   string `json:"session_id"`
		TurnID      string `json:"turn_id"`
		Turn        struct{ Status, Output string }
		Interaction struct{ ID, Kind, Status, Question string }
	}
}

func (t told) data(tb testing.TB) (d webhookData) {
	tb.Helper()
	if err := json.Unmarshal([]byte(t.body), &d); err != nil {
		tb.Fatalf("%v: %s", err, t.body)
	}
	return d
}

// A server is killed while the receiver has not yet taken what it is told: the next one tells it again, under its id. A
// receiver that is gone for good makes a dead letter, which the command lists and sends again.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	h := newHook(t, 0)
	scripts := t.TempDir()
	if err := os.WriteFile(filepath.Join(scripts, "hello.yaml"), []byte("answers: [{text: hello}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(), "AGENTD_SCRIPTS": scripts,
		"AGENTD_WEBHOOKS": h.file(t, "    events: [turn.ended]\n    content: true\n"),
	}
	first := binary(t, env)
	res, err := newClient(t, first).Do(t.Context(), agent("scripted/hello"), "hi")
	if err != nil {
		t.Fatal(err)
	}
	<-h.came
	first.signal(syscall.SIGKILL)
	first.wait()
	h.respond(http.StatusOK)
	second := binary(t, env)
	<-h.came
	got := h.got()
	if len(got) != 2 || got[0].id != got[1].id || got[0].body != got[1].body {
		t.Fatalf("told %v, want the same twice", got)
	}
	d := got[1].data(t)
	if d.Type != "turn.ended" || d.Data.SessionID != res.SessionID || d.Data.Turn.Status != "succeeded" ||
		d.Data.Turn.Output != "hello" {
		t.Errorf("told %s", got[1].body)
	}

	h.respond(http.StatusGone)
	if _, err := newClient(t, second).Do(t.Context(), agent("scripted/hello"), "hi"); err != nil {
		t.Fatal(err)
	}
	<-h.came
	own := map[string]string{"AGENTD_DATA": env["AGENTD_DATA"]}
	command := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(nil, append([]string{"webhooks"}, args...), own, &stdout, &stderr); code != exitOK {
			t.Fatalf("webhooks %v: exit code %d: %s", args, code, stderr.String())
		}
		return stdout.String()
	}
	var letter letterLine
	for end := time.Now().Add(time.Minute); letter.ID == ""; {
		if text := command("dead", "--webhook", "phone"); text != "" {
			if err := json.Unmarshal([]byte(text), &letter); err != nil {
				t.Fatal(err)
			}
		} else if time.Now().After(end) {
			t.Fatal("there is no dead letter")
		}
	}
	if last := h.got()[2]; letter.ID != last.id || letter.Error != "it responded 410 Gone" || letter.Attempts != 1 {
		t.Errorf("the dead letter: %+v, of %v", letter, last)
	}
	if text := command("list"); text != `{"webhook":"phone","waiting":0,"dead":1}`+"\n" {
		t.Errorf("list: %s", text)
	}
	h.respond(http.StatusNoContent)
	command("retry", letter.ID)
	<-h.came
	if got := h.got(); len(got) != 4 || got[3].id != letter.ID {
		t.Errorf("told %v", got)
	}
	var audit bytes.Buffer
	if code := run(nil, []string{"audit"}, own, &audit, io.Discard); code != exitOK ||
		!strings.Contains(audit.String(), `"webhooks.retry"`) {
		t.Errorf("the audit trail: %s", audit.String())
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
	if log := first.log.String() + second.log.String(); strings.Contains(log, h.secret) || strings.Contains(log, "/agentd\"") {
		t.Error("the log holds the secret or the URL")
	}
	var stdout, stderr bytes.Buffer
	if code := run(nil, []string{"webhooks", "retry", "msg_none"}, own, &stdout, &stderr); code != exitError ||
		!strings.Contains(stderr.String(), "there is no dead letter") {
		t.Errorf("retry of nothing: %d, %s", code, stderr.String())
	}
}

// Of two replicas the one dies that has begun to tell a receiver: the other one tells it.
func TestWebhooksOfReplicas(t *testing.T) {
	t.Parallel()
	h := newHook(t, 0)
	env, _ := killable(t)
	delete(env, "AGENTD_DATA")
	env["AGENTD_STORE"] = pgserver.URL(t)
	env["AGENTD_WEBHOOKS"] = h.file(t, "    events: [turn.ended]\n    timeout: 1s\n")
	if err := os.WriteFile(filepath.Join(env["AGENTD_SCRIPTS"], "hello.yaml"), []byte("answers: [{text: hello}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := replica(t, env)
	c := client.New(first.url)
	t.Cleanup(c.CloseIdleConnections)
	if _, err := c.Do(t.Context(), agent("scripted/hello"), "hi"); err != nil {
		t.Fatal(err)
	}
	<-h.came
	first.signal(syscall.SIGKILL)
	first.wait()
	second := replica(t, env)
	h.respond(http.StatusOK)
	<-h.came
	got := h.got()
	if got[0].id != got[len(got)-1].id {
		t.Errorf("told %v, want one id", got)
	}
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != exitOK {
		t.Errorf("exit code %d: %s", code, second.log)
	}
}

// A goal that asks before its turns, reaches marks of its budget and ends is told so, each once.
func TestWebhooksOfGoals(t *testing.T) {
	t.Parallel()
	h := newHook(t, http.StatusOK)
	d := inProcess(t, map[string]string{
		"AGENTD_ADDR": "127.0.0.1:0", "AGENTD_DATA": t.TempDir(),
		"AGENTD_WEBHOOKS": h.file(t, "    events: [goal.ended, goal.asks, budget.marked]\n"),
	})
	c := client.New(d.url)
	t.Cleanup(c.CloseIdleConnections)
	g, err := c.StartGoal(t.Context(), client.GoalSpec{
		Agent: client.LLM("root", "echo"), Goal: "tidy up", MaxTurns: 2, MaxOutputTokens: 2,
		BeforeTurn: func(context.Context, int) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := g.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"goal.asks": res.Turns, "goal.ended": 1, "budget.marked": 2} // 80 and 100 per cent
	got := map[string]int{}
	for len(got) < len(want) || got["budget.marked"] < 2 || got["goal.asks"] < res.Turns {
		<-h.came
		got = map[string]int{}
		for _, told := range h.got() {
			var body struct {
				Type string
				Data struct {
					SessionID string `json:"session_id"`
					Goal      *struct{ ID, Reason, Goal string }
					Budget    *struct{ Period, Part string }
				}
			}
			if err := json.Unmarshal([]byte(told.body), &body); err != nil {
				t.Fatal(err)
			}
			got[body.Type]++
			switch {
			case body.Data.SessionID != res.SessionID,
				body.Type == "budget.marked" && (body.Data.Budget == nil || body.Data.Budget.Period != "goal" || body.Data.Budget.Part != "output_tokens"),
				body.Type != "budget.marked" && (body.Data.Goal == nil || body.Data.Goal.ID != res.GoalID || body.Data.Goal.Goal != ""),
				body.Type == "goal.ended" && body.Data.Goal.Reason != string(res.Reason):
				t.Errorf("told %s; the goal: %+v", told.body, res)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told:\n%s", diff)
	}
}
