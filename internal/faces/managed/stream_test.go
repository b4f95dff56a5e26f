package managed_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/apzuk3/agentd/internal/daemon"
)

// lively is a model that thinks, speaks and calls, and fails once before it does.
const lively = `
answers:
  - {when: {after_tool: greet}, thoughts: well, text: 'done: {{tool_result "greet"}}'}
  - {when: {step: 1, try: 1}, error: {kind: unavailable, status: 503, message: too much to do}}
  - {when: {step: 1}, thoughts: let me see, text: calling them now, calls: [{name: greet, args: {name: Ada}}, {name: greet, args: {name: Bob}}]}
`

// answerAll answers what a session waits for.
func (d *desk) answerAll(session string) {
	d.t.Helper()
	events := d.untilIdle(session, "requires_action")
	for _, use := range lastStatus(events).at("stop_reason", "event_ids").([]any) {
		d.post(session, object{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "hi"}}})
	}
}

// A list and a stream have the same events, wherever either is cut, and so they have after a restart.
func TestListAndStreamAgree(t *testing.T) {
	dir := t.TempDir()
	cfg := daemon.Config{DataDir: dir, Scripts: map[string]string{"lively": lively}}
	d := open(t, cfg)
	id := d.session("scripted/lively")
	path := "/v1/sessions/" + id
	d.post(id, said("go"))
	d.answerAll(id)
	d.untilIdle(id, "end_turn")
	d.post(id, said("go"))
	d.untilIdle(id, "requires_action")
	d.post(id, object{"type": "user.interrupt"})
	all := d.events(id)
	if n := len(all); n < 25 || !slices.Contains(kinds(all), "session.error") || !slices.Contains(kinds(all), "agent.thinking") {
		t.Fatalf("%d events %q", n, kinds(all))
	}
	seen := map[string]bool{}
	for _, e := range all {
		if seen[e.text("id")] {
			t.Errorf("the id %s is there twice", e.text("id"))
		}
		seen[e.text("id")] = true
	}
	same := func(what string, got []object) {
		t.Helper()
		if a, b := fmt.Sprint(got), fmt.Sprint(all); a != b {
			t.Errorf("%s:\n%s\nwant\n%s", what, a, b)
		}
	}
	check := func(d *desk) {
		t.Helper()
		for _, limit := range []int{1, 2, 7, 1000} {
			same(fmt.Sprint("pages of ", limit), d.list(fmt.Sprint(path, "/events?limit=", limit)))
			falling := d.list(fmt.Sprint(path, "/events?order=desc&limit=", limit))
			slices.Reverse(falling)
			same(fmt.Sprint("falling pages of ", limit), falling)
		}
		whole := d.follow(path+"/events/stream", "0")
		var got []object
		var ids []string // of each frame, that of the frame before
		last := "0"
		for range all {
			f := whole.next()
			got, ids = append(got, f.data), append(ids, last)
			if f.id != "" {
				last = f.id
			}
			if f.name != f.data.text("type") {
				t.Errorf("frame %s of %v", f.name, f.data)
			}
		}
		whole.close()
		same("a stream", got)
		for cut, id := range ids {
			second := d.follow(path+"/events/stream", id)
			f := second.next()
			at := slices.IndexFunc(all, func(e object) bool { return e.text("id") == f.data.text("id") })
			if at > cut || at < 0 || cut-at > 5 { // a cut between frames of one event repeats them
				t.Errorf("cut before event %d, the next stream begins with %d", cut, at)
			}
			for _, want := range all[at+1:] {
				if f := second.next(); f.data.text("id") != want.text("id") {
					t.Errorf("cut before event %d: %v, want %v", cut, f.data, want)
				}
			}
			second.close()
		}
	}
	check(d)
	if err := d.daemon.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(open(t, cfg))
}

// A list may be narrowed, and what is narrow has pages too.
func TestEventFilters(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"lively": lively}})
	id := d.session("scripted/lively")
	path := "/v1/sessions/" + id + "/events?limit=1"
	d.post(id, said("go"))
	d.answerAll(id)
	all := d.untilIdle(id, "end_turn")
	of := func(keep func(object) bool) (out []string) {
		for _, e := range all {
			if keep(e) {
				out = append(out, e.text("id"))
			}
		}
		return out
	}
	ids := func(events []object) (out []string) {
		for _, e := range events {
			out = append(out, e.text("id"))
		}
		return out
	}
	got := ids(d.list(path + "&types[]=agent.message&types[]=session.status_idle"))
	if want := of(func(e object) bool { k := e.text("type"); return k == "agent.message" || k == "session.status_idle" }); !slices.Equal(got, want) {
		t.Errorf("of two types %q, want %q", got, want)
	}
	if got := d.list(path + "&types[]=agent.mcp_tool_use"); len(got) != 0 {
		t.Errorf("of a type that there is not: %v", got)
	}
	middle := all[len(all)/2].text("processed_at")
	for op, keep := range map[string]func(string) bool{
		"gt": func(at string) bool { return at > middle }, "gte": func(at string) bool { return at >= middle },
		"lt": func(at string) bool { return at < middle }, "lte": func(at string) bool { return at <= middle },
	} {
		got, want := ids(d.list(path+"&created_at["+op+"]="+middle)), of(func(e object) bool { return keep(e.text("processed_at")) })
		if !slices.Equal(got, want) || len(want) == 0 {
			t.Errorf("%s: %q, want %q", op, got, want)
		}
	}
}

// Pages stay what they are while events come.
func TestPagesWhileEventsCome(t *testing.T) {
	d := open(t, daemon.Config{})
	id := d.session("echo")
	path := "/v1/sessions/" + id + "/events?limit=7"
	var wg sync.WaitGroup
	defer wg.Wait()
	d.post(id, said("first"))
	wg.Go(func() {
		for n := range 40 {
			status, refusal, _ := d.send("POST", "/v1/sessions/"+id+"/events", object{"events": []object{said(fmt.Sprint("message ", n))}})
			if status != http.StatusOK {
				t.Errorf("%d %v", status, refusal)
			}
		}
	})
	seen := map[string]int{}
	waited := map[string]bool{}
	next, texts := "", []string(nil)
	for len(texts) < 41 {
		page := d.must("GET", path+next, nil)
		for _, e := range page.objects("data") {
			key := e.text("id")
			if seen[key]++; e["processed_at"] == nil {
				waited[key] = true
			}
			if e.text("type") == "agent.message" {
				texts = append(texts, e.text("content", 0, "text"))
			}
		}
		if page["next_page"] != nil {
			next = "&page=" + page.text("next_page")
		} else if len(texts) < 41 { // it ended: once more from the beginning
			next, texts = "", nil
			clear(seen)
			clear(waited)
		}
	}
	for key, n := range seen {
		if n > 1 && !(n == 2 && waited[key]) {
			t.Errorf("event %s was listed %d times", key, n)
		}
	}
	for i, text := range texts {
		if want := fmt.Sprint("message ", i-1); i > 0 && text != want {
			t.Errorf("message %d is %q, want %q", i, text, want)
		}
	}
}

// A message that waits is streamed at once, and again when its turn begins; a list has it once.
func TestQueuedMessage(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	id := d.session("scripted/greets")
	path := "/v1/sessions/" + id
	d.post(id, said("go"))
	d.untilIdle(id, "requires_action")
	s := d.follow(path+"/events/stream", "")
	queued := d.post(id, said("and"))[0]
	if f := s.next(); f.data.text("id") != queued.text("id") || f.data["processed_at"] != nil || f.data.text("content", 0, "text") != "and" {
		t.Errorf("streamed %v, posted %v", f, queued)
	}
	listed := func() (out []object) {
		for _, e := range d.events(id) {
			if e.text("id") == queued.text("id") {
				out = append(out, e)
			}
		}
		return out
	}
	if all := listed(); len(all) != 1 || all[0]["processed_at"] != nil {
		t.Errorf("while it waits: %v", all)
	}
	d.answerAll(id)
	for {
		if f := s.next(); f.data.text("id") == queued.text("id") {
			if f.data["processed_at"] == nil || f.data.text("content", 0, "text") != "and" {
				t.Errorf("streamed once more: %v", f)
			}
			break
		}
	}
	if all := listed(); len(all) != 1 || all[0]["processed_at"] == nil {
		t.Errorf("when its turn has begun: %v", all)
	}
}

// Deltas come to those who ask for them, before the whole message, without an id and once.
func TestDeltas(t *testing.T) {
	d := open(t, daemon.Config{})
	id := d.session("echo")
	path := "/v1/sessions/" + id + "/events/stream"
	with, without := d.follow(path+"?event_deltas[]=agent.message", ""), d.follow(path, "")
	typed := d.sdk.Beta.Sessions.Events.StreamEvents(t.Context(), id, anthropic.BetaSessionEventStreamParams{EventDeltas: []anthropic.BetaManagedAgentsDeltaType{"agent.message"}})
	defer typed.Close()
	const words = "one two three four five"
	d.post(id, said(words))
	var got []string
	text, start := "", ""
	for len(got) == 0 || got[len(got)-1] != "session.status_idle" {
		f := with.next()
		got = append(got, f.name)
		switch f.name {
		case "event_start":
			if start = f.data.text("event", "id"); f.data.text("event", "type") != "agent.message" || f.id != "" {
				t.Errorf("start %+v", f)
			}
		case "event_delta":
			if f.data.text("event_id") != start || f.data.text("delta", "type") != "content_delta" || f.data.at("delta", "index") != 0.0 || f.id != "" {
				t.Errorf("delta %+v", f)
			}
			text += f.data.text("delta", "content", "text")
		case "agent.message":
			if f.data.text("id") != start || f.data.text("content", 0, "text") != text {
				t.Errorf("the message is %v, its deltas are %s %q", f.data, start, text)
			}
		}
	}
	if text != words || !slices.Contains(got, "event_start") {
		t.Errorf("deltas %q in %q", text, got)
	}
	for name := ""; name != "session.status_idle"; {
		if name = without.next().name; strings.HasPrefix(name, "event_") {
			t.Errorf("nobody has asked for %s", name)
		}
	}
	replay := d.follow(path+"?event_deltas[]=agent.message", "0")
	for name := ""; name != "session.status_idle"; {
		if name = replay.next().name; strings.HasPrefix(name, "event_") {
			t.Errorf("%s comes twice", name)
		}
	}
	var previews anthropic.BetaManagedAgentsEventAccumulator
	for typed.Next() {
		previews.Accumulate(typed.Current())
		if typed.Current().Type == "session.status_idle" {
			break
		}
	}
	if all := slices.Collect(maps.Keys(previews.AgentMessages)); len(all) != 1 || previews.AgentMessageText(all[0]) != words {
		t.Errorf("accumulated %v, %v", previews.AgentMessages, typed.Err())
	}
}
