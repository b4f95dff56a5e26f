// Package agentcore is a driver of backends that are harnesses of Amazon Bedrock AgentCore. It is not for users of
// agentd.
//
// A harness answers a request: nothing of an answer can be read again. An answer that was cut is asked for once more.
package agentcore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/session/fault"
)

// service is the name by which requests are signed.
const service = "bedrock-agentcore"

// Driver is a remote.Puller.
type Driver struct {
	arn, region, base string
	keys              aws.Credentials
	signer            *v4.Signer
	http              *remote.HTTP
}

var _ remote.Puller = (*Driver)(nil)

// Keys are credentials of AWS.
type Keys struct{ ID, Secret, Token string }

// ParseKeys reads keys as an environment variable has them: ID:SECRET, or ID:SECRET:TOKEN.
func ParseKeys(text string) (Keys, error) {
	parts := strings.SplitN(strings.TrimSpace(text), ":", 3)
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		return Keys{}, errors.New("want the id and the secret of an access key, and a session token if there is one, " +
			"as ID:SECRET or ID:SECRET:TOKEN")
	}
	k := Keys{ID: parts[0], Secret: parts[1]}
	if len(parts) > 2 {
		k.Token = parts[2]
	}
	return k, nil
}

// Region returns the region of a harness's ARN.
func Region(arn string) (string, error) {
	parts := strings.Split(arn, ":")
	if len(parts) < 6 || parts[0] != "arn" || parts[3] == "" || !strings.Contains(parts[5], "/") {
		return "", errors.New("want the ARN of a harness, as in " +
			"arn:aws:bedrock-agentcore:eu-central-1:123456789012:harness/desk")
	}
	return parts[3], nil
}

// New returns the driver of a harness. base is where its region is served; empty is AWS's own address. A nil transport
// is one of its own.
func New(arn, base string, keys Keys, transport http.RoundTripper) (*Driver, error) {
	region, err := Region(arn)
	if err != nil {
		return nil, err
	}
	if base == "" {
		base = "https://bedrock-agentcore." + region + ".amazonaws.com"
	}
	return &Driver{
		arn: arn, region: region, base: strings.TrimRight(base, "/"),
		keys:   aws.Credentials{AccessKeyID: keys.ID, SecretAccessKey: keys.Secret, SessionToken: keys.Token},
		signer: v4.NewSigner(),
		http:   remote.NewHTTP(transport, keys.Secret, keys.Token),
	}, nil
}

// Check implements remote.Driver: the harness has a model of its own.
func (*Driver) Check(remote.Spec) error { return nil }

// Provision implements remote.Driver: the operator has made the harness, and each request says what it is to be.
func (d *Driver) Provision(context.Context, string, remote.Spec) (string, error) { return d.arn, nil }

// Open implements remote.Driver: the first request makes the session, whose id has at least 33 characters.
func (*Driver) Open(_ context.Context, s remote.Session, _ bool) (string, error) {
	return "agentd-" + s.Key.ID(), nil
}

// Close implements remote.Driver. A harness works only while a request is open, so there is nothing to end.
func (*Driver) Close(context.Context, remote.Session) error { return nil }

// Poll implements remote.Puller.
func (d *Driver) Poll(ctx context.Context, s remote.Session, in remote.Input, take func(remote.Event) error) error {
	body, err := json.Marshal(requestOf(s, in))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		d.base+"/harnesses/invoke?harnessArn="+url.QueryEscape(d.arn), bytes.NewReader(body))
	if err != nil {
		return &remote.Error{Code: fault.Invalid, Message: "the backend's URL is none"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/vnd.amazon.eventstream")
	req.Header.Set("X-Amzn-Bedrock-AgentCore-Runtime-Session-Id", s.ID)
	sum := sha256.Sum256(body)
	err = d.signer.SignHTTP(ctx, d.keys, req, hex.EncodeToString(sum[:]), service, d.region, time.Now())
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	resp, err := d.http.Do(req) //nolint:bodyclose // Watch closes it
	if err != nil {
		return err
	}
	stream := remote.Watch(resp.Body)
	defer func() { _ = stream.Close() }()
	return (&answer{ctx: ctx, http: d.http, take: take}).read(stream)
}

// Parts of a request.
type (
	request struct {
		Messages     []message `json:"messages"`
		SystemPrompt []text    `json:"systemPrompt,omitempty"`
		Tools        []tool    `json:"tools,omitempty"`
		Model        *struct {
			Bedrock bedrock `json:"bedrockModelConfig"`
		} `json:"model,omitempty"`
	}
	bedrock struct {
		ID string `json:"modelId"`
	}
	text struct {
		Text string `json:"text"`
	}
	tool struct {
		Type   string `json:"type"`
		Name   string `json:"name"`
		Config struct {
			Inline inlineFunction `json:"inlineFunction"`
		} `json:"config"`
	}
	inlineFunction struct {
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	message struct {
		Role    string  `json:"role"`
		Content []block `json:"content"`
	}
	block struct {
		Text       string      `json:"text,omitempty"`
		ToolUse    *toolUse    `json:"toolUse,omitempty"`
		ToolResult *toolResult `json:"toolResult,omitempty"`
	}
	toolUse struct {
		Name  string          `json:"name"`
		ID    string          `json:"toolUseId"`
		Input json.RawMessage `json:"input"`
	}
	toolResult struct {
		ID      string `json:"toolUseId"`
		Content []text `json:"content"`
		Status  string `json:"status"`
	}
)

// requestOf is an input as a request. The results of calls come with the calls.
func requestOf(s remote.Session, in remote.Input) request {
	var out request
	if s.Spec.Instruction != "" {
		out.SystemPrompt = []text{{s.Spec.Instruction}}
	}
	if s.Spec.Model != "" {
		out.Model = &struct {
			Bedrock bedrock `json:"bedrockModelConfig"`
		}{bedrock{s.Spec.Model}}
	}
	for _, t := range s.Spec.Tools {
		one := tool{Type: "inline_function", Name: t.Name}
		one.Config.Inline = inlineFunction{Description: t.Description, InputSchema: t.Schema}
		if len(t.Schema) == 0 {
			one.Config.Inline.InputSchema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		out.Tools = append(out.Tools, one)
	}
	said, answered := message{Role: "assistant"}, message{Role: "user"}
	for _, r := range in.Results {
		status := "success"
		if r.Error {
			status = "error"
		}
		said.Content = append(said.Content, block{ToolUse: &toolUse{r.Call.Name, r.Call.ID, r.Call.Input}})
		answered.Content = append(answered.Content, block{ToolResult: &toolResult{r.Call.ID, []text{{r.Text}}, status}})
	}
	if len(said.Content) > 0 {
		out.Messages = append(out.Messages, said)
	}
	if in.Message != "" {
		answered.Content = append(answered.Content, block{Text: in.Message})
	}
	out.Messages = append(out.Messages, answered)
	return out
}
