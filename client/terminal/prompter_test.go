package terminal_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked is an answer that is awaited.
type asked struct {
	line string
	err  error
}

// On an input whose reads cannot be interrupted a line that was begun for an
// earlier question is dropped, and the question repeated.
func TestStaleLine(t *testing.T) {
	in, keys := io.Pipe()
	screen, out := io.Pipe()
	seen := bufio.NewReader(screen)
	p := terminal.New(in, out)
	ask := func(ctx context.Context, prompt string) <-chan asked {
		done := make(chan asked, 1)
		go func() {
			line, err := p.Ask(ctx, prompt)
			done <- asked{line, err}
		}()
		if got, err := seen.ReadString('?'); err != nil || got != prompt {
			t.Fatal(got, err)
		}
		return done
	}
	read := func(want string) {
		if got, err := seen.ReadString('\n'); err != nil || got != want {
			t.Fatalf("shown %q, %v, want %q", got, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := ask(ctx, "One?")
	cancel()
	read("\n")
	if got := <-first; got.err == nil || got.line != "" {
		t.Errorf("the first question got %+v", got)
	}
	second := ask(t.Context(), "Two?")
	_, _ = io.WriteString(keys, "y\n")
	read("(this line was begun before the question and does not count)\n")
	if got, err := seen.ReadString('?'); err != nil || got != "Two?" {
		t.Fatal(got, err)
	}
	_, _ = io.WriteString(keys, "no\n")
	if got := <-second; got.err != nil || got.line != "no" {
		t.Errorf("the second question got %+v", got)
	}
	third := ask(t.Context(), "Three?")
	go func() { _, _ = io.WriteString(keys, "y"); _ = keys.Close() }()
	read("\n")
	if got := <-third; got.err == nil || got.line != "" {
		t.Errorf("the third question got %+v, want no answer", got)
	}
}

var approval = &client.Interaction{
	ID: "i1", SessionID: "s1", Kind: client.InteractionApproval, AgentPath: []string{"desk", "clerk"},
	ToolName: "refund", ToolInput: []byte("{\n  \"amount\": 30\n}"),
}

// What a person types becomes the resolution.
func TestPrompt(t *testing.T) {
	question := &client.Interaction{Kind: client.InteractionClarification, Question: "Which one?", Choices: []string{"red", "blue"}}
	raised := &client.Interaction{
		Kind: client.InteractionApproval, AgentPath: []string{"desk"}, ToolName: "bash", Question: "run ls\x1b[2J", Source: "scout", N: 1,
		Choices: []string{"once", "session", "session_verb", "always"},
	}
	for name, tc := range map[string]struct {
		asked *client.Interaction
		types string
		want  string
		shown string
	}{
		"a tool: once":                {raised, "y\n", "approve:{scope:APPROVAL_SCOPE_ONCE}", "[scout] bash asks: run ls\\u001b[2J\nAllow? [y]es, [n]o, this for the [s]ession, each command with this first word for it ([v]), this [a]lways: "},
		"a tool: no":                  {raised, "n\n", "deny:{}", ""},
		"a tool: its verb":            {raised, "v\n", "approve:{scope:APPROVAL_SCOPE_SESSION_VERB}", ""},
		"a tool: what is not offered": {raised, "t\ny\n", "approve:{scope:APPROVAL_SCOPE_ONCE}", "Please answer y, n, s, v, a: "},
		"yes":                         {approval, "y\n", "approve:{}", "clerk wants to call refund {\"amount\":30}\nApprove? [y]es, [n]o, [e]dit the arguments: "},
		"no":                          {approval, "n\nnot today\n", `deny:{reason:"not today"}`, "Why? (may be empty) "},
		"edit":                        {approval, "e\n[1]\n{\"amount\": 5}\n", `approve:{tool_input:"{\"amount\": 5}"}`, "That is no JSON object"},
		"choice":                      {question, "2\n", `answer:"blue"`, "agent asks: Which one?\n  1. red\n  2. blue\n"},
		"no answer":                   {question, "\n", `deny:{reason:"no answer"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var shown strings.Builder
			said, err := terminal.New(strings.NewReader(tc.types), &shown).Prompt(t.Context(), tc.asked)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(fmt.Sprint(said.Proto()), "  ", " "); got != tc.want {
				t.Errorf("said %s, want %s", got, tc.want)
			}
			if !strings.Contains(shown.String(), tc.shown) {
				t.Errorf("shown %q", shown.String())
			}
		})
	}
}

// An input that has ended is no answer, which the client knows by io.EOF.
func TestNobody(t *testing.T) {
	for _, types := range []string{"", "y", "n\nbecause"} {
		said, err := terminal.New(strings.NewReader(types), io.Discard).Prompt(t.Context(), approval)
		if types == "n\nbecause" { // the no was said; its reason was not
			if err != nil || said.Kind != client.ResolutionDenial || said.Reason != "" {
				t.Errorf("%q: %+v, %v", types, said, err)
			}
			continue
		}
		if said != nil || !errors.Is(err, terminal.ErrNobody) || !errors.Is(err, io.EOF) {
			t.Errorf("%q: %+v, %v", types, said, err)
		}
	}
}

// screen is what a person sees; sees waits until it ends in a text.
type screen struct {
	mu    sync.Mutex // protects shown
	shown strings.Builder
	wrote chan struct{}
}

func newScreen() *screen { return &screen{wrote: make(chan struct{}, 1)} }

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Write(p)
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

func (s *screen) sees(t *testing.T, end string) {
	t.Helper()
	for !strings.HasSuffix(s.text(), end) {
		select {
		case <-s.wrote:
		case <-t.Context().Done():
			t.Fatalf("no %q on %q", end, s.text())
		}
	}
}

// One question is open at a time; one that is taken back makes room, and a line that
// was begun for it counts for no other.
func TestOneQuestionAtATime(t *testing.T) {
	in, keys := io.Pipe()
	defer keys.Close()
	shown := newScreen()
	p := terminal.New(in, shown)
	ctx, cancel := context.WithCancelCause(t.Context())
	first, second := make(chan error, 1), make(chan *client.Resolution, 1)
	go func() {
		_, err := p.Prompt(ctx, approval)
		first <- err
	}()
	shown.sees(t, "arguments: ")
	go func() {
		said, err := p.Prompt(t.Context(), &client.Interaction{Question: "Name?"})
		if err != nil {
			t.Error(err)
		}
		second <- said
	}()
	waiting, stop := context.WithCancelCause(t.Context())
	stop(client.ErrRunEnded)
	if _, err := p.Prompt(waiting, approval); !errors.Is(err, client.ErrRunEnded) {
		t.Errorf("a question that waits ends with %v", err)
	}
	cancel(client.ErrInteractionOver)
	if err := <-first; !errors.Is(err, client.ErrInteractionOver) {
		t.Errorf("the first question ends with %v", err)
	}
	shown.sees(t, "give none): ")
	_, _ = io.WriteString(keys, "y\n")
	shown.sees(t, "give none): ")
	_, _ = io.WriteString(keys, "Ada\n")
	if said := <-second; said.Answer != "Ada" {
		t.Errorf("said %+v", said)
	}
	if text := shown.text(); !strings.Contains(text, "arguments: (no longer asked)\n") || !strings.Contains(text, "does not count") {
		t.Errorf("shown %q", text)
	}
}

// A whole turn whose tool a person approves.
func TestPrompterOfAClient(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"clerk": `answers:
  - calls: [{name: refund, args: {amount: 30}}]
  - text: 'It said {{tool_result "refund"}}.'`}})
	var shown strings.Builder
	c := d.Client(client.WithPrompter(terminal.New(strings.NewReader("e\n{\"amount\": 5}\n"), &shown)))
	type payment struct {
		Amount int `json:"amount"`
	}
	if err := client.AddTool(c, "refund", "refunds", func(_ context.Context, in payment) (int, error) {
		return in.Amount, nil
	}, client.NeedsApproval()); err != nil {
		t.Fatal(err)
	}
	result, err := c.Do(t.Context(), client.LLM("clerk", "scripted/clerk", client.Tools("refund")), "refund")
	if err != nil || !strings.Contains(result.Text, "5") || strings.Contains(result.Text, "30") {
		t.Errorf("%q, %v, shown %q", result.Text, err, shown.String())
	}
}

// A person repeats arguments that the server refuses, with the reason on the screen.
func TestPrompterRepeatsRefusedQuestion(t *testing.T) {
	d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"clerk": `answers:
  - calls: [{name: refund, args: {amount: 30}}]
  - text: 'It said {{tool_result "refund"}}.'`}})
	var shown strings.Builder
	typed := "e\n{\"amount\": \"much\"}\ne\n{\"amount\": 5, \"to\": \"me\"}\ne\n{\"amount\": 5}\n"
	c := d.Client(client.WithPrompter(terminal.New(strings.NewReader(typed), &shown)))
	type payment struct {
		Amount int `json:"amount"`
	}
	if err := client.AddTool(c, "refund", "refunds", func(_ context.Context, in payment) (int, error) {
		return in.Amount, nil
	}, client.NeedsApproval()); err != nil {
		t.Fatal(err)
	}
	result, err := c.Do(t.Context(), client.LLM("clerk", "scripted/clerk", client.Tools("refund")), "refund")
	if err != nil || !strings.Contains(result.Text, `"output":5}`) {
		t.Errorf("%q, %v", result.Text, err)
	}
	asked := strings.Split(shown.String(), "This was refused: ")
	if len(asked) != 3 {
		t.Fatalf("shown %q", shown.String())
	}
	for i, why := range []string{"amount", `["to"]`} {
		reason, second, _ := strings.Cut(asked[i+1], "\n")
		if !strings.Contains(reason, `does not fit the input_schema of "refund"`) || !strings.Contains(reason, why) ||
			!strings.HasPrefix(second, "clerk wants to call refund {\"amount\":30}\nApprove?") {
			t.Errorf("because of %q asked again %q", reason, second)
		}
	}
}
