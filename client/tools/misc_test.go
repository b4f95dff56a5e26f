package tools_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/conf"
)

func TestJSONQuery(t *testing.T) {
	b := newBench(t)
	b.file("a.json", `{"items": [{"n": 1}, {"n": 12345678901234567890}], "x": 1.50}`)
	b.file("bad.json", `{"a": 1} {"b": 2}`)
	b.want("json_query", `{"query": ".items[].n", "path": "a.json"}`, `{"results": [1, 12345678901234567890], "count": 2}`)
	b.want("json_query", `{"query": "[.items[].n] | length", "json": "{\"items\": [{\"n\": 1}]}"}`, `{"results": [1], "count": 1}`)
	if got := b.call("json_query", `{"query": ".items[1].n", "path": "a.json"}`); !strings.Contains(got, "[12345678901234567890]") {
		t.Errorf("a digit is lost: %s", got)
	}
	b.want("json_query", `{"query": "empty", "json": "null"}`, `{"results": [], "count": 0}`)
	b.want("json_query", `{"query": "env, $ENV", "json": "null"}`, `{"results": [{}, {}], "count": 2}`)
	b.refused("json_query", `{"query": ".x", "path": "a.json", "json": "1"}`, "either path or json")
	b.refused("json_query", `{"query": ".x"}`, "either path or json")
	b.refused("json_query", `{"query": ".[", "json": "1"}`, "query: ")
	b.refused("json_query", `{"query": ".a", "json": "[]"}`, "query: ")
	b.refused("json_query", `{"query": ".", "path": "bad.json"}`, "there is more behind the JSON value")
	b.refused("json_query", `{"query": ".", "json": "{"}`, "json is no JSON")
	b.refused("json_query", `{"query": "import \"a\" as a; .", "json": "1"}`, "query: ")
	if got := b.call("json_query", `{"query": "repeat(1)", "json": "1"}`); !strings.HasSuffix(got, `"count":500,"truncated":true}`) {
		t.Errorf("got %.100s", got)
	}
	b.refused("json_query", `{"query": "[range(100000)]", "json": "1"}`, "more than may be returned")
}

func TestTodo(t *testing.T) {
	b := newBench(t)
	const session = "todo-list"
	say := func(args, want string) {
		t.Helper()
		if got := b.callIn(session, "todo", args); got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
	say(`{"action": "list"}`, `{"items":[]}`)
	say(`{"action": "add", "text": "one"}`, `{"items":[{"id":"1","text":"one","status":"pending"}]}`)
	say(`{"action": "set_status", "id": "1", "status": "in_progress"}`, `{"items":[{"id":"1","text":"one","status":"in_progress"}]}`)
	say(`{"action": "add"}`, "error: add needs text")
	say(`{"action": "set_status", "id": "1"}`, "error: set_status needs id and status")
	say(`{"action": "set_status", "id": "2", "status": "completed"}`, `error: the list has no item "2"`)
	say(`{"action": "set_status", "id": "1", "status": "done"}`, `error: status must be pending, in_progress, completed, it is "done"`)
	say(`{"action": "remove"}`, `error: action must be list, add, set_status or clear, it is "remove"`)
	if items := b.reg.Todo.Items(session); len(items) != 1 || items[0].Status != "in_progress" {
		t.Errorf("got %v", items)
	}
	b.want("todo", `{"action": "list"}`, `{"items": []}`) // another session
	say(`{"action": "clear"}`, `{"items":[]}`)
	say(`{"action": "add", "text": "two"}`, `{"items":[{"id":"2","text":"two","status":"pending"}]}`) // no id is used twice
}

// TestRecordPlan: a plan opens what plan_mode required holds back, for its session.
func TestRecordPlan(t *testing.T) {
	b := newBench(t, func(c *conf.Config) { c.PlanMode = "required" })
	const session = "planned"
	if got := b.callIn(session, "write_file", `{"path": "a", "content": "x"}`); !strings.Contains(got, "record_plan") {
		t.Errorf("got %s", got)
	}
	if got := b.callIn(session, "record_plan", `{"plan": " \n"}`); !strings.Contains(got, "the plan is empty") {
		t.Errorf("got %s", got)
	}
	b.file(".agents/plans/plan-7.md", "earlier")
	if got := b.callIn(session, "record_plan", `{"plan": "# Do it\n"}`); !strings.Contains(got, `"path":".agents/plans/plan-8.md","seq":8`) {
		t.Errorf("got %s", got)
	}
	if got := b.text(".agents/plans/plan-8.md"); got != "# Do it\n" {
		t.Errorf("the file has %q", got)
	}
	if got := b.callIn(session, "write_file", `{"path": "a", "content": "x"}`); !strings.Contains(got, "written") {
		t.Errorf("got %s", got)
	}
	b.refused("write_file", `{"path": "b", "content": "x"}`, "record_plan")
}

// TestFetch: only what url_scope allows is fetched, over redirects too, and private addresses only if they are named.
func TestFetch(t *testing.T) {
	var far, near *httptest.Server
	near = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/docs/text":
			fmt.Fprint(w, "hé", r.Header.Get("Referer"), r.Header.Get("Cookie"))
		case "/docs/large":
			fmt.Fprint(w, strings.Repeat("é", 100_000))
		case "/docs/image":
			w.Header().Set("Content-Type", "image/png")
			fmt.Fprint(w, "\x89PNG")
		case "/docs/twice":
			http.Redirect(w, r, "/docs/once", http.StatusFound)
		case "/docs/once":
			http.Redirect(w, r, "/docs/text", http.StatusMovedPermanently)
		case "/docs/loop":
			http.Redirect(w, r, "/docs/loop", http.StatusFound)
		case "/docs/out":
			http.Redirect(w, r, "/secret", http.StatusFound)
		case "/docs/far":
			http.Redirect(w, r, far.URL+"/docs/text", http.StatusFound)
		case "/docs/denied":
			http.Redirect(w, r, "/docs/no", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}))
	defer near.Close()
	far = httptest.NewServer(http.NotFoundHandler())
	defer far.Close()
	b := newBench(t, func(c *conf.Config) {
		c.URLScope.Allow = []string{near.URL + "/docs"}
		c.Permissions.Deny = []string{"fetch_url:" + near.URL + "/docs/no*"}
	})
	u := func(path string) string { return fmt.Sprintf(`{"url": %q}`, near.URL+path) }
	b.want("fetch_url", u("/docs/text"), fmt.Sprintf(
		`{"url": "%[1]s/docs/text", "final_url": "%[1]s/docs/text", "status": 200, "content_type": "text/plain; charset=utf-8", "bytes": 3, "body": "hé"}`, near.URL))
	b.want("fetch_url", u("/docs/twice"), fmt.Sprintf(
		`{"url": "%[1]s/docs/twice", "final_url": "%[1]s/docs/text", "status": 200, "content_type": "text/plain; charset=utf-8", "bytes": 3, "body": "hé"}`, near.URL))
	b.want("fetch_url", u("/docs/image"), fmt.Sprintf(
		`{"url": "%[1]s/docs/image", "final_url": "%[1]s/docs/image", "status": 200, "content_type": "image/png", "bytes": 4, "body": "[not shown: it is no text]"}`, near.URL))
	if got := b.call("fetch_url", u("/docs/large")); !strings.Contains(got, `"bytes":65536,"truncated":true`) {
		t.Errorf("got %.100s", got)
	}
	if got := b.call("fetch_url", fmt.Sprintf(`{"url": %q, "max_bytes": 3}`, near.URL+"/docs/large")); !strings.Contains(got, `"bytes":2,"truncated":true,"body":"é"`) {
		t.Errorf("got %.200s", got)
	}
	if got := b.call("fetch_url", u("/docs/gone")); !strings.Contains(got, `"status":404`) {
		t.Errorf("got %s", got)
	}
	for path, want := range map[string]string{
		"/docs/loop": "more than 5 redirects", "/docs/out": "is not in reach", "/docs/far": "is not in reach", "/docs/denied": "denied by a rule",
		"/secret": "is not in reach", "/docs/../secret": "is not in reach", "/docs/%2e%2e/secret": "is not in reach", "/docsx": "is not in reach", "/docs/no": "forbids it",
	} {
		b.refused("fetch_url", u(path), want)
	}
	b.refused("fetch_url", fmt.Sprintf(`{"url": %q}`, strings.Replace(near.URL, "http://", "https://", 1)+"/docs/text"), "is not in reach")
	b.refused("fetch_url", fmt.Sprintf(`{"url": %q}`, strings.Replace(near.URL, "http://", "http://u:p@", 1)+"/docs/text"), "a user or a password")
	b.refused("fetch_url", `{"url": "file:///etc/passwd"}`, "want https://")
	b.refused("fetch_url", fmt.Sprintf(`{"url": %q, "max_bytes": 70000}`, near.URL+"/docs/text"), "max_bytes must be 1 to 65536")
}

// TestFetchTLS: the certificate is checked against the name, though the address is what is dialed.
func TestFetchTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	defer s.Close()
	b := newBench(t, func(c *conf.Config) { c.URLScope.Allow = []string{s.URL} })
	b.refused("fetch_url", fmt.Sprintf(`{"url": %q}`, s.URL), "certificate")
}

// TestNoFetch: without an entry of url_scope there is no such tool.
func TestNoFetch(t *testing.T) {
	b := newBench(t)
	clnt := daemon().Client()
	defer clnt.CloseIdleConnections()
	_, err := clnt.Do(t.Context(), client.LLM("a", "scripted/fetch_url", client.Tools("fetch_url")), "{}", client.WithTools(b.reg.Set))
	if err == nil || !strings.Contains(err.Error(), `"fetch_url", which is not registered`) {
		t.Errorf("got %v", err)
	}
}
