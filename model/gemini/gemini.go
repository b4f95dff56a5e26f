// Package gemini serves Gemini models, over the Gemini API or Vertex AI.
//
// The official SDK builds, authorizes and sends each request. Its response is
// read here: the SDK would turn numbers into floats, drop the text of
// arguments, take lines of 256 MB and a stream without an end for a response.
// For the same reason the conversation is put into the request body here: what
// the model wrote goes back as it was written.
//
// It imports model, the SDK and the standard library, and knows nothing of
// sessions, ADK or the protocol. It reads the environment through
// Config.Getenv; the SDK reads it for Application Default Credentials.
package gemini

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// name is the name of this provider, and the owner of its signatures.
const name = "gemini"

// defaultBaseURL is the Gemini API's own.
const defaultBaseURL = "https://generativelanguage.googleapis.com/"

// Config configures the provider; the zero value serves callers with keys of
// their own.
type Config struct {
	// APIKey is the server's key (GEMINI_API_KEY); with Vertex, a key of its
	// express mode.
	APIKey string
	// BaseURL replaces the address of the API (GOOGLE_GEMINI_BASE_URL), or with
	// Vertex that of Vertex AI; "" means the provider's own.
	BaseURL string
	// Vertex serves calls on the server's account over Vertex AI
	// (GOOGLE_GENAI_USE_VERTEXAI). Callers' own keys are for the Gemini API in
	// any case.
	Vertex bool
	// Project and Location are those of Vertex AI (GOOGLE_CLOUD_PROJECT,
	// GOOGLE_CLOUD_LOCATION); with them and without APIKey, Application Default
	// Credentials authorize the calls. Location defaults to "global".
	Project, Location string
	// Transport carries the calls; nil means one with default settings.
	Transport http.RoundTripper
	// Getenv, such as os.Getenv, reads the environment: the variables named above are the fields
	// that are empty. Default: nothing is read.
	Getenv func(name string) string
}

// provider serves Gemini models. It is safe for concurrent use.
type provider struct {
	cfg       Config
	transport http.RoundTripper
	// server is the client with the server's own credentials, made on first use:
	// finding default credentials may ask the network.
	server func() (*genai.Client, error)
	known  *encoded.Known // settings
}

// New returns the provider of Gemini models, and of all names that no other provider claims.
func New(cfg Config) model.Provider {
	cfg = cfg.fromEnv()
	p := &provider{
		cfg: cfg, transport: adapter.HTTPClient(cfg.Transport, wire.MaxLine).Transport, known: encoded.NewKnown(),
	}
	p.server = sync.OnceValues(func() (*genai.Client, error) {
		if cfg.Vertex {
			return p.vertexClient()
		}
		return p.client(cfg.APIKey)
	})
	return p
}

// String names the provider and hides its key.
func (*provider) String() string { return "gemini.Provider" }

// GoString does as String.
func (p *provider) GoString() string { return p.String() }

// builtins are the tools that Gemini runs itself, in agentd's names: "web_search" is
// what other providers have too, here Google Search.
var builtins = []string{"code_execution", "google_search", "url_context", "web_search"}

// prefixes begin the names that Google gives to resources of the API and of Vertex AI.
var prefixes = []string{"endpoints/", "models/", "projects/", "publishers/", "tunedModels/"}

// Describe says that Gemini serves all models that no other provider claims; at an address that is not Google's also
// those whose names have a slash.
func (p *provider) Describe() model.Description {
	return model.Description{
		Name: name, Rest: true, Plain: p.cfg.BaseURL == "", Prefixes: slices.Clone(prefixes),
		Builtins:     slices.Clone(builtins),
		KeyVariables: []string{"GEMINI_API_KEY"}, Secrets: model.Secrets{p.cfg.APIKey}, Endpoint: p.endpoint(),
	}
}

// endpoint is where calls on the server's account go; "" for Vertex AI's own address,
// which the SDK knows.
func (p *provider) endpoint() string {
	if p.cfg.Vertex {
		return p.cfg.BaseURL
	}
	return cmp.Or(p.cfg.BaseURL, defaultBaseURL)
}

// builtins are the tools that Gemini runs for the model.
func (l *llm) builtins() []string {
	if l.fetches() {
		return slices.Clone(builtins)
	}
	return slices.DeleteFunc(slices.Clone(builtins), func(tool string) bool { return tool == "url_context" })
}

// Open returns the model. Without a caller's key it needs the server's, or
// Vertex AI.
func (p *provider) Open(modelName, key string) (model.Model, error) {
	overVertex := key == "" && p.cfg.Vertex
	if err := checkModel(modelName, overVertex); err != nil {
		return model.Model{}, err
	}
	l := &llm{model: modelName, secret: key, vertex: overVertex, client: p.server, known: p.known}
	switch {
	case key != "":
		l.client = sync.OnceValues(func() (*genai.Client, error) { return p.client(key) })
	case overVertex && p.cfg.APIKey == "" && p.cfg.Project == "" && p.cfg.BaseURL == "":
		return model.Model{}, &model.Error{
			Kind: model.KindAuth, Provider: name,
			Message: "Vertex AI needs GOOGLE_CLOUD_PROJECT or GEMINI_API_KEY on the server, " +
				"or send the header X-Agentd-Gemini-Api-Key",
		}
	case !overVertex && p.cfg.APIKey == "":
		return model.Model{}, p.Describe().MissingKey()
	default:
		l.secret = p.cfg.APIKey
	}
	return model.Model{LLM: l, Builtins: l.builtins()}, nil
}

// checkModel refuses names that would not name a model in a URL path.
func checkModel(modelName string, overVertex bool) error {
	bad := modelName == "" || strings.ContainsAny(modelName, "?&#%\\ ") || strings.Contains(modelName, "..")
	if !overVertex && strings.Contains(modelName, "/") {
		rest, ok := strings.CutPrefix(modelName, "models/")
		if !ok {
			rest, ok = strings.CutPrefix(modelName, "tunedModels/")
		}
		bad = bad || !ok || rest == "" || strings.Contains(rest, "/")
	}
	if bad {
		return &model.Error{Kind: model.KindUnavailable, Provider: name,
			Message: fmt.Sprintf("there is no model %q", modelName)}
	}
	return nil
}

// client returns a client of the Gemini API.
func (p *provider) client(key string) (*genai.Client, error) {
	base := defaultBaseURL
	if p.cfg.BaseURL != "" && !p.cfg.Vertex {
		base = p.cfg.BaseURL
	}
	return newClient(&genai.ClientConfig{
		APIKey:      key,
		Backend:     genai.BackendGeminiAPI,
		HTTPClient:  p.httpClient(),
		HTTPOptions: genai.HTTPOptions{BaseURL: base},
	})
}

// vertexClient returns a client of Vertex AI on the server's account.
func (p *provider) vertexClient() (*genai.Client, error) {
	cc := &genai.ClientConfig{
		Backend:     genai.BackendVertexAI,
		HTTPClient:  p.httpClient(),
		HTTPOptions: genai.HTTPOptions{BaseURL: p.cfg.BaseURL},
	}
	if p.cfg.APIKey != "" {
		cc.APIKey = p.cfg.APIKey
		return newClient(cc)
	}
	cc.Project, cc.Location = p.cfg.Project, p.cfg.Location
	if cc.Location == "" {
		cc.Location = "global"
	}
	if p.cfg.Project != "" {
		if err := cc.UseDefaultCredentials(); err != nil {
			return nil, errors.New("no Application Default Credentials were found")
		}
		if project, err := cc.Credentials.QuotaProjectID(context.Background()); err == nil && project != "" {
			cc.HTTPOptions.Headers = http.Header{"X-Goog-User-Project": {project}}
		}
	}
	return newClient(cc)
}

// httpClient returns a client over the provider's one transport. Each SDK
// client gets its own, since the SDK may put authorisation into it.
func (p *provider) httpClient() *http.Client {
	return &http.Client{
		Transport:     carrier{p.transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// newClient makes the SDK's client. The SDK's own error prints the key, so it
// is not passed on.
func newClient(cc *genai.ClientConfig) (*genai.Client, error) {
	c, err := genai.NewClient(context.Background(), cc)
	if err != nil {
		return nil, errors.New("the SDK refuses the configuration of key, project and location")
	}
	return c, nil
}

// llm is one model with a key. It is safe for concurrent use.
type llm struct {
	model  string
	secret string
	vertex bool
	client func() (*genai.Client, error)
	known  *encoded.Known // settings, of all models of the provider
}

// String names the model and hides the key.
func (l *llm) String() string { return name + "/" + l.model }

// GoString does as String.
func (l *llm) GoString() string { return l.String() }

// Generate makes one streaming call.
func (l *llm) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	req = req.Load()
	return adapter.WithSchema(req, l.takesSchema(req), emit,
		func(req *model.Request, emit func(model.Delta)) (*model.Response, error) {
			return wire.WithSealed(req, name, emit,
				func(req *model.Request, emit func(model.Delta)) (*model.Response, error) {
					return l.generate(ctx, req, emit)
				})
		})
}

func (l *llm) generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.ToolSearch {
		return nil, l.errorf(model.KindInvalid, "Gemini runs no tool_search")
	}
	client, err := l.client()
	if err != nil {
		return nil, &model.Error{Kind: model.KindAuth, Provider: name, Message: err.Error()}
	}
	if req.Cache != nil { // Gemini caches by itself; there is nothing to be asked
		if _, err := req.Cache.Span(name); err != nil {
			return nil, err
		}
	}
	resp, err := l.send(ctx, client, req)
	if err != nil {
		if e, ok := errors.AsType[*model.Error](err); ok {
			return nil, e
		}
		return nil, adapter.TransportError(ctx, name, err, l.secret)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, l.failure(ctx, resp)
	}
	return l.read(ctx, resp, emit)
}

// call is one call that the SDK makes; owned by the goroutine that makes it.
type call struct {
	// body makes the body of the request, from what the SDK would send if there is something.
	body func(sdk []byte) (*encoded.Body, error)
	resp *http.Response
}

// callKey is the context key of *call.
type callKey struct{}

// carrier sends the body of the *call in the request's context in place of the SDK's, and shows the SDK an empty
// success, so that the SDK neither reads nor judges the response.
type carrier struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	of, ok := req.Context().Value(callKey{}).(*call)
	if !ok { // such as one for a token
		return c.base.RoundTrip(req)
	}
	var sdk []byte
	var err error
	if req.Body != nil {
		sdk, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	body, err := of.body(sdk)
	if err != nil {
		return nil, err
	}
	own := *req
	own.ContentLength = body.Len()
	own.Body = body.Reader()
	own.GetBody = func() (io.ReadCloser, error) { return body.Reader(), nil }
	resp, err := c.base.RoundTrip(&own)
	if err != nil {
		return nil, err
	}
	of.resp = resp
	empty := *resp
	empty.StatusCode, empty.Status, empty.Body = http.StatusOK, "200 OK", http.NoBody
	return &empty, nil
}

// send makes the SDK send the request and returns the response, whose body the
// caller closes. An error before anything was sent is a *model.Error.
func (l *llm) send(ctx context.Context, client *genai.Client, req *model.Request) (*http.Response, error) {
	invalid := func(err error) error {
		return &model.Error{Kind: model.KindInvalid, Provider: name, Message: wiretap.Redact(err.Error(), l.secret)}
	}
	cfg := &genai.GenerateContentConfig{AutomaticContinuation: new(bool)} // the SDK makes one request
	of := l.wire() + "/" + l.model                                        // what thinking is depends on the model
	settings, known := req.Encoded.Settings(of, req.Config)
	key := ""
	if !known {
		data, err := json.Marshal(req.Config)
		if err != nil {
			return nil, invalid(fmt.Errorf("the request cannot be encoded: %w", err))
		}
		key = of + "\x00" + string(data) // the SDK encodes what it says, too
		if settings, known = l.known.Get(key); known {
			req.Encoded.KeepSettings(of, req.Config, settings)
		}
	}
	if !known {
		var err error
		if cfg, err = l.settings(req); err != nil {
			return nil, invalid(err)
		}
	}
	made := &call{body: func(sdk []byte) (*encoded.Body, error) {
		if !known {
			settings = sdk
			req.Encoded.KeepSettings(of, req.Config, sdk)
			l.known.Keep(key, sdk)
		}
		body, err := l.body(req, settings)
		if err != nil {
			return nil, invalid(err)
		}
		return body, nil
	}}
	ctx = context.WithValue(ctx, callKey{}, made)
	for _, err := range client.Models.GenerateContentStream(ctx, l.model, nil, cfg) {
		if err != nil {
			if made.resp != nil {
				made.resp.Body.Close()
			}
			return nil, err
		}
	}
	if made.resp == nil {
		return nil, &model.Error{Kind: model.KindInvalid, Provider: name, Message: "the SDK sent no request"}
	}
	return made.resp, nil
}
