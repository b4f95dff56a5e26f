package cli

import (
	"context"
	"sync"

	"github.com/apzuk3/agentd/client"
)

// below runs the tools of background agents, from the first event about one on until it is over. One goroutine uses it.
type below struct {
	turn  *Turn
	ctx   context.Context //nolint:containedctx // of the agents' tools
	stop  context.CancelFunc
	wg    sync.WaitGroup
	begun bool
}

func (t *Turn) below(ctx context.Context) *below {
	b := &below{turn: t}
	b.ctx, b.stop = context.WithCancel(ctx)
	return b
}

// see begins when an event of the session says that it has background agents.
func (b *below) see(event *client.Event) {
	e, is := event.Data.(*client.GoalEvent)
	if !is || e.Child == nil || b.begun {
		return
	}
	b.begun = true
	session := event.SessionID
	b.wg.Go(func() {
		var opts []client.GoalOption
		for _, set := range b.turn.toolSets() {
			if set != nil {
				opts = append(opts, client.WithTools(set))
			}
		}
		if err := b.turn.Conn.Serve(b.ctx, session, opts...); err != nil && b.ctx.Err() == nil {
			b.turn.Note("the tools of background agents are not run any more: %v", b.turn.Conn.explain(err))
		}
	})
}

// over returns when no tool of a background agent runs any more.
func (b *below) over() {
	b.stop()
	b.wg.Wait()
}
