package providertest

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Wire is the protocol of a provider's model call.
type Wire string

// The wires.
const (
	OpenAIChat      Wire = "openai_chat"
	OpenAIResponses Wire = "openai_responses"
	Anthropic       Wire = "anthropic"
	Gemini          Wire = "gemini"
)

// Recording is a recorded conversation. It is immutable and may be shared.
type Recording struct {
	// Name is the file's name without its extension.
	Name string
	// Exchanges are all exchanges in the order in which they happened, also those
	// that are no model calls.
	Exchanges []Exchange
}

// Exchange is one request and its answer.
type Exchange struct {
	// Method and URL are the request's.
	Method, URL string
	// Wire is the wire of a model call, or "" for anything else, such as an
	// upload or a poll.
	Wire Wire
	// Request is the request's body, nil if it had none or one that is not JSON.
	Request json.RawMessage
	// Status is the answer's HTTP status.
	Status int
	// Header holds the answer's headers.
	Header http.Header
	// JSON is the answer's body if it was JSON, else nil.
	JSON json.RawMessage
	// Text is the answer's body byte for byte if it was not JSON.
	Text string
}

// Stream reports whether the answer was recorded as an event stream.
func (e *Exchange) Stream() bool {
	return strings.HasPrefix(e.Header.Get("Content-Type"), "text/event-stream")
}

// Calls returns the exchanges that are model calls.
func (r *Recording) Calls() []*Exchange {
	var calls []*Exchange
	for i := range r.Exchanges {
		if r.Exchanges[i].Wire != "" {
			calls = append(calls, &r.Exchanges[i])
		}
	}
	return calls
}

// fileExchange is an exchange in the file's format.
type fileExchange struct {
	Method          string            `json:"method"`
	URL             string            `json:"url"`
	RequestBody     json.RawMessage   `json:"request_body"`
	Status          int               `json:"status"`
	ResponseHeaders map[string]string `json:"response_headers"`
	ResponseJSON    json.RawMessage   `json:"response_json"`
	ResponseText    string            `json:"response_text"`
}

// Load reads a recording from a file.
func Load(file string) (*Recording, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a recording: %w", err)
	}
	return parse(filepath.Base(file), data)
}

func parse(name string, data []byte) (*Recording, error) {
	var file struct {
		Exchanges []fileExchange `json:"exchanges"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	if len(file.Exchanges) == 0 {
		return nil, fmt.Errorf("recording %s: it has no exchanges, at least one is needed", name)
	}
	rec := &Recording{Name: strings.TrimSuffix(name, ".json")}
	for i, fe := range file.Exchanges {
		e, err := fe.exchange()
		if err != nil {
			return nil, fmt.Errorf("recording %s, exchange %d: %w", name, i, err)
		}
		rec.Exchanges = append(rec.Exchanges, e)
	}
	return rec, nil
}

func (fe *fileExchange) exchange() (Exchange, error) {
	if fe.Method == "" || fe.Status < 100 || fe.Status > 599 {
		return Exchange{}, fmt.Errorf("method %q and status %d: a method and a status from 100 to 599 are needed",
			fe.Method, fe.Status)
	}
	u, err := url.Parse(fe.URL)
	if err != nil {
		return Exchange{}, fmt.Errorf("url: %w", err)
	}
	e := Exchange{
		Method: fe.Method, URL: fe.URL, Status: fe.Status, Header: make(http.Header),
		Request: bodyJSON(fe.RequestBody), JSON: fe.ResponseJSON, Text: fe.ResponseText,
	}
	for k, v := range fe.ResponseHeaders {
		e.Header.Set(k, v)
	}
	if !e.Stream() && e.JSON == nil && json.Valid([]byte(e.Text)) {
		e.JSON, e.Text = json.RawMessage(e.Text), ""
	}
	if fe.Method == http.MethodPost && e.Request != nil {
		e.Wire = WireOf(u.Path)
	}
	return e, nil
}

// bodyJSON unwraps a request body, which a recording may hold as a string of
// JSON.
func bodyJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return raw
	}
	if json.Valid([]byte(s)) {
		return json.RawMessage(s)
	}
	return nil
}

// WireOf tells the wire of a model call by the end of its path, so that prefixes
// of gateways, of Vertex and of compatible servers do not matter.
func WireOf(p string) Wire {
	switch base := path.Base(p); {
	case strings.HasSuffix(p, "/chat/completions"):
		return OpenAIChat
	case base == "responses":
		return OpenAIResponses
	case base == "messages":
		return Anthropic
	case strings.HasSuffix(base, ":generateContent"), strings.HasSuffix(base, ":streamGenerateContent"):
		return Gemini
	default:
		return ""
	}
}

//go:embed testdata/*.json
var synthetic embed.FS

// Synthetic returns the invented recordings that come with this package: a few
// of each wire, with text, thoughts, parallel tool calls and an error.
func Synthetic(tb testing.TB) []*Recording {
	tb.Helper()
	entries, err := synthetic.ReadDir("testdata")
	if err != nil {
		tb.Fatal(err)
	}
	var recs []*Recording
	for _, entry := range entries {
		data, err := synthetic.ReadFile(path.Join("testdata", entry.Name()))
		if err != nil {
			tb.Fatal(err)
		}
		rec, err := parse(entry.Name(), data)
		if err != nil {
			tb.Fatal(err)
		}
		recs = append(recs, rec)
	}
	return recs
}

// All returns the synthetic recordings and, where they are at hand, those of real
// providers: the JSON files of the folder that AGENTD_RECORDINGS names, or else
// of shared/recordings beside the checkout. It logs when there are none.
func All(tb testing.TB) []*Recording {
	tb.Helper()
	recs := Synthetic(tb)
	dir := Dir()
	if dir == "" {
		tb.Log("no recordings of real providers (AGENTD_RECORDINGS is not set): only the synthetic ones run")
		return recs
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		tb.Fatal(err)
	}
	if len(files) == 0 {
		tb.Logf("%s holds no recordings: only the synthetic ones run", dir)
	}
	for _, file := range files {
		rec, err := Load(file)
		if err != nil {
			tb.Fatal(err)
		}
		recs = append(recs, rec)
	}
	return recs
}

// Dir is the folder with recordings of real providers, or "".
func Dir() string {
	if dir := os.Getenv("AGENTD_RECORDINGS"); dir != "" {
		return dir
	}
	root, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			return ""
		}
		root = parent
	}
	dir := filepath.Join(root, "..", "shared", "recordings")
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}
