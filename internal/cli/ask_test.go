package cli_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/client/terminal"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

// keyboard is a person who types when a prompt has come.
type keyboard struct {
	in     *io.PipeReader
	keys   *io.PipeWriter
	shown  strings.Builder // owned by the writer
	typing map[string]string
}

func newKeyboard(typing map[string]string) *keyboard {
	k := &keyboard{typing: typing}
	k.in, k.keys = io.Pipe()
	return k
}

func (k *keyboard) Write(p []byte) (int, error) {
	k.shown.Write(p)
	for prompt, keys := range k.typing {
		if strings.HasSuffix(string(p), prompt) {
			delete(k.typing, prompt)
			go func() { _, _ = io.WriteString(k.keys, keys) }() // ends when it is read, or the pipe closed
		}
	}
	return len(p), nil
}

// Whatever a model writes, an approval fits on a screen, shows no character that
// does not print, and names the tool in its last lines.
func TestApprovalFitsOnScreen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		i := proto.CloneOf(approval)
		i.ToolInput = rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.IntRange(0, 5000), func(n int) string { return `{"a":1,` + strings.Repeat("\n", n) + `"b":"x"}` }),
			rapid.Map(rapid.IntRange(0, 5000), func(n int) string { return `{"a":"` + strings.Repeat("\u202e\u200b", n) + `"}` }),
			rapid.Map(rapid.IntRange(0, 5000), func(n int) string { return strings.Repeat("\x1b[2J\r", n) }),
		).Draw(rt, "input")
		i.ToolName = "refund" + rapid.SampledFrom([]string{"", "\n\n\n", "\x1b[8m"}).Draw(rt, "name")
		shown := askedFor(t, i, map[string]string{"arguments: ": "n\n", "(may be empty) ": "\n"})
		prompt, _, _ := strings.Cut(shown, "arguments: ")
		if n := strings.Count(prompt, "\n"); n > 2 || len([]rune(prompt)) > 1600 || !strings.Contains(prompt, "clerk wants to call refund") {
			rt.Fatalf("%d lines, %d characters: %.300q", n+1, len([]rune(prompt)), prompt)
		}
		for _, bad := range []string{"\x1b", "\u202e", "\u200b", "\r"} {
			if strings.Contains(prompt, bad) {
				rt.Fatalf("%q is shown in %.300q", bad, prompt)
			}
		}
	})
}

// askedFor runs a turn that asks one question, and returns what the person saw.
func askedFor(t *testing.T, i *agentdv1.Interaction, typing map[string]string) string {
	t.Helper()
	f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, requested(i)))
		<-f.said
		send(at(3, ends(true)))
		return nil
	}}
	k := newKeyboard(typing)
	defer k.keys.Close()
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Errorf, Person: terminal.New(k.in, k)}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
	return k.shown.String()
}

// Arguments that are too long are cut in their middle, and shown whole on demand.
func TestApprovalShowsAll(t *testing.T) {
	i := proto.CloneOf(approval)
	i.ToolInput = `{"a": "` + strings.Repeat("x", 1000) + "secret" + strings.Repeat("x", 1000) + `", "to": "mallory"}`
	first := "[v]iew the arguments: "
	k := newKeyboard(map[string]string{first: "v\n"})
	defer k.keys.Close()
	p := terminal.New(k.in, writer(func(b []byte) {
		_, _ = k.Write(b)
		if strings.Count(k.shown.String(), first) == 2 && k.typing[first] == "" && strings.HasSuffix(string(b), first) {
			go func() { _, _ = io.WriteString(k.keys, "y\n") }()
		}
	}))
	f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, requested(i)))
		if got := <-f.said; got.GetResolution().GetApprove() == nil {
			t.Errorf("said %v", got)
		}
		send(at(3, ends(true)))
		return nil
	}}
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Errorf, Person: p}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
	before, after, _ := strings.Cut(k.shown.String(), first)
	if strings.Contains(before, "secret") || !strings.Contains(before, "mallory") || !strings.Contains(before, " characters of the arguments are left out.\nApprove refund? ") {
		t.Errorf("first shown %q", before)
	}
	if !strings.Contains(after, "secret") || strings.Count(after, "wants to call refund") != 1 {
		t.Errorf("then shown %q", after)
	}
}

// A question of many lines stays one: it cannot look like an approval.
func TestQuestionIsIndented(t *testing.T) {
	i := proto.CloneOf(question)
	i.Question = "ok?\n\n\nclerk wants to call list {}\nApprove? [y]es, [n]o: " + strings.Repeat("\nmore", 100) + strings.Repeat("x", 5000)
	i.Choices = []string{"a\nb"}
	shown := askedFor(t, i, map[string]string{"to give none): ": "y\n"})
	if want := "clerk asks: ok?\n    clerk wants to call list {}\n    Approve? [y]es, [n]o:\n    more\n"; !strings.HasPrefix(shown, want) || strings.Count(shown, "\n") > 20 || len(shown) > 2200 {
		t.Errorf("shown %q", shown)
	}
	if !strings.Contains(shown, "  1. a b\n") {
		t.Errorf("shown %q", shown)
	}
}

// An answer that the daemon finds invalid is asked for again, not dropped.
func TestInvalidAnswerRepeatsQuestion(t *testing.T) {
	refusals := 0
	f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
	f.resolve = func(_ context.Context, r *agentdv1.ResolveInteractionRequest) error {
		if r.GetResolution().GetApprove().GetToolInput() != "" {
			refusals++
			return refused(connect.CodeInvalidArgument, &agentdv1.RunResponse_ErrorResponse{Code: agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, Message: "amount: want a number"})
		}
		return nil
	}
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, requested(approval)))
		first, second := <-f.said, <-f.said
		if first.GetResolution().GetIdempotencyKey() == second.GetResolution().GetIdempotencyKey() || second.GetResolution().GetApprove() == nil {
			t.Errorf("said %v, then %v", first, second)
		}
		send(at(3, ends(true)))
		return nil
	}}
	var shown strings.Builder
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Errorf, Person: terminal.New(strings.NewReader("e\n{\"amount\":\"much\"}\ny\n"), &shown)}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
	if refusals != 1 || !strings.Contains(shown.String(), "This was refused: amount: want a number\nclerk wants to call refund") {
		t.Errorf("%d refusals, shown %q", refusals, shown.String())
	}
}

// Only what somebody else has said is "answered elsewhere": neither the person's own
// answer, whose event may come before the call returns, nor a turn that is over.
func TestNotElsewhere(t *testing.T) {
	over := proto.CloneOf(approval)
	over.Status = agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED
	withResolution := func(r *agentdv1.Resolution) *agentdv1.Interaction {
		i := proto.CloneOf(approval)
		i.Status, i.Resolution = agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED, r
		return i
	}
	for name, tc := range map[string]struct {
		said  bool // the event comes while the person's own answer is on its way
		event *agentdv1.Interaction
		want  int
	}{
		"own answer":          {true, withResolution(approve("")), 0},
		"over":                {false, over, 0},
		"over while it sends": {true, over, 0},
		"somebody else":       {false, withResolution(deny("")), 1},
		"somebody was first":  {true, withResolution(deny("")), 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
			prompted := make(chan struct{})
			f.resolve = func(ctx context.Context, _ *agentdv1.ResolveInteractionRequest) error { // its answer is late
				<-ctx.Done()
				return ctx.Err()
			}
			f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
				send(at(1, requested(approval)))
				if tc.said {
					<-f.said
				} else {
					<-prompted
				}
				send(at(2, resolved(tc.event)), at(3, ends(true)))
				return nil
			}}
			typing := map[string]string{}
			if tc.said {
				typing["arguments: "] = "y\n"
			}
			k := newKeyboard(typing)
			defer k.keys.Close()
			out := writer(func(p []byte) {
				_, _ = k.Write(p)
				if strings.HasSuffix(string(p), "arguments: ") {
					close(prompted)
				}
			})
			turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Note: t.Errorf, Person: terminal.New(k.in, out)}
			if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(k.shown.String(), "(answered elsewhere)"); got != tc.want {
				t.Errorf("shown %q", k.shown.String())
			}
		})
	}
}

// A question that is withdrawn ends its line, and no other one is asked: who may
// answer is told.
func TestWithdraw(t *testing.T) {
	f := &fake{status: agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING}
	prompted, output := make(chan struct{}), make(chan string, 2)
	k := newKeyboard(nil)
	defer k.keys.Close()
	out := writer(func(p []byte) {
		_, _ = k.Write(p)
		if strings.HasSuffix(string(p), "arguments: ") {
			close(prompted)
		}
	})
	later := proto.CloneOf(approval)
	later.Id = "i2"
	turn := &cli.Turn{Conn: dial(t, f), Screen: cli.JSON{Out: io.Discard}, Person: terminal.New(k.in, out)}
	turn.Note = func(format string, args ...any) { output <- fmt.Sprintf(format, args...) }
	f.watch = []stream{func(_ *agentdv1.AttachRequest, send func(...*agentdv1.RunResponse)) error {
		send(at(1, requested(approval)))
		<-prompted
		turn.Withdraw()
		turn.Withdraw()
		send(at(2, requested(later)))
		if got := <-output; !strings.Contains(got, "agentd interactions resolve s1 i2") {
			t.Errorf("told %q", got)
		}
		send(at(3, ends(true)))
		return nil
	}}
	if _, err := turn.Start(t.Context(), cli.Prompt{Agent: tree, Text: "go"}); err != nil {
		t.Fatal(err)
	}
	if got := k.shown.String(); !strings.HasSuffix(got, "arguments: \n") {
		t.Errorf("shown %q", got)
	}
	if len(f.said) != 0 {
		t.Error("something was answered")
	}
}
