package backendfile_test

import (
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/backendfile"
)

func getenv(name string) string {
	return map[string]string{"DESK_KEY": "canary-1", "TWO_LINES": "a\nb"}[name]
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := backendfile.Parse("b.yaml", []byte(`
desk: {kind: managed-agents, url: "https://agents.example", key_env: DESK_KEY}
lab: {kind: agentd, url: "http://127.0.0.1:8080"}
claims:
  kind: agentcore
  arn: arn:aws:bedrock-agentcore:eu-central-1:123456789012:harness/claims
`), getenv)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]backendfile.Backend{
		"desk":   {Kind: backendfile.Managed, URL: "https://agents.example", Key: "canary-1"},
		"lab":    {Kind: backendfile.Agentd, URL: "http://127.0.0.1:8080"},
		"claims": {Kind: backendfile.AgentCore, ARN: "arn:aws:bedrock-agentcore:eu-central-1:123456789012:harness/claims"},
	}
	for name, b := range want {
		if got[name] != b {
			t.Errorf("%s is %+v, want %+v", name, got[name], b)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d backends", len(got))
	}
}

// TestMistakes says of each what is wrong, where, and what would be right, without what may be a key.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ file, says string }{
		"empty":          {"", "b.yaml:"},
		"a list":         {"- a", "b.yaml:1:1: want names of backends"},
		"no mapping":     {"desk: canary-2", `b.yaml:1:7: backend "desk": want kind, url or arn, and key_env, got text`},
		"a name":         {`"a b": {kind: agentd, url: "https://x.example"}`, `name "a b": must be 1 to 64 of`},
		"no kind":        {`desk: {url: "https://x.example"}`, "kind is missing: want one of agentcore, agentd, managed-agents"},
		"another kind":   {`desk: {kind: a2a, url: "https://x.example"}`, `b.yaml:1:14: want one of agentcore, agentd, managed-agents, got the text "a2a"`},
		"no url":         {"desk: {kind: agentd}", `backend "desk": url is missing`},
		"no arn":         {"desk: {kind: agentcore}", `backend "desk": arn is missing`},
		"an arn":         {`desk: {kind: agentd, arn: "arn:aws:x", url: "https://x.example"}`, "a backend of kind agentd has a url, no arn"},
		"no https":       {`desk: {kind: agentd, url: "http://x.example"}`, "want https, or http at a loopback address"},
		"another scheme": {`desk: {kind: agentd, url: "ftp://x.example"}`, "want an https URL"},
		"a password":     {`desk: {kind: agentd, url: "https://u:canary-3@x.example"}`, "want a URL without a user"},
		"a query":        {`desk: {kind: agentd, url: "https://x.example?key=canary-4"}`, "want a URL without a user, a query"},
		"unknown key":    {`desk: {kind: agentd, url: "https://x.example", key_evn: A}`, "did you mean key_env?"},
		"a key there":    {`desk: {kind: agentd, url: "https://x.example", api_token: canary-5}`, "unknown key: known are arn, key_env, kind, url"},
		"not set":        {`desk: {kind: agentd, url: "https://x.example", key_env: NONE}`, "the environment variable is not set"},
		"a key for name": {`desk: {kind: agentd, url: "https://x.example", key_env: "canary-6 x"}`, "want the name of an environment variable"},
		"two lines":      {`desk: {kind: agentd, url: "https://x.example", key_env: TWO_LINES}`, "is no key"},
		"twice":          {"desk: {kind: agentd, url: 'https://x.example'}\ndesk: {kind: agentd, url: 'https://x.example'}", "b.yaml:2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := backendfile.Parse("b.yaml", []byte(tc.file), getenv)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error is %v, want %q", err, tc.says)
			}
			if got != nil || err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("%v, error %v", got, err)
			}
		})
	}
}
