package managed_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/daemon"
)

var update = flag.Bool("update", false, "write testdata/transcript.txt")

// transcript writes down what goes to and fro, with what differs from run to run replaced.
type transcript struct {
	d     *desk
	out   strings.Builder
	names map[string]string
}

var (
	inJSON = regexp.MustCompile(`\b(sevt|agent|env|sthr|req)_[0-9a-z-]{8,}`)
	times  = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)
	spans  = regexp.MustCompile(`"(active|duration)_seconds":[0-9.e-]+`)
)

// plain replaces ids by numbers of their kind, in the order in which they come, and times.
func (tr *transcript) plain(text string) string {
	text = times.ReplaceAllString(text, `"TIME"`)
	text = spans.ReplaceAllString(text, `"${1}_seconds":SECONDS`)
	for id, name := range tr.names {
		if strings.HasPrefix(name, "sesn_") {
			text = strings.ReplaceAll(text, id, name)
		}
	}
	return inJSON.ReplaceAllStringFunc(text, func(id string) string {
		if tr.names[id] == "" {
			kind, _, _ := strings.Cut(id, "_")
			n := 1
			for _, name := range tr.names {
				if strings.HasPrefix(name, kind+"_") {
					n++
				}
			}
			tr.names[id] = fmt.Sprintf("%s_%d", kind, n)
		}
		return tr.names[id]
	})
}

func (tr *transcript) line(arrow string, parts ...any) {
	text := arrow
	for _, p := range parts {
		if s, ok := p.(string); ok {
			text += " " + s
			continue
		}
		data, err := json.Marshal(p)
		if err != nil {
			tr.d.t.Fatal(err)
		}
		text += " " + string(data)
	}
	tr.out.WriteString(tr.plain(text) + "\n")
}

// do makes a request and writes both down.
func (tr *transcript) do(method, path string, body any) object {
	tr.d.t.Helper()
	shown := path
	for id, name := range tr.names {
		shown = strings.ReplaceAll(shown, id, name)
	}
	if body == nil {
		tr.line(">", method, shown)
	} else {
		tr.line(">", method, shown, body)
	}
	status, out, _ := tr.d.send(method, path, body)
	tr.line("<", fmt.Sprint(status), out)
	return out
}

// What a client sends and reads in a session with two tool calls, an approval and a mistake.
func TestTranscript(t *testing.T) {
	d := open(t, daemon.Config{Scripts: map[string]string{"greets": greets}})
	tr := &transcript{d: d, names: map[string]string{}}
	a := tr.do("POST", "/v1/agents", object{"name": "a", "model": object{"id": "scripted/greets"}, "system": "s", "tools": []object{greetTool}})
	e := tr.do("POST", "/v1/environments", object{"name": "e"})
	s := tr.do("POST", "/v1/sessions", object{"agent": a["id"], "environment_id": e["id"]})
	session := func(id string) string {
		tr.names[id] = fmt.Sprintf("sesn_%d", strings.Count(fmt.Sprint(tr.names), "sesn_")+1)
		text := strings.ReplaceAll(tr.out.String(), id, tr.names[id])
		tr.out.Reset()
		tr.out.WriteString(text)
		return "/v1/sessions/" + id
	}
	path := session(s.text("id"))
	tr.line(">", "GET …/events/stream")
	stream := d.follow(path+"/events/stream", "")
	until := func(kind string) (use string) {
		t.Helper()
		for {
			f := stream.next()
			id := "-"
			if f.id != "" {
				id = "id"
			}
			data, err := json.Marshal(f.data)
			if err != nil {
				t.Fatal(err)
			}
			tr.line("stream:", id, f.name, string(data))
			if strings.HasSuffix(f.name, "tool_use") {
				use = f.data.text("id")
			}
			if f.name == kind {
				return use
			}
		}
	}
	tr.do("GET", path+"/events?limit=1000&order=asc", nil)
	tr.do("POST", path+"/events", object{"events": []object{said("go")}})
	use := until("session.status_idle")
	tr.do("POST", path+"/events", object{"events": []object{{"type": "user.custom_tool_result", "custom_tool_use_id": use, "is_error": false, "content": []object{{"type": "text", "text": "hi Ada"}}}}})
	until("session.status_idle")
	tr.do("POST", path+"/events", object{"events": []object{{"type": "user.custom_tool_result", "custom_tool_use_id": use, "content": []object{{"type": "text", "text": "no"}}}}})
	tr.do("POST", path+"/archive", nil)
	stream.close()

	d.gated("desk", "scripted/greets")
	tr.out.WriteString("\n# A tool that needs an approval, of an agent that was registered by SessionService.\n")
	s = tr.do("POST", "/v1/sessions", object{"agent": "desk", "environment_id": e["id"]})
	path = session(s.text("id"))
	stream = d.follow(path+"/events/stream", "")
	tr.do("POST", path+"/events", object{"events": []object{said("go")}})
	use = until("session.status_idle")
	tr.do("POST", path+"/events", object{"events": []object{{"type": "user.tool_confirmation", "tool_use_id": use, "result": "allow"}}})
	until("user.tool_confirmation")
	tr.do("POST", path+"/events", object{"events": []object{{"type": "user.tool_result", "tool_use_id": use, "content": []object{{"type": "text", "text": "hi Ada"}}}}})
	until("session.status_idle")
	tr.do("DELETE", path, nil)
	until("session.deleted")

	const file = "testdata/transcript.txt"
	if *update {
		if err := os.WriteFile(file, []byte(tr.out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := tr.out.String(); got != string(want) {
		t.Errorf("the transcript is not that of %s, -update writes it:\n%s", file, got)
	}
}
