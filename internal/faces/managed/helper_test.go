package managed_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/faces/managed"
	"github.com/apzuk3/agentd/server"
)

// desk is a real daemon with the face, and clients of it.
type desk struct {
	t      *testing.T
	url    string
	http   *http.Client
	sdk    anthropic.Client
	native agentdv1connect.SessionServiceClient
	daemon *daemon.Daemon
	// patient has a request made again that the daemon's death has cut.
	patient bool
}

// open starts a daemon in this process.
func open(t *testing.T, cfg daemon.Config) *desk {
	t.Helper()
	cfg.Addr, cfg.Faces = "127.0.0.1:0", []server.Face{managed.Face{}}
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if cfg.Getenv == nil {
		cfg.Getenv = func(string) string { return "" }
	}
	d, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	out := dial(t, d.URL(), "")
	out.daemon = d
	return out
}

// dial returns clients of a daemon, with a key; "" for one that asks for none.
func dial(t *testing.T, url, key string) *desk {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	hc := &http.Client{Transport: keyed{tr, key}}
	return &desk{
		t: t, url: url, http: hc, native: agentdv1connect.NewSessionServiceClient(hc, url),
		sdk: anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey("none"),
			option.WithHTTPClient(hc), option.WithMaxRetries(0)),
	}
}

// keyed sends a key, and no other.
type keyed struct {
	next http.RoundTripper
	key  string
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del("X-Api-Key")
	if k.key != "" {
		r.Header.Set("X-Api-Key", k.key)
	}
	return k.next.RoundTrip(r)
}

// object is a JSON object.
type object map[string]any

// at returns what stands at a path of names and places.
func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

func (o object) text(path ...any) string {
	s, _ := o.at(path...).(string)
	return s
}

// objects returns a list of objects.
func (o object) objects(name string) (out []object) {
	list, _ := o[name].([]any)
	for _, v := range list {
		m, _ := v.(map[string]any)
		out = append(out, m)
	}
	return out
}

// send makes a request. A body that is no text is sent as JSON.
func (d *desk) send(method, path string, body any, headers ...string) (int, object, http.Header) {
	d.t.Helper()
	text, ok := body.(string)
	if !ok && body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			d.t.Fatal(err)
		}
		text = string(data)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(text))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := d.http.Do(req)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if err != nil && d.patient {
		time.Sleep(5 * time.Millisecond)
		return d.send(method, path, body, headers...)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	var out object
	if err := json.Unmarshal(data, &out); err != nil {
		d.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, data)
	}
	return resp.StatusCode, out, resp.Header
}

// must is send for a request that succeeds.
func (d *desk) must(method, path string, body any) object {
	d.t.Helper()
	status, out, _ := d.send(method, path, body)
	if status != http.StatusOK {
		d.t.Fatalf("%s %s %v: %d %v", method, path, body, status, out)
	}
	return out
}

// greetTool is a custom tool.
var greetTool = object{
	"type": "custom", "name": "greet", "description": "greets someone",
	"input_schema": object{"type": "object", "properties": object{"name": object{"type": "string"}}, "required": []string{"name"}},
}

// session makes an agent of a model with a tool, an environment, and a session.
func (d *desk) session(model string, tools ...object) (id string) {
	d.t.Helper()
	if tools == nil {
		tools = []object{greetTool}
	}
	a := d.must("POST", "/v1/agents", object{"name": "a", "model": object{"id": model}, "system": "s", "tools": tools})
	return d.sessionOf(a.text("id"))
}

// sessionOf makes a session of an agent.
func (d *desk) sessionOf(agent any) string {
	d.t.Helper()
	e := d.must("POST", "/v1/environments", object{"name": "e"})
	return d.must("POST", "/v1/sessions", object{"agent": agent, "environment_id": e.text("id")}).text("id")
}

func said(text string) object {
	return object{"type": "user.message", "content": []object{{"type": "text", "text": text}}}
}

// post posts events.
func (d *desk) post(session string, events ...object) []object {
	d.t.Helper()
	return d.must("POST", "/v1/sessions/"+session+"/events", object{"events": events}).objects("data")
}

// events lists all events of a session.
func (d *desk) events(session string) []object {
	d.t.Helper()
	return d.list("/v1/sessions/" + session + "/events?limit=1000")
}

// list reads all pages of a list.
func (d *desk) list(path string) (out []object) {
	d.t.Helper()
	next := ""
	for {
		page := d.must("GET", path+next, nil)
		out = append(out, page.objects("data")...)
		if page["next_page"] == nil {
			return out
		}
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		next = sep + "page=" + page.text("next_page")
	}
}

// kinds are the types of events.
func kinds(events []object) (out []string) {
	for _, e := range events {
		out = append(out, e.text("type"))
	}
	return out
}

// lastStatus is the last event that says what a session does.
func lastStatus(events []object) object {
	for _, e := range slices.Backward(events) {
		if strings.HasPrefix(e.text("type"), "session.status_") {
			return e
		}
	}
	return nil
}

// untilIdle waits until a session is idle, with a stop reason of its last such event.
func (d *desk) untilIdle(session, why string) (events []object) {
	d.t.Helper()
	s := d.follow("/v1/sessions/"+session+"/events/stream", "0")
	defer s.close()
	for {
		f := s.next()
		events = append(events, f.data)
		if f.name != "session.status_idle" || f.data.text("stop_reason", "type") != why {
			continue
		}
		if now := d.must("GET", "/v1/sessions/"+session, nil); now.text("status") == "idle" {
			all := d.events(session)
			if lastStatus(all).text("id") == f.data.text("id") {
				return all
			}
		}
	}
}

// frame is a frame of server-sent events.
type frame struct {
	id, name string
	data     object
}

// follower is an open stream.
type follower struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
	stop context.CancelFunc
}

// follow opens a stream behind an id; "" is from now on.
func (d *desk) follow(path, last string) *follower {
	d.t.Helper()
	ctx, stop := context.WithCancel(d.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	f := &follower{d.t, resp, bufio.NewReader(resp.Body), stop}
	d.t.Cleanup(f.close)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		d.t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
	}
	return f
}

func (f *follower) close() {
	f.stop()
	_ = f.resp.Body.Close()
}

// next returns the next frame that is no comment.
func (f *follower) next() (out frame) {
	f.t.Helper()
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			f.t.Fatalf("the stream has ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && out.name != "":
			return out
		case name == "id":
			out.id = value
		case name == "event":
			out.name = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &out.data); err != nil {
				f.t.Fatalf("%s: %v", value, err)
			}
		}
	}
}

// call makes a call of SessionService.
func call[Q, P any](t *testing.T, do func(context.Context, *connect.Request[Q]) (*connect.Response[P], error), req *Q) *P {
	t.Helper()
	resp, err := do(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	return resp.Msg
}
