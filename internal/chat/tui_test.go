package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/skills"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

// rig is a screen without a terminal, in the middle of a turn.
type rig struct {
	t *testing.T
	u *tui
}

func newRig(t *testing.T) *rig {
	t.Helper()
	c := &Chat{Root: t.TempDir(), Model: "m"}
	u := newTUI(c)
	c.show = u.note
	r := &rig{t, u}
	u.send = func(m tea.Msg) { u.Update(m) }
	u.live = &liveTurn{turn: &cli.Turn{}, started: true, cancel: func(error) {}}
	u.live.prepare()
	u.following.Store(u.live)
	return r
}

// event shows one event of the turn.
func (r *rig) event(m *agentdv1.RunResponse) {
	if call := m.GetToolCall(); call != nil {
		r.u.live.byCall[call.GetToolCallId()] = client.EventOf(m).ToolCall
	}
	r.u.Update(eventMsg{r.u.live, m, make(chan struct{})})
}

func (r *rig) says(text string) {
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: &agentdv1.RunResponse_OutputChunk{AgentPath: []string{"a"}, MessageId: "1", Content: text}}})
}

func (r *rig) call(id, name, input string) {
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCall{ToolCall: &agentdv1.RunResponse_ToolCallRequest{ToolCallId: id, ToolName: name, ToolInput: input}}})
}

// keys presses keys by their names, or types a text.
func (r *rig) keys(names ...string) {
	for _, name := range names {
		k := tea.KeyPressMsg{}
		switch name {
		case "enter":
			k.Code = tea.KeyEnter
		case "alt+enter":
			k.Code, k.Mod = tea.KeyEnter, tea.ModAlt
		case "esc":
			k.Code = tea.KeyEscape
		case "tab":
			k.Code = tea.KeyTab
		case "up":
			k.Code = tea.KeyUp
		case "down":
			k.Code = tea.KeyDown
		case "left":
			k.Code = tea.KeyLeft
		case "backspace":
			k.Code = tea.KeyBackspace
		default:
			if c, ok := strings.CutPrefix(name, "ctrl+"); ok {
				k.Code, k.Mod = rune(c[0]), tea.ModCtrl
				break
			}
			for _, c := range name {
				r.u.Update(tea.KeyPressMsg{Code: c, Text: string(c)})
			}
			continue
		}
		r.u.Update(k)
	}
}

func (r *rig) printed() string { return strings.Join(r.u.above, "\n") }

func (r *rig) view() string { return r.u.View().Content }

func (r *rig) has(text string, want ...string) {
	r.t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			r.t.Errorf("%q is not in\n%s", w, text)
		}
	}
}

// TestShown: what is complete is printed, the rest is in the last lines; a thought is one line; nothing drives the terminal.
func TestShown(t *testing.T) {
	r := newRig(t)
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: &agentdv1.RunResponse_OutputChunk{AgentPath: []string{"a"}, MessageId: "1", Content: "deep", IsThought: true}}})
	r.has(r.view(), "thinking 0s")
	r.says("Some **bold** text.\n\nThe tail \x1b]0;title\a\x1b[31m")
	r.has(r.printed(), "thought for 0s", "Some bold text.")
	r.has(r.view(), "The tail ]0;title[31m", "running 0s · m · ↑0 ↓0 · $—")
	if strings.Contains(r.printed(), "deep") {
		t.Error("the thought is not folded")
	}
	r.call("c1", "bash\x1b[2J", `{"command":"ls \u001b[2J","n":1}`)
	r.has(r.printed(), "The tail ]0;title[31m", `→ bash[2J(command="ls \u001b[2J", n=1)`)
	r.has(r.view(), "running bash[2J 0s")
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: &agentdv1.ToolCallAnswered{ToolCallId: "c1", ToolName: "bash", Result: &agentdv1.ToolCallAnswered_Output{Output: "{\"out\":\"\u009b31m\"}"}}}})
	r.has(r.printed(), "← bash(")
	r.says("Void.\n\nmore")
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageRetracted{MessageRetracted: &agentdv1.MessageRetracted{MessageId: "1"}}})
	r.has(r.printed(), "(what was said last is void)")
	if got := r.u.live.said.String(); strings.Contains(got, "Void") {
		t.Errorf("the transcript has %q", got)
	}
	for _, text := range []string{r.printed(), r.view()} {
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\n' || c >= 0x7f && c < 0xa0 }) {
			t.Errorf("%q drives the terminal", text)
		}
	}
	r.keys("ctrl+t")
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: &agentdv1.RunResponse_OutputChunk{AgentPath: []string{"a"}, MessageId: "2", Content: "deeper\x1b[1m", IsThought: true}}})
	r.says("Done.")
	r.has(r.printed(), "  deeper[1m")
}

// TestContext: how much of a model's context is used.
func TestContext(t *testing.T) {
	r := newRig(t)
	r.u.Update(windowsMsg{"big": 1000})
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: &agentdv1.ModelCallEnded{
		AgentPath: []string{"a"}, Model: "provider/big", Usage: &agentdv1.Usage{PromptTokens: 200, CompletionTokens: 50, CostUsd: new(0.5)},
	}}})
	r.has(r.view(), "↑200 ↓50 · $0.5000 · context 25%")
}

// TestQuestion: keys that are typed before a question, or while somebody types, answer nothing and are not lost; the change
// of a file is shown before it is asked about.
func TestQuestion(t *testing.T) {
	r := newRig(t)
	name := filepath.Join(r.u.chat.Root, "sum.go")
	if err := os.WriteFile(name, []byte("a\ntotal -= x\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in := `{"path":"sum.go","old_string":"total -= x","new_string":"total += x\u001b[31m"}`
	r.call("c1", "edit_file", in)
	a := &ask{title: []string{"edit_file wants to write: " + name}, prompt: "Allow? [y]es, [n]o:", keys: []string{"y", "n"}, reply: make(chan string, 1)}
	a.about(changeOf(r.u.chat.Root, &client.ToolCall{Name: "edit_file", Input: json.RawMessage(in)}))
	r.keys("yes")
	r.u.Update(askMsg{a})
	r.has(r.printed(), "? edit_file wants to write: ", "│ -total -= x", `│ +total += x\u001b[31m`)
	r.has(r.view(), "Allow? [y]es, [n]o:", "> yes")
	r.keys("y")
	r.u.Update(armMsg{a}) // too early: a key was pressed
	r.keys("y")
	if len(a.reply) > 0 || r.u.input.String() != "yesyy" {
		t.Fatalf("answered, or lost: %q", r.u.input.String())
	}
	r.u.above = nil // it was printed
	r.u.typed = time.Now().Add(-settle)
	r.u.Update(armMsg{a})
	r.keys("x")
	r.has(r.view(), "please answer y, n")
	r.keys("y")
	if said := <-a.reply; said != "y" {
		t.Errorf("answered %q", said)
	}
	r.has(r.printed(), "answered: y")
	r.has(r.view(), "> yesyy")
}

// TestPerson: interactions are answered with what the person types, and taken back with their context.
func TestPerson(t *testing.T) {
	for name, row := range map[string]struct {
		in   *client.Interaction
		keys [][]string // of each question
		want *client.Resolution
	}{
		"approve": {&client.Interaction{Kind: client.InteractionApproval, ToolName: "pay", ToolInput: json.RawMessage(`{"a":1}`)}, [][]string{{"y"}}, client.Approve()},
		"deny":    {&client.Interaction{Kind: client.InteractionApproval, ToolName: "pay", ToolInput: json.RawMessage(`{}`)}, [][]string{{"n"}, {"too much", "enter"}}, client.Deny("too much")},
		"edit": {&client.Interaction{Kind: client.InteractionApproval, ToolName: "pay", ToolInput: json.RawMessage(`{"a":1}`)}, [][]string{{"e"}, {"backspace", "enter", ",\"b\":2}", "enter"}},
			&client.Resolution{Kind: client.ResolutionApproval, ToolInput: json.RawMessage(`{"a":1,"b":2}`)}},
		"tool":   {&client.Interaction{Kind: client.InteractionApproval, N: 1, ToolName: "bash", Question: "run ls\nrm", Choices: []string{"once", "session_verb"}}, [][]string{{"v"}}, &client.Resolution{Kind: client.ResolutionApproval, Scope: "session_verb"}},
		"choice": {&client.Interaction{Kind: client.InteractionClarification, Question: "Which?", Choices: []string{"red", "blue"}}, [][]string{{"2", "enter"}}, client.Answer("blue")},
		"none":   {&client.Interaction{Kind: client.InteractionInput, Question: "Why?"}, [][]string{{"enter"}}, client.Deny("no answer")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			asked := make(chan tea.Msg, 1)
			r.u.send = func(m tea.Msg) { asked <- m }
			got := make(chan *client.Resolution, 1)
			go func() {
				said, err := (&person{r.u}).Prompt(t.Context(), row.in)
				if err != nil {
					t.Error(err)
				}
				got <- said
			}()
			for i, keys := range row.keys {
				r.u.Update(<-asked)
				if i == 0 {
					r.u.above, r.u.typed = nil, time.Time{}
					r.u.Update(armMsg{r.u.asks[0]})
				}
				r.keys(keys...)
			}
			said := <-got
			if said.Kind != row.want.Kind || said.Reason != row.want.Reason || said.Answer != row.want.Answer || said.Scope != row.want.Scope || string(said.ToolInput) != string(row.want.ToolInput) {
				t.Errorf("said %+v, want %+v", said, row.want)
			}
		})
	}
	r := newRig(t)
	asked := make(chan tea.Msg, 2)
	r.u.send = func(m tea.Msg) { asked <- m }
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	ended := make(chan error, 1)
	go func() {
		_, err := (&person{r.u}).Prompt(ctx, &client.Interaction{
			Kind: client.InteractionApproval, N: 1, ToolName: "bash", Question: "run ls",
		})
		ended <- err
	}()
	r.u.Update(<-asked)
	cancel(over)
	if err := <-ended; !errors.Is(err, over) {
		t.Error(err)
	}
	r.u.Update(<-asked)
	r.has(r.printed(), "? bash asks: run ls", "(no longer asked)")
	if len(r.u.asks) != 0 {
		t.Error("it is still asked")
	}
}

// TestEditor: keys change what is typed; what was said before comes back.
func TestEditor(t *testing.T) {
	r := newRig(t)
	r.u.live, r.u.chat.Start = nil, func() *cli.Turn { return &cli.Turn{} }
	r.keys("hello worl", "left", "left", "X", "ctrl+e", "d", "ctrl+a", "_", "ctrl+w")
	if got := r.u.input.String(); got != "hello woXrld" {
		t.Errorf("typed %q", got)
	}
	r.keys("ctrl+e", "ctrl+w", "ctrl+j", "two")
	r.u.Update(tea.PasteMsg{Content: "a\x1b[31m\r\nb\tc"})
	if got := r.u.input.String(); got != "hello \ntwoa[31m\nb    c" {
		t.Errorf("typed %q", got)
	}
	r.keys("up", "up", "ctrl+u", "ctrl+k")
	if got := r.u.input.String(); got != "\ntwoa[31m\nb    c" {
		t.Errorf("typed %q", got)
	}
	r.keys("ctrl+c") // drops it
	r.u.chat.last = time.Time{}
	r.keys("/session", "enter", "/mode", "enter", "draft", "up", "up")
	if got := r.u.input.String(); got != "/session" {
		t.Errorf("got %q back", got)
	}
	r.keys("down", "down")
	if got := r.u.input.String(); got != "draft" {
		t.Errorf("got %q back", got)
	}
	for width := range 30 {
		rows, row, column := r.u.input.rows(width)
		if row >= len(rows) || column > max(width, 2) {
			t.Errorf("width %d: the cursor is at %d, %d of %q", width, row, column, rows)
		}
	}
}

// TestLeaving: two interrupts within a second leave, one cancels, and Esc too; Ctrl+D leaves an empty line.
func TestLeaving(t *testing.T) {
	r := newRig(t)
	left := false
	r.u.live.cancel = func(err error) { left = errors.Is(err, errLeft) }
	r.keys("ctrl+c")
	r.has(r.view(), again, "canceling 0s")
	if left || !r.u.live.canceled {
		t.Fatal("one interrupt leaves, or does not cancel")
	}
	r.u.chat.last = time.Now().Add(-twice)
	r.keys("ctrl+c")
	if left {
		t.Fatal("a late interrupt leaves")
	}
	r.keys("ctrl+c")
	if !left || !r.u.leaving {
		t.Fatal("the second interrupt does not leave")
	}
	r = newRig(t)
	r.keys("esc")
	if !r.u.live.canceled || r.u.leaving {
		t.Error("Esc does not cancel")
	}
	for _, keys := range [][]string{{"ctrl+d"}, {"/exit", "enter"}, {"/quit", "enter"}} {
		r = newRig(t)
		r.keys("x", "ctrl+d", "backspace")
		if r.u.leaving {
			t.Error("Ctrl+D leaves a line")
		}
		if r.keys(keys...); !r.u.leaving {
			t.Errorf("%q does not leave", keys)
		}
	}
}

// TestComplete: commands, skills and files.
func TestComplete(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"src/main.go", "src/map.go", "docs/deep/guide.md", ".agents/commands/greet.md", "evil\x1b[31m"} {
		at := filepath.Join(r.u.chat.Root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for typed, want := range map[string]string{
		"/qui": "/quit ", "/gr": "/greet ", "see @sr": "see @src/", "@src/mai": "@src/main.go ", "@src/ma": "@src/ma", "@guid": "@docs/deep/guide.md ",
		"@../": "@../", "@evil": "@evil", "plain": "plain",
	} {
		r.u.input.set("")
		r.keys(typed, "tab")
		if got := r.u.input.String(); got != want {
			t.Errorf("%q became %q, want %q", typed, got, want)
		}
	}
	r.u.input.set("")
	r.keys("@src/ma", "tab")
	r.has(r.view(), "@src/main.go  @src/map.go")
}

// fakePrompts are the prompts of a server.
type fakePrompts struct{}

func (fakePrompts) Names() []string { return []string{"files:list"} }

func (fakePrompts) Prompt(_ context.Context, server, name, arguments string) (string, error) {
	if server+":"+name != "files:list" {
		return "", errors.New("no such prompt")
	}
	return "List " + arguments, nil
}

// TestQueue: what is said while a turn runs waits, in order, and is shown as it was typed: a skill, a prompt of a server.
func TestQueue(t *testing.T) {
	r := newRig(t)
	at := filepath.Join(r.u.chat.Root, ".agents", "skills", "pdf")
	if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(at, "SKILL.md"), []byte("---\nname: pdf\ndescription: d\n---\nFill it.\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.u.chat.Skills, r.u.chat.Prompts = skills.Load(r.u.chat.Root), fakePrompts{}
	r.keys("/skill pdf the form", "enter", "/skill no", "enter", "steer", "alt+enter")
	r.u.Update(r.u.ofServer("files", "list", "all", "/files:list all")())
	r.u.Update(r.u.ofServer("files", "gone", "", "/files:gone")())
	var got []string
	for _, q := range r.u.queue {
		got = append(got, fmt.Sprint(q.text, "|", q.typed, "|", q.inject))
	}
	if want := []string{"Use the skill pdf. Its instructions:\n\nFill it.\n\nthe form|/skill pdf the form|false", "steer|steer|true", "List all|/files:list all|false"}; !slices.Equal(got, want) {
		t.Errorf("waiting are %q", got)
	}
	r.has(r.view(), "queued: /skill pdf the form", "steers: steer")
	r.has(r.printed(), `there is no skill "no"; there are: pdf`, "/files:gone: no such prompt")
	r.u.queue[1].on, r.u.queue[1].typed = &client.Turn{ID: "q"}, "/steer"
	r.event(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageInjected{MessageInjected: &agentdv1.MessageInjected{UserPrompt: "steer", QueuedTurnId: "q"}}})
	r.has(r.printed(), "> /steer")
	r.keys("/queue", "enter", "/queue clear", "enter")
	if r.has(r.printed(), "queued: /files:list all"); len(r.u.queue) != 0 {
		t.Errorf("%d still wait", len(r.u.queue))
	}
}

// TestFits: whatever goes on, the view fits the terminal.
func TestFits(t *testing.T) {
	for _, size := range [][2]int{{10, 4}, {20, 5}, {80, 24}, {200, 50}} {
		r := newRig(t)
		r.u.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		r.says(strings.Repeat("word 日本語 ", 400))
		for range 9 {
			r.u.queue = append(r.u.queue, &queued{typed: strings.Repeat("wait ", 50)})
		}
		r.keys(strings.Repeat("typed 語 ", 60))
		check := func(what string) {
			t.Helper()
			v := r.u.View()
			lines := strings.Split(v.Content, "\n")
			if len(lines) > size[1] {
				t.Errorf("%s: %d lines on %v", what, len(lines), size)
			}
			for _, line := range lines {
				if ansi.StringWidth(line) > size[0] {
					t.Errorf("%s: %q does not fit %v", what, line, size)
				}
			}
			if v.Cursor != nil && (v.Cursor.Y >= len(lines) || v.Cursor.X >= size[0]) {
				t.Errorf("%s: the cursor is at %v of %v", what, v.Cursor.Position, size)
			}
		}
		check("typing")
		r.u.Update(askMsg{&ask{title: []string{strings.Repeat("t ", 200)}, prompt: strings.Repeat("Allow? ", 30), keys: []string{"y"}, reply: make(chan string, 1)}})
		check("asking")
		r.u.picker = &picker{title: "Which?", picks: slices.Repeat([]pick{{line: strings.Repeat("p", 300)}}, 40)}
		check("choosing")
		for _, line := range r.u.above {
			if ansi.StringWidth(line) > size[0] {
				t.Errorf("%q does not fit %v", line, size)
			}
		}
	}
}

// TestHeap: what is held does not grow with what was said.
func TestHeap(t *testing.T) {
	r := newRig(t)
	say := func(lines int) uint64 {
		for i := range lines {
			r.says(strings.Repeat("a line of a long answer that goes on and on ", 20) + "\n\n")
			if i%7 == 0 {
				r.says("```\ncode\n```\n")
			}
			if len(r.u.above) > maxAbove {
				t.Fatalf("%d lines wait", len(r.u.above))
			}
			r.view()
			r.u.above = nil // they were printed
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(r)
		return m.HeapAlloc
	}
	r.u.live.said.Grow(maxText) // the transcript has its own bound
	before := say(1000)
	if after := say(9000); float64(after) > 1.25*float64(before) {
		t.Errorf("the heap has %d bytes after 10,000 lines, and had %d after 1,000", after, before)
	}
}

// TestRoom: an event waits while too much is to be printed.
func TestRoom(t *testing.T) {
	r := newRig(t)
	r.u.above = slices.Repeat([]string{"line"}, maxAbove+1)
	done := make(chan struct{})
	chunk := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: &agentdv1.RunResponse_OutputChunk{MessageId: "1", Content: "more"}}}
	r.u.Update(eventMsg{r.u.live, chunk, done})
	r.u.Update(printedMsg{})
	select {
	case <-done:
		t.Fatal("the event does not wait")
	default:
	}
	r.u.above = nil
	r.u.Update(printedMsg{})
	<-done
}

// TestNotes: while a screen shows them, notes come as whole lines.
func TestNotes(t *testing.T) {
	var out strings.Builder
	n := &Notes{Out: &out}
	_, _ = n.Write([]byte("one\n"))
	var shown []string
	restore := n.redirect(func(line string) { shown = append(shown, line) })
	_, _ = n.Write([]byte("two\nthr"))
	_, _ = n.Write([]byte("ee\nfour"))
	restore()
	_, _ = n.Write([]byte("five\n"))
	if out.String() != "one\nfour\nfive\n" || !slices.Equal(shown, []string{"two", "three"}) {
		t.Errorf("wrote %q, showed %q", out.String(), shown)
	}
}
