// Package openai serves models over OpenAI's two interfaces: the Responses API
// of OpenAI itself, and chat completions, which many servers speak (vLLM,
// Ollama, OpenRouter, Groq, DeepSeek, Mistral and others).
//
// The bodies on both sides are this package's own and not those of the official SDK:
// what the model wrote has to be kept byte for byte, compatible servers deviate in ways
// the SDK's decoder hides or refuses, and a stream without its last event has to be an
// error. The tests read each request with the SDK's types.
//
// Usage: OpenAI's parts are parts of the whole, as in model.Usage. Servers that count
// thoughts beside the response say so by their total.
//
// It imports model, genai and the standard library; it knows neither
// sessions nor ADK nor the protocol.
package openai

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

// defaultBaseURL is OpenAI's own endpoint.
const defaultBaseURL = "https://api.openai.com/v1"

// API is one of the two interfaces.
type API string

// The interfaces.
const (
	// Auto is Responses at OpenAI's own endpoints and Chat anywhere else.
	Auto API = ""
	// Responses is POST /responses.
	Responses API = "responses"
	// Chat is POST /chat/completions.
	Chat API = "chat"
)

// Config configures a provider; the zero value serves callers who bring their
// own key.
type Config struct {
	// Name is the provider's name, so that several can be registered, such as
	// one for each interface; default "openai".
	Name string
	// APIKey is the server's own key, used when the caller has none; may be "".
	APIKey string
	// KeyOptional is for servers that need no key: without one, none is sent.
	KeyOptional bool
	// BaseURL is the endpoint, with its version ("…/v1"); default OpenAI's own.
	BaseURL string
	// API is the interface to use; default Auto.
	API API
	// Transport carries the requests; default one of its own with Go's default
	// settings.
	Transport http.RoundTripper
	// Getenv, such as os.Getenv, reads the environment: OPENAI_API_KEY and OPENAI_BASE_URL are
	// APIKey and BaseURL where these are empty. Default: nothing is read.
	Getenv func(name string) string
}

// provider opens models. It is immutable and safe for concurrent use.
type provider struct {
	cfg    Config
	client *http.Client
}

// New returns the provider. It panics if cfg.API is none of the constants.
//
// "openai" claims the models of OpenAI; "openai-chat" and "openai-responses" take its callers'
// keys, and their models cost the same. Which models a server has that is not OpenAI's is not
// known. A provider under another name is another vendor, of which nothing is known.
//
// On the Responses API the provider runs "web_search", which Request.Config asks for as genai's
// GoogleSearch or EnterpriseWebSearch, "code_execution", and "tool_search", which
// Request.ToolSearch asks for; on chat completions it runs none.
func New(cfg Config) model.Provider {
	cfg = cfg.fromEnv()
	cfg.Name = cmp.Or(cfg.Name, name)
	cfg.BaseURL = strings.TrimRight(cmp.Or(cfg.BaseURL, defaultBaseURL), "/")
	switch cfg.API {
	case Responses, Chat:
	case Auto:
		cfg.API = Chat
		if isFirstParty(cfg.BaseURL) {
			cfg.API = Responses
		}
	default:
		panic(fmt.Sprintf("openai: unknown API %q", cfg.API))
	}
	return &provider{cfg: cfg, client: adapter.HTTPClient(cfg.Transport, maxLine)}
}

// isFirstParty reports whether a base URL is OpenAI's own, of the world or of a region
// such as eu.api.openai.com.
func isFirstParty(baseURL string) bool { return isOf(baseURL, "api.openai.com") }

// isAzure reports whether a base URL is one of Azure's, which serves OpenAI's models
// under names that its customers give them.
func isAzure(baseURL string) bool { return isOf(baseURL, "openai.azure.com") }

// isOf reports whether a base URL is in one of the domains.
func isOf(baseURL string, domains ...string) bool {
	u, err := url.Parse(baseURL)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return slices.ContainsFunc(domains, func(d string) bool { return host == d || strings.HasSuffix(host, "."+d) })
}

// baseModel is the model that a fine-tuned one was made of, whose name is
// "ft:gpt-4o-2024-08-06:acme::id", and any other name as it is.
func baseModel(modelName string) string {
	if tuned, ok := strings.CutPrefix(modelName, "ft:"); ok {
		modelName, _, _ = strings.Cut(tuned, ":")
	}
	return modelName
}

// maxLine bounds a line of the stream, in bytes. The last event of a response
// repeats the whole response, the instructions and the tools in one line.
const maxLine = 8 << 20

// Describe says what New promises. Later responses are not told what code an earlier one
// has run.
func (p *provider) Describe() model.Description {
	d := model.Description{
		Name: p.cfg.Name, Builtins: p.builtins(),
		KeyVariables: []string{"OPENAI_API_KEY"}, Secrets: model.Secrets{p.cfg.APIKey}, Endpoint: p.cfg.BaseURL,
		Unlisted: !isFirstParty(p.cfg.BaseURL),
	}
	switch p.cfg.Name {
	case name:
		d.Prefixes = []string{"gpt-", "o1", "o3", "o4", "chatgpt-"}
	case nameChat, nameResponses:
		d.KeysOf, d.ModelsOf = name, name
	}
	return d
}

// String names the provider and hides its key.
func (p *provider) String() string { return p.cfg.Name + " provider" }

// GoString does as String.
func (p *provider) GoString() string { return p.String() }

// builtins are the tools that OpenAI runs, in agentd's names.
var builtins = []string{"code_execution", "tool_search", "web_search"}

// builtins are the tools that the provider runs.
func (p *provider) builtins() []string {
	if p.cfg.API == Responses {
		return slices.Clone(builtins)
	}
	return nil
}

// Open returns the model of that name; whether the server has it shows in the
// first call.
func (p *provider) Open(modelName, key string) (model.Model, error) {
	key = cmp.Or(strings.TrimSpace(key), strings.TrimSpace(p.cfg.APIKey))
	if key == "" && !p.cfg.KeyOptional {
		return model.Model{}, p.Describe().MissingKey()
	}
	if modelName == "" {
		return model.Model{}, &model.Error{Kind: model.KindUnavailable, Provider: p.cfg.Name,
			Message: "the model name is empty"}
	}
	if u, err := url.Parse(p.cfg.BaseURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return model.Model{}, &model.Error{Kind: model.KindUnavailable, Provider: p.cfg.Name,
			Message: "the base URL is no http or https URL"}
	}
	header := http.Header{"Accept": {"text/event-stream, application/json"}}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	l := &llm{
		cfg: &p.cfg, endpoint: wire.Endpoint{Client: p.client, URL: p.cfg.BaseURL, Header: header},
		model: modelName, key: key,
		owner: ownerOf(p.cfg.BaseURL, modelName), account: wire.Account(p.cfg.BaseURL, key),
	}
	return model.Model{LLM: l, Takes: l.takes}, nil
}

// llm is one model with a key. It is immutable.
type llm struct {
	cfg      *Config
	endpoint wire.Endpoint
	model    string
	key      string
	owner    string // see ownerOf
	// account marks the reasoning that OpenAI has encrypted for the organization of
	// the key: it refuses that of another one. See wire.Account.
	account string
}

// Generate implements model.LLM.
func (l *llm) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	req = req.Load()
	return adapter.WithSchema(req, l.takesSchema(req), emit,
		func(req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			owner, once := l.owner, l.chat
			if l.cfg.API == Responses {
				owner, once = responsesOwner, l.respond
			}
			return wire.WithSealed(req, owner, emit,
				func(req *model.Request, emit func(model.Delta)) (*model.Response, error) {
					return once(ctx, req, emit)
				})
		})
}

// takes is the Takes of the model.
func (l *llm) takes(f model.File) error {
	var err error
	if l.cfg.API == Responses {
		_, err = l.filePart(wire.Of(f))
	} else {
		_, err = l.mediaPart(wire.Of(f))
	}
	return err
}

// String names the model and hides its key.
func (l *llm) String() string { return l.cfg.Name + "/" + l.model }

// GoString does as String.
func (l *llm) GoString() string { return l.String() }
