// Package anthropic serves Claude models over Anthropic's Messages API.
//
// The bodies on both sides are this package's own and not those of the official SDK:
// what the model wrote has to be kept byte for byte (tool arguments, signatures, blocks
// of the provider's tools), and a stream without its last event has to be an error. The
// tests read each request with the SDK's types.
//
// Usage: Anthropic counts what was read from its cache, and what was written into
// it, beside the input; Prompt is the sum of all three. Thoughts is 0 unless Anthropic
// reports it.
//
// It imports model, genai and the standard library; it knows neither
// sessions nor ADK nor the protocol.
package anthropic

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// name is the provider's name, and the owner of its opaque data in history.
const name = "anthropic"

// defaultBaseURL is Anthropic's own endpoint.
const defaultBaseURL = "https://api.anthropic.com"

// apiVersion is the version of the Messages API that this package speaks.
const apiVersion = "2023-06-01"

// Config configures the provider; the zero value serves callers who bring
// their own key.
type Config struct {
	// APIKey is the server's own key, used when the caller has none; may be "".
	APIKey string
	// BaseURL is the endpoint, without "/v1/messages"; default Anthropic's own.
	BaseURL string
	// Transport carries the requests; default one of its own with Go's default
	// settings.
	Transport http.RoundTripper
	// Getenv, such as os.Getenv, reads the environment: ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL
	// are APIKey and BaseURL where these are empty. Default: nothing is read.
	Getenv func(name string) string
}

// provider opens Claude models. It is immutable and safe for concurrent use.
type provider struct {
	cfg    Config
	client *http.Client
}

// New returns the provider of the models "claude-…". It runs "web_search", which Request.Config
// asks for as genai's GoogleSearch or EnterpriseWebSearch, "code_execution", "url_context", and
// "tool_search", which Request.ToolSearch asks for. Code has a container of its own in each
// response.
func New(cfg Config) model.Provider {
	cfg = cfg.fromEnv()
	cfg.BaseURL = strings.TrimRight(cmp.Or(cfg.BaseURL, defaultBaseURL), "/")
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/v1")
	return &provider{cfg: cfg, client: adapter.HTTPClient(cfg.Transport, wire.MaxLine)}
}

// String names the provider and hides its key.
func (*provider) String() string { return name + " provider" }

// GoString does as String.
func (p *provider) GoString() string { return p.String() }

// builtins are the tools that Anthropic runs, in agentd's names.
var builtins = []string{"code_execution", "tool_search", "url_context", "web_search"}

// Describe says what New promises.
func (p *provider) Describe() model.Description {
	return model.Description{
		Name: name, Prefixes: []string{"claude-"}, Builtins: slices.Clone(builtins),
		KeyVariables: []string{"ANTHROPIC_API_KEY"}, Secrets: model.Secrets{p.cfg.APIKey}, Endpoint: p.cfg.BaseURL,
	}
}

// Open returns the model of that name; whether Anthropic has it shows in the
// first call.
func (p *provider) Open(modelName, key string) (model.Model, error) {
	key = cmp.Or(strings.TrimSpace(key), strings.TrimSpace(p.cfg.APIKey))
	if key == "" {
		return model.Model{}, p.Describe().MissingKey()
	}
	if modelName == "" {
		return model.Model{}, &model.Error{Kind: model.KindUnavailable, Provider: name,
			Message: "the model name is empty"}
	}
	if u, err := url.Parse(p.cfg.BaseURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return model.Model{}, &model.Error{Kind: model.KindUnavailable, Provider: name,
			Message: "the base URL is no http or https URL"}
	}
	header := http.Header{"X-Api-Key": {key}, "Anthropic-Version": {apiVersion}}
	return (&llm{
		endpoint: wire.Endpoint{Client: p.client, URL: p.cfg.BaseURL, Header: header}, model: modelName, key: key,
	}).opened(), nil
}

// llm is one model with a key. It is immutable.
type llm struct {
	endpoint wire.Endpoint
	model    string
	key      string
}

// opened is the model with what it can do.
func (l *llm) opened() model.Model {
	return model.Model{LLM: l, Builtins: l.builtins(), Takes: takes}
}

// builtins are the tools that Anthropic runs for the model.
func (l *llm) builtins() []string {
	if familyOf(l.model).fetches() {
		return slices.Clone(builtins)
	}
	return slices.DeleteFunc(slices.Clone(builtins), func(tool string) bool { return tool == "url_context" })
}

// maxPauses bounds how often one response may be continued after the provider
// paused it.
const maxPauses = 16

// Generate implements model.LLM. A response that the provider pauses to run its
// own tools longer is continued, and comes out as one.
func (l *llm) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	native := nativeSchema(l.model, req.Config) != nil
	return adapter.WithSchema(req, native, emit,
		func(req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			return wire.WithSealed(req, name, emit,
				func(req *model.Request, emit func(model.Delta)) (*model.Response, error) {
					return l.generate(ctx, req, emit)
				})
		})
}

func (l *llm) generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	names := wire.NewNames(maxToolName, req)
	defer names.Leave(req)
	prompt, err := newPrompt(l.model, req, names)
	if err != nil {
		return nil, err
	}
	a := &collector{llm: l, names: names, builder: &adapter.Builder{Provider: name, Emit: emit}}
	var paused []block
	for range maxPauses {
		if err := a.read(ctx, prompt, paused); err != nil {
			return nil, a.total.Spent(err)
		}
		if a.stop != "pause_turn" {
			return a.response()
		}
		paused = assistantBlocks(a.builder.Content(), names, familyOf(l.model))
		if len(paused) == 0 {
			return nil, a.total.Spent(broken("the provider paused a response that had not begun"))
		}
	}
	err = &model.Error{Kind: model.KindUnavailable, Provider: name, Final: true,
		Message: fmt.Sprintf("the provider paused the response more than %d times", maxPauses)}
	return nil, a.total.Spent(err)
}

// String names the model and hides its key.
func (l *llm) String() string { return name + "/" + l.model }

// GoString does as String.
func (l *llm) GoString() string { return l.String() }
