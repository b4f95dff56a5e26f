package treetest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/test/testmain"
	"github.com/apzuk3/agentd/internal/treetest"
)

func TestMain(m *testing.M) { testmain.Run(m) }

const (
	greeter = `agent: {name: greeter, llm: {model: gemini-2.5-flash, fallback_models: [gpt-5-mini], tool_names: [greet, read_file]}}
tools: [{name: greet, description: Greets., command: [no-such-program]}]
`
	both = `agent:
  name: both
  parallel:
    agents:
      - {name: b, llm: {model: gpt-5-mini, output_key: from_b}}
      - {name: a, llm: {model: gpt-5-mini}}
`
	asker = `agent: {name: asker, llm: {model: gpt-5-mini, tool_names: [pay], builtin_tools: [ask_user], mcp_attachments: [{mcp_name: files}]}}
tools: [{name: pay, description: Pays., command: [no-such-program], needs_approval: true}]
`
)

// suite writes a tree and its cases and reads them.
func suite(t *testing.T, tree, cases string) (*treetest.Suite, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"x.yaml": tree, "x.test.yaml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name, err := treetest.FileOf(filepath.Join(dir, "x.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return treetest.Read(name)
}

// TestRun: what happens is in the transcript, and what a case says without use fails it.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tree, body string // of the case behind its name
		want       string // the transcript
		wrong      string // "" for none
	}{
		"tools": {greeter, `{name: c, prompt: "hi\nthere", tools: {greet: [Hello, {error: no}], read_file: ['{"content": "x"}']}, answers: [
			{text: "I will.", thoughts: hm, calls: [{name: greet, args: {b: 1, a: "<2>"}}, {name: greet}, {name: read_file, args: {path: y}}]}, {text: "one\ntwo"}]}`,
			"> hi\n    there\ngreeter: I will.\ngreeter calls greet {\"a\":\"<2>\",\"b\":1}\n  = Hello\ngreeter calls greet {}\n  failed: no\n" +
				"greeter calls read_file {\"path\":\"y\"}\n  = {\"content\": \"x\"}\ngreeter: one\n    two\ncompleted\n", ""},
		"no result": {greeter, `{name: c, prompt: hi, answers: [{calls: [{name: greet}]}, {text: done}]}`,
			"> hi\ngreeter calls greet {}\n  failed: the case has no result for this call\ngreeter: done\ncompleted\n", "call 1 of greet has no result"},
		"left over": {greeter, `{name: c, prompt: hi, tools: {greet: [a]}, people: [approve], answers: [{text: done}, {text: more}, {when: {}, text: any}]}`,
			"> hi\ngreeter: done\ncompleted\n",
			"answers: answer 2 of greeter was not played|answers: answer 3 of greeter was not played|tools: 0 of the 1 results of greet were asked for|people: 0 of the 1 replies were asked for"},
		"no such tool": {greeter, `{name: c, prompt: hi, tools: {gret: []}, answers: [{text: done}]}`,
			"> hi\ngreeter: done\ncompleted\n", `no agent of the tree has the tool "gret"`},
		"turns": {greeter, `{name: c, prompts: [one, two], model: echo}`, "> one\ngreeter: one\ncompleted\n> two\ngreeter: two\ncompleted\n", ""},
		"failure": {greeter, `{name: c, prompt: hi, answers: [{error: {kind: invalid, message: broken}}]}`,
			"> hi\nfailed: INVALID_REQUEST: greeter: model \"scripted/greeter\": scripted: broken\n", ""},
		"at once": {both, `{name: c, prompt: hi, state: {k: 1}, answers_of: {b: [{text: from b}], a: [{delay: 20ms, text: from a}]}}`,
			"> hi\na: from a\nb: from b\nstate from_b = \"from b\"\ncompleted\n", ""},
		"at once, the other way": {both, `{name: c, prompt: hi, answers_of: {b: [{delay: 20ms, text: from b}], a: [{text: from a}]}}`,
			"> hi\na: from a\nb: from b\nstate from_b = \"from b\"\ncompleted\n", ""},
		"not of all": {strings.Replace(both, "parallel", "sequential", 1), `{name: c, prompt: hi, answers_of: {b: [{text: from b}]}}`,
			"the case has no answers of a\n", ""},
		"people": {asker, `{name: c, prompt: hi, tools: {pay: [paid], files_read: [text]}, people: [approve, deny, {deny: no money}, {answer: blue}], answers: [
			{calls: [{name: pay, args: {n: 1}}]}, {calls: [{name: pay, args: {n: 2}}]}, {calls: [{name: pay, args: {n: 3}}]},
			{calls: [{name: ask_user, args: {question: Color?}}]}, {calls: [{name: files_read}]}, {text: done}]}`,
			"> hi\nasker asks to call pay {\"n\":1}\n  - approved\nasker calls pay {\"n\":1}\n  = paid\nasker asks to call pay {\"n\":2}\n  - denied\n", ""},
		"nobody": {asker, `{name: c, prompt: hi, answers: [{calls: [{name: pay}]}, {text: done}]}`, "has no reply to this question", "people: question 1 has no reply"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := suite(t, test.tree, "cases:\n  - "+test.body)
			if err != nil {
				t.Fatal(err)
			}
			out, err := s.Run(t.Context(), s.Cases[0])
			if err != nil {
				t.Fatal(err)
			}
			whole := strings.HasPrefix(test.want, "> ") && strings.HasSuffix(test.want, "completed\n")
			if whole && out.Transcript != test.want || !strings.Contains(out.Transcript, test.want) {
				t.Errorf("got\n%s\nwant\n%s", out.Transcript, test.want)
			}
			if got := strings.Join(out.Wrong, "|"); test.wrong == "" && got != "" || !strings.Contains(got, test.wrong) {
				t.Errorf("wrong is %q, want %q", got, test.wrong)
			}
			if name == "people" && !strings.Contains(out.Transcript,
				"  - denied: no money\n") || name == "people" && !strings.Contains(out.Transcript, "asker asks: Color?\n  - blue\n") ||
				name == "people" && !strings.HasSuffix(out.Transcript, "asker calls files_read {}\n  = text\nasker: done\ncompleted\n") {
				t.Errorf("got\n%s", out.Transcript)
			}
		})
	}
}

// TestRead: what is wrong with a file of cases is named with its place.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ tree, cases, want string }{
		"unknown key":       {greeter, "cases:\n  - name: c\n    promt: x", "x.test.yaml:3:5: unknown field \"promt\""},
		"unknown key below": {greeter, "cases:\n  - name: c\n    prompt: x\n    answers:\n      - txt: a", "x.test.yaml:5:9: unknown field \"txt\""},
		"unknown result":    {greeter, "cases:\n  - name: c\n    prompt: x\n    tools: {greet: [{out: a}]}", "x.test.yaml:4:22: unknown field \"out\""},
		"reply":             {greeter, "cases:\n  - {name: c, prompt: x, people: [yes please]}", "a reply is approve, deny"},
		"no cases":          {greeter, "cases: []", "there are no cases"},
		"no name":           {greeter, "cases:\n  - prompt: x\n    model: echo", "x.test.yaml:2:5: the case has no name"},
		"same name":         {greeter, "cases:\n  - {name: c, prompt: x, model: echo}\n  - {name: c, prompt: x, model: echo}", "x.test.yaml:3:5: there are two cases of the name \"c\""},
		"no prompt":         {greeter, "cases:\n  - {name: c, model: echo}", "neither prompt nor prompts"},
		"two prompts":       {greeter, "cases:\n  - {name: c, model: echo, prompt: x, prompts: [y]}", "both prompt and prompts"},
		"paid model":        {greeter, "cases:\n  - {name: c, prompt: x}", "has the model gemini-2.5-flash, which no test calls"},
		"another model":     {greeter, "cases:\n  - {name: c, prompt: x, model: gpt-5}", "the model is echo"},
		"two models":        {greeter, "cases:\n  - {name: c, prompt: x, model: echo, answers: [{text: a}]}", "do not go together"},
		"two agents":        {both, "cases:\n  - {name: c, prompt: x, answers: [{text: a}]}", "2 agents with a model: say answers_of"},
		"no such agent":     {both, "cases:\n  - {name: c, prompt: x, answers_of: {z: [{text: a}]}}", "no agent \"z\""},
		"wrong script":      {greeter, "cases:\n  - {name: c, prompt: x, answers: [{error: {kind: odd}}]}", "error kind \"odd\""},
		"no such tree":      {greeter, "agent: y.yaml\ncases:\n  - {name: c, prompt: x}", "y.yaml"},
		"no YAML":           {greeter, "cases: [", "x.test.yaml:1"},
	} {
		_, err := suite(t, test.tree, test.cases)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	if _, err := treetest.FileOf(filepath.Join(t.TempDir(), "z.yaml")); err == nil || !strings.Contains(err.Error(), "z.test.yaml") {
		t.Errorf("no cases: got %v", err)
	}
}
