package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"github.com/go-jose/go-jose/v4"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/issuer"
	"github.com/apzuk3/agentd/internal/test/providertest"
	"github.com/apzuk3/agentd/internal/wiretap"
	"github.com/apzuk3/agentd/model"
)

// sink is a place where an agentd leaves bytes.
type sink struct {
	name string
	text func(t *testing.T) string
	// payloads are in it on purpose: what callers, models and tools say, but for those of without. Keys are in none.
	payloads bool
	without  []string
}

// files is the text of all files that a pattern matches, of which there is one.
func files(pattern string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		all := ""
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all += string(data)
		}
		return all
	}
}

// received keeps all that clients receive: headers, bodies, and the texts of errors.
type received struct {
	next http.RoundTripper
	to   *locked
}

func (r received) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	_ = resp.Header.Write(r.to)
	resp.Body = teed{io.TeeReader(resp.Body, r.to), resp.Body}
	return resp, nil
}

type teed struct {
	io.Reader
	io.Closer
}

// panics is a provider whose adapter panics with the key that it was given.
type panics struct{ model.Provider }

func (panics) Describe() model.Description { return model.Description{Name: "panics", Keyless: true} }

func (panics) Open(_, key string) (model.Model, error) { return model.Model{LLM: panicking(key)}, nil }

type panicking string

func (p panicking) Generate(context.Context, *model.Request, func(model.Delta)) (*model.Response, error) {
	panic("the key " + string(p) + " is odd")
}

// secrets are all credentials of TestCanaries by what they are.
type secrets struct {
	mu  sync.Mutex
	all map[string]string
}

func (s *secrets) add(what, secret string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[what] = secret
	return secret
}

// TestCanaries has a server meet secrets of all kinds, in use and in error, and tool payloads, and searches all that it
// leaves behind: secrets are nowhere, tool payloads only where the documentation says.
func TestCanaries(t *testing.T) {
	t.Parallel()
	keys := &secrets{all: map[string]string{}}
	payloads := []string{"canary-tool-argument", "canary-tool-result", "canary-said-prompt", "canary-said-answer", "canary-in-state"}
	echo := func(c *fakeprovider.Call) string {
		return fmt.Sprintf(`{"error":{"message":"the key %s (%s) is refused","type":"invalid_request_error","code":401,"status":"X"}}`,
			c.Key(), c.Header.Get("Authorization"))
	}
	provider, url := fakeprovider.Start(t, func(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
		body := string(c.Body)
		switch {
		case strings.Contains(body, "please refuse"):
			return fakeprovider.Reply{Status: http.StatusUnauthorized, Body: echo(c)}
		case strings.Contains(body, "please fail"):
			return fakeprovider.Reply{Status: http.StatusInternalServerError, Body: echo(c)}
		case strings.Contains(body, "please limit"):
			return fakeprovider.Reply{Status: http.StatusTooManyRequests, Body: echo(c), Header: http.Header{"X-Echo": {c.Key()}}}
		case strings.Contains(body, "please reject"):
			return fakeprovider.Reply{Status: http.StatusBadRequest, Body: "no JSON: " + c.Key()}
		case strings.Contains(body, "please drop"):
			return fakeprovider.Reply{Drop: true}
		case strings.Contains(body, "canary-tool-result"):
			return fakeprovider.Reply{Text: []string{"canary-said-answer"}}
		}
		return fakeprovider.Reply{Calls: []providertest.ToolCall{{Name: "look", Args: `{"at":"canary-tool-argument"}`}}}
	})
	withPassword := strings.Replace(url, "http://", "http://someone:"+keys.add("password of an address", "pw-canary-of-url")+"@", 1)
	oidc := issuer.Start(t)
	dir, data := t.TempDir(), t.TempDir()
	keyFile := filepath.Join(dir, "openai.key")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(keyFile, keys.add("a provider key in a file", "plain-canary-server-openai"))
	config := filepath.Join(dir, "agentd.yaml")
	text := `
addr: 127.0.0.1:0
admin_addr: 127.0.0.1:0
data: ` + data + `
log_level: debug
log_format: json
record_to: ` + filepath.Join(dir, "tape.jsonl") + `
model_tries: 2
openai_api_key_file: ` + keyFile + `
openai_base_url: ` + url + `/v1
anthropic_api_key: ${env:CANARY_ANTHROPIC}
anthropic_base_url: ` + withPassword + `
gemini_api_key: ` + keys.add("a provider key in the configuration", "plain-canary-server-gemini") + `
gemini_base_url: ` + url + `
oidc_issuer: ` + oidc.URL + `
oidc_audience: agentd
trusted_proxies: [127.0.0.0/8]
proxy_user_header: X-Canary-User
`
	write(config, text)
	env := map[string]string{"CANARY_ANTHROPIC": keys.add("a provider key in a variable", "sk-ant-canary-server-0123456789"), "HOME": dir}
	s := canaryServer(t, config, env)

	// Who calls. Proxies and pages bring headers of their own, which are nobody's business.
	cookie, secret := keys.add("a cookie", "cookie-canary-1"), keys.add("a secret of a proxy", "proxy-secret-canary-1")
	got := &locked{}
	newClient := func(opts ...client.Option) *client.Client {
		plain, h2 := &http.Transport{}, new(http.Protocols)
		h2.SetUnencryptedHTTP2(true)
		plain.Protocols = h2
		t.Cleanup(plain.CloseIdleConnections)
		c := client.New(s.url, append([]client.Option{
			client.WithHTTPClient(&http.Client{Transport: received{plain, got}}), client.WithReconnect(client.ReconnectPolicy{}),
			client.WithConnectOptions(connect.WithAcceptCompression("gzip", nil, nil)), // got is searched as it came
		}, opts...)...)
		return c
	}
	newKey := func(name string, args ...string) string {
		t.Helper()
		code, out, errs := command(t, nil, append([]string{"keys", "create", name, "--data", data}, args...)...)
		if code != exitOK {
			t.Fatalf("keys create: %d, %s", code, errs)
		}
		return strings.TrimSpace(out)
	}
	apiKey := keys.add("an API key", newKey("ann", "--role", "operator"))
	jwt := keys.add("a token of an issuer", oidc.Token(t, map[string]any{"aud": "agentd", "sub": "ben", "exp": 4102444800}))
	callers := map[string][]client.Option{
		"key": {client.WithAPIKey(apiKey)},
		"jwt": {client.WithAPIKey(jwt)},
	}
	refusal := func(err error) {
		if err != nil {
			_, _ = io.WriteString(got, err.Error()+"\n")
		}
	}
	run := func(who, name string, own bool) (session string) {
		c := newClient(callers[who]...)
		look := func(context.Context, struct {
			At string `json:"at"`
		},
		) (any, error) {
			return "canary-tool-result", nil
		}
		if err := client.AddTool(c, "look", "Looks.", look); err != nil {
			t.Error(err)
		}
		header, _, _ := strings.Cut(strings.ReplaceAll(name, "-", "/"), "/")
		opts := []client.RunOption{
			client.WithHeader("Cookie", "id="+cookie), client.WithHeader("X-Proxy-Secret", secret), client.WithRawPayloads(),
			client.WithInitialState(map[string]any{"k": "canary-in-state"}),
		}
		if own {
			opts = append(opts, client.WithProviderKey(header,
				keys.add("a provider key of "+who+" for "+name, "plain-canary-of-"+who+"-for-"+header)))
		}
		for _, prompt := range []string{
			"canary-said-prompt", "please refuse", "please fail", "please limit", "please reject", "please drop",
		} {
			agent := client.LLM("a", name, client.Tools("look"))
			for event, err := range c.Run(t.Context(), agent, prompt, opts...) {
				refusal(err)
				if event != nil && event.SessionID != "" && prompt == "canary-said-prompt" {
					session = event.SessionID
				}
			}
		}
		return session
	}
	var runs sync.WaitGroup
	for _, name := range []string{"openai-responses/gpt-x", "anthropic/claude-x", "gemini/gemini-x", "panics/x"} {
		runs.Go(func() { run("key", name, false) })
		runs.Go(func() { run("key", name, true) })
	}
	runs.Go(func() { run("jwt", "openai-chat/gpt-x", true) })
	session := run("key", "openai-chat/gpt-x", false)
	runs.Wait()

	// A token for a page, which its maker alone receives.
	token, _, err := client.New(s.url, client.WithAPIKey(apiKey)).Session(session).CreateToken(t.Context(), client.TokenRequest{Agents: true})
	if err != nil {
		t.Fatal(err)
	}
	keys.add("a token for a page", token)
	for _, err := range newClient(client.WithAPIKey(token)).Session(session).Watch(t.Context()) {
		refusal(err)
		break
	}
	ops := newClient(callers["key"]...)
	for turn, err := range ops.Session(session).Turns(t.Context(), client.TurnFilter{}) {
		if refusal(err); err == nil {
			for _, err := range ops.Session(session).ModelCalls(t.Context(), turn.ID) {
				refusal(err)
			}
		}
	}
	_, err = ops.Session(session).Fork(t.Context(), client.ForkAt{})
	refusal(err)
	refusal(newClient(client.WithAPIKey(token)).Session(session).Delete(t.Context()))
	revoked := keys.add("a revoked API key", newKey("gone"))
	if code, _, errs := command(t, nil, "keys", "revoke", strings.Split(revoked, "_")[2][:12], "--data", data); code != exitOK {
		t.Logf("revoke: %s", errs)
	}

	// Credentials that are refused, and requests that make no sense, with secrets wherever one may be sent by mistake.
	forged := issuer.Sign(t, jose.ES256, issuer.New(t, "http://other.example").Key(), map[string]any{"iss": oidc.URL, "aud": "agentd", "sub": "eve"})
	for what, header := range map[string]http.Header{
		"no key":               {},
		"a revoked API key":    {"Authorization": {"Bearer " + revoked}},
		"a key that is wrong":  {"X-Api-Key": {keys.add("a key that is wrong", "agentd_key_canarycanarycanarycanarycanarycanarycanarycanarycanary")}},
		"a token that is none": {"Authorization": {"Bearer " + keys.add("a token that is none", "agentd_token_canary0canary0canary0canary0canary0canary0")}},
		"a forged token":       {"Authorization": {"Bearer " + keys.add("a forged token", forged)}},
		"an expired token": {"Authorization": {"Bearer " + keys.add("an expired token",
			oidc.Token(t, map[string]any{"aud": "agentd", "sub": "ben", "exp": 1000000000}))}},
		"a password":           {"Authorization": {"Basic " + keys.add("a password", "Y2FuYXJ5LXVzZXI6Y2FuYXJ5LXBhc3N3b3Jk")}},
		"a key of a provider":  {"Authorization": {"Bearer " + keys.add("a provider key as credential", "sk-canary-as-credential-0123456789")}},
		"two of them":          {"Authorization": {"Bearer " + apiKey}, "X-Api-Key": {jwt}},
		"an odd provider key":  {"Authorization": {"Bearer " + apiKey}, "X-Agentd-Openai-Api-Key": {keys.add("an odd provider key", "odd canary\tkey é")}},
		"two provider keys":    {"Authorization": {"Bearer " + apiKey}, "X-Agentd-Openai-Api-Key": {keys.add("one of two", "one-of-two-canary"), keys.add("two of two", "two-of-two-canary")}},
		"a key of nobody":      {"Authorization": {"Bearer " + apiKey}, "X-Agentd-Nobody-Api-Key": {keys.add("a key for no provider", "nobodys-canary-key")}},
		"a proxy":              {"X-Canary-User": {"carl"}, "X-Forwarded-For": {"203.0.113.7"}, "X-Proxy-Secret": {secret}},
		"a proxy without user": {"X-Proxy-Secret": {secret}, "Cookie": {cookie}},
	} {
		for _, body := range []string{
			`{"execute":{"userPrompt":"hi","agent":{"name":"a","llm":{"model":"openai-chat/gpt-x"}}}}`, `{"no": json`, `{"execute":{"unknown":1}}`,
			`{"sessionId":"` + session + `"}`,
		} {
			for _, method := range []string{"CreateTurn", "ListSessions", "GetSession", "NoMethod"} {
				if got := canaryPost(t, s.url+"/agentd.v1.SessionService/"+method, header, body, got); what == "no key" && got == http.StatusOK {
					t.Errorf("%s without a key: %d", method, got)
				}
			}
		}
	}

	// Keys of agentd itself where texts belong: what a caller pastes into the wrong place.
	misplaced := keys.add("an API key in a wrong place", "agentd_key_canarycanary_MISPLACEDMISPLACEDMISPLACEDMISPLACED")
	own := http.Header{"Authorization": {"Bearer " + apiKey}, "User-Agent": {misplaced}}
	for method, body := range map[string]string{
		"GetSession": `{"sessionId":"KEY"}`, "GetTurn": `{"sessionId":"` + session + `","turnId":"KEY"}`,
		"CancelTurn": `{"sessionId":"` + session + `","turnId":"KEY","reason":"KEY"}`, "DeleteSession": `{"sessionId":"KEY"}`,
		"ListSessions": `{"pageToken":"KEY"}`, "ListTurnEvents": `{"sessionId":"KEY","turnId":"KEY"}`, "KEY": `{}`,
		"CreateTurn":    `{"execute":{"userPrompt":"hi","agent":{"name":"KEY","llm":{"model":"KEY","toolNames":["KEY"]}}}}`,
		"ForkSession":   `{"sessionId":"` + session + `","turnId":"KEY"}`,
		"GetAppState":   `{"scope":"KEY"}`,
		"UpdateSession": `{"sessionId":"KEY","labels":{"KEY":"KEY"}}`,
	} {
		url := s.url + "/agentd.v1.SessionService/" + strings.ReplaceAll(method, "KEY", misplaced) + "?key=" + misplaced
		canaryPost(t, url, own, strings.ReplaceAll(body, "KEY", misplaced), got)
	}

	// New keys, twice: with what is wrong, and without.
	write(config, strings.Replace(text, "model_tries: 2", "model_tries: "+keys.add("a value that is refused", "canary-no-number"), 1))
	s.signals <- syscall.SIGHUP
	s.until("the configuration was not reloaded")
	delete(keys.all, "a value that is refused") // which is no secret: the operator has to read what is wrong
	write(keyFile, keys.add("a provider key after a reload", "plain-canary-server-openai-2"))
	write(config, strings.Replace(text, "model_tries: 2", "model_tries: 1", 1))
	s.signals <- syscall.SIGHUP
	s.until("the configuration was reloaded")
	run("key", "openai-chat/gpt-x", false)

	admin := func(path string) func(t *testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			all := &locked{}
			canaryGet(t, "http://"+s.admin+path, all)
			return all.String()
		}
	}
	say := func(args ...string) func(t *testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			code, out, errs := command(t, env, args...)
			if code != exitOK {
				t.Errorf("%q: %d, %s%s", args, code, out, errs)
			}
			return out + errs
		}
	}
	online := []sink{
		{name: "metrics", text: admin("/metrics")},
		{name: "goroutines", text: admin("/debug/pprof/goroutine?debug=2")},
		{name: "command line", text: admin("/debug/pprof/cmdline")},
		{name: "heap", text: admin("/debug/pprof/heap?debug=1")},
		{name: "readiness", text: admin("/readyz")},
	}
	// Another place where agentd leaves bytes, such as traces, is a line here.
	sinks := []sink{
		{name: "log", text: func(*testing.T) string { return s.log.String() }},
		{name: "what clients receive", text: func(*testing.T) string { return got.String() }, payloads: true,
			without: []string{"canary-said-prompt"}}, // which the caller has
		{name: "database", text: files(filepath.Join(data, "agentd.db*")), payloads: true},
		{name: "tape", text: files(filepath.Join(dir, "tape.jsonl")), payloads: true,
			without: []string{"canary-in-state"}}, // which models do not see
		{name: "export", text: say("export", "--data", data, "--tenant=", "-"), payloads: true},
		{name: "audit trail", text: say("audit", "--data", data, "--json")},
		{name: "API keys", text: say("keys", "list", "--data", data, "--json")},
		{name: "check", text: say("check", "--data", data)},
		{name: "configuration", text: say("config", "--config", config)},
	}
	search := func(sinks []sink) {
		for _, to := range sinks {
			text := to.text(t)
			if len(text) == 0 {
				t.Errorf("%s: there is nothing", to.name)
			}
			for what, secret := range keys.all {
				for _, form := range wiretap.Forms(secret) {
					if i := strings.Index(text, form); i >= 0 {
						t.Errorf("%s has %s: …%q…", to.name, what, text[max(0, i-200):min(len(text), i+len(form)+40)])
						break
					}
				}
			}
			for _, payload := range payloads {
				switch has := strings.Contains(text, payload); {
				case has && !to.payloads:
					t.Errorf("%s has %s", to.name, payload)
				case !has && to.payloads && !slices.Contains(to.without, payload):
					t.Errorf("%s lacks %s, so the search proves nothing", to.name, payload)
				}
			}
		}
	}
	// The search proves something only about what was in use.
	used := map[string]bool{}
	for _, c := range provider.Calls() {
		used[c.Key()] = true
	}
	for what, key := range keys.all {
		if strings.HasPrefix(what, "a provider key") && !used[key] && what != "a provider key as credential" && !strings.Contains(what, "panics") {
			t.Errorf("no call has had %s", what)
		}
	}
	for _, text := range []string{"call ended", "the adapter panicked", "status 401", "status 500", "status 429", "status 400", "the call failed", "was revoked", "token is expired"} {
		if !strings.Contains(s.log.String(), text) {
			t.Errorf("the log lacks %q, so something was not tried", text)
		}
	}
	search(online)
	s.end(t)
	search(sinks)
}

// canaryServed is a serve on a goroutine whose log a test reads.
type canaryServed struct {
	t          *testing.T
	url, admin string
	signals    chan os.Signal
	log        *locked
	lines      chan string // messages of the log
	over       chan int
}

// canaryServer starts serve, with a provider that panics.
func canaryServer(t *testing.T, config string, env map[string]string) *canaryServed {
	t.Helper()
	s := &canaryServed{t: t, signals: make(chan os.Signal, 2), log: &locked{}, lines: make(chan string, 100_000), over: make(chan int, 1)}
	out, in := io.Pipe()
	go func() {
		p := &process{signals: s.signals, env: env, stdout: io.Discard, stderr: in}
		p.adjust = func(cfg *daemon.Config) { cfg.ExtraProviders = append(cfg.ExtraProviders, panics{}) }
		code := p.run([]string{"serve", "--config", config})
		_ = in.Close()
		s.over <- code
	}()
	go func() { // ends with the log
		defer close(s.lines)
		for lines := bufio.NewReader(io.TeeReader(out, s.log)); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			s.lines <- line
		}
	}()
	s.admin = s.until("serving the operator")["admin_addr"].(string)
	s.url = "http://" + s.until("serving")["addr"].(string)
	t.Cleanup(func() { s.end(t) })
	return s
}

// until returns the next line of the log with a message that begins so.
func (s *canaryServed) until(message string) map[string]any {
	s.t.Helper()
	for line := range s.lines {
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			s.t.Fatalf("a log line that is no JSON: %s", line)
		}
		if strings.HasPrefix(entry["msg"].(string), message) {
			return entry
		}
	}
	s.t.Fatalf("the log has no line %q:\n%s", message, s.log)
	return nil
}

// end stops the server, once.
func (s *canaryServed) end(t *testing.T) {
	t.Helper()
	if s.over == nil {
		return
	}
	s.signals <- syscall.SIGTERM
	if code := <-s.over; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	s.over = nil
	for range s.lines { // to its end
	}
}

// canaryPost sends a request, and keeps what comes back.
func canaryPost(t *testing.T, url string, header http.Header, body string, to io.Writer) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Content-Type", "application/json")
	return canaryDo(t, req, to)
}

func canaryGet(t *testing.T, url string, to io.Writer) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return canaryDo(t, req, to)
}

func canaryDo(t *testing.T, req *http.Request, to io.Writer) int {
	t.Helper()
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_ = resp.Header.Write(to)
	if _, err := io.Copy(to, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}
