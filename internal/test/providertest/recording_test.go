package providertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadRefuses(t *testing.T) {
	tests := map[string]struct{ file, want string }{
		"no JSON":      {`{"exchanges": [`, "unexpected end"},
		"no exchanges": {`{}`, "at least one is needed"},
		"no status":    {`{"exchanges": [{"method": "POST", "url": "http://a/b"}]}`, "exchange 0: method"},
		"bad url":      {`{"exchanges": [{"method": "POST", "url": "http://[", "status": 200}]}`, "exchange 0: url"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "rec.json")
			if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(file); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "rec.json") {
				t.Errorf("Load: %v, want an error about the file and %q", err, tt.want)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("Load of a file that does not exist succeeded")
	}
}

func TestLoadUnwraps(t *testing.T) {
	rec, err := parse("rec.json", []byte(`{"exchanges": [
		{"method": "GET", "url": "https://a/v1/models", "status": 200, "response_headers": {"content-type": "text/plain"}, "response_text": "all"},
		{"method": "POST", "url": "https://a/v1/messages?beta=true", "request_body": "{\"model\":\"m\"}", "status": 200,
		 "response_headers": {"content-type": "application/json"}, "response_text": "{\"id\":1}\n"},
		{"method": "POST", "url": "https://a/upload", "request_body": "no JSON", "status": 200, "response_json": {}}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	calls := rec.Calls()
	if rec.Name != "rec" || len(rec.Exchanges) != 3 || len(calls) != 1 || calls[0].Wire != Anthropic {
		t.Fatalf("recording %q with %d exchanges, calls %+v", rec.Name, len(rec.Exchanges), calls)
	}
	if got := string(calls[0].Request); got != `{"model":"m"}` {
		t.Errorf("request %s", got)
	}
	if got := strings.TrimSpace(string(calls[0].JSON)); got != `{"id":1}` || calls[0].Text != "" {
		t.Errorf("answer %s and %q", got, calls[0].Text)
	}
	if rec.Exchanges[0].Text != "all" || rec.Exchanges[2].Request != nil {
		t.Errorf("exchanges %+v", rec.Exchanges)
	}
}

func TestWireOf(t *testing.T) {
	tests := map[string]Wire{
		"/v1/chat/completions":             OpenAIChat,
		"/openai/v1/chat/completions":      OpenAIChat,
		"/v1/responses":                    OpenAIResponses,
		"/responses":                       OpenAIResponses,
		"/v1/responses/resp_1":             "",
		"/v1/messages":                     Anthropic,
		"/v1/messages/count_tokens":        "",
		"/v1beta/models/g:generateContent": Gemini,
		"/v1beta/models/g:countTokens":     "",
		"/v1beta/fileSearchStores":         "",
		"/v1/completions":                  "",
		"/v1/projects/p/locations/l/publishers/google/models/g:streamGenerateContent": Gemini,
	}
	for path, want := range tests {
		if got := WireOf(path); got != want {
			t.Errorf("WireOf(%s) = %q, want %q", path, got, want)
		}
	}
}

// TestIndex holds what Expect finds out about each recording against what the
// index of the recordings says of it.
func TestIndex(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(Dir(), "INDEX.tsv"))
	if Dir() == "" || err != nil {
		t.Logf("no index of recordings of real providers: %v", err)
		return
	}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		cols := strings.Split(line, "\t")
		if i == 0 || len(cols) < 4 {
			continue
		}
		rec, err := Load(filepath.Join(Dir(), cols[0]))
		if err != nil {
			t.Error(err)
			continue
		}
		conv, err := Expect(rec)
		if err != nil {
			t.Error(err)
			continue
		}
		index := strings.TrimSpace(strings.Join(cols[4:], ""))
		if (conv.Needs() == "") != (index == "") {
			t.Errorf("%s: needs %q, the index says %q", rec.Name, conv.Needs(), index)
		}
		if string(conv.Wire) != cols[1] {
			t.Errorf("%s: wire %s, the index says %s", rec.Name, conv.Wire, cols[1])
		}
		last := conv.Sessions[len(conv.Sessions)-1]
		turn := last.Turns[len(last.Turns)-1]
		if open := strings.Contains(cols[3], "open-call"); index == "" && turn.Steps[len(turn.Steps)-1].Open() != open {
			t.Errorf("%s: ends with open calls: %t, the index says %t", rec.Name, !open, open)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, rec := range Synthetic(f) {
		data, err := synthetic.ReadFile("testdata/" + rec.Name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := parse("fuzz.json", data)
		if err != nil {
			return
		}
		// Whatever a recording holds, nothing here panics, and what can be read can
		// be streamed.
		_, _ = Expect(rec)
		for _, e := range rec.Calls() {
			if _, err := answerOf(e); err != nil || e.JSON == nil || e.Status >= 400 {
				continue
			}
			if events, err := stream(e.Wire, object{}, e.JSON); err != nil {
				t.Errorf("streaming what could be read: %v", err)
			} else if len(events) == 0 || events[0].data != "[DONE]" && !json.Valid([]byte(events[0].data)) {
				t.Errorf("the stream does not start with an event: %v", events)
			}
		}
	})
}
