package daemon_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// sayOrCall is what the fake providers do: models with "down" in their names fail, one that is offered a tool calls it
// once, all others say a word. Each response takes 1,000 tokens of prompt and 100 of completion.
func sayOrCall(_ context.Context, c *fakeprovider.Call) fakeprovider.Reply {
	u := providertest.Usage{Prompt: 1000, Completion: 100, Total: 1100}
	r, err := c.Request()
	switch {
	case err != nil:
		return fakeprovider.Reply{Status: http.StatusBadRequest, Message: err.Error()}
	case strings.Contains(r.Model, "down"):
		return fakeprovider.Reply{Status: http.StatusInternalServerError, Message: "down; the key was " + c.Key()}
	case len(r.Tools) > 0 && !slices.ContainsFunc(r.Items, func(i providertest.Item) bool { return i.Kind == providertest.Result }):
		return fakeprovider.Reply{Calls: []providertest.ToolCall{{ID: "c1", Name: "look", Args: "{}"}}, Usage: u}
	}
	return fakeprovider.Reply{Text: []string{"ok"}, Usage: u}
}

// tenancy is a daemon with a provider of its own and those of two tenants.
type tenancy struct {
	t         *testing.T
	d         *daemon.Daemon
	cfg       daemon.Config
	log       *buffer
	endpoints map[string]*fakeprovider.Provider // server, a, b
}

// tenantsText is the file of tenants; %[1]s is acme's endpoint, %[2]s that of umbrella, %[3]s a file with a key.
const tenantsText = `tenants:
  acme:
    providers:
      anthropic: {api_key: "${env:ACME_KEY}", base_url: "%[1]s"}
      openai: {api_key_file: "%[3]s", base_url: "%[1]s/v1"}
    models: ["claude-*", openai/gpt-x, "scripted/*"]
    prices:
      date: 2026-11-20
      providers: {anthropic: {claude-x: {price: {input: 10, output: 20}, capabilities: {context_tokens: 1100}}}}
  umbrella:
    providers:
      anthropic: {api_key: canary-umbrella}
      gemini: {api_key: canary-umbrella-g, base_url: "%[2]s"}
      openai: {base_url: "%[2]s/v1"}
  walled: {own_keys: true, providers: {gemini: {api_key: canary-walled, base_url: "%[2]s"}}}
  none: {models: []}
  plain: {day_budget: {tokens: 1000000}}
`

func newTenancy(t *testing.T, change func(*daemon.Config)) *tenancy {
	t.Helper()
	x := &tenancy{t: t, log: &buffer{}, endpoints: map[string]*fakeprovider.Provider{}}
	urls := map[string]string{}
	for _, name := range []string{"server", "a", "b"} {
		x.endpoints[name], urls[name] = fakeprovider.Start(t, sayOrCall)
	}
	dir := t.TempDir()
	keyFile, prices := filepath.Join(dir, "key"), filepath.Join(dir, "prices.yaml")
	for name, text := range map[string]string{
		keyFile: "canary-acme-o\n", filepath.Join(dir, "tenants.yaml"): fmt.Sprintf(tenantsText, urls["a"], urls["b"], keyFile),
		prices: "date: 2026-11-01\nproviders: {anthropic: {claude-x: {price: {input: 1, output: 2}}, claude-y: {price: {input: 1, output: 2}}}}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{
		"ACME_KEY": "canary-acme", "ANTHROPIC_API_KEY": "canary-server", "ANTHROPIC_BASE_URL": urls["server"],
		"OPENAI_API_KEY": "canary-server-o", "OPENAI_BASE_URL": urls["server"] + "/v1",
		"GEMINI_API_KEY": "canary-server-g", "GOOGLE_GEMINI_BASE_URL": urls["server"],
	}
	x.cfg = daemon.Config{
		Authenticate: byHeader, Tenants: filepath.Join(dir, "tenants.yaml"), Prices: prices, DataDir: t.TempDir(),
		Addr:   "127.0.0.1:0",
		Getenv: func(name string) string { return env[name] }, ModelRetry: modelcall.Retry{Tries: 1},
		RecordTo: filepath.Join(dir, "tape.jsonl"),
	}
	if change != nil {
		change(&x.cfg)
	}
	// The log hides nothing by itself: no line may hold a key.
	x.cfg.Logger = slog.New(slog.NewTextHandler(x.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	x.d = start(t, x.cfg)
	return x
}

// edit replaces texts of the file of tenants.
func (x *tenancy) edit(oldnew ...string) {
	x.t.Helper()
	text, err := os.ReadFile(x.cfg.Tenants)
	if err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(x.cfg.Tenants, []byte(strings.NewReplacer(oldnew...).Replace(string(text))), 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// heard returns where models were called since the last time, with which model and key.
func (x *tenancy) heard() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(x.endpoints)) {
		for _, c := range x.endpoints[name].Calls() {
			model := c.Path
			if r, err := c.Request(); err == nil {
				model = r.Model
			}
			out = append(out, name+" "+model+" "+c.Key())
		}
		x.endpoints[name].Use(sayOrCall)
	}
	return out
}

// client calls for a principal, with further headers.
func (x *tenancy) client(who string, headers map[string]string) agentdv1connect.SessionServiceClient {
	hc := &http.Client{Transport: headed{headers, speaker{who, h2c(x.t).Transport}}}
	return agentdv1connect.NewSessionServiceClient(hc, x.d.URL())
}

// turn runs a tree; the error is that of the check or of the turn.
func (x *tenancy) turn(c agentdv1connect.SessionServiceClient, tree *agentdv1.Agent) (*agentdv1.Turn, error) {
	x.t.Helper()
	resp, err := c.CreateTurn(x.t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute(tree, "go").GetExecute()}))
	if err != nil {
		return nil, err
	}
	got, err := ended(x.t, c, resp.Msg.GetTurn())
	if err == nil && got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED {
		err = fmt.Errorf("%v: %s", got.GetErrorCode(), got.GetStatusMessage())
	}
	return got, err
}

// withFallback and withSummary add a model that is called besides the agent's own.
func withFallback(tree *agentdv1.Agent, model string) *agentdv1.Agent {
	tree.GetLlm().FallbackModels = []string{model}
	return tree
}

func withSummary(tree *agentdv1.Agent, model string) *agentdv1.Agent {
	tree.GetLlm().Compaction = &agentdv1.Compaction{AtShare: 0.5, Model: model}
	return tree
}

// TestTenantModels: each model call of a tenant goes to its own endpoint with its own key, or is refused before it is made.
func TestTenantModels(t *testing.T) {
	t.Parallel()
	x := newTenancy(t, nil)
	own := map[string]string{"X-Agentd-Anthropic-Api-Key": "canary-ann", "X-Agentd-Openai-Api-Key": "canary-ann-o"}
	root := func(model string) *agentdv1.Agent { return llm("root", model) }
	for _, tc := range []struct {
		who     string
		tree    *agentdv1.Agent
		headers map[string]string
		want    []string // the calls
		refused string   // a part of the error
	}{
		{who: "ann@acme", tree: root("claude-x"), want: []string{"a claude-x canary-acme"}},
		{who: "ann@acme", tree: root("anthropic/claude-z"), want: []string{"a claude-z canary-acme"}},
		{who: "ann@acme", tree: root("gpt-x"), want: []string{"a gpt-x canary-acme-o"}},
		{who: "ann@acme", tree: root("openai-chat/gpt-x"), refused: `PERMISSION_DENIED root: model "openai-chat/gpt-x": the tenant may not use it, it may use claude-*, openai/gpt-x, scripted/*`},
		{who: "ann@acme", tree: root("gemini-x"), refused: `PERMISSION_DENIED root: model "gemini-x": the tenant may not use it`},
		{who: "ann@acme", tree: root("echo"), refused: "PERMISSION_DENIED"},
		{who: "ann@acme", tree: root("scripted/demo"), want: nil},
		{who: "ann@acme", tree: sequence("seq", root("claude-x"), llm("second", "gpt-y")), refused: `PERMISSION_DENIED seq/second: model "gpt-y"`},
		{who: "ann@acme", tree: withFallback(root("claude-down"), "gpt-x"), want: []string{"a claude-down canary-acme", "a gpt-x canary-acme-o"}},
		{who: "ann@acme", tree: withFallback(root("claude-down"), "gemini-x"), refused: `PERMISSION_DENIED root: model "gemini-x"`},
		{who: "ann@acme", tree: withSummary(root("claude-x"), "gemini-x"), refused: `PERMISSION_DENIED root: model "gemini-x"`},
		{who: "ann@acme", tree: root("claude-x"), headers: own, want: []string{"a claude-x canary-ann"}},
		{who: "ann@acme", tree: root("gpt-y"), headers: own, refused: `PERMISSION_DENIED root: model "gpt-y"`},

		{who: "eve@umbrella", tree: root("claude-x"), want: []string{"server claude-x canary-umbrella"}},
		{who: "eve@umbrella", tree: root("gemini-x"), want: []string{"b gemini-x canary-umbrella-g"}},
		{who: "eve@umbrella", tree: root("gpt-x"), refused: "AUTH_FAILED"},
		{who: "eve@umbrella", tree: root("openai-responses/gpt-x"), refused: "may not use the server's"},
		{who: "eve@umbrella", tree: root("gpt-x"), headers: own, want: []string{"b gpt-x canary-ann-o"}},
		{who: "eve@umbrella", tree: withFallback(root("claude-down"), "gemini-x"), want: []string{"b gemini-x canary-umbrella-g", "server claude-down canary-umbrella"}},

		{who: "bob@walled", tree: root("gemini-x"), want: []string{"b gemini-x canary-walled"}},
		{who: "bob@walled", tree: root("claude-x"), refused: "AUTH_FAILED root: model \"claude-x\": anthropic: no API key: the tenant has none of its own, and may not use the server's: send the header X-Agentd-Anthropic-Api-Key"},
		{who: "bob@walled", tree: root("claude-x"), headers: own, want: []string{"server claude-x canary-ann"}},
		{who: "bob@walled", tree: root("echo"), want: nil},

		{who: "joe@none", tree: root("echo"), refused: "the tenant may use no model"},
		{who: "amy@plain", tree: root("claude-x"), want: []string{"server claude-x canary-server"}},
		{who: "amy@unnamed", tree: root("gemini-x"), want: []string{"server gemini-x canary-server-g"}},
		{who: "ann", tree: root("gpt-y"), want: []string{"server gpt-y canary-server-o"}},
	} {
		_, err := x.turn(x.client(tc.who, tc.headers), tc.tree)
		got := x.heard()
		what := fmt.Sprintf("%s, %v %v", tc.who, tc.tree.GetLlm().GetModel(), tc.tree.GetLlm().GetFallbackModels())
		switch {
		case tc.refused == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case tc.refused != "" && err == nil:
			t.Errorf("%s: not refused", what)
		case tc.refused != "":
			e := details(t, err)
			if text := strings.TrimPrefix(e.GetCode().String(), "ERROR_CODE_") + " " + e.GetMessage(); !strings.Contains(text, tc.refused) {
				t.Errorf("%s: refused with %q, want %q", what, text, tc.refused)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: the calls are %q, want %q", what, got, tc.want)
		}
	}
	stop(t, x.d)
	if !strings.Contains(x.log.String(), "tenants_with_keys=3") {
		t.Errorf("the log does not say how many tenants have keys:\n%s", x.log.String())
	}
	x.quiet()
}

// quiet checks that no key is in the log, in the tape or in the database.
func (x *tenancy) quiet() {
	x.t.Helper()
	sinks := map[string]string{"the log": x.log.String()}
	files, err := filepath.Glob(filepath.Join(x.cfg.DataDir, "*"))
	if err != nil || len(files) == 0 {
		x.t.Fatalf("%v, %v", files, err)
	}
	for _, name := range append(files, x.cfg.RecordTo) {
		data, err := os.ReadFile(name)
		if err != nil {
			x.t.Fatal(err)
		}
		sinks[name] = string(data)
	}
	if !strings.Contains(sinks[x.cfg.RecordTo], "the key was") {
		x.t.Error("the tape has no call that repeats its key")
	}
	for name, text := range sinks {
		if at := strings.Index(text, "canary"); at >= 0 {
			x.t.Errorf("%s holds a key: %.200q", name, text[max(at-100, 0):])
		}
	}
}

// TestTenantSummaries: the beginning of a conversation is summarized with the tenant's window, model and key.
func TestTenantSummaries(t *testing.T) {
	t.Parallel()
	x := newTenancy(t, nil)
	for who, want := range map[string][]string{
		"ann@acme":     {"a claude-s canary-acme", "a claude-x canary-acme"},
		"eve@umbrella": {"server claude-x canary-umbrella"}, // whose window is not known
	} {
		c := x.client(who, nil)
		turn, err := x.turn(c, withSummary(llm("root", "claude-x"), "claude-s"))
		if err != nil {
			t.Fatal(err)
		}
		x.heard()
		ex := &agentdv1.RunRequest_ExecuteRequest{UserPrompt: "go on", SessionId: new(turn.GetSessionId())}
		turn = call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
		if turn, err = ended(t, c, turn); err != nil || turn.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED {
			t.Errorf("%s: %v, %v", who, turn, err)
		}
		if got := x.heard(); !slices.Equal(got, want) {
			t.Errorf("%s: the calls are %q, want %q", who, got, want)
		}
	}
}

// TestTenantPrices: the cost of a call, in the turn, in lists and in a budget, is that of its tenant.
func TestTenantPrices(t *testing.T) {
	t.Parallel()
	x := newTenancy(t, nil)
	for who, cost := range map[string]float64{"ann@acme": 0.012, "eve@umbrella": 0.0012, "bob": 0.0012} {
		turn, err := x.turn(x.client(who, nil), llm("root", "claude-x"))
		if err != nil {
			t.Fatal(err)
		}
		if got := turn.GetUsage().GetCostUsd(); got != cost {
			t.Errorf("%s pays %v, want %v", who, got, cost)
		}
	}
	// One call at acme's price is above the budget, at the server's it is not.
	for who, fits := range map[string]bool{"ann@acme": false, "eve@umbrella": true} {
		c := x.client(who, nil)
		ex := execute(sequence("seq", llm("first", "claude-x"), llm("second", "claude-x")), "go").GetExecute()
		ex.Budget = &agentdv1.Budget{CostUsd: 0.01}
		turn, err := ended(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn())
		if err != nil || (turn.GetStatus() == agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED) != fits {
			t.Errorf("%s: %v, %v", who, turn, err)
		}
	}
}

// TestTenantLists: a caller sees the models and providers that its tenant may use, at its prices.
func TestTenantLists(t *testing.T) {
	t.Parallel()
	x := newTenancy(t, nil)
	for who, want := range map[string]struct {
		providers string // with a key, without one in brackets
		input     float64
		date      string
		has, not  []string
	}{
		"ann@acme": {"anthropic openai scripted", 10, "2026-11-20",
			[]string{"gpt-x", "scripted/demo", "claude-x"}, []string{"echo", "gemini-2.5-flash", "gpt-4o"}},
		"eve@umbrella": {"anthropic echo gemini (openai) (openai-chat) (openai-responses) scripted", 1, "2026-11-01",
			[]string{"claude-x", "echo", "gemini-2.5-flash"}, []string{"gpt-x"}},
		"bob@walled": {"(anthropic) echo gemini (openai) (openai-chat) (openai-responses) scripted", 1, "2026-11-01", []string{"echo"}, nil},
		"joe@none":   {"", 0, "", nil, []string{"echo", "claude-x"}},
		"ann":        {"anthropic echo gemini openai openai-chat openai-responses scripted", 1, "2026-11-01", []string{"echo", "claude-x"}, nil},
	} {
		c := x.client(who, nil)
		var providers []string
		for _, p := range call(t, c.GetCapabilities, &agentdv1.GetCapabilitiesRequest{}).GetProviders() {
			name := p.GetName()
			if !p.GetHasKey() {
				name = "(" + name + ")"
			}
			providers = append(providers, name)
		}
		if got := strings.Join(providers, " "); got != want.providers {
			t.Errorf("%s has the providers %s, want %s", who, got, want.providers)
		}
		listed := map[string]*agentdv1.Model{}
		for _, m := range call(t, c.ListModels, &agentdv1.ListModelsRequest{}).GetModels() {
			listed[m.GetName()] = m
		}
		if tiers := listed["claude-x"].GetPrice().GetTiers(); want.input != 0 && (len(tiers) == 0 || tiers[0].GetInput() != want.input || listed["claude-x"].GetPrice().GetDate() != want.date) {
			t.Errorf("%s: claude-x is %v, want a price of %v", who, listed["claude-x"], want.input)
		}
		for _, name := range want.has {
			if listed[name] == nil {
				t.Errorf("%s: %s is not listed", who, name)
			}
		}
		for _, name := range want.not {
			if listed[name] != nil {
				t.Errorf("%s: %s is listed", who, name)
			}
		}
		if slices.Contains(providers, "(anthropic)") && listed["claude-x"].GetAvailable() {
			t.Errorf("%s: claude-x is available without a key", who)
		}
	}
}

// TestTenantBreakers: the model of a tenant that fails is suspended for nobody else.
func TestTenantBreakers(t *testing.T) {
	t.Parallel()
	x := newTenancy(t, func(cfg *daemon.Config) { cfg.ModelBreaker = modelcall.BreakerConfig{Failures: 1, CoolDown: time.Hour} })
	// The same key at another address is another circuit too.
	x.edit("canary-umbrella}", "canary-acme}")
	if err := x.d.Reload(x.cfg); err != nil {
		t.Fatal(err)
	}
	calls := func(who string, want int) {
		t.Helper()
		if _, err := x.turn(x.client(who, nil), llm("root", "claude-down")); err == nil {
			t.Errorf("%s: no error", who)
		}
		if got := x.heard(); len(got) != want {
			t.Errorf("%s: the calls are %q, want %d", who, got, want)
		}
	}
	calls("ann@acme", 1)
	calls("ann@acme", 0) // suspended
	calls("eve@umbrella", 1)
	calls("bob", 1)
	calls("amy@plain", 0) // which has the server's key, as bob
	calls("eve@umbrella", 0)
}

// TestTenantReload: a turn that resumes, after a reload or a restart, and one that starts have what the file says then.
func TestTenantReload(t *testing.T) {
	t.Parallel()
	x := newTenancy(t, func(cfg *daemon.Config) { cfg.Turns.IdleTurn = time.Millisecond })
	waiting := func() (*agentdv1.Turn, agentdv1connect.SessionServiceClient) {
		t.Helper()
		c := x.client("ann@acme", nil)
		ex := execute(llm("root", "claude-x", "look"), "go", tool("look", `{"type":"object"}`)).GetExecute()
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
		turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
		if got := x.heard(); len(got) != 1 {
			t.Fatalf("the calls are %q", got)
		}
		return turn, c
	}
	answer := func(turn *agentdv1.Turn, c agentdv1connect.SessionServiceClient) (*agentdv1.Turn, error) {
		req := &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}
		got := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}).GetTurn()
		for _, p := range got.GetPendingToolCalls() {
			req.Results = append(req.Results, &agentdv1.RunRequest_ToolCallResponse{
				ToolCallId: p.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "x"},
			})
		}
		if _, err := c.SubmitToolResults(t.Context(), connect.NewRequest(req)); err != nil {
			return nil, err
		}
		return ended(t, c, turn)
	}
	suspended := func(turn *agentdv1.Turn) { // waits until the turn has left memory
		t.Helper()
		for wait := time.Millisecond; !strings.Contains(x.log.String(), "turn="+turn.GetId()) || !strings.Contains(x.log.String(), "turn suspended"); wait *= 2 {
			if wait > 10*time.Second {
				t.Fatalf("the turn stays in memory:\n%s", x.log.String())
			}
			time.Sleep(wait)
		}
	}

	turn, c := waiting()
	suspended(turn)
	x.edit(`"${env:ACME_KEY}"`, "canary-second", "input: 10", "input: 100")
	if err := x.d.Reload(x.cfg); err != nil {
		t.Fatal(err)
	}
	turn, err := answer(turn, c)
	if got := x.heard(); err != nil || !slices.Equal(got, []string{"a claude-x canary-second"}) {
		t.Errorf("after a reload: %v, %q", err, got)
	}
	if got := turn.GetUsage().GetCostUsd(); got != 0.012+0.102 {
		t.Errorf("the two calls cost %v", got)
	}

	turn, _ = waiting()
	stop(t, x.d)
	x.edit("canary-second", "canary-third")
	x.d = start(t, x.cfg)
	c = x.client("ann@acme", nil)
	if _, err = answer(turn, c); err != nil {
		t.Error(err)
	}
	if got := x.heard(); !slices.Equal(got, []string{"a claude-x canary-third"}) {
		t.Errorf("after a restart: %q", got)
	}

	turn, _ = waiting()
	suspended(turn)
	x.edit(`"claude-*", `, "")
	if err := x.d.Reload(x.cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := answer(turn, c); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a turn whose model is not allowed any more: %v", err)
	}
	x.edit("models: [", `models: ["claude-*", `)
	if err := x.d.Reload(x.cfg); err != nil {
		t.Fatal(err)
	}
	got, err := answer(turn, c)
	if calls := x.heard(); err != nil || got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED || len(calls) != 1 {
		t.Errorf("the turn when its model is allowed again: %v, %v, %q", got, err, calls)
	}
	x.edit(`"claude-*", `, "")
	if err := x.d.Reload(x.cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := x.turn(c, llm("root", "claude-x")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a model that is not allowed any more: %v", err)
	}
	x.edit("own_keys: true", "own_kees: true")
	if err := x.d.Reload(x.cfg); err == nil || !strings.Contains(err.Error(), "did you mean own_keys?") {
		t.Errorf("a file that is wrong: %v", err)
	}
	if got := daemon.Secrets(x.cfg); slices.Contains(got, "canary-third") {
		t.Error("a file that is wrong has secrets")
	}
	x.edit("own_kees: true", "own_keys: true")
	if got := daemon.Secrets(x.cfg); !slices.Contains(got, "canary-third") || !slices.Contains(got, "canary-acme-o") || !slices.Contains(got, "canary-server") {
		t.Errorf("the log hides %d secrets, some are missing", len(got))
	}
}

// TestTenantTape: the record of model calls hides the keys of the tenant whose call it is, wherever they are.
func TestTenantTape(t *testing.T) {
	t.Parallel()
	x := newTenancy(t, nil)
	c := x.client("ann@acme", nil)
	ex := execute(llm("root", "claude-x"), "canary-acme and canary-server are keys").GetExecute()
	if _, err := ended(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()); err != nil {
		t.Fatal(err)
	}
	stop(t, x.d)
	tape, err := os.ReadFile(x.cfg.RecordTo)
	if err != nil || !strings.Contains(string(tape), "*** and *** are keys") || strings.Contains(string(tape), "canary") {
		t.Errorf("%v: %s", err, tape)
	}
}

// TestTenantsNotNamed: what a file leaves out of a tenant is what the server allows all, and "*" is for those that it
// does not name.
func TestTenantsNotNamed(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "tenants.yaml")
	text := `tenants: {a: {models: [scripted/pays]}, b: {day_budget: {}}, "*": {models: [echo], day_budget: {tokens: 1000000}}}`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := daemon.Config{Authenticate: byHeader, Tenants: name, Scripts: map[string]string{"pays": paying}}
	cfg.Turns.TenantDay = map[string]daemon.Budget{"*": {Tokens: 1}}
	cfg.Turns.TenantMonth = map[string]daemon.Budget{"*": {Tokens: 1_000_000}, "a": {Tokens: 1}}
	x := &tenancy{t: t, d: start(t, cfg)}
	for _, tc := range []struct{ who, model, want string }{
		{"ann@a", "scripted/pays", "budget for the month"},
		{"ann@a", "echo", "may not use it"},
		{"ben@b", "scripted/pays", ""},
		{"ben@b", "echo", ""},
		{"eve@other", "scripted/pays", "may not use it"},
		{"eve@other", "echo", ""},
		{"joe", "scripted/pays", ""},
		{"joe", "echo", ""},
	} {
		_, err := x.turn(x.client(tc.who, nil), llm("root", tc.model))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s, %s: %v, want %q", tc.who, tc.model, err, tc.want)
		}
	}
}
