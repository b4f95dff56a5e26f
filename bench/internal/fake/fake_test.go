package fake_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/bench/internal/fake"
	"github.com/apzuk3/agentd/bench/internal/script"
)

const path = "/v1beta/models/m:streamGenerateContent"

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// A request that does not hold the whole conversation is refused, and counted.
func TestWrongRequests(t *testing.T) {
	server := httptest.NewServer(&fake.Model{})
	defer server.Close()
	first := script.Script{Chunks: 1, Rounds: 1, Calls: 2, Turn: 1}.Prompt()
	second := script.Script{Chunks: 1, Rounds: 2, Calls: 2, Turn: 2, Past: 2}.Prompt()
	result := func(n int) string { return `{"functionResponse":{"x":"` + script.Result(n) + `"}}` }
	history := first + result(0) + result(1)
	right := history + second + result(2) + result(3)
	if status, text := post(t, server.URL+path, right); status != http.StatusOK || !strings.Contains(text, `{"n":5,"wait":0}`) {
		t.Fatalf("%d %s", status, text)
	}
	for want, body := range map[string]string{
		"has no script":                      "hello",
		"has no end":                         script.Mark + "chunks=1",
		"has 7 fields":                       strings.Replace(first, "chunks=1 ", "", 1),
		"field 0 is not chunks=N":            strings.Replace(first, "chunks=1", "chunks=-1", 1),
		"has 1 user turns, and 2":            result(0) + result(1) + second,
		"has 1 tool results before the turn": first + result(0) + second,
		"has 1 tool results in the turn":     history + second + result(2),
		"has 6 tool results in the turn":     right + result(4) + result(5) + result(6) + result(7),
		`"result-3." 0 times`:                history + second + result(2) + result(4),
		`"result-2." 2 times`:                history + second + result(2) + result(2),
	} {
		if status, text := post(t, server.URL+path, body); status != http.StatusBadRequest ||
			!strings.Contains(text, strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%q is not in: %d %s", want, status, text)
		}
	}
	if status, _ := post(t, server.URL+"/other", first); status != http.StatusBadRequest {
		t.Errorf("a path of no wire: %d", status)
	}
	stamped := script.Script{Chunks: 1, Stamped: true, Turn: 1}.Prompt()
	if status, _ := post(t, server.URL+"/v1/messages", stamped); status != http.StatusBadRequest {
		t.Errorf("times on Anthropic's wire: %d", status)
	}
	var counts fake.Counts
	if _, text := post(t, server.URL+fake.CountsPath, ""); json.Unmarshal([]byte(text), &counts) != nil ||
		counts.Answered != 1 || counts.Refused != 12 || counts.Left != 0 || counts.Why == "" {
		t.Errorf("%s", text)
	}
	if _, text := post(t, server.URL+fake.CountsPath, ""); json.Unmarshal([]byte(text), &counts) != nil || counts.Answered+counts.Refused > 0 {
		t.Errorf("%s", text)
	}
}
