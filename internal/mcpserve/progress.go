package mcpserve

import (
	"context"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/terminal"
)

const (
	// progressEvery is the shortest time between two notifications of a call, and aliveEvery the longest: hosts give
	// up calls of which they hear nothing.
	progressEvery = 250 * time.Millisecond
	aliveEvery    = 15 * time.Second
	// maxSteps is how many steps a notification names, the last ones; maxShown is how many characters of the text.
	maxSteps = 8
	maxShown = 200
	// sendTime bounds how long one notification may take.
	sendTime = 10 * time.Second
)

// progress tells the host of a call what happens. A nil progress does nothing.
type progress struct {
	c     *call
	token any

	changed chan struct{} // holds one: there is something to tell
	halt    context.CancelFunc
	done    chan struct{} // closed when nothing is told any more

	mu    sync.Mutex // protects the fields below
	steps []string   // not told yet
	said  string     // the end of the text that is being said; "" when that was told
	who   string     // whose text it is
	count float64    // of what has happened
}

// newProgress starts to tell; stop ends it.
func newProgress(c *call, token any) *progress {
	ctx, halt := context.WithCancel(c.ctx)
	p := &progress{c: c, token: token, changed: make(chan struct{}, 1), halt: halt, done: make(chan struct{})}
	go p.tell(ctx) // ends with stop
	return p
}

// stop returns when nothing is told any more: the result of a call ends its progress.
func (p *progress) stop() {
	p.halt()
	<-p.done
}

// event notes what is to be told of an event.
func (p *progress) event(e *client.Event) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch d := e.Data.(type) {
	case *client.AgentStarted:
		p.stepLocked(name(d.AgentPath) + " has started")
	case *client.ToolCall:
		p.stepLocked(name(d.AgentPath) + " calls " + d.Name)
	case *client.ToolCallAnnounced:
		p.stepLocked(name(d.AgentPath) + " calls " + d.Name)
	case *client.ToolCallUnserved:
		p.stepLocked("a call waits: no client has its tool")
	case *client.InteractionRequested:
		p.stepLocked(name(d.Interaction.AgentPath) + " asks a person")
	case *client.TurnQueued:
		p.stepLocked("the session is busy, the turn waits")
	case *client.OutputChunk:
		if d.IsThought || d.Content == "" {
			return
		}
		p.count++
		p.who = name(d.AgentPath)
		p.said = tail(p.said + d.Content)
	default:
		return
	}
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *progress) stepLocked(text string) {
	p.count++
	p.said = "" // what was said leads to the step
	p.steps = append(p.steps, terminal.Line(text, maxShown))
	p.steps = p.steps[max(0, len(p.steps)-maxSteps):]
}

// tail is the end of a text.
func tail(text string) string {
	if r := []rune(text); len(r) > maxShown {
		return string(r[len(r)-maxShown:])
	}
	return text
}

func name(path []string) string {
	if len(path) == 0 {
		return "the agent"
	}
	return path[len(path)-1]
}

// tell sends a notification when there is something to tell, and one now and then when there is not.
func (p *progress) tell(ctx context.Context) {
	defer close(p.done)
	alive := time.NewTimer(aliveEvery)
	defer alive.Stop()
	for {
		select {
		case <-p.changed:
		case <-alive.C:
		case <-ctx.Done():
			return
		}
		alive.Reset(aliveEvery)
		limited, stop := context.WithTimeout(ctx, sendTime)
		err := p.c.host.NotifyProgress(limited, p.message())
		stop()
		if err != nil && ctx.Err() == nil {
			p.c.s.cfg.Note("the host is told no more of a call: %v", err)
			return
		}
		select {
		case <-time.After(progressEvery):
		case <-ctx.Done():
			return
		}
	}
}

// message is the next notification. Progress always increases, as MCP has it.
func (p *progress) message() *sdk.ProgressNotificationParams {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.steps
	if p.said != "" {
		lines = append(lines, terminal.Line(p.who+": "+p.said, 2*maxShown))
	}
	p.steps = nil
	p.count++
	return &sdk.ProgressNotificationParams{
		ProgressToken: p.token, Progress: p.count, Message: strings.Join(lines, "\n"),
	}
}
