package managed_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/principal"
)

// Each route refuses what is wrong in the protocol's own form, names it, changes nothing, and serves the next request.
func TestBadInput(t *testing.T) {
	const most = 4000
	d := open(t, daemon.Config{MaxMessageBytes: 1 << 20, Scripts: map[string]string{"greets": greets}})
	agent := d.must("POST", "/v1/agents", object{"name": "a", "model": "scripted/greets", "tools": []object{greetTool}}).text("id")
	env := d.must("POST", "/v1/environments", object{"name": "e"}).text("id")
	id := d.must("POST", "/v1/sessions", object{"agent": agent, "environment_id": env}).text("id")
	d.post(id, said("go"))
	events := d.untilIdle(id, "requires_action")
	use, message := events[4].text("id"), events[0].text("id")
	session := "/v1/sessions/" + id
	tools := func(tool object) object { return object{"name": "x", "model": "echo", "tools": []object{tool}} }
	post := func(events ...object) object { return object{"events": events} }
	result := object{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "hi"}}}
	with := func(o object, name string, v any) object {
		out := maps.Clone(o)
		out[name] = v
		return out
	}
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		says         string
	}{
		{"POST", "/v1/agents", `{"name":`, 400, "no JSON"},
		{"POST", "/v1/agents", `[]`, 400, "the body is a list, want a JSON object"},
		{"POST", "/v1/agents", "\"\xff\"", 400, "UTF-8"},
		{"POST", "/v1/agents", object{}, 400, "name is missing"},
		{"POST", "/v1/agents", object{"name": "x"}, 400, "model is missing"},
		{"POST", "/v1/agents", object{"name": "x", "model": "echo", "colour": 1}, 400, "colour is not a field"},
		{"POST", "/v1/agents", object{"name": "x", "model": object{"id": "echo", "effort": "high"}}, 400, "model.effort is not supported"},
		{"POST", "/v1/agents", object{"name": "x", "model": "no-such-provider/m"}, 400, "no-such-provider"},
		{"POST", "/v1/agents", object{"name": strings.Repeat("x", 300), "model": "echo"}, 400, "name has 300 bytes"},
		{"POST", "/v1/agents", object{"name": "x", "model": "echo", "mcp_servers": []object{{"name": "m"}}}, 400, "mcp_servers is not supported"},
		{"POST", "/v1/agents", object{"name": "x", "model": "echo", "skills": []object{{"type": "s"}}}, 400, "skills is not supported"},
		{"POST", "/v1/agents", object{"name": "x", "model": "echo", "metadata": object{"k": 1}}, 400, "metadata"},
		{"POST", "/v1/agents", tools(object{"type": "agent_toolset_20260401"}), 400, "tools[0].type"},
		{"POST", "/v1/agents", tools(with(greetTool, "name", "web_search")), 400, "web_search"},
		{"POST", "/v1/agents", tools(with(greetTool, "name", "ask_user")), 400, "ask_user"},
		{"POST", "/v1/agents", tools(with(greetTool, "name", "not a name")), 400, "not a name"},
		{"POST", "/v1/agents", tools(with(greetTool, "input_schema", object{"type": "array"})), 400, "tools[0].input_schema.type"},
		{"POST", "/v1/agents", tools(with(greetTool, "strict", true)), 400, "tools[0].strict"},
		{"POST", "/v1/agents", object{"name": "x", "model": "echo", "tools": []object{greetTool, greetTool}}, 400, "tools[1].name"},
		{"POST", "/v1/agents", `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, 413, "bytes"},
		{"GET", "/v1/agents/agent_none", nil, 404, "agent_none"},
		{"GET", "/v1/agents/" + agent + "?version=7", nil, 404, "7"},
		{"GET", "/v1/agents/" + agent + "?version=x", nil, 400, "version"},
		{"POST", "/v1/agents/agent_none", object{"name": "x"}, 404, "agent_none"},
		{"POST", "/v1/agents/" + agent, object{"version": 9}, 409, "version is 9"},
		{"POST", "/v1/agents/" + agent, object{"version": 0}, 400, "version is 0"},
		{"POST", "/v1/agents/" + agent, object{"name": nil}, 400, "name"},
		{"GET", "/v1/agents?limit=0", nil, 400, "limit"},
		{"GET", "/v1/agents?page=nonsense", nil, 400, "page"},
		{"GET", "/v1/agents?colour=red", nil, 400, "colour"},
		{"GET", "/v1/agents?created_at[gte]=yesterday", nil, 400, "created_at[gte]"},
		{"DELETE", "/v1/agents/" + agent, nil, 404, "DELETE"},
		{"PATCH", "/v1/agents", object{}, 404, "PATCH"},
		{"GET", "/v1/agents/" + agent + "/other", nil, 404, "other"},
		{"POST", "/v1/environments", object{}, 400, "name is missing"},
		{"POST", "/v1/environments", object{"name": "x", "config": object{"type": "self_hosted"}}, 400, "config.type"},
		{"POST", "/v1/environments", object{"name": "x", "colour": 1}, 400, "colour"},
		{"GET", "/v1/environments/env_none", nil, 404, "env_none"},
		{"POST", "/v1/environments/env_none/archive", nil, 404, "env_none"},
		{"POST", "/v1/sessions", object{"environment_id": env}, 400, "agent is missing"},
		{"POST", "/v1/sessions", object{"agent": agent}, 400, "environment_id is missing"},
		{"POST", "/v1/sessions", object{"agent": agent, "environment_id": "env_none"}, 404, "env_none"},
		{"POST", "/v1/sessions", object{"agent": "agent_none", "environment_id": env}, 404, "agent_none"},
		{"POST", "/v1/sessions", object{"agent": object{"type": "agent", "id": agent, "version": 9}, "environment_id": env}, 404, agent},
		{"POST", "/v1/sessions", object{"agent": object{"type": "robot", "id": agent}, "environment_id": env}, 400, "agent.type"},
		{"POST", "/v1/sessions", object{"agent": object{"type": "agent_with_overrides", "id": agent, "skills": []object{{}}}, "environment_id": env}, 400, "agent.skills"},
		{"POST", "/v1/sessions", object{"agent": object{"type": "agent", "id": agent, "system": "s"}, "environment_id": env}, 400, "agent.system"},
		{"POST", "/v1/sessions", object{"agent": agent, "environment_id": env, "resources": []object{{"type": "file"}}}, 400, "resources"},
		{"POST", "/v1/sessions", object{"agent": agent, "environment_id": env, "initial_events": []object{result}}, 400, "initial_events[0].type"},
		{"POST", "/v1/sessions", object{"agent": agent, "environment_id": env, "metadata": object{strings.Repeat("k", 65): "v"}}, 400, "metadata"},
		{"GET", "/v1/sessions/none", nil, 404, "none"},
		{"GET", "/v1/sessions?statuses[]=asleep", nil, 400, "statuses"},
		{"GET", "/v1/sessions?order=up", nil, 400, "order"},
		{"GET", "/v1/sessions?page=!!", nil, 400, "page"},
		{"GET", "/v1/sessions?deployment_id=d", nil, 400, "deployment_id"},
		{"GET", "/v1/sessions?agent_version=1", nil, 400, "agent_id"},
		{"POST", session, object{"agent": object{"tools": []object{greetTool}}}, 400, "agent"},
		{"POST", session, object{"status": "idle"}, 400, "status"},
		{"GET", session + "/events?limit=1001", nil, 400, "limit"},
		{"GET", session + "/events?page=%7B", nil, 400, "page"},
		{"GET", session + "/events?colour=red", nil, 400, "colour"},
		{"GET", session + "/events/stream?event_deltas[]=agent.thinking", nil, 400, "event_deltas"},
		{"GET", session + "/other", nil, 404, "other"},
		{"GET", session + "/threads/sthr_none", nil, 404, "sthr_none"},
		{"GET", session + "/threads/sthr_none/events", nil, 404, "sthr_none"},
		{"GET", session + "/threads/sthr_none/stream", nil, 404, "sthr_none"},
		{"POST", session + "/events", object{}, 400, "events is missing"},
		{"POST", session + "/events", post(object{"type": "agent.message"}), 400, "events[0].type"},
		{"POST", session + "/events", post(object{"type": "user.message"}), 400, "events[0].content"},
		{"POST", session + "/events", post(with(said("x"), "priority", 1)), 400, "events[0].priority"},
		{"POST", session + "/events", post(object{"type": "user.message", "content": []object{{"type": "video"}}}), 400, "events[0].content[0].type"},
		{"POST", session + "/events", post(object{"type": "user.message", "content": []object{{"type": "image"}}}), 400, "events[0].content[0].source"},
		{"POST", session + "/events", post(object{"type": "user.message", "content": []object{{"type": "image", "source": object{"type": "base64", "media_type": "image/png", "data": "?"}}}}), 400, "base64"},
		{"POST", session + "/events", post(with(result, "custom_tool_use_id", "sevt_none")), 400, "sevt_none"},
		{"POST", session + "/events", post(with(result, "custom_tool_use_id", message)), 400, message},
		{"POST", session + "/events", post(with(result, "custom_tool_use_id", "sevt_00000000000fffff00")), 400, "no such call"},
		{"POST", session + "/events", post(with(result, "custom_tool_use_id", "sevt_7fffffffffffffff00")), 400, "no such call"},
		{"POST", session + "/events", post(with(result, "type", "user.tool_result")), 400, "events[0]"},
		{"POST", session + "/events", post(object{"type": "user.tool_result", "tool_use_id": use, "content": []object{}}), 400, "user.custom_tool_result"},
		{"POST", session + "/events", post(object{"type": "user.tool_confirmation", "tool_use_id": use, "result": "allow"}), 400, "agent.tool_use"},
		{"POST", session + "/events", post(object{"type": "user.tool_confirmation", "tool_use_id": use, "result": "perhaps"}), 400, "events[0].result"},
		{"POST", session + "/events", post(object{"type": "user.interrupt"}, result), 400, "together"},
		{"POST", session + "/events", post(object{"type": "user.interrupt", "session_thread_id": "sthr_1"}), 400, "session_thread_id"},
		{"POST", session + "/events", post(result, with(result, "custom_tool_use_id", "sevt_none")), 400, "events[1].custom_tool_use_id"},
		{"POST", session + "/events", post(said("x"), with(result, "custom_tool_use_id", "sevt_none")), 400, "events[1].custom_tool_use_id"},
		{"POST", session + "/events", post(said(strings.Repeat("x", 2<<20))), 413, "bytes"},
		{"POST", "/v1/sessions/none/events", post(said("x")), 404, "none"},
	} {
		status, refusal, h := d.send(c.method, c.path, c.body)
		kind := map[int]string{400: "invalid_request_error", 404: "not_found_error", 409: "conflict_error", 413: "invalid_request_error"}[c.status]
		says := refusal.text("error", "message")
		if status != c.status || refusal.text("type") != "error" || refusal.text("error", "type") != kind || !strings.Contains(says, c.says) {
			t.Errorf("%s %s %.100v: %d %v, want %d %q", c.method, c.path, c.body, status, refusal, c.status, c.says)
		}
		if len(says) > most || h.Get("Request-Id") == "" || refusal.text("request_id") != h.Get("Request-Id") {
			t.Errorf("%s %s: %v %v", c.method, c.path, refusal, h)
		}
	}
	for _, last := range []string{"x", "-1"} {
		if status, refusal, _ := d.send("GET", session+"/events/stream", nil, "Last-Event-ID", last); status != http.StatusBadRequest {
			t.Errorf("Last-Event-ID %s: %d %v", last, status, refusal)
		}
	}
	// Nothing of it has changed anything.
	if now := d.events(id); len(now) != len(events) {
		t.Errorf("%d events, there were %d", len(now), len(events))
	}
	if all := d.list("/v1/agents"); len(all) != 1 || all[0]["version"] != 1.0 {
		t.Errorf("agents %v", all)
	}
	if all := d.list("/v1/sessions?include_archived=true"); len(all) != 1 {
		t.Errorf("%d sessions", len(all))
	}
	first := d.post(id, result)[0]
	d.untilIdle(id, "end_turn")
	if again := d.post(id, result)[0]; again.text("id") != first.text("id") || again.text("processed_at") != first.text("processed_at") {
		t.Errorf("an equal result: %v, the first was %v", again, first)
	}
	d.post(id, said("go")) // the call is of an earlier turn now
	d.untilIdle(id, "requires_action")
	if again := d.post(id, result)[0]; again.text("id") != first.text("id") {
		t.Errorf("an equal result of an earlier turn: %v, the first was %v", again, first)
	}
	other := object{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "no"}}}
	if status, refusal, _ := d.send("POST", session+"/events", post(other)); status != 400 {
		t.Errorf("another result: %d %v", status, refusal)
	}
}

// The id of an event is of one session alone: in another one, whose call has the same place, it names nothing, and nothing
// of either is lost.
func TestForeignEventID(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	ids := map[string]bool{}
	uses := map[string]string{}
	first, second := d.session("scripted/greets"), d.session("scripted/greets")
	for _, id := range []string{first, second} {
		d.post(id, said("go"))
		events := d.untilIdle(id, "requires_action")
		uses[id] = lastStatus(events).at("stop_reason", "event_ids", 0).(string)
		for _, e := range events {
			if ids[e.text("id")] {
				t.Errorf("two sessions have an event %s", e.text("id"))
			}
			ids[e.text("id")] = true
		}
	}
	result := func(use string) object {
		return object{"events": []object{{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "hi"}}}}}
	}
	path := "/v1/sessions/" + first + "/events"
	before := d.events(first)
	for range 2 {
		d.refused("POST", path, result(uses[second]), http.StatusBadRequest, "invalid_request_error")
	}
	if now := d.events(first); len(now) != len(before) || len(d.events(second)) != len(before) {
		t.Errorf("%q, there were %q", kinds(now), kinds(before))
	}
	for _, id := range []string{first, second} {
		d.must("POST", "/v1/sessions/"+id+"/events", result(uses[id]))
		d.untilIdle(id, "end_turn")
		d.refused("POST", "/v1/sessions/"+id+"/events", result(uses[map[bool]string{true: second, false: first}[id == first]]), http.StatusBadRequest, "invalid_request_error")
	}
}

// What another principal of the tenant has made is not found by this protocol, by any route, and is not listed.
func TestForeignPrincipal(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}, Authenticate: func(r *http.Request) (principal.Principal, error) {
		name, role, _ := strings.Cut(r.Header.Get("X-Api-Key"), "/")
		p := principal.Principal{ID: name, Tenant: "acme"}
		return p, p.Role.UnmarshalText([]byte(role))
	}})
	as := func(key string) *desk { return dial(t, d.url, key) }
	ann, bob, olga := as("ann/caller"), as("bob/caller"), as("olga/operator")
	id := ann.session("scripted/greets")
	own := bob.session("scripted/greets")
	ann.post(id, said("go"))
	events := ann.untilIdle(id, "requires_action")
	use := lastStatus(events).at("stop_reason", "event_ids", 0)
	thread := ann.list("/v1/sessions/" + id + "/threads")[0].text("id")
	path := "/v1/sessions/" + id
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"GET", path, nil}, {"POST", path, object{"title": "mine"}}, {"DELETE", path, nil}, {"POST", path + "/archive", nil},
		{"GET", path + "/events", nil}, {"GET", path + "/events/stream", nil}, {"POST", path + "/events", object{"events": []object{said("hi")}}},
		{"POST", path + "/events", object{"events": []object{{"type": "user.interrupt"}}}},
		{"POST", path + "/events", object{"events": []object{{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{}}}}},
		{"GET", path + "/threads", nil}, {"GET", path + "/threads/" + thread, nil}, {"GET", path + "/threads/" + thread + "/events", nil},
		{"GET", path + "/threads/" + thread + "/stream", nil},
	} {
		bob.refused(c.method, c.path, c.body, http.StatusNotFound, "not_found_error")
	}
	for _, c := range []struct {
		d    *desk
		want []string
	}{{ann, []string{id}}, {bob, []string{own}}, {olga, []string{id, own}}, {as("eve/observer"), nil}} {
		var got []string
		for _, s := range c.d.list("/v1/sessions?order=asc&limit=1") {
			got = append(got, s.text("id"))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("listed %q, want %q", got, c.want)
		}
	}
	if now := ann.events(id); len(now) != len(events) {
		t.Errorf("%q, there were %q", kinds(now), kinds(events))
	}
	if n := len(olga.events(id)); n != len(events) {
		t.Errorf("an operator finds %d events, want %d", n, len(events))
	}
}
