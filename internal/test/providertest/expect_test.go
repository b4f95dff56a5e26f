package providertest

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/jsondiff"
)

func synthesized(t testing.TB, name string) *Recording {
	t.Helper()
	for _, rec := range Synthetic(t) {
		if rec.Name == name {
			return rec
		}
	}
	t.Fatalf("no synthetic recording %s", name)
	return nil
}

// TestExpectTools checks that the same conversation, told on four wires, is the
// same conversation.
func TestExpectTools(t *testing.T) {
	for _, name := range []string{"chat_tools", "responses_tools", "anthropic_tools", "gemini_tools_without_ids", "gemini_tools_with_ids"} {
		t.Run(name, func(t *testing.T) {
			conv, err := Expect(synthesized(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if conv.Needs() != "" || len(conv.Sessions) != 1 || len(conv.Sessions[0].Turns) != 1 {
				t.Fatalf("needs %q, sessions %+v", conv.Needs(), conv.Sessions)
			}
			s := conv.Sessions[0]
			if s.System != "You keep an inventory of lighthouses." || s.Model == "" || len(s.Builtins) != 0 {
				t.Errorf("model %q, system %q, builtins %q", s.Model, s.System, s.Builtins)
			}
			var tools []string
			for _, tool := range s.Tools {
				tools = append(tools, tool.Name+": "+tool.Description)
				if !json.Valid(tool.Schema) {
					t.Errorf("tool %s: schema %s", tool.Name, tool.Schema)
				}
			}
			if want := []string{"inspect: Reports the state of a lighthouse.", "weather: Tells the weather at the coast.", "book_painter: Books a painter."}; !reflect.DeepEqual(tools, want) {
				t.Errorf("tools %q, want %q", tools, want)
			}
			turn := s.Turns[0]
			if turn.Prompt != "Check both lighthouses and book a painter for the worse one." || len(turn.Steps) != 3 {
				t.Fatalf("prompt %q with %d steps", turn.Prompt, len(turn.Steps))
			}
			if got := turn.Text(); !strings.HasPrefix(got, "The north is worse.") || !strings.HasSuffix(got, "Done: a painter comes on Tuesday.") {
				t.Errorf("text %q", got)
			}
			checkSteps(t, turn)
		})
	}
}

func checkSteps(t *testing.T, turn Turn) {
	t.Helper()
	want := [][][3]string{
		{
			{"inspect", `{"name":"north","deep":true}`, `{"rust": 7, "paint": "flaking"}`},
			{"inspect", `{"name":"süd"}`, "lens ok, paint fair"},
			{"weather", `{}`, "no weather station answers"},
		},
		{{"book_painter", `{"where":{"name":"north","floors":[1,2,9007199254740993]},"note":"bring \"red\" & white\npaint 🖌"}`, "booked for Tuesday"}},
		{},
	}
	var sum Usage
	for i, step := range turn.Steps {
		if step.Open() || len(step.Calls) != len(want[i]) || len(step.Results) != len(want[i]) {
			t.Fatalf("step %d: calls %v, results %v", i, step.Calls, step.Results)
		}
		for j, w := range want[i] {
			c, r := step.Calls[j], step.Results[j]
			if c.Name != w[0] || r.Name != w[0] || !jsondiff.Equal(c.Args, w[1]) || r.Output != w[2] || r.ID != c.ID {
				t.Errorf("step %d, call %d: %+v and %+v, want %q", i, j, c, r, w)
			}
		}
		sum = sum.Add(step.Usage)
	}
	if got := turn.Usage(); got != sum || got.Total == 0 {
		t.Errorf("usage %+v, want %+v", got, sum)
	}
}

func TestExpectTurns(t *testing.T) {
	for _, name := range []string{"chat_text", "responses_text", "anthropic_text", "gemini_text"} {
		conv, err := Expect(synthesized(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(conv.Sessions) != 1 || len(conv.Sessions[0].Turns) != 2 || conv.Sessions[0].Turns[1].Prompt != "And after that?" {
			t.Errorf("%s: %+v", name, conv.Sessions)
		}
	}
}

func TestExpectErrors(t *testing.T) {
	for name, status := range map[string]int{"chat_error": 429, "responses_error": 401, "anthropic_error": 529, "gemini_error": 404} {
		conv, err := Expect(synthesized(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if step := conv.Sessions[0].Turns[0].Steps[0]; step.Status != status || !strings.Contains(step.Message, "lighthouse") {
			t.Errorf("%s: %d %q", name, step.Status, step.Message)
		}
	}
}

// TestExpectOrder checks that texts, calls and what the provider's own tools have
// said keep their places.
func TestExpectOrder(t *testing.T) {
	for name, want := range map[string][]Kind{
		"responses_stream":     {User, Call, Assistant},
		"anthropic_stream":     {User, Assistant, Call, Call},
		"anthropic_web_search": {User, Assistant, Other, Other, Other, Other, Assistant, Assistant},
		"responses_web_search": {User, Other, Other, Assistant},
		"gemini_search":        {User, Assistant, Other, Other, Other, Other, Assistant},
	} {
		conv, err := Expect(synthesized(t, name))
		if err != nil {
			t.Fatal(err)
		}
		var got []Kind
		for _, item := range conv.Sessions[0].History(0, 1) {
			got = append(got, item.Kind)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestHistories checks every recorded request against what the recording's own
// conversation says it must carry.
func TestHistories(t *testing.T) {
	checked := 0
	for _, rec := range All(t) {
		conv, err := Expect(rec)
		if err != nil {
			t.Errorf("%s: %v", rec.Name, err)
			continue
		}
		calls := rec.Calls()
		for _, s := range conv.Sessions {
			for i, turn := range s.Turns {
				for j := range turn.Steps {
					e := calls[0]
					calls = calls[1:]
					if s.Needs != "" {
						continue
					}
					checked++
					if err := CheckHistory(e.Request, e.Wire, s.History(i, j)); err != nil {
						t.Errorf("%s, turn %d, step %d: %v", rec.Name, i, j, err)
					}
				}
			}
		}
		if len(calls) > 0 {
			t.Errorf("%s: %d calls belong to no session", rec.Name, len(calls))
		}
	}
	if checked < 30 {
		t.Errorf("only %d requests were checked", checked)
	}
}

// TestCheckHistoryRefuses breaks requests in every way that a daemon could.
func TestCheckHistoryRefuses(t *testing.T) {
	for _, name := range []string{"chat_tools", "responses_tools", "anthropic_tools", "gemini_tools_without_ids", "gemini_tools_with_ids"} {
		rec := synthesized(t, name)
		conv, err := Expect(rec)
		if err != nil {
			t.Fatal(err)
		}
		e, s := rec.Calls()[2], &conv.Sessions[0]
		body := string(e.Request)
		if err := CheckHistory([]byte(body), e.Wire, s.History(0, 1)); err == nil {
			t.Errorf("%s: too long a history passed", name)
		}
		if err := CheckHistory(rec.Calls()[1].Request, e.Wire, s.History(0, 2)); err == nil {
			t.Errorf("%s: too short a history passed", name)
		}
		changes := map[string][2]string{
			"prompt":    {"Check both lighthouses", "Check both"},
			"text":      {"The north is worse", "The south is worse"},
			"output":    {"booked for Tuesday", "booked for Monday"},
			"tool name": {`"name": "weather"`, `"name": "wether"`},
			"arguments": {"900719925474099", "900719925474098"},
		}
		for what, change := range changes {
			// The first of the declarations of a tool may change with its name.
			broken := strings.ReplaceAll(body, change[0], change[1])
			if broken == body {
				t.Errorf("%s: no %s in %s", name, what, body)
			}
			if err := CheckHistory([]byte(broken), e.Wire, s.History(0, 2)); err == nil {
				t.Errorf("%s: a wrong %s passed", name, what)
			}
		}
	}
}

func TestCheckHistoryPairs(t *testing.T) {
	user := `{"role":"user","content":"hi"}`
	calls := `{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{\"x\":1}"}}]}`
	result := func(id, out string) string {
		return `{"role":"tool","tool_call_id":"` + id + `","content":"` + out + `"}`
	}
	soFar := []Item{
		{Kind: User, Text: "hi"},
		{Kind: Call, ID: "1", Name: "f", Args: "{}"},
		{Kind: Call, ID: "2", Name: "f", Args: `{"x": 1}`},
		{Kind: Result, ID: "1", Text: "one"},
		{Kind: Result, ID: "2", Text: "two"},
	}
	tests := map[string]struct {
		messages []string
		want     string // part of the error, "" for none
	}{
		"in order":      {[]string{user, calls, result("a", "one"), result("b", "two")}, ""},
		"other order":   {[]string{user, calls, result("b", "two"), result("a", "one")}, ""},
		"wrapped":       {[]string{user, calls, result("a", `{\"output\": \"one\"}`), result("b", `{\"result\":\"two\"}`)}, ""},
		"swapped":       {[]string{user, calls, result("a", "two"), result("b", "one")}, "not result"},
		"missing":       {[]string{user, calls, result("a", "one")}, "has no result"},
		"twice":         {[]string{user, calls, result("a", "one"), result("a", "one"), result("b", "two")}, "answers no open call"},
		"foreign":       {[]string{user, calls, result("c", "one"), result("b", "two")}, "answers no open call"},
		"user between":  {[]string{user, calls, result("a", "one"), user, result("b", "two")}, "has no result before"},
		"something new": {[]string{user, calls, result("a", "one"), result("b", "two"), user}, "items too many"},
		"call missing":  {[]string{user}, "item 1 of the history is missing"},
		"media":         {[]string{`{"role":"user","content":[{"type":"image_url"}]}`, calls, result("a", "one"), result("b", "two")}, "image_url"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"m","messages":[` + strings.Join(tt.messages, ",") + `]}`
			err := CheckHistory([]byte(body), OpenAIChat, soFar)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestCheckHistoryPrompts checks that two prompts in a row may be sent as one.
func TestCheckHistoryPrompts(t *testing.T) {
	soFar := []Item{{Kind: User, Text: "hi"}, {Kind: User, Text: "there"}}
	for messages, ok := range map[string]bool{
		`{"role":"user","content":"hi"},{"role":"user","content":"there"}`: true,
		`{"role":"user","content":"hi\n\nthere"}`:                          true,
		`{"role":"user","content":"hithere"}`:                              false,
		`{"role":"user","content":"there"}`:                                false,
	} {
		err := CheckHistory([]byte(`{"model":"m","messages":[`+messages+`]}`), OpenAIChat, soFar)
		if (err == nil) != ok {
			t.Errorf("%s: %v", messages, err)
		}
	}
}

func TestParseRequestTools(t *testing.T) {
	tests := []struct {
		address, body string
		want          []string
	}{
		{"/v1/responses", `{"tools":[{"type":"web_search_preview"},{"type":"code_interpreter"},{"type":"tool_search"}]}`, []string{"web_search", "code_execution", "tool_search"}},
		{"/v1/chat/completions", `{"web_search_options":{}}`, []string{"web_search"}},
		{"/v1/messages", `{"tools":[{"type":"web_search_20250305"},{"type":"web_fetch_20250910"},{"type":"code_execution_20250825"},{"type":"custom","name":"f"}]}`, []string{"web_search", "url_context", "code_execution"}},
		{"/v1beta/models/g:generateContent", `{"tools":[{"urlContext":{}},{"google_search":{}},{"codeExecution":{}}]}`, []string{"code_execution", "google_search", "url_context"}},
	}
	for _, tt := range tests {
		req, err := ParseRequest("https://provider.example"+tt.address, []byte(tt.body))
		if err != nil {
			t.Error(err)
			continue
		}
		if !reflect.DeepEqual(req.Builtins, tt.want) {
			t.Errorf("%s: builtins %q, want %q", tt.address, req.Builtins, tt.want)
		}
	}
	if _, err := ParseRequest("/v1/models", []byte("{}")); err == nil {
		t.Error("a path that is no model call was read")
	}
	if _, err := ParseRequest("/v1/messages", []byte("[")); err == nil {
		t.Error("a body that is no JSON was read")
	}
}

func TestParseRequestGemini(t *testing.T) {
	body := `{"contents":[{"role":"user","parts":[{"text":"hi"}]},
		{"role":"model","parts":[{"text":"hm","thought":true},{"function_call":{"name":"f"},"thought_signature":"c2ln"}]},
		{"role":"user","parts":[{"function_response":{"name":"f","response":{"error":"no"}}},{"fileData":{"fileUri":"x"}}]}],
		"tools":[{"function_declarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"type":{"type":"STRING"}}}}]}]}`
	u, err := url.Parse("https://x/v1/projects/p/locations/l/publishers/google/models/g-1:streamGenerateContent?alt=sse")
	if err != nil {
		t.Fatal(err)
	}
	req, err := parseRequest(Gemini, u, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := []Item{
		{Kind: User, Text: "hi"}, {Kind: Call, Name: "f", Args: "{}"},
		{Kind: Result, Name: "f", Text: "no", IsError: true}, {Kind: Other, Text: "fileData"},
	}
	if !reflect.DeepEqual(req.Items, want) || req.Model != "g-1" || !req.Stream {
		t.Errorf("request %+v, want items %+v", req, want)
	}
	if !reflect.DeepEqual(req.Signatures, []string{"c2ln"}) {
		t.Errorf("signatures %q", req.Signatures)
	}
	if len(req.Tools) != 1 || !jsondiff.Equal(string(req.Tools[0].Schema), `{"type":"object","properties":{"type":{"type":"string"}}}`) {
		t.Errorf("tools %+v", req.Tools)
	}
}
