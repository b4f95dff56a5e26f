package managed_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/session/principal"
)

// byKey knows callers by their keys: WHO@TENANT, perhaps /observer.
func byKey(r *http.Request) (principal.Principal, error) {
	who, role, _ := strings.Cut(r.Header.Get("X-Api-Key"), "/")
	id, tenant, ok := strings.Cut(who, "@")
	if !ok {
		return principal.Principal{}, errors.New("send X-Api-Key")
	}
	p := principal.Principal{ID: id, Tenant: tenant, Role: principal.Caller}
	if role == "observer" {
		p.Role = principal.Observer
	}
	return p, nil
}

func TestAgents(t *testing.T) {
	d := open(t, daemon.Config{})
	fields := object{
		"name": "The Desk!", "model": object{"id": "echo"}, "system": "be {kind?} and {}", "description": "a desk",
		"tools": []object{greetTool}, "metadata": object{"team": "x"},
	}
	a := d.must("POST", "/v1/agents", fields)
	for _, null := range []string{"multiagent", "archived_at"} {
		if v, ok := a[null]; !ok || v != nil {
			t.Errorf("%s is %v", null, v)
		}
	}
	for name, want := range map[string]any{"type": "agent", "version": 1.0, "name": "The Desk!", "system": "be {kind?} and {}", "description": "a desk"} {
		if a[name] != want {
			t.Errorf("%s is %v, want %v", name, a[name], want)
		}
	}
	if a.text("model", "id") != "echo" || a.text("tools", 0, "input_schema", "required", 0) != "name" || a.text("metadata", "team") != "x" || len(a["skills"].([]any)) != 0 || a.text("created_at") == "" {
		t.Errorf("agent %v", a)
	}
	id := a.text("id")
	if again := d.must("POST", "/v1/agents", fields); again.text("id") != id || again["version"] != 1.0 {
		t.Errorf("the same twice made %v", again)
	}
	// A change makes a version; one that was read before it is stale.
	b := d.must("POST", "/v1/agents/"+id, object{"system": "be kind", "version": 1, "metadata": object{"team": nil, "more": "y"}})
	if b["version"] != 2.0 || b.text("system") != "be kind" || b.text("name") != "The Desk!" || b.text("metadata", "team") != "" || b.text("metadata", "more") != "y" {
		t.Errorf("changed: %v", b)
	}
	status, refusal, h := d.send("POST", "/v1/agents/"+id, object{"system": "x", "version": 1})
	if status != 409 || refusal.text("error", "type") != "conflict_error" || h.Get("X-Should-Retry") != "false" || refusal.text("request_id") != h.Get("Request-Id") || refusal.text("request_id") == "" {
		t.Errorf("stale: %d %v %v", status, refusal, h)
	}
	if c := d.must("POST", "/v1/agents/"+id, object{"description": nil, "tools": []object{}}); c["version"] != 3.0 || c["description"] != "" || len(c["tools"].([]any)) != 0 {
		t.Errorf("cleared: %v", c)
	}
	if one := d.must("GET", "/v1/agents/"+id+"?version=1&beta=true", nil); one.text("system") != "be {kind?} and {}" || one["version"] != 1.0 {
		t.Errorf("version 1: %v", one)
	}
	if all := d.list("/v1/agents/" + id + "/versions?limit=2"); len(all) != 3 || all[0]["version"] != 3.0 || all[2]["version"] != 1.0 {
		t.Errorf("versions %v", all)
	}
	// Made of what the first version was, and another one.
	other := d.must("POST", "/v1/agents", fields)
	if other.text("id") == id || other["version"] != 1.0 {
		t.Errorf("the content of version 1 made %v", other)
	}
	for n := range 5 {
		d.must("POST", "/v1/agents", object{"name": fmt.Sprint("n", n), "model": "echo"})
	}
	if all := d.list("/v1/agents?limit=3"); len(all) != 7 || all[0].text("name") != "n4" {
		t.Errorf("%d agents, first %v", len(all), all[0])
	}
	if gone := d.must("POST", "/v1/agents/"+id+"/archive", nil); gone["archived_at"] == nil {
		t.Errorf("archived: %v", gone)
	}
	if all := d.list("/v1/agents"); len(all) != 6 {
		t.Errorf("%d agents without the archived one", len(all))
	}
	if all := d.list("/v1/agents?include_archived=true&limit=4"); len(all) != 7 {
		t.Errorf("%d agents with the archived one", len(all))
	}
	for _, path := range []string{"", "/archive"} {
		if status, refusal, _ := d.send("POST", "/v1/agents/"+id+path, object{}); path == "" && status != 400 {
			t.Errorf("%s of an archived agent: %d %v", path, status, refusal)
		}
	}
	env := d.must("POST", "/v1/environments", object{"name": "e"}).text("id")
	if status, refusal, _ := d.send("POST", "/v1/sessions", object{"agent": id, "environment_id": env}); status != 400 {
		t.Errorf("a session of an archived agent: %d %v", status, refusal)
	}
	if at := d.list("/v1/agents?created_at[gte]=" + other.text("created_at")); len(at) != 6 {
		t.Errorf("%d agents since %s", len(at), other.text("created_at"))
	}
	if at := d.list("/v1/agents?created_at[lte]=2001-01-01T00:00:00Z"); len(at) != 0 {
		t.Errorf("%d agents of long ago", len(at))
	}
}

func TestEnvironments(t *testing.T) {
	d := open(t, daemon.Config{})
	e := d.must("POST", "/v1/environments", object{"name": "e", "description": "d", "config": object{"type": "cloud", "networking": object{"type": "unrestricted"}}, "metadata": object{"k": "v"}})
	id := e.text("id")
	if e["type"] != "environment" || e.text("config", "networking", "type") != "unrestricted" || e["archived_at"] != nil || e.text("metadata", "k") != "v" {
		t.Errorf("made %v", e)
	}
	if e := d.must("POST", "/v1/environments/"+id, object{"name": "f"}); e["name"] != "f" || e["description"] != "d" || e.text("created_at") == e.text("updated_at") {
		t.Errorf("changed %v", e)
	}
	for n := range 4 {
		d.must("POST", "/v1/environments", object{"name": fmt.Sprint(n)})
	}
	d.must("POST", "/v1/environments/"+id+"/archive", nil)
	if got := d.must("GET", "/v1/environments/"+id, nil); got["archived_at"] == nil || got["name"] != "f" {
		t.Errorf("archived %v", got)
	}
	if all := d.list("/v1/environments?limit=3"); len(all) != 4 || all[0]["name"] != "3" || all[3]["name"] != "0" {
		t.Errorf("environments %v", all)
	}
	if all := d.list("/v1/environments?limit=1&include_archived=true"); len(all) != 5 {
		t.Errorf("%d environments", len(all))
	}
	if gone := d.must("DELETE", "/v1/environments/"+id, nil); gone["type"] != "environment_deleted" || gone["id"] != id {
		t.Errorf("deleted %v", gone)
	}
	for _, method := range []string{"GET", "DELETE", "POST"} {
		if status, refusal, _ := d.send(method, "/v1/environments/"+id, nil); status != 404 || refusal.text("error", "type") != "not_found_error" {
			t.Errorf("%s of a deleted one: %d %v", method, status, refusal)
		}
	}
}

// What the model is told is the system prompt, letter by letter; a session may have its own, and that makes no version.
func TestSessionAgents(t *testing.T) {
	provider, url := fakeprovider.Start(t, fakeprovider.Say("hi"))
	d := open(t, daemon.Config{Providers: daemon.Providers{AnthropicAPIKey: "secret", AnthropicBaseURL: url}})
	const system = `Write {name}, {{x}}, {"a": 1} and {app:x?}}`
	a := d.must("POST", "/v1/agents", object{"name": "a", "model": "claude-sonnet-4-5", "system": system})
	told := func(session string) string {
		t.Helper()
		d.post(session, said("go"))
		d.untilIdle(session, "end_turn")
		req, err := provider.Last().Request()
		if err != nil {
			t.Fatal(err)
		}
		system, ok := strings.CutSuffix(req.System, "\n\nYou are an agent. Your internal name is \"a\".") // the engine's
		if !ok {
			t.Errorf("the model is told %q", req.System)
		}
		return system
	}
	plain := d.sessionOf(a.text("id"))
	if got := told(plain); got != system {
		t.Errorf("the model is told %q, want %q", got, system)
	}
	d.must("POST", "/v1/agents/"+a.text("id"), object{"system": "new"})
	if got := told(plain); got != system {
		t.Errorf("a session that was made before: the model is told %q", got)
	}
	pinned := d.sessionOf(object{"type": "agent", "id": a.text("id"), "version": 1})
	if got := told(pinned); got != system {
		t.Errorf("a session of version 1: the model is told %q", got)
	}
	own := d.sessionOf(object{"type": "agent_with_overrides", "id": a.text("id"), "version": 1, "system": "own {words}", "tools": []object{greetTool}})
	if got := told(own); got != "own {words}" {
		t.Errorf("a session with words of its own: the model is told %q", got)
	}
	s := d.must("GET", "/v1/sessions/"+own, nil)
	if s.text("agent", "id") != a.text("id") || s.at("agent", "version") != 1.0 || s.text("agent", "system") != "own {words}" || s.text("agent", "tools", 0, "name") != "greet" {
		t.Errorf("its agent is %v", s["agent"])
	}
	if s.at("agent", "metadata") != nil || s.at("agent", "created_at") != nil {
		t.Errorf("the agent of a session has what it should not: %v", s["agent"])
	}
	if all := d.list("/v1/agents"); len(all) != 1 || all[0]["version"] != 2.0 {
		t.Errorf("agents %v", all)
	}
}

// A coordinator hands over to agents of its roster, each in a thread of its own.
func TestRoster(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"boss": `
answers:
  - {when: {step: 1}, text: over to you, calls: [{name: transfer_to_agent, args: {agent_name: helper}}]}
`, "helper": greets}})
	sub := d.must("POST", "/v1/agents", object{"name": "helper", "model": "scripted/helper", "tools": []object{greetTool}, "description": "helps"})
	boss := d.must("POST", "/v1/agents", object{"name": "boss", "model": "scripted/boss", "multiagent": object{"type": "coordinator", "agents": []any{sub.text("id")}}})
	if boss.text("multiagent", "agents", 0, "id") != sub.text("id") || boss.at("multiagent", "agents", 0, "version") != 1.0 || boss.text("multiagent", "type") != "coordinator" {
		t.Errorf("roster %v", boss["multiagent"])
	}
	id := d.sessionOf(boss.text("id"))
	if s := d.must("GET", "/v1/sessions/"+id, nil); s.text("agent", "multiagent", "agents", 0, "name") != "helper" {
		t.Errorf("the agent of the session is %v", s["agent"])
	}
	d.post(id, said("go"))
	events := d.untilIdle(id, "requires_action")
	use := events[slices.Index(kinds(events), "agent.custom_tool_use")]
	threads := d.list("/v1/sessions/" + id + "/threads?limit=1")
	if len(threads) != 2 || threads[0]["parent_thread_id"] != nil || threads[1]["parent_thread_id"] != threads[0]["id"] || threads[1]["id"] != use["session_thread_id"] {
		t.Fatalf("threads %v, call %v", threads, use)
	}
	if threads[1].text("agent", "id") != sub.text("id") || threads[1].text("agent", "name") != "helper" || threads[0].text("agent", "name") != "boss" || threads[1]["status"] != "idle" {
		t.Errorf("threads %v", threads)
	}
	d.post(id, object{"type": "user.custom_tool_result", "custom_tool_use_id": use["id"], "content": []object{{"type": "text", "text": "hi Ada"}}})
	events = d.untilIdle(id, "end_turn")
	path := "/v1/sessions/" + id + "/threads/" + threads[1].text("id")
	want := []string{"span.model_request_start", "agent.message", "agent.custom_tool_use", "span.model_request_end", "user.custom_tool_result", "span.model_request_start", "agent.message", "span.model_request_end"}
	own := d.list(path + "/events")
	if got := kinds(own); !slices.Equal(got, want) {
		t.Errorf("events of the thread %q, want %q", got, want)
	}
	root := d.list("/v1/sessions/" + id + "/threads/" + threads[0].text("id") + "/events")
	if len(own)+len(root) != len(events) {
		t.Errorf("%d events, %d of the root and %d of the helper", len(events), len(root), len(own))
	}
	s := d.follow(path+"/stream", "0")
	for _, e := range own {
		if f := s.next(); f.data.text("id") != e.text("id") {
			t.Errorf("streamed %v, listed %v", f, e)
		}
	}
	if one := d.must("GET", path, nil); one.at("usage", "output_tokens").(float64) <= 0 || one.at("stats", "active_seconds").(float64) <= 0 {
		t.Errorf("thread %v", one)
	}
	if status, refusal, _ := d.send("GET", "/v1/sessions/"+id+"/threads/sthr_x", nil); status != 404 {
		t.Errorf("an unknown thread: %d %v", status, refusal)
	}
	for name, agents := range map[string][]any{"self": {object{"type": "self"}}, "none": {}, "unknown": {"agent_x"}, "unknown version": {object{"type": "agent", "id": sub.text("id"), "version": 9}}} {
		if status, refusal, _ := d.send("POST", "/v1/agents", object{"name": "x", "model": "echo", "multiagent": object{"type": "coordinator", "agents": agents}}); status != 400 || !strings.Contains(refusal.text("error", "message"), "multiagent.agents") {
			t.Errorf("%s: %d %v", name, status, refusal)
		}
	}
}

// Agents that run at the same time: a session is idle only when none of them works.
func TestParallelAgents(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	one := func(name string) *agentdv1.Agent {
		return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: "scripted/greets", ToolNames: []string{"greet"}}}}
	}
	call(t, d.native.ApplyAgent, &agentdv1.ApplyAgentRequest{
		Name:  "both",
		Agent: &agentdv1.Agent{Name: "both", AgentType: &agentdv1.Agent_Parallel{Parallel: &agentdv1.ParallelAgent{Agents: []*agentdv1.Agent{one("a"), one("b")}}}},
		Tools: []*agentdv1.Tool{{Name: "greet", Description: "greets"}},
	})
	id := d.sessionOf("both")
	d.post(id, said("go"))
	waits := func(calls int) (ids []any, events []object) { // an agent may start when the other one waits already
		for len(ids) != calls {
			events = d.untilIdle(id, "requires_action")
			ids = events[len(events)-1].at("stop_reason", "event_ids").([]any)
		}
		return ids, events
	}
	asked, events := waits(2)
	for i, e := range events[1:] {
		if e.text("type") == "session.status_idle" && events[i].text("type") == "session.status_idle" {
			t.Errorf("idle twice in a row: %q", kinds(events))
		}
	}
	d.post(id, object{"type": "user.custom_tool_result", "custom_tool_use_id": asked[1], "content": []object{{"type": "text", "text": "one"}}})
	if left, _ := waits(1); left[0] != asked[0] {
		t.Errorf("left is %v of %v", left, asked)
	}
	d.post(id, object{"type": "user.custom_tool_result", "custom_tool_use_id": asked[0], "content": []object{{"type": "text", "text": "two"}}})
	d.untilIdle(id, "end_turn")
}

func TestBudget(t *testing.T) {
	_, url := fakeprovider.Start(t, fakeprovider.Answer(fakeprovider.Reply{Text: []string{"hi"}, Model: "claude", Usage: providertest.Usage{Prompt: 1_000_000, Completion: 10, Total: 1_000_010}}))
	d := open(t, daemon.Config{Providers: daemon.Providers{AnthropicAPIKey: "secret", AnthropicBaseURL: url}})
	a := d.must("POST", "/v1/agents", object{"name": "a", "model": "claude-sonnet-4-5"})
	e := d.must("POST", "/v1/environments", object{"name": "e"})
	limit := func(cents, currency string) object {
		return object{"type": "limit", "max_list_cost": object{"amount": cents, "currency": currency}}
	}
	s := d.must("POST", "/v1/sessions", object{"agent": a["id"], "environment_id": e["id"], "budget": limit("250", "USD")})
	id := s.text("id")
	if s.text("budget", "max_list_cost", "amount") != "250" || s.text("budget", "type") != "limit" {
		t.Errorf("budget %v", s["budget"])
	}
	d.post(id, said("one")) // three dollars
	d.untilIdle(id, "end_turn")
	d.post(id, said("two"))
	events := d.untilIdle(id, "budget_reached")
	if slices.Contains(kinds(events), "session.error") {
		t.Errorf("a budget that is reached is no error: %q", kinds(events))
	}
	if s := d.must("POST", "/v1/sessions/"+id, object{"budget": limit("1000", "USD")}); s.text("budget", "max_list_cost", "amount") != "1000" {
		t.Errorf("raised: %v", s)
	}
	d.post(id, said("three"))
	d.untilIdle(id, "end_turn")
	if s := d.must("POST", "/v1/sessions/"+id, object{"budget": nil}); s["budget"] != nil {
		t.Errorf("removed: %v", s)
	}
	for name, b := range map[string]any{"euros": limit("100", "EUR"), "a fraction": limit("1.5", "USD"), "none": limit("0", "USD"), "a number": object{"type": "limit", "max_list_cost": object{"amount": 5, "currency": "USD"}}, "empty": object{}} {
		if status, refusal, _ := d.send("POST", "/v1/sessions", object{"agent": a["id"], "environment_id": e["id"], "budget": b}); status != 400 || !strings.Contains(refusal.text("error", "message"), "budget") {
			t.Errorf("%s: %d %v", name, status, refusal)
		}
	}
}

func TestSessions(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	e := d.must("POST", "/v1/environments", object{"name": "e"}).text("id")
	a := d.must("POST", "/v1/agents", object{"name": "a", "model": "echo"}).text("id")
	b := d.must("POST", "/v1/agents", object{"name": "b", "model": "scripted/greets", "tools": []object{greetTool}}).text("id")
	s := d.must("POST", "/v1/sessions", object{"agent": a, "environment_id": e, "title": "t", "metadata": object{"k": "v"}, "initial_events": []object{said("hello")}})
	if s.text("title") != "t" || s.text("metadata", "k") != "v" || s.text("environment_id") != e || s.text("type") != "session" || s["archived_at"] != nil {
		t.Errorf("made %v", s)
	}
	if events := d.untilIdle(s.text("id"), "end_turn"); lastText(events) != "hello" {
		t.Errorf("events %v", events)
	}
	if s := d.must("POST", "/v1/sessions/"+s.text("id"), object{"title": nil, "metadata": object{"k": nil, "l": "w"}}); s["title"] != nil || s.text("metadata", "k") != "" || s.text("metadata", "l") != "w" {
		t.Errorf("changed %v", s)
	}
	ids := []string{s.text("id")}
	for n := range 6 {
		agent := a
		if n%2 == 1 {
			agent = b
		}
		ids = append(ids, d.must("POST", "/v1/sessions", object{"agent": agent, "environment_id": e}).text("id"))
	}
	call(t, d.native.CreateSession, &agentdv1.CreateSessionRequest{SessionId: "native"})
	listed := func(query string) (out []string) {
		for _, s := range d.list("/v1/sessions?limit=2" + query) {
			out = append(out, s.text("id"))
		}
		return out
	}
	falling := slices.Clone(ids)
	slices.Reverse(falling)
	if got := listed(""); !slices.Equal(got, falling) {
		t.Errorf("sessions %q, want %q", got, falling)
	}
	if got := listed("&order=asc"); !slices.Equal(got, ids) {
		t.Errorf("from the first %q, want %q", got, ids)
	}
	if got := listed("&agent_id=" + b); !slices.Equal(got, []string{ids[6], ids[4], ids[2]}) {
		t.Errorf("of one agent %q", got)
	}
	if got := listed("&agent_version=2&agent_id=" + b); len(got) != 0 {
		t.Errorf("of a version %q", got)
	}
	d.post(ids[2], said("go"))
	d.untilIdle(ids[2], "requires_action")
	if got := listed("&statuses[]=idle&order=asc"); !slices.Equal(got, ids) {
		t.Errorf("idle %q", got)
	}
	if got := listed("&statuses[]=running&statuses[]=rescheduling"); len(got) != 0 {
		t.Errorf("running %q", got)
	}
	d.must("POST", "/v1/sessions/"+ids[1]+"/archive", nil)
	if got := listed(""); len(got) != 6 || slices.Contains(got, ids[1]) {
		t.Errorf("without the archived one %q", got)
	}
	if got := listed("&include_archived=true"); len(got) != 7 {
		t.Errorf("with the archived one %q", got)
	}
	made := d.must("GET", "/v1/sessions/"+ids[3], nil).text("created_at")
	for query, want := range map[string]int{"&created_at[gte]=" + made: 4, "&created_at[gt]=" + made: 3, "&created_at[lte]=" + made: 4, "&created_at[lt]=" + made: 3} {
		if got := listed("&include_archived=true" + query); len(got) != want {
			t.Errorf("%s: %q, want %d", query, got, want)
		}
	}
	page, err := d.sdk.Beta.Sessions.List(t.Context(), anthropic.BetaSessionListParams{Limit: anthropic.Int(1), Statuses: []string{"idle"}})
	if err != nil || len(page.Data) != 1 || page.NextPage == "" {
		t.Errorf("typed: %+v, %v", page, err)
	}
	for _, path := range []string{"", "/events", "/threads"} {
		if status, _, _ := d.send("GET", "/v1/sessions/native"+path, nil); status != 404 {
			t.Errorf("a session of SessionService at %s: %d", path, status)
		}
	}
}

// Callers are authenticated, and what is another tenant's does not exist.
func TestTenants(t *testing.T) {
	d := open(t, daemon.Config{Authenticate: byKey, Scripts: map[string]string{"greets": greets}})
	ann, bob, eye := dial(t, d.url, "ann@acme"), dial(t, d.url, "bob@umbrella"), dial(t, d.url, "eve@acme/observer")
	if status, refusal, _ := d.send("GET", "/v1/agents", nil); status != 401 || refusal.text("error", "type") != "authentication_error" || refusal.text("type") != "error" {
		t.Errorf("nobody: %d %v", status, refusal)
	}
	agent := ann.must("POST", "/v1/agents", object{"name": "a", "model": "scripted/greets", "tools": []object{greetTool}}).text("id")
	env := ann.must("POST", "/v1/environments", object{"name": "e"}).text("id")
	id := ann.must("POST", "/v1/sessions", object{"agent": agent, "environment_id": env}).text("id")
	ann.post(id, said("go"))
	use := ann.untilIdle(id, "requires_action")[4].text("id")
	result := object{"events": []object{{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{}}}}
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/v1/agents/" + agent, nil}, {"POST", "/v1/agents/" + agent, object{"name": "mine"}}, {"POST", "/v1/agents/" + agent + "/archive", nil},
		{"GET", "/v1/agents/" + agent + "/versions", nil}, {"GET", "/v1/environments/" + env, nil}, {"POST", "/v1/environments/" + env, object{"name": "mine"}},
		{"DELETE", "/v1/environments/" + env, nil}, {"POST", "/v1/environments/" + env + "/archive", nil}, {"GET", "/v1/sessions/" + id, nil},
		{"POST", "/v1/sessions/" + id, object{"title": "mine"}}, {"DELETE", "/v1/sessions/" + id, nil}, {"POST", "/v1/sessions/" + id + "/archive", nil},
		{"GET", "/v1/sessions/" + id + "/events", nil}, {"POST", "/v1/sessions/" + id + "/events", result}, {"GET", "/v1/sessions/" + id + "/events/stream", nil},
		{"GET", "/v1/sessions/" + id + "/threads", nil}, {"POST", "/v1/sessions", object{"agent": agent, "environment_id": env}},
	} {
		if status, refusal, _ := bob.send(c.method, c.path, c.body); status != 404 || refusal.text("error", "type") != "not_found_error" {
			t.Errorf("%s %s of another tenant: %d %v", c.method, c.path, status, refusal)
		}
	}
	for _, path := range []string{"/v1/agents", "/v1/environments", "/v1/sessions"} {
		if all := bob.list(path); len(all) != 0 {
			t.Errorf("%s lists what is another tenant's: %v", path, all)
		}
	}
	if status, refusal, _ := eye.send("POST", "/v1/agents", object{"name": "x", "model": "echo"}); status != 403 || refusal.text("error", "type") != "permission_error" {
		t.Errorf("an observer: %d %v", status, refusal)
	}
	eye.refused("GET", "/v1/sessions/"+id+"/events", nil, http.StatusNotFound, "not_found_error") // which ann has created
	if n := len(dial(t, d.url, "ann@acme/observer").events(id)); n != 7 {
		t.Errorf("an observer lists %d events", n)
	}
	ann.must("POST", "/v1/sessions/"+id+"/events", result) // nobody has taken it
	ann.untilIdle(id, "end_turn")
}
