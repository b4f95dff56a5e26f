package chat

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
	"github.com/apzuk3/agentd/internal/cli"
	"github.com/apzuk3/agentd/internal/markdown"
)

const (
	// pageSize is how many things are asked for at a time, maxPicks how many can be chosen from.
	pageSize, maxPicks = 50, 1000
	// pickRows is how many of them are shown.
	pickRows = 10
)

// picker has a person choose one thing of a list.
type picker struct {
	title   string
	picks   []pick
	at      int
	loading bool
	more    func(context.Context, int) ([]pick, bool, error) // the next ones, behind so many; nil: there are no more
}

// pick is one thing, and what choosing it does.
type pick struct {
	line string
	do   func(context.Context) pickedMsg
}

type (
	pageMsg struct {
		of    *picker
		picks []pick
		more  bool
		err   error
	}
	// pickedMsg is a session to go on with.
	pickedMsg struct {
		session string
		running bool      // its last turn is to be followed
		said    [2]string // last: by the person, and by agents
		err     error
	}
)

// open shows a picker, and asks for its first page.
func (u *tui) open(p *picker) tea.Cmd {
	if u.chat.Conn == nil {
		return nil
	}
	if u.live != nil || len(u.queue) > 0 {
		u.note("a turn runs: cancel it with Esc first")
		return nil
	}
	u.picker = p
	return p.load(u)
}

func (p *picker) load(u *tui) tea.Cmd {
	if p.loading || p.more == nil || len(p.picks) >= maxPicks {
		return nil
	}
	p.loading = true
	behind := len(p.picks)
	return func() tea.Msg {
		picks, more, err := p.more(u.ctx, behind)
		return pageMsg{p, picks, more, err}
	}
}

func (u *tui) page(m pageMsg) {
	m.of.loading = false
	m.of.picks = append(m.of.picks, m.picks...)
	if !m.more {
		m.of.more = nil
	}
	switch {
	case u.picker != m.of:
	case m.err != nil:
		u.note(m.err.Error())
		u.picker = nil
	case len(m.of.picks) == 0:
		u.note("there is nothing to choose from")
		u.picker = nil
	}
}

// key moves the choice, or takes it.
func (p *picker) key(u *tui, key string) tea.Cmd {
	switch key {
	case "up", "ctrl+p", "k":
		p.at = max(p.at-1, 0)
	case "down", "ctrl+n", "j":
		p.at++
	case "pgup":
		p.at = max(p.at-pickRows, 0)
	case "pgdown", "space":
		p.at += pickRows
	case "enter":
		if p.at < len(p.picks) {
			chosen := p.picks[p.at]
			u.picker = nil
			return func() tea.Msg { return chosen.do(u.ctx) }
		}
	case "q":
		u.picker = nil
	}
	p.at = max(min(p.at, len(p.picks)-1), 0)
	if p.at+pickRows >= len(p.picks) {
		return p.load(u)
	}
	return nil
}

// rows shows the things around the choice.
func (p *picker) rows(u *tui) []string {
	most := max(min(pickRows, u.height-4), 1)
	first := max(min(p.at-most/2, len(p.picks)-most), 0)
	lines := []string{u.style.Paint(u.fit(p.title), "1")}
	for i, one := range p.picks[first:min(first+most, len(p.picks))] {
		mark := "  "
		if first+i == p.at {
			mark = "→ "
		}
		lines = append(lines, u.fit(mark+one.line))
	}
	if p.loading {
		lines = append(lines, u.dim("  …"))
	}
	return append(lines, u.dim(u.fit("↑↓ choose, Enter takes, Esc closes")))
}

// paged is the page of a list behind so many things.
func paged[T any](list iter.Seq2[T, error], behind int, show func(T) pick) (picks []pick, more bool, err error) {
	n := 0
	for item, err := range list {
		if err != nil {
			return picks, false, err
		}
		if n++; n <= behind {
			continue
		}
		if len(picks) == pageSize {
			return picks, true, nil
		}
		picks = append(picks, show(item))
	}
	return picks, false, nil
}

// resume goes on with another session, which the person chooses unless an id names it.
func (u *tui) resume(id string) tea.Cmd {
	conn := u.chat.Conn
	if conn == nil {
		return nil
	}
	take := func(ctx context.Context, id string) pickedMsg {
		turn, err := cli.Call(ctx, conn, func(ctx context.Context) (*client.Turn, error) {
			return conn.Session(id).Turn(ctx, "")
		})
		if err != nil {
			return pickedMsg{err: err}
		}
		return pickedMsg{session: id, running: turn.EndTime.IsZero(), said: [2]string{turn.Prompt, turn.Text}}
	}
	if id != "" {
		if u.live != nil || len(u.queue) > 0 {
			u.note("a turn runs: cancel it with Esc first")
			return nil
		}
		return func() tea.Msg { return take(u.ctx, id) }
	}
	now := time.Now()
	return u.open(&picker{
		title: "Go on with which session?",
		more: func(ctx context.Context, behind int) ([]pick, bool, error) {
			filter := client.SessionFilter{PageSize: pageSize, States: []client.SessionState{client.SessionActive}}
			return paged(conn.Sessions(ctx, filter), behind, func(s *client.SessionInfo) pick {
				id := s.ID
				return pick{sessionLine(s, now), func(ctx context.Context) pickedMsg { return take(ctx, id) }}
			})
		},
	})
}

// sessionLine says in a line what a session is.
func sessionLine(s *client.SessionInfo, now time.Time) string {
	parts := []string{s.ID, ago(now, s.UpdateTime), string(s.LastTurnStatus)}
	if s.Usage != nil {
		parts = append(parts, fmt.Sprintf("↑%d ↓%d", s.Usage.PromptTokens, s.Usage.CompletionTokens))
	}
	if s.ClientRef != "" {
		parts = append(parts, s.ClientRef)
	}
	if s.ForkedFrom != "" {
		parts = append(parts, "fork of "+s.ForkedFrom)
	}
	return terminal.Line(strings.Join(parts, " · "), 500)
}

// ago is how long before now something was.
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return t.Local().Format("2006-01-02")
	}
}

// fork goes on with a copy of the session, up to a turn that the person chooses.
func (u *tui) fork() tea.Cmd {
	conn, id := u.chat.Conn, u.chat.Prompt.Session
	if conn == nil || id == "" {
		u.note("there is no session yet")
		return nil
	}
	newest := client.ForkAt{}
	var before *client.Turn // the turn behind the one that is listed
	do := func(at client.ForkAt, said [2]string) func(context.Context) pickedMsg {
		return func(ctx context.Context) pickedMsg {
			s, err := cli.Call(ctx, conn, func(ctx context.Context) (*client.Session, error) {
				return conn.Session(id).Fork(ctx, at)
			})
			if err != nil {
				return pickedMsg{err: err}
			}
			return pickedMsg{session: s.ID(), said: said}
		}
	}
	return u.open(&picker{
		title: "Fork this session behind which turn?",
		more: func(ctx context.Context, behind int) ([]pick, bool, error) {
			turns := conn.Session(id).Turns(ctx, client.TurnFilter{PageSize: pageSize})
			return paged(turns, behind, func(t *client.Turn) pick {
				at := newest
				if before != nil {
					at.ThroughSeq = new(before.AfterSeq)
				}
				before = t
				line := terminal.Line(t.Prompt, 300) + " · " + string(t.Status)
				return pick{line, do(at, [2]string{t.Prompt, t.Text})}
			})
		},
	})
}

// picked goes on with a session.
func (u *tui) picked(m pickedMsg) tea.Cmd {
	if m.err != nil {
		u.note(m.err.Error())
		return nil
	}
	u.chat.Prompt.Session, u.chat.Prompt.Create, u.context = m.session, false, ""
	u.note("session " + m.session)
	if m.said[0] != "" {
		u.said(m.said[0])
	}
	if m.running {
		return u.begin(&liveTurn{attach: true})
	}
	var text markdown.Stream
	done := text.Add(cli.Clean(m.said[1]))
	u.blocks(&liveTurn{}, &spoken{}, append(done, text.Close()...))
	return nil
}
