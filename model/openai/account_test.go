package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// organizations is a server that encrypts reasoning for the key of the request, and
// refuses the reasoning of another key as OpenAI does.
type organizations struct {
	url     string
	refused int
	sent    []string // the encrypted reasoning of each request that was answered, joined
	late    bool     // refuse within the stream, behind a piece of text
	failed  bool     // refuse as a failed response
}

func newOrganizations(t *testing.T) *organizations {
	o := &organizations{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.serve(t, w, r) }))
	t.Cleanup(s.Close)
	o.url = s.URL
	return o
}

func (o *organizations) serve(t *testing.T, w http.ResponseWriter, r *http.Request) {
	var body struct {
		Input []struct {
			Type      string `json:"type"`
			Encrypted string `json:"encrypted_content"`
		} `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		t.Error(err)
	}
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	var sealed []string
	foreign := false
	for _, item := range body.Input {
		if item.Encrypted != "" {
			sealed = append(sealed, item.Encrypted)
			foreign = foreign || item.Encrypted != "for "+key
		}
	}
	const code, message = "invalid_encrypted_content", "The reasoning could not be verified: its organization_id is another one."
	w.Header().Set("Content-Type", "text/event-stream")
	switch {
	case foreign && o.failed:
		o.refused++
		if o.late {
			_, _ = io.WriteString(w, event("response.output_text.delta", obj{"output_index": 0, "delta": "He"}))
		}
		_, _ = io.WriteString(w, event("response.failed", obj{"response": obj{"status": "failed", "error": obj{"code": code, "message": message}}}))
		return
	case foreign:
		o.refused++
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, errorBody(code, message))
		return
	}
	o.sent = append(o.sent, strings.Join(sealed, ", "))
	reasoning := obj{"type": "reasoning", "id": "rs", "summary": []any{}, "encrypted_content": "for " + key}
	text := obj{"type": "message", "role": "assistant", "content": []obj{{"type": "output_text", "text": "hello"}}}
	for i, item := range []obj{reasoning, text} {
		_, _ = io.WriteString(w, event("response.output_item.done", obj{"output_index": i, "item": item}))
	}
	_, _ = io.WriteString(w, event("response.completed", obj{"response": obj{"status": "completed"}}))
}

// ask makes a call with a key and returns the conversation with its answer, as it is
// read back from the log.
func (o *organizations) ask(t *testing.T, key string, said []*genai.Content) ([]*genai.Content, error) {
	t.Helper()
	llm, err := New(Config{APIKey: "server-key", BaseURL: o.url, API: Responses}).Open("gpt-5.5", key)
	if err != nil {
		t.Fatal(err)
	}
	req := &model.Request{Contents: append(slices.Clone(said), user(text("go on"))), Config: &genai.GenerateContentConfig{}}
	resp, err := llm.Generate(t.Context(), req, func(model.Delta) {})
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(append(req.Contents, resp.Content))
	if err != nil {
		t.Fatal(err)
	}
	var stored []*genai.Content
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	return stored, nil
}

// TestAccounts: a conversation goes from the server's key to a caller's, to another
// caller's and back. Each organization gets its own reasoning, and no call is refused.
func TestAccounts(t *testing.T) {
	o := newOrganizations(t)
	var said []*genai.Content
	for _, key := range []string{"", "", "a-key", "b-key", "a-key", ""} {
		var err error
		if said, err = o.ask(t, key, said); err != nil {
			t.Fatalf("with key %q: %v", key, err)
		}
	}
	want := []string{"", "for server-key", "", "", "for a-key", "for server-key, for server-key"}
	if !slices.Equal(o.sent, want) || o.refused != 0 {
		t.Errorf("the requests held %q, and %d were refused; want %q", o.sent, o.refused, want)
	}
}

// TestUnmarkedReasoning: reasoning that was stored before accounts were marked goes
// out. Where it is refused with nothing shown the call is made once without it.
func TestUnmarkedReasoning(t *testing.T) {
	for name, set := range map[string]struct {
		failed, late bool
		refused      int
		ok           bool
	}{
		"by status":   {refused: 1, ok: true},
		"in a stream": {failed: true, refused: 1, ok: true},
		"behind text": {failed: true, late: true, refused: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrganizations(t)
			said, err := o.ask(t, "a-key", nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range said {
				for _, p := range c.Parts {
					delete(p.PartMetadata, seam.MetaAccount)
				}
			}
			if _, err := o.ask(t, "a-key", said); err != nil || o.sent[1] != "for a-key" {
				t.Fatalf("its own account: error %v, sent %q", err, o.sent)
			}
			o.failed, o.late = set.failed, set.late
			_, err = o.ask(t, "b-key", said)
			if (err == nil) != set.ok || o.refused != set.refused {
				t.Errorf("error %v after %d refusals, want an answer: %t, after %d", err, o.refused, set.ok, set.refused)
			}
			if set.ok && o.sent[len(o.sent)-1] != "" {
				t.Errorf("the call was made again with %q", o.sent)
			}
		})
	}
}

// TestAccountsOfDetails: what another API has encrypted for an account goes back to
// that account alone, what is signed for every account to all.
func TestAccountsOfDetails(t *testing.T) {
	url, _ := serve(t, "text/event-stream", chunks(
		choice(`"delta":{"content":"hi","reasoning_details":[{"type":"reasoning.encrypted","data":"x","format":"openai-responses-v1"},`+
			`{"type":"reasoning.encrypted","data":"y","format":"google-gemini-v1"}]}`),
		choice(`"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"`), "[DONE]"))
	p := New(Config{BaseURL: url, API: Chat})
	open := func(key string) *llm {
		l, err := p.Open("acme/one", key)
		if err != nil {
			t.Fatal(err)
		}
		return l.LLM.(*llm)
	}
	req := hello()
	resp, err := open("a-key").Generate(t.Context(), req, func(model.Delta) {})
	if err != nil {
		t.Fatal(err)
	}
	req.Contents = append(req.Contents, resp.Content, user(result("c", map[string]any{"output": "x"})))
	for key, want := range map[string]int{"a-key": 2, "b-key": 1} {
		m := sentMessages(t, open(key), req)[1]
		if len(m.ReasoningDetails) != want {
			t.Errorf("%s gets %s, want %d details", key, mustJSON(m.ReasoningDetails), want)
		}
	}
}
