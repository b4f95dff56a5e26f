package adkbridge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	adkmodel "google.golang.org/adk/v2/model"
	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/record"
)

// sample is an event that holds all there is.
func sample() (*adksession.Event, *meta) {
	ours := adapter.NewCall("theirs", "search", `{"big": 12345678901234567890, "f": 1.0}`)
	ours.FunctionCall.ID = "call_1"
	ours.ThoughtSignature = []byte{0, 255}
	refused := adapter.NewCall("", "ghost", `nonsense`)
	refused.FunctionCall.ID = "call_2"
	ev := &adksession.Event{
		ID: "id", InvocationID: "e-1", Author: "a", Branch: "p.a",
		Timestamp: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("x", 3600)),
		LLMResponse: adkmodel.LLMResponse{
			Content: &genai.Content{Role: "model", Parts: []*genai.Part{
				{Text: "hm", Thought: true, PartMetadata: map[string]any{seam.MetaProvider: "fake", seam.MetaOpaque: json.Number("1e400")}},
				{Text: "<Tom & \"Jerry\">\u2028 "}, ours, {Text: "more"}, refused,
				{InlineData: &genai.Blob{MIMEType: "image/png", Data: []byte{1, 2, 3}}},
			}},
			FinishReason: genai.FinishReasonStop, ModelVersion: "m-1", TurnComplete: true,
			CustomMetadata: map[string]any{metaKey: &meta{}},
		},
		Actions: adksession.EventActions{StateDelta: map[string]any{"k": json.Number("9007199254740993"), "temp:t": 1, "user:u": nil}, Escalate: true},
	}
	return ev, &meta{
		LLM: "a|p.a#3", Path: []string{"root", "p", "a"}, Calls: []string{"call_1"}, Last: true, Structured: true,
		Usage: &record.Usage{Prompt: 1, Completion: 2, Cached: 3, Thoughts: 4, Total: 5, Calls: 1, Cost: 250_000_000},
	}
}

func TestEventRoundTrip(t *testing.T) {
	ev, m := sample()
	data, err := encode(ev, m)
	if err != nil {
		t.Fatal(err)
	}
	s, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	back := adksession.Event(s.event)
	encoded, err := encode(&back, &s.CustomMetadata.Agentd)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, encoded) {
		t.Errorf("not the same:\n%s\n%s", data, encoded)
	}
	if got, want := compact(s.Content), compact(ev.Content); got != want {
		t.Errorf("content\n%s\nwant\n%s", got, want)
	}
	if !s.Timestamp.Equal(ev.Timestamp) || s.Branch != ev.Branch || s.Author != ev.Author || s.ID != ev.ID || !s.Actions.Escalate || s.ModelVersion != "m-1" {
		t.Errorf("event %+v", s.event)
	}
	if len(ev.Actions.StateDelta) != 3 || ev.CustomMetadata == nil {
		t.Error("encode has changed the event")
	}
	got := compact(s.sessionEvent())
	want := `{"MessageID":"e-1/a|p.a#3","Path":["root","p","a"],"Text":"\u003cTom \u0026 \"Jerry\"\u003e\u2028 more","Thoughts":"hm","Last":true,` +
		`"Calls":[{"id":"call_1","name":"search","input":{"big":12345678901234567890,"f":1.0},"path":["root","p","a"]}],` +
		`"State":{"k":9007199254740993,"user:u":null},"Usage":{"prompt":1,"completion":2,"cached":3,"thoughts":4,"total":5,"calls":1,"cost_usd":0.25},` +
		`"Model":"m-1","Stop":"STOP","Structured":true}`
	if got != want {
		t.Errorf("meaning\n%s\nwant\n%s", got, want)
	}
}

// TestEmptyObjects: JSON drops an empty object, decoding brings it back.
func TestEmptyObjects(t *testing.T) {
	data, err := encode(&adksession.Event{LLMResponse: adkmodel.LLMResponse{Content: &genai.Content{Role: "user", Parts: []*genai.Part{
		{FunctionCall: &genai.FunctionCall{ID: "1", Name: "t", Args: map[string]any{}}},
		{FunctionResponse: &genai.FunctionResponse{ID: "1", Name: "t", Response: map[string]any{}}},
		{}, nil,
	}}}}, &meta{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Content.Parts; len(p) != 2 || p[0].FunctionCall.Args == nil || p[1].FunctionResponse.Response == nil {
		t.Errorf("parts %s", compact(p))
	}
}

// TestDecodeOlder reads a response that was stored without later fields.
func TestDecodeOlder(t *testing.T) {
	ev, err := New(Config{}).Decode([]byte(`{"author":"a","invocationId":"e-1","content":{"role":"model","parts":[{"text":"{}"}]},"customMetadata":{"agentd":{"llm":"a|#0","path":["a"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := compact(ev), `{"MessageID":"e-1/a|#0","Path":["a"],"Text":"{}","Thoughts":"","Last":false,"Calls":null,"State":null,"Usage":null}`; got != want {
		t.Errorf("meaning\n%s\nwant\n%s", got, want)
	}
}

// TestDecodeRefuses refuses what is no event.
func TestDecodeRefuses(t *testing.T) {
	r := New(Config{})
	for _, data := range []string{"", "{", "[]", "{} {}", `{"content":1}`, `{"timestamp":"yesterday"}`, `{"customMetadata":[]}`} {
		if ev, err := r.Decode([]byte(data)); err == nil {
			t.Errorf("%q gave %+v", data, ev)
		}
	}
}

// FuzzDecode: no data makes it panic, what it gives can be stored and shown,
// and decoding is stable.
func FuzzDecode(f *testing.F) {
	ev, m := sample()
	data, err := encode(ev, m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"content":{"parts":[null,{},{"functionCall":{}},{"functionResponse":{}},{"functionCall":{"id":"x"},"partMetadata":{"agentd.args":"{\"a\":"}}],"role":"model"},"customMetadata":{"agentd":{"llm":"x","calls":["x",""]}}}`))
	f.Add([]byte(`{"actions":{"stateDelta":{"temp:":1,"":null}},"author":"user","branch":"."}`))
	r := New(Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		ev, err := r.Decode(data)
		if err != nil {
			return
		}
		if _, err := json.Marshal(ev); err != nil {
			t.Fatalf("event does not marshal: %v", err)
		}
		s, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		h := newHistory()
		h.addStored(1, s, len(data))
		h.prompt("a", "b", 0)
		h.prompt(s.Author, s.Branch, 0)
		back := adksession.Event(s.event)
		encoded, err := encode(&back, &s.CustomMetadata.Agentd)
		if err != nil {
			return // such as a year that JSON cannot hold
		}
		if other, err := r.Decode(encoded); err != nil || compact(other) != compact(ev) {
			t.Fatalf("decoding again: %v\n%s\n%s", err, compact(ev), compact(other))
		}
	})
}

// TestLast: a response is the last only if nothing leads back to its agent. Deltas and
// events of a message have one id.
func TestLast(t *testing.T) {
	w := newWorld(t, nil)
	w.script.steps = map[string][]step{
		"a": {use("search"), say("A")}, "b": {say("B")}, "c": {transfer("d")}, "d": {say("D")}, "e": {{thought: "hm"}, {thought: "so", text: "E"}}, "f": {{}},
	}
	run := newFakeRun(t, seq("root", llm("a"), rounds("l", 1, llm("b")), llm("c", subs(llm("d"))), par("p", llm("e")), llm("f")), "go")
	if err := w.runner.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	var last, ids []string
	for _, ev := range run.events(w.runner) {
		if ev.Last {
			last = append(last, pathString(ev.Path))
		}
		if ev.MessageID != "" {
			ids = append(ids, ev.MessageID)
		}
	}
	if got := strings.Join(last, " "); got != "root/a root/p/e root/f" {
		t.Errorf("last of %s", got)
	}
	var streamed []string
	for _, d := range run.deltas {
		if n := len(streamed); n == 0 || streamed[n-1] != d.MessageID {
			streamed = append(streamed, d.MessageID)
		}
	}
	p := run.turnID + "/"
	if got := strings.Join(ids, " "); got != p+"a|#0 "+p+"a|#1 "+p+"b|#0 "+p+"c|#0 "+p+"d|#0 "+p+"e|p.e#0 "+p+"e|p.e#1 "+p+"f|#0" {
		t.Errorf("messages %s", got)
	}
	if got := strings.Join(streamed, " "); got != p+"a|#1 "+p+"b|#0 "+p+"d|#0 "+p+"e|p.e#0 "+p+"e|p.e#1" {
		t.Errorf("streamed %s", got)
	}
}
