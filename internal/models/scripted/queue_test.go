package scripted_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/model"
)

// call is a line of a recording of ADK.
func call(name, user, text string) string {
	return `{"request":{"Model":"` + name + `","Contents":[{"parts":[{"text":"` + user + `"}],"role":"user"}]},"responses":[{"Content":{"parts":[{"text":"` + text + `"}],"role":"model"},"TurnComplete":true}]}` + "\n"
}

func queueOf(t *testing.T, text string, strict bool) *scripted.Queue {
	t.Helper()
	file := filepath.Join(t.TempDir(), "calls.jsonl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := scripted.OpenQueue(file, strict)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func played(t *testing.T, q *scripted.Queue, name, user string) string {
	t.Helper()
	m, err := q.Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	o := replay(t, m.LLM, by("x", newTalk("s").user(user).req))
	if o.err == "" && o.text != o.resp.Content.Parts[0].Text {
		t.Errorf("shown %q of %q", o.text, o.resp.Content.Parts[0].Text)
	}
	return o.text + o.err
}

// Each model of the file has a cursor of its own, all others have one over the whole file.
func TestQueue(t *testing.T) {
	q := queueOf(t, call("m", "a", "one")+call("n", "b", "two")+call("m", "c", "three"), false)
	if about := q.Describe(); !slices.Equal(about.Models, []string{"m", "n"}) || !about.Rest || !about.Keyless {
		t.Errorf("%+v", about)
	}
	for i, c := range []struct{ name, want string }{
		{"m", "one"}, {"gemini/m", "three"}, {"n", "two"}, {"other", "one"}, {"another", "two"}, {"other", "three"},
		{"m", "script exhausted at turn 2 (no more"}, {"n", "script exhausted at turn 1 (no more"},
		{"other", "script exhausted at turn 3 (no more"}, {"m", "script exhausted at turn 2 (no more"},
	} {
		if got := played(t, q, c.name, "whatever"); got != c.want && !strings.Contains(got, c.want) {
			t.Errorf("call %d of %s: %q, want %q", i, c.name, got, c.want)
		}
	}
}

func TestQueueStrict(t *testing.T) {
	q := queueOf(t, call("m", "a", "one")+call("m", "b", "two"), true)
	if got := played(t, q, "m", "a"); got != "one" {
		t.Errorf("%q", got)
	}
	if got := played(t, q, "m", "c"); !strings.Contains(got, `script: strict mismatch on turn 1: contents[0].parts[0].text: recorded "b", got "c"`) {
		t.Errorf("%q", got)
	}
}

// A failure is played as one, and never made again.
func TestQueuePlaysFailures(t *testing.T) {
	q := queueOf(t, `{"request":{"Model":"m"},"responses":[{"ErrorCode":"SAFETY","ErrorMessage":"no"}]}`, false)
	m, err := q.Open("m", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Generate(t.Context(), newTalk("s").user("a").req, func(model.Delta) {})
	e, ok := errors.AsType[*model.Error](err)
	if !ok || !e.Final || !strings.Contains(e.Error(), "SAFETY: no") {
		t.Errorf("%v", err)
	}
}

func TestQueueFiles(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{empty: "no recorded model call", empty + "x": "no such file"} {
		if _, err := scripted.OpenQueue(file, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
