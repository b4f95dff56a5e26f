package agentcore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentcore"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentcore/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentcore/types"

	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/internal/remote/agentcore"
)

const arn = "arn:aws:bedrock-agentcore:eu-central-1:123456789012:harness/desk"

// taken is a request as the server has it.
type taken struct {
	header http.Header
	url    string
	body   any
	raw    []byte
}

// serve answers each request with a body, and keeps it.
func serve(t *testing.T, status int, body []byte) (string, *[]taken) {
	t.Helper()
	var all []taken
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := taken{header: r.Header.Clone(), url: r.URL.String()}
		one.raw, _ = io.ReadAll(r.Body)
		if err := json.Unmarshal(one.raw, &one.body); err != nil {
			t.Errorf("%s: %v", one.raw, err)
		}
		all = append(all, one)
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL, &all
}

// frames encodes events as the service does.
func frames(t *testing.T, events ...[2]string) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, e := range events {
		m := eventstream.Message{Payload: []byte(e[1])}
		kind, name := "event", ":event-type"
		if strings.HasSuffix(e[0], "Exception") || strings.HasSuffix(e[0], "Error") {
			kind, name = "exception", ":exception-type"
		}
		m.Headers.Set(":message-type", eventstream.StringValue(kind))
		m.Headers.Set(name, eventstream.StringValue(e[0]))
		m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
		if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

var spec = remote.Spec{
	Instruction: "be brief", Model: "anthropic.claude",
	Tools: []remote.Tool{
		{Name: "search", Description: "searches", Schema: json.RawMessage(`{"type":"object","properties":{"q":{"type":"integer"}}}`)},
		{Name: "now", Description: "the time"},
	},
}

func driver(t *testing.T, url string) *agentcore.Driver {
	t.Helper()
	d, err := agentcore.New(arn, url, agentcore.Keys{ID: "AKID", Secret: "canary-secret", Token: "canary-token"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func sdk(url string) *bedrockagentcore.Client {
	return bedrockagentcore.New(bedrockagentcore.Options{
		Region: "eu-central-1", BaseEndpoint: &url, RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "canary-secret", SessionToken: "canary-token"}, nil
		}),
	})
}

// TestRequest has the SDK's own client make the same request: address, header and body are the same, and so is what is
// signed.
func TestRequest(t *testing.T) {
	end := frames(t, [2]string{"messageStart", `{"role":"assistant"}`}, [2]string{"messageStop", `{"stopReason":"end_turn"}`})
	url, got := serve(t, 200, end)
	s := remote.Session{ID: strings.Repeat("s", 40), Spec: spec}
	for name, tc := range map[string]struct {
		in       remote.Input
		messages []types.HarnessMessage
	}{
		"message": {remote.Input{Message: "go"}, []types.HarnessMessage{{
			Role: types.HarnessConversationRoleUser, Content: []types.HarnessContentBlock{&types.HarnessContentBlockMemberText{Value: "go"}},
		}}},
		"results": {remote.Input{Results: []remote.Result{
			{Call: remote.Call{ID: "u1", Name: "search", Input: json.RawMessage(`{"q":1}`)}, Text: "found"},
			{Call: remote.Call{ID: "u2", Name: "now", Input: json.RawMessage(`{}`)}, Text: "broken", Error: true},
		}}, []types.HarnessMessage{
			{Role: types.HarnessConversationRoleAssistant, Content: []types.HarnessContentBlock{use("u1", "search", map[string]any{"q": 1}), use("u2", "now", map[string]any{})}},
			{Role: types.HarnessConversationRoleUser, Content: []types.HarnessContentBlock{result("u1", "found", "success"), result("u2", "broken", "error")}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			*got = nil
			if err := driver(t, url).Poll(t.Context(), s, tc.in, func(remote.Event) error { return nil }); err != nil {
				t.Fatal(err)
			}
			out, err := sdk(url).InvokeHarness(t.Context(), &bedrockagentcore.InvokeHarnessInput{
				HarnessArn: aws.String(arn), RuntimeSessionId: &s.ID, Messages: tc.messages,
				SystemPrompt: []types.HarnessSystemContentBlock{&types.HarnessSystemContentBlockMemberText{Value: "be brief"}},
				Model:        &types.HarnessModelConfigurationMemberBedrockModelConfig{Value: types.HarnessBedrockModelConfig{ModelId: aws.String("anthropic.claude")}},
				Tools: []types.HarnessTool{
					inline("search", "searches", map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"type": "integer"}}}),
					inline("now", "the time", map[string]any{"type": "object", "properties": map[string]any{}}),
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			for ev := range out.GetStream().Events() {
				_ = ev
			}
			if err := out.GetStream().Err(); err != nil || len(*got) != 2 {
				t.Fatalf("the SDK: %v, %d requests", err, len(*got))
			}
			ours, theirs := (*got)[0], (*got)[1]
			if !reflect.DeepEqual(ours.body, theirs.body) {
				t.Errorf("the body is\n%s\nthe SDK's is\n%s", ours.raw, theirs.raw)
			}
			if ours.url != theirs.url {
				t.Errorf("the address is %s, the SDK's is %s", ours.url, theirs.url)
			}
			for _, name := range []string{"X-Amzn-Bedrock-Agentcore-Runtime-Session-Id", "Content-Type", "X-Amz-Security-Token"} {
				if ours.header.Get(name) == "" || ours.header.Get(name) != theirs.header.Get(name) {
					t.Errorf("%s is %q, the SDK's is %q", name, ours.header.Get(name), theirs.header.Get(name))
				}
			}
			verify(t, url, ours)
			verify(t, url, theirs) // so that verify itself is right
		})
	}
}

func use(id, name string, input map[string]any) types.HarnessContentBlock {
	return &types.HarnessContentBlockMemberToolUse{Value: types.HarnessToolUseBlock{ToolUseId: &id, Name: &name, Input: document.NewLazyDocument(input)}}
}

func result(id, text, status string) types.HarnessContentBlock {
	return &types.HarnessContentBlockMemberToolResult{Value: types.HarnessToolResultBlock{
		ToolUseId: &id, Status: types.HarnessToolUseStatus(status),
		Content: []types.HarnessToolResultContentBlock{&types.HarnessToolResultContentBlockMemberText{Value: text}},
	}}
}

func inline(name, description string, schema map[string]any) types.HarnessTool {
	return types.HarnessTool{Type: types.HarnessToolTypeInlineFunction, Name: &name, Config: &types.HarnessToolConfigurationMemberInlineFunction{
		Value: types.HarnessInlineFunctionConfig{Description: &description, InputSchema: document.NewLazyDocument(schema)},
	}}
}

// verify signs a request again, with the headers that it says it has signed.
func verify(t *testing.T, base string, one taken) {
	t.Helper()
	auth := one.header.Get("Authorization")
	_, signed, _ := strings.Cut(auth, "SignedHeaders=")
	signed, _, _ = strings.Cut(signed, ",")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+one.url, bytes.NewReader(one.raw))
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(signed, ";") {
		if value := one.header.Get(name); value != "" && name != "host" {
			req.Header.Set(name, value)
		}
	}
	at, err := time.Parse("20060102T150405Z", one.header.Get("X-Amz-Date"))
	if err != nil {
		t.Fatal(err)
	}
	keys := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "canary-secret", SessionToken: "canary-token"}
	sum := fmt.Sprintf("%x", sha256.Sum256(one.raw))
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, req, sum, "bedrock-agentcore", "eu-central-1", at); err != nil {
		t.Fatal(err)
	}
	if got := req.Header.Get("Authorization"); got != auth {
		t.Errorf("it is signed as\n%s\nand would be\n%s", auth, got)
	}
}

// TestAnswer has the SDK's own decoder read the same events, and compares what both have read.
func TestAnswer(t *testing.T) {
	t.Parallel()
	events := [][2]string{
		{"messageStart", `{"role":"assistant"}`},
		{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"let me "}}`},
		{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"look"}}`},
		{"contentBlockStop", `{"contentBlockIndex":0}`},
		{"contentBlockStart", `{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"own","name":"browser","type":"server_tool_use"}}}`},
		{"contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{\"u\":"}}}`},
		{"contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":"1}"}}}`},
		{"contentBlockStop", `{"contentBlockIndex":1}`},
		{"messageStop", `{"stopReason":"tool_use"}`},
		{"hookEvent", `{"hookEventId":"h","name":"n","type":"x"}`},
		{"messageStart", `{"role":"user"}`},
		{"contentBlockStart", `{"contentBlockIndex":0,"start":{"toolResult":{"toolUseId":"own","status":"error"}}}`},
		{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolResult":[{"text":"no page"}]}}`},
		{"contentBlockStop", `{"contentBlockIndex":0}`},
		{"messageStop", `{"stopReason":"tool_result"}`},
		{"messageStart", `{"role":"assistant"}`},
		{"contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"hm"}}}`},
		{"contentBlockStop", `{"contentBlockIndex":0}`},
		{"contentBlockStart", `{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"u1","name":"search","type":"tool_use"}}}`},
		{"contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{\"q\":1}"}}}`},
		{"contentBlockStop", `{"contentBlockIndex":1}`},
		{"messageStop", `{"stopReason":"tool_use"}`},
		{"metadata", `{"usage":{"inputTokens":7,"outputTokens":3,"totalTokens":15,"cacheReadInputTokens":5},"metrics":{"latencyMs":9}}`},
	}
	url, _ := serve(t, 200, frames(t, events...))
	ans, err := remote.Exchange(t.Context(), driver(t, url), remote.Session{ID: "s"}, remote.Input{Message: "go"}, remote.Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	if ans.Text != "let me look" || ans.Terminal != remote.RequiresAction || len(ans.Calls) != 1 ||
		ans.Calls[0].ID != "u1" || string(ans.Calls[0].Input) != `{"q":1}` {
		t.Errorf("%+v", ans)
	}
	if len(ans.Uses) != 1 || ans.Uses[0] != (remote.Use{ID: "own", Name: "browser", Input: `{"u":1}`, Error: "no page"}) {
		t.Errorf("%+v", ans.Uses)
	}
	if u := ans.Usages; len(u) != 1 || u[0].Prompt != 12 || u[0].Completion != 3 || u[0].Cached != 5 || u[0].Total != 15 {
		t.Errorf("%+v", ans.Usages)
	}
	if n := bytes.Count(ans.Raw, []byte("\n")); n != len(events) {
		t.Errorf("%d raw events", n)
	}
	// The SDK.
	out, err := sdk(url).InvokeHarness(t.Context(), &bedrockagentcore.InvokeHarnessInput{
		HarnessArn: aws.String(arn), RuntimeSessionId: aws.String("s"), Messages: []types.HarnessMessage{},
	})
	if err != nil {
		t.Fatal(err)
	}
	said, input, total := "", "", int32(0)
	for ev := range out.GetStream().Events() {
		switch ev := ev.(type) {
		case *types.InvokeHarnessStreamOutputMemberContentBlockDelta:
			switch d := ev.Value.Delta.(type) {
			case *types.HarnessContentBlockDeltaMemberText:
				said += d.Value
			case *types.HarnessContentBlockDeltaMemberToolUse:
				input += *d.Value.Input
			}
		case *types.InvokeHarnessStreamOutputMemberMetadata:
			total = *ev.Value.Usage.TotalTokens
		}
	}
	if err := out.GetStream().Err(); err != nil {
		t.Fatal(err)
	}
	if said != ans.Text || input != `{"u":1}{"q":1}` || int64(total) != ans.Usages[0].Total {
		t.Errorf("the SDK has read %q %q %d", said, input, total)
	}
}

// TestBadAnswers end with an error, and show no key.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	start := [2]string{"messageStart", `{"role":"assistant"}`}
	torn := frames(t, start, [2]string{"messageStop", `{"stopReason":"end_turn"}`})
	for name, tc := range map[string]struct {
		status    int
		body      []byte
		says      string
		temporary bool
	}{
		"no end":    {200, frames(t, start), "ended", true},
		"torn":      {200, torn[:len(torn)-3], "failed", true},
		"no frames": {200, []byte(strings.Repeat("x", 100)), "failed", true},
		"bad JSON":  {200, frames(t, [2]string{"messageStart", `{`}), "cannot be read", false},
		"exception": {200, frames(t, [2]string{"validationException", `{"message":"bad tool"}`}), "validationException: bad tool", false},
		"internal":  {200, frames(t, [2]string{"internalServerException", `{"message":"oh"}`}), "internalServerException: oh", true},
		"runtime":   {200, frames(t, [2]string{"runtimeClientError", `{"message":"oh"}`}), "runtimeClientError: oh", false},
		"forbidden": {403, []byte(`{"message":"signature of canary-secret"}`), "status 403: signature of ***", false},
		"throttled": {429, []byte(`{}`), "status 429", true},
		"not there": {503, nil, "status 503", true},
		"no such":   {404, []byte(`{"message":"no harness"}`), "no harness", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, tc.status, tc.body)
			err := driver(t, url).Poll(t.Context(), remote.Session{ID: "s"}, remote.Input{Message: "go"}, func(remote.Event) error { return nil })
			e, ok := errors.AsType[*remote.Error](err)
			if !ok || !strings.Contains(e.Message, tc.says) || e.Temporary != tc.temporary || strings.Contains(e.Message, "canary") {
				t.Errorf("%v, %+v", err, e)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "a", ":b", "a:", "a"} {
		if _, err := agentcore.ParseKeys(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if k, err := agentcore.ParseKeys(" a:b:c:d\n"); err != nil || k != (agentcore.Keys{ID: "a", Secret: "b", Token: "c:d"}) {
		t.Errorf("%+v %v", k, err)
	}
	for _, bad := range []string{"", "arn:aws:bedrock-agentcore::1:harness/x", "arn:aws:bedrock-agentcore:eu:1", "x"} {
		if _, err := agentcore.New(bad, "", agentcore.Keys{}, nil); err == nil {
			t.Errorf("ARN %q is taken", bad)
		}
	}
}
