package chat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/markdown"
)

const (
	// maxAbove is how many lines may wait to be printed before the turn has to wait.
	maxAbove = 500
	// settle is how long nobody must have typed until a question takes keys: what was typed before answers nothing.
	settle = 300 * time.Millisecond
)

// Terminal is where a screen is shown.
type Terminal struct {
	In, Out *os.File
	// Env is the environment, NAME=VALUE.
	Env []string
}

// Screen talks as Run does, on a terminal whose last lines show what goes on and what is typed. What is complete is
// printed above them, so that the terminal keeps it and nothing here grows with it.
func (c *Chat) Screen(t Terminal) error {
	c.begin()
	u := newTUI(c)
	ctx, cancel := context.WithCancelCause(context.Background())
	u.ctx = ctx
	program := tea.NewProgram(u, tea.WithInput(t.In), tea.WithOutput(t.Out), tea.WithEnvironment(t.Env),
		tea.WithoutSignalHandler())
	u.send = program.Send
	c.show = func(text string) { u.note(text) }
	restore := c.Notes.redirect(func(line string) { program.Send(noteMsg(line)) })
	u.others.Go(func() { u.signals(ctx) })
	_, err := program.Run()
	cancel(errLeft)
	restore()
	c.show = nil
	u.others.Wait()
	if errors.Is(err, tea.ErrProgramKilled) && u.hungUp {
		err = nil
	}
	return errors.Join(err, c.end())
}

// tui is the model of a screen. The program's goroutine owns it; others use send, and what says so.
type tui struct {
	chat   *Chat
	ctx    context.Context //nolint:containedctx // of the screen: what it has begun ends with it
	send   func(tea.Msg)   // by any goroutine
	others sync.WaitGroup  // goroutines of the screen

	width, height int  // that are used
	ready         bool // what is printed finds its place
	style         markdown.Style

	input  editor
	sent   remembered
	offers []string // how what is typed may go on
	hint   string   // below what is typed

	above    []string // lines to be printed
	last     kind     // of the last of them
	printing bool
	blocked  []chan struct{} // events that wait for room

	live      *liveTurn                // nil: none
	following atomic.Pointer[liveTurn] // the last of live; for any goroutine
	queue     []*queued
	sending   bool // one of queue is on its way to the server
	asks      []*ask
	picker    *picker
	windows   map[string]int64 // how many tokens models can read, by name
	context   string           // how much of it is used

	unfold  bool // thoughts are shown
	typed   time.Time
	leaving bool
	hungUp  bool
}

func newTUI(c *Chat) *tui {
	return &tui{
		chat: c, ctx: context.Background(), send: func(tea.Msg) {}, width: 80, height: 24,
		style: markdown.Style{Width: 80, Color: c.Colors}, windows: map[string]int64{},
	}
}

// Messages of the goroutines of a screen.
type (
	noteMsg    string
	readyMsg   struct{}
	printedMsg struct{}
	tickMsg    struct{ of *liveTurn }
	signalMsg  struct{ os.Signal }
	windowsMsg map[string]int64
	hintMsg    string // is over
)

// Init is that of tea.Model.
func (u *tui) Init() tea.Cmd {
	u.put(kindNote, u.chat.greeting())
	cmds := []tea.Cmd{
		tea.Tick(50*time.Millisecond, func(time.Time) tea.Msg { return readyMsg{} }), // the first frame has its place
		u.readWindows,
	}
	if u.chat.Attach != "" {
		cmds = append(cmds, u.resume(u.chat.Attach))
	}
	return tea.Batch(cmds...)
}

func (c *Chat) greeting() string {
	model := c.Model
	if model == "" {
		model = "the session's models"
	}
	return fmt.Sprintf("agentd · %s · /help says what there is", terminal.Line(model, 200))
}

// readWindows asks how many tokens models can read.
func (u *tui) readWindows() tea.Msg {
	if u.chat.Conn == nil {
		return nil
	}
	models, err := cli.Call(u.ctx, u.chat.Conn, func(ctx context.Context) ([]*client.ModelInfo, error) {
		return u.chat.Conn.Models(ctx)
	})
	if err != nil {
		return nil // the status line does without
	}
	out := windowsMsg{}
	for _, m := range models {
		out[m.Name] = m.ContextTokens
	}
	return out
}

// signals passes signals on, until ctx ends.
func (u *tui) signals(ctx context.Context) {
	for {
		select {
		case s := <-u.chat.Interrupts:
			u.send(signalMsg{s})
		case <-ctx.Done():
			return
		}
	}
}

// Update is that of tea.Model.
func (u *tui) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := u.update(msg)
	return u, tea.Batch(cmd, u.flush())
}

func (u *tui) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		// The last column stays empty: what terminals do behind it differs.
		u.width, u.height = max(msg.Width-1, 9), max(msg.Height, 4)
		u.style.Width = u.width
	case tea.KeyPressMsg:
		return u.key(msg)
	case tea.PasteMsg:
		u.typed = time.Now()
		u.typing().insert(msg.Content)
	case readyMsg:
		u.ready = true
	case printedMsg:
		u.printing = false
		u.unblock()
	case noteMsg:
		u.note(string(msg))
	case tickMsg:
		if msg.of == u.live && u.live != nil {
			return u.tick()
		}
	case signalMsg:
		return u.signal(msg.Signal)
	case windowsMsg:
		u.windows = msg
	case hintMsg:
		if u.hint == string(msg) {
			u.hint = ""
		}
	case eventMsg:
		return u.event(msg)
	case connectedMsg:
		if msg.of == u.live {
			u.live.lost = !msg.is
		}
	case endedMsg:
		return u.ended(msg)
	case queuedMsg:
		return u.accepted(msg)
	case askMsg:
		return u.asked(msg.ask)
	case goneMsg:
		return u.gone(msg)
	case armMsg:
		return u.arm(msg.ask)
	case pageMsg:
		u.page(msg)
	case pickedMsg:
		return u.picked(msg)
	case promptMsg:
		return u.prompted(msg)
	}
	return nil
}

// signal does what a signal asks for. Keys are no signals here.
func (u *tui) signal(s os.Signal) tea.Cmd {
	if s == os.Interrupt {
		return u.interrupt()
	}
	u.hungUp = true
	return u.leave()
}

// tick redraws a turn each second.
func (u *tui) tick() tea.Cmd {
	of := u.live
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{of} })
}

// kind is what lines say. Lines of different kinds have an empty line between them.
type kind int

const (
	kindNone kind = iota
	kindUser
	kindText
	kindCode
	kindTool
	kindNote
)

// put has a text printed above. It is clean and fits, but for notes, which are broken here.
func (u *tui) put(k kind, lines ...string) {
	if len(lines) == 0 {
		return
	}
	if u.last != kindNone && (k != u.last || k == kindText || k == kindUser) {
		u.above = append(u.above, "")
	}
	u.last = k
	for _, line := range lines {
		if k == kindNote || k == kindTool || k == kindUser {
			u.above = append(u.above, u.wrap(line)...)
			continue
		}
		u.above = append(u.above, line)
	}
}

// note prints what is no part of the conversation.
func (u *tui) note(text string) {
	for line := range strings.Lines(cli.Clean(text)) {
		u.put(kindNote, u.dim(strings.TrimRight(line, "\n")))
	}
}

// flush prints lines: some at a time, in their order, never more than the terminal shows.
func (u *tui) flush() tea.Cmd {
	switch {
	case u.printing || !u.ready:
		return nil
	case len(u.above) == 0 && u.leaving && u.live == nil:
		return tea.Quit
	case len(u.above) == 0:
		return nil
	}
	n := min(len(u.above), max(u.height/2, 1))
	text := strings.Join(u.above[:n], "\n")
	if text == "" {
		text = " " // of nothing, nothing is printed
	}
	u.above = append(u.above[:0:0], u.above[n:]...)
	u.printing = true
	return tea.Sequence(tea.Println(text), func() tea.Msg { return printedMsg{} })
}

// unblock lets events go on.
func (u *tui) unblock() {
	if len(u.above) > maxAbove {
		return
	}
	for _, waits := range u.blocked {
		close(waits)
	}
	u.blocked = nil
}

// leave ends the chat. A turn that runs goes on without it.
func (u *tui) leave() tea.Cmd {
	u.leaving = true
	if u.live != nil {
		u.live.cancel(errLeft)
	}
	return nil
}
