package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/toolcmd"
)

// notes collects what a person is told.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) notef(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, fmt.Sprintf(format, args...))
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.all, "\n")
}

// A turn's tools run here, each call once, also when it is asked for again after
// the connection was lost.
func TestTools(t *testing.T) {
	release, ran := make(chan struct{}), filepath.Join(t.TempDir(), "ran")
	f := &fake{watch: []stream{
		func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			send(at(1, calls("c1", "shout", `{"a":1}`)), at(2, calls("c2", "fail", `{}`)), at(3, calls("c3", "none", `{}`)), at(4, calls("c4", "slow", `{}`)))
			return connect.NewError(connect.CodeUnavailable, errors.New("gone"))
		},
		func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
			// What was answered may have been lost with the connection.
			send(at(4, calls("c1", "shout", `{"a":1}`)), at(4, calls("c2", "fail", `{}`)), at(4, calls("c3", "none", `{}`)), at(4, calls("c4", "slow", `{}`)))
			<-release
			send(at(5, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallCanceled{ToolCallCanceled: &agentdv1.ToolCallCanceled{ToolCallId: "c4"}}}))
			send(at(6, ends(true)))
			return nil
		},
	}}
	c := dial(t, f)
	var out strings.Builder
	n := &notes{}
	turn := &cli.Turn{Conn: c, Screen: cli.JSON{Out: &out}, Note: n.notef, Tools: tools(t, map[string]toolcmd.Command{
		"shout": {Args: []string{"sh", "-c", `tr a-z A-Z; echo $AGENTD_SESSION_ID $AGENTD_TOOL_CALL_ID; echo once >>` + ran}},
		"fail":  {Args: []string{"sh", "-c", "echo no luck >&2; exit 7"}},
		"slow":  {Args: []string{"sleep", "1000"}},
	})}
	done := make(chan *cli.Ending, 1)
	go func() {
		ending, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"})
		if err != nil {
			t.Error(err)
		}
		done <- ending
	}()
	got := map[string]string{}
	for len(got) < 3 {
		a := <-f.results
		got[a.GetToolCallId()] = a.GetOutput() + a.GetError()
	}
	close(release)
	ending := <-done
	want := map[string]string{"c1": "{\"A\":1}\ns1 c1", "c2": "the tool failed: exit status 7: no luck", "c3": `this client has no tool named "none"; it has: fail, shout, slow`}
	for id, text := range want {
		if got[id] != text {
			t.Errorf("call %s was answered with %q, want %q", id, got[id], text)
		}
	}
	for len(f.results) > 0 { // to calls that were asked for again
		if a := <-f.results; a.GetOutput()+a.GetError() != want[a.GetToolCallId()] || a.GetToolCallId() == "c4" {
			t.Errorf("one answer too many: %v", a)
		}
	}
	if runs, err := os.ReadFile(ran); err != nil || string(runs) != "once\n" {
		t.Errorf("the tool ran %q, %v", runs, err)
	}
	if !ending.End.GetCompleted() || ending.Session != "s1" || turn.Session() != "s1" {
		t.Errorf("ended as %+v", ending)
	}
	if got := ending.Summary(); !strings.HasPrefix(got, "completed; 2 model calls, 1,234 tokens, $0.0123, ") || !strings.HasSuffix(got, "session s1") {
		t.Errorf("summary: %s", got)
	}
	var kinds []string
	for l := range strings.Lines(out.String()) {
		var event map[string]json.RawMessage
		if err := json.Unmarshal([]byte(l), &event); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"toolCall", "toolCallCanceled", "end"} {
			if event[k] != nil {
				kinds = append(kinds, k)
			}
		}
	}
	if !slices.Equal(kinds, []string{"toolCall", "toolCall", "toolCall", "toolCall", "toolCallCanceled", "end"}) {
		t.Errorf("shown: %v", kinds)
	}
	if !strings.Contains(n.String(), "trying again") {
		t.Errorf("notes: %s", n)
	}
	if !slices.Equal(f.watched[0].GetToolNames(), []string{"fail", "shout", "slow"}) {
		t.Errorf("offered %v", f.watched[0].GetToolNames())
	}
}

// How a turn has ended is said in a line.
func TestEndings(t *testing.T) {
	reason := "enough"
	stopped := ends(false)
	stopped.GetEnd().Reason = &reason
	stopped.GetEnd().Receipt = &agentdv1.CancelReceipt{}
	for name, tc := range map[string]struct {
		events []*agentdv1.RunResponse
		want   string
		failed bool
	}{
		"failed":    {[]*agentdv1.RunResponse{at(1, fails(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, "slow\ndown")), at(2, ends(false))}, "failed: slow down (RATE_LIMITED); 2 model calls", true},
		"cancelled": {[]*agentdv1.RunResponse{at(1, fails(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "late")), at(2, stopped)}, "stopped: enough; ", false},
		"completed": {[]*agentdv1.RunResponse{fails(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "late"), at(2, ends(true))}, "completed; ", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{watch: []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
				send(tc.events...)
				return nil
			}}}
			turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Logf}
			ending, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"})
			if err != nil || !strings.HasPrefix(ending.Summary(), tc.want) || (ending.Err != nil) != tc.failed {
				t.Errorf("got %v, %v, want %q", ending, err, tc.want)
			}
		})
	}
}

// An answer that the daemon refuses is told.
func TestRefusedResult(t *testing.T) {
	f := &fake{refuse: &agentdv1.RunResponse_ErrorResponse{Message: "too late"}}
	printed := make(chan string, 1)
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, calls("c1", "echo", "{}")))
		if got := <-printed; got != "the result of tool echo was refused: too late" {
			t.Errorf("told %q", got)
		}
		send(at(2, ends(true)))
		return nil
	}}
	note := func(format string, args ...any) { printed <- fmt.Sprintf(format, args...) }
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: note, Tools: tools(t, map[string]toolcmd.Command{"echo": {Args: []string{"cat"}}})}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
}

var approval = &agentdv1.Interaction{
	Id: "i1", SessionId: "s1", Kind: agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL, AgentPath: []string{"root", "clerk"}, ToolName: "refund", ToolInput: `{"amount":30}`,
}

var question = &agentdv1.Interaction{
	Id: "i1", SessionId: "s1", Kind: agentdv1.InteractionKind_INTERACTION_KIND_CLARIFICATION, AgentPath: []string{"clerk"}, Question: "Which\x1b one?", Choices: []string{"red", "blue"},
}

// A person is asked, and what they say goes to the daemon.
func TestPerson(t *testing.T) {
	for name, tc := range map[string]struct {
		asked *agentdv1.Interaction
		types string
		want  *agentdv1.Resolution
		shown string // part of what is written
	}{
		"yes":        {approval, "y\n", approve(""), "clerk wants to call refund {\"amount\":30}\nApprove? [y]es, [n]o, [e]dit the arguments: "},
		"no":         {approval, " NO \nnot today\n", deny("not today"), "Why? (may be empty) "},
		"what?":      {approval, "maybe\nyes\n", approve(""), "Please answer y, n or e: "},
		"edit":       {approval, "e\n[1]\n{\"amount\": 5}\n", approve(`{"amount": 5}`), "That is no JSON object"},
		"text":       {question, "the big one\n", answer("the big one"), "clerk asks: Which one?\n  1. red\n  2. blue\nAnswer, or the number of a choice (empty to give none): "},
		"choice":     {question, "2\n", answer("blue"), ""},
		"no choice":  {question, "3\n", answer("3"), ""},
		"no answer":  {question, "\n", deny("no answer"), ""},
		"plain text": {&agentdv1.Interaction{Id: "i1", SessionId: "s1", Question: "Name?"}, "Ada\n", answer("Ada"), "agent asks: Name?\nAnswer (empty to give none): "},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
			said := make(chan *agentdv1.ResolveInteractionRequest, 1)
			f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
				send(at(1, requested(tc.asked)))
				said <- <-f.said
				send(at(2, resolved(tc.asked)), at(3, ends(true)))
				return nil
			}}
			var out, shown strings.Builder
			turn := &cli.Turn{Conn: dial(t, f), Screen: &cli.Text{Out: &out}, Note: t.Errorf, Person: terminal.New(strings.NewReader(tc.types), &shown)}
			if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
				t.Fatal(err)
			}
			got := <-said
			if got.GetResolution().GetIdempotencyKey() == "" || got.GetInteractionId() != "i1" || got.GetSessionId() != "s1" {
				t.Errorf("sent %v", got)
			}
			got.Resolution.IdempotencyKey = ""
			if got.GetResolution().String() != tc.want.String() {
				t.Errorf("said %v, want %v", got.GetResolution(), tc.want)
			}
			if !strings.Contains(shown.String(), tc.shown) {
				t.Errorf("shown %q, want %q", shown.String(), tc.shown)
			}
		})
	}
}

// Nobody to ask: the turn waits, and is told who may answer.
func TestNobody(t *testing.T) {
	for name, person := range map[string]func() cli.Person{
		"none":               func() cli.Person { return nil },
		"gone":               func() cli.Person { return terminal.New(strings.NewReader(""), io.Discard) },
		"gone within a line": func() cli.Person { return terminal.New(strings.NewReader("y"), io.Discard) },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
			notified := make(chan struct{})
			f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
				send(at(1, requested(approval)))
				<-notified
				send(at(3, ends(true)))
				return nil
			}}
			note := func(format string, args ...any) {
				if text := fmt.Sprintf(format, args...); !strings.Contains(text, "agentd interactions resolve s1 i1") {
					t.Errorf("noted %q", text)
				}
				close(notified)
			}
			turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: note, Person: person()}
			if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// While a person is asked nothing else is written; an answer from elsewhere takes
// the question back, and one that has been answered long ago is not asked.
func TestResolvedElsewhere(t *testing.T) {
	in, keyboard := io.Pipe()
	screen, shown := io.Pipe()
	f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
	asked := make(chan struct{})
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, requested(approval)))
		<-asked
		send(at(2, says([]string{"root", "other"}, "meanwhile", "last")), at(3, resolved(&agentdv1.Interaction{Id: "i1", ToolName: "refund", Resolution: deny("no")})), at(4, ends(true)))
		return nil
	}}
	var rest strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		r := bufio.NewReader(screen)
		for {
			b, err := r.ReadByte()
			if err != nil {
				return
			}
			if rest.WriteByte(b); strings.HasSuffix(rest.String(), "arguments: ") {
				close(asked)
			}
		}
	}()
	turn := &cli.Turn{Conn: dial(t, f), Screen: &cli.Text{Out: shown}, Note: t.Errorf, Person: terminal.New(in, shown)}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
	_ = keyboard.Close()
	_ = shown.Close()
	<-read
	want := "arguments: (answered elsewhere)\nother: meanwhile\n! the call of refund was denied: no\n"
	if got := rest.String(); !strings.HasSuffix(got, want) {
		t.Errorf("shown %q, want %q at the end", got, want)
	}

	f = &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED}
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		before := at(1, requested(approval)) // what happened before the client attached is marked so
		before.Replayed = true
		send(before, at(2, resolved(approval)), at(3, ends(true)))
		return nil
	}}
	var out strings.Builder
	turn = &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Errorf, Person: terminal.New(strings.NewReader("y\n"), &out)}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "" || len(f.said) != 0 {
		t.Errorf("asked again: %q", out.String())
	}
}

// A cancel is a call of its own; the turn then ends by itself.
func TestCancel(t *testing.T) {
	f := &fake{}
	started := make(chan struct{})
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, says(nil, "x")))
		close(started)
		if r := <-f.cancel; r.GetSessionId() != "s1" || r.GetTurnId() != "t1" || r.GetReason() != "enough" {
			t.Errorf("cancelled by %v", r)
		}
		send(at(2, ends(false)))
		return nil
	}}
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Errorf}
	notified := make(chan error, 1)
	go func() {
		<-started
		notified <- turn.Cancel(t.Context(), "enough")
	}()
	ending, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"})
	if err != nil || !strings.HasPrefix(ending.Summary(), "stopped: cancelled; ") {
		t.Errorf("got %v, %v", ending, err)
	}
	if err := <-notified; err != nil {
		t.Error(err)
	}
}

// A turn that is left stops its tools and its questions.
func TestLeave(t *testing.T) {
	in, keyboard := io.Pipe()
	defer keyboard.Close()
	f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
	hold := make(chan struct{})
	defer close(hold)
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, calls("c1", "slow", "{}")), at(2, requested(question)))
		<-hold
		return nil
	}}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("left")
	prompt := writer(func(p []byte) {
		if strings.Contains(string(p), "Which") {
			cancel(why)
		}
	})
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Errorf, Person: terminal.New(in, prompt), Tools: tools(t, map[string]toolcmd.Command{"slow": {Args: []string{"sleep", "1000"}}})}
	if _, err := turn.Start(ctx, cli.Prompt{Agent: tree, Text: "go"}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }
