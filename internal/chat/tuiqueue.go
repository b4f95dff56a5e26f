package chat

import (
	"context"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/cli"
)

// maxQueued is how many prompts of this chat may wait.
const maxQueued = 50

// queued is a prompt that waits for the turn that runs, or to become a part of it.
type queued struct {
	text   string
	typed  string // what stands for it on the screen
	inject bool
	turn   *cli.Turn    // set when it is on its way
	on     *client.Turn // as the server has it; nil before
}

// queuedMsg is what the server has made of a prompt.
type queuedMsg struct {
	of  *queued
	on  *client.Turn
	err error
}

// submit says a text: at once, or, while a turn runs, to the queue.
func (u *tui) submit(text, typed string, inject bool) tea.Cmd {
	switch {
	case u.live == nil && len(u.queue) == 0:
		return u.begin(&liveTurn{text: text, typed: typed})
	case len(u.queue) >= maxQueued:
		u.note(fmt.Sprintf("%d prompts wait already", maxQueued))
		u.input.set(typed)
		return nil
	}
	u.queue = append(u.queue, &queued{text: text, typed: typed, inject: inject})
	return u.enqueue()
}

// enqueue has the server take the next prompt that it does not have, one at a time, so that they keep their order.
func (u *tui) enqueue() tea.Cmd {
	session := u.chat.Prompt.Session
	i := slices.IndexFunc(u.queue, func(q *queued) bool { return q.turn == nil })
	if i < 0 || u.sending || session == "" || u.live != nil && !u.live.started {
		return nil
	}
	u.sending = true
	q := u.queue[i]
	q.turn = u.chat.Start()
	q.turn.Note = func(format string, args ...any) { u.send(noteMsg(fmt.Sprintf(format, args...))) }
	prompt := u.chat.Prompt
	prompt.Text, prompt.OnBusy = q.text, client.OnBusyEnqueue
	if q.inject {
		prompt.OnBusy = client.OnBusyInject
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(u.ctx, cancelTime)
		defer cancel()
		on, err := q.turn.Create(ctx, prompt)
		return queuedMsg{q, on, err}
	}
}

// accepted notes that the server has a prompt.
func (u *tui) accepted(m queuedMsg) tea.Cmd {
	u.sending = false
	if m.of.on = m.on; m.err != nil {
		u.queue = slices.DeleteFunc(u.queue, func(q *queued) bool { return q == m.of })
		u.note(fmt.Sprintf("not queued: %v", m.err))
		if u.input.String() == "" {
			u.input.set(m.of.typed)
		}
	}
	if cmd := u.enqueue(); cmd != nil {
		return cmd
	}
	if u.live == nil {
		return u.next()
	}
	return nil
}

// next follows the next prompt that waits.
func (u *tui) next() tea.Cmd {
	if u.live != nil || len(u.queue) == 0 || u.leaving {
		return nil
	}
	q := u.queue[0]
	if q.on == nil {
		return u.enqueue() // the answer goes on
	}
	u.queue = slices.Delete(u.queue, 0, 1)
	return u.begin(&liveTurn{text: q.text, typed: q.typed, turn: q.turn, created: q.on})
}

// injected notes that a prompt has become a part of the turn.
func (u *tui) injected(d *client.MessageInjected) {
	i := slices.IndexFunc(u.queue, func(q *queued) bool {
		if q.on == nil { // its reply is on the way
			return q.turn != nil && q.inject && q.text == d.Prompt
		}
		return q.on.ID == d.QueuedTurnID
	})
	said := d.Prompt
	if i >= 0 {
		said = u.queue[i].typed
		u.queue = slices.Delete(u.queue, i, i+1)
	}
	u.finish(u.live, "")
	u.said(said)
}

// unsent gives back what could not be sent, as there is no session.
func (u *tui) unsent() {
	for _, q := range u.queue {
		u.note("not sent: " + terminal.Line(q.typed, 200))
	}
	u.queue = nil
}

// withdraw takes all prompts back that wait.
func (u *tui) withdraw() tea.Cmd {
	var ids []string
	for _, q := range u.queue {
		if q.on != nil {
			ids = append(ids, q.on.ID)
		}
	}
	conn, session := u.chat.Conn, u.chat.Prompt.Session
	u.queue = slices.DeleteFunc(u.queue, func(q *queued) bool { return q.on != nil || q.turn == nil })
	if len(ids) == 0 || conn == nil {
		return nil
	}
	return func() tea.Msg {
		for _, id := range ids {
			_, err := cli.Call(u.ctx, conn, func(ctx context.Context) (*client.Turn, error) {
				return conn.Session(session).CancelTurn(ctx, id, "withdrawn at the terminal")
			})
			if err != nil {
				return noteMsg(err.Error())
			}
		}
		return noteMsg("withdrawn")
	}
}

// waiting says what waits.
func (u *tui) waiting() (lines []string) {
	for _, q := range u.queue {
		how := "queued: "
		if q.inject {
			how = "steers: "
		}
		lines = append(lines, how+terminal.Line(q.typed, 200))
	}
	return lines
}
