package record_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/models/record"
)

// theirs is a call as programs on ADK record it: text in pieces, then all of it with a call.
const theirs = `{"request":{"Model":"m","Contents":[{"parts":[{"text":"hi"}],"role":"user"}],"Config":{"temperature":0.5,"httpOptions":{"baseUrl":"http://x"}}},` +
	`"responses":[{"Content":{"parts":[{"text":"Hel"}],"role":"model"},"Partial":true,"TurnComplete":false},` +
	`{"Content":{"parts":[{"text":"Hello"},{"functionCall":{"id":"1","name":"f","args":{"n":9007199254740993}}}],"role":"model"},"Partial":false,"TurnComplete":true,"FinishReason":"MAX_TOKENS",` +
	`"UsageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":2,"totalTokenCount":17}}]}`

func TestReadAny(t *testing.T) {
	upper := strings.NewReplacer(`"request"`, `"REQUEST"`, `"Model"`, `"model"`, `"Contents"`, `"contents"`, `"Content"`, `"content"`, `"Partial"`, `"partial"`, `"responses"`, `"Responses"`)
	long := theirs[:len(theirs)-1] + strings.Repeat(" ", record.MaxExchange-len(theirs)) + "}" // with its end one too much
	for name, c := range map[string]struct {
		text string
		n    int
		err  string
	}{
		"one":            {theirs + "\n", 1, ""},
		"no end":         {theirs, 1, ""},
		"any case":       {upper.Replace(theirs), 1, ""},
		"skipped":        {"\n  # a note\n\n" + theirs + "\n# more\r\n\r\n" + theirs + "\n", 2, ""},
		"the longest":    {long + "\n", 0, "longer than 16777216 bytes"},
		"nearly":         {strings.Replace(long, " }", "}", 1) + "\n", 1, ""},
		"empty":          {"", 0, "no recorded model call"},
		"notes alone":    {"# a\n\n", 0, "no recorded model call"},
		"no JSON":        {theirs + "\n{\n", 0, "line 2: this is no recorded model call"},
		"two on a line":  {theirs + theirs, 0, "line 1: more than one"},
		"no responses":   {`{"request":{"Model":"m"},"responses":[]}`, 0, "line 1: no responses"},
		"a null part":    {`{"responses":[{"Content":{"parts":[null]}}]}`, 0, "line 1: responses: a part is null"},
		"config no map":  {`{"request":{"Config":[1]},"responses":[{}]}`, 0, "Config is no object"},
		"ours":           {`{"agentd_record":3,"request":{},"error":{"kind":"internal"}}` + "\n", 1, ""},
		"ours, no calls": {`{"agentd_record":3,"request":{},"error"`, 0, "no recorded model call"},
	} {
		lines, err := record.ReadAny(strings.NewReader(c.text))
		if len(lines) != c.n || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d lines, error %v; want %d, %q", name, len(lines), err, c.n, c.err)
		}
	}
}

// What a model yielded in pieces is one response; counts and large numbers stay.
func TestExchangeIsALine(t *testing.T) {
	lines, err := record.ReadAny(strings.NewReader(theirs))
	if err != nil {
		t.Fatal(err)
	}
	l := lines[0]
	if l.Model != "m" || string(l.Request) != `{"config":{"temperature":0.5},"contents":[{"parts":[{"text":"hi"}],"role":"user"}]}` {
		t.Errorf("%s of %s", l.Request, l.Model)
	}
	r := l.Response
	if r == nil || r.Finish != "MAX_TOKENS" || r.Usage != (record.Usage{Prompt: 10, Completion: 7, Cached: 4, Thoughts: 2, Total: 17}) {
		t.Fatalf("%+v", r)
	}
	if got := string(r.Content); strings.Count(got, "Hel") != 1 || !strings.Contains(got, "9007199254740993") {
		t.Errorf("content %s", got)
	}
	// Of pieces alone the text is theirs.
	lines, err = record.ReadAny(strings.NewReader(`{"responses":[{"Content":{"parts":[{"text":"a"}]},"Partial":true},{"Content":{"parts":[{"text":"b"}]},"Partial":true},{"TurnComplete":true}]}`))
	if err != nil || !strings.Contains(string(lines[0].Response.Content), `"text":"ab"`) || lines[0].Response.Finish != "STOP" {
		t.Errorf("%+v, %v", lines, err)
	}
	lines, err = record.ReadAny(strings.NewReader(`{"responses":[{"Content":{"parts":[{"text":"a"}]},"Partial":true},{"ErrorCode":"SAFETY","ErrorMessage":"no"}]}`))
	if err != nil || lines[0].Error == nil || lines[0].Error.Message != "SAFETY: no" || len(lines[0].Shown) != 1 {
		t.Errorf("%+v, %v", lines, err)
	}
}

// convert converts, and what came of it back.
func convert(t *testing.T, text string) (once, twice string, done record.Converted) {
	t.Helper()
	var a, b bytes.Buffer
	done, err := record.Convert(strings.NewReader(text), &a)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.Convert(bytes.NewReader(a.Bytes()), &b); err != nil {
		t.Fatalf("%v of %s", err, a.String())
	}
	return a.String(), b.String(), done
}

// What both forms can say is the same after two conversions, whichever comes first.
func TestConvert(t *testing.T) {
	ours, back, done := convert(t, theirs)
	if done != (record.Converted{Calls: 1}) || !strings.HasPrefix(ours, `{"agentd_record":3`) {
		t.Errorf("%+v: %s", done, ours)
	}
	again, _, _ := convert(t, back)
	if again != ours {
		t.Errorf("after a way back\n%s\nwant\n%s", again, ours)
	}
	hash := "sha256:" + strings.Repeat("0a", 32) + " (70000 bytes)"
	mine := `{"agentd_record":3,"time":"2026-01-02T03:04:05Z","provider":"openai","model":"gpt","request":{"config":{},"contents":[{"parts":[{"inlineData":{"data":"` + hash + `","mimeType":"image/png"}}],"role":"user"}]},"error":{"kind":"canceled","message":"left"}}
{"agentd_record":3,"time":"2026-01-02T03:04:05Z","session":"s","turn":"t","path":["root"],"provider":"openai","model":"gpt","request":{"config":{},"contents":[{"parts":[{"inlineData":{"data":"` + hash + `","mimeType":"image/png"}}],"role":"user"}]},"response":{"content":{"parts":[{"text":"A cat."}],"role":"model"},"finish_reason":"STOP","usage":{"prompt":3,"completion":2,"total":5}},"duration_ms":1}
{"agentd_record":3,"time":"2026-01-02T03:04:05Z","provider":"openai","model":"gpt","request":{"config":{},"contents":[]},"error":{"kind":"blocked","message":"no"},"shown":[{"text":"A"}]}
`
	out, back, done := convert(t, mine)
	if done != (record.Converted{Calls: 2, Left: 1, Ours: true}) {
		t.Errorf("%+v", done)
	}
	for _, want := range []string{`"Model":"gpt"`, `"Contents":[{`, `"FinishReason":"STOP"`, `"TurnComplete":true`, `"promptTokenCount":3`, base64.StdEncoding.EncodeToString([]byte(hash)), `"ErrorCode":"blocked"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
	a, err := record.Read(strings.NewReader(mine))
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.Read(strings.NewReader(back))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range a[1:] {
		want, err := jsondiff.Decode(l.Request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := jsondiff.Decode(b[i].Request)
		if err != nil {
			t.Fatal(err)
		}
		if d := jsondiff.First(want, got); d != nil {
			t.Errorf("request %d: %v", i, d)
		}
	}
	if b[0].Response == nil || !bytes.Equal(b[0].Response.Content, a[1].Response.Content) || b[0].Response.Usage != a[1].Response.Usage || b[1].Error == nil || b[1].Shown[0] != a[2].Shown[0] {
		t.Errorf("%+v", b)
	}
	if _, err := record.Convert(strings.NewReader(strings.SplitAfter(mine, "\n")[0]), &bytes.Buffer{}); !errors.Is(err, record.ErrEmpty) {
		t.Errorf("of canceled calls alone: %v", err)
	}
}

// What is read of either form is converted, and read again.
func FuzzConvert(f *testing.F) {
	f.Add([]byte(theirs))
	f.Add([]byte("# x\n" + strings.ToUpper(theirs)))
	f.Add([]byte(`{"agentd_record":3,"request":{"contents":[],"config":{}},"error":{"kind":"internal"}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var once, twice bytes.Buffer
		done, err := record.Convert(bytes.NewReader(data), &once)
		if err != nil {
			return
		}
		for line := range bytes.Lines(once.Bytes()) {
			if !json.Valid(line) {
				t.Fatalf("no JSON: %s", line)
			}
		}
		back, err := record.Convert(bytes.NewReader(once.Bytes()), &twice)
		if err != nil || back.Calls != done.Calls || back.Ours == done.Ours {
			t.Fatalf("%q is %q: %+v, %v", data, once.Bytes(), back, err)
		}
	})
}
