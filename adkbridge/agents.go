package adkbridge

import (
	"context"
	"errors"
	"slices"
	"sync"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// agentTracker knows which agents run. It records their starts and ends before anything
// that the agents do: ahead of each live model call and question, and when an agent
// below a parallel one ends. Otherwise the call of another agent or the end of the turn
// follows, so most records hold several changes, and no record repeats what the end of
// the turn says.
type agentTracker struct {
	recording chan struct{} // holds one value while changes are recorded, which may have to wait for the store

	mu      sync.Mutex // protects the fields below
	open    map[placed]bool
	changes []record.AgentChange // in order; not recorded yet
	// logged counts the changes that the log holds and that a resumed turn has not reached.
	// The turn takes the same way again, so these are the first changes of an agent.
	logged map[changeKey]int
	// onChange, if set, is called with every change, with mu held.
	onChange func(record.AgentChange)
}

// maxAgentChanges is how many changes one record holds, see record.AgentsChanged.
const maxAgentChanges = 256

// changeKey names the starts or the ends of an agent.
type changeKey struct {
	name, room string
	start      bool
}

// changeKeyOf names what a change is one of.
func changeKeyOf(c *record.AgentChange) changeKey {
	key := changeKey{room: c.Room, start: c.Ended == ""}
	if n := len(c.Path); n > 0 {
		key.name = c.Path[n-1]
	}
	return key
}

func newAgentTracker(logged map[changeKey]int) *agentTracker {
	return &agentTracker{recording: make(chan struct{}, 1), open: map[placed]bool{}, logged: logged}
}

// start notes that an agent starts.
func (s *agentTracker) start(n *node, room string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[placed{n, room}] = true
	s.addLocked(record.AgentChange{Path: n.path, Kind: agentKinds[n.kind], Model: n.modelName, Room: room})
}

// end notes that an agent ends. An agent that transfers ends then, and does not end
// again when the agents after it do.
func (s *agentTracker) end(n *node, room string, how record.AgentEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := (placed{n, room}); s.open[at] {
		delete(s.open, at)
		s.addLocked(record.AgentChange{Path: n.path, Ended: how, Room: room})
	}
}

func (s *agentTracker) addLocked(c record.AgentChange) {
	if s.onChange != nil {
		s.onChange(c)
	}
	if key := changeKeyOf(&c); s.logged[key] > 0 {
		s.logged[key]--
		return
	}
	s.changes = append(s.changes, c)
}

// takeChanges returns the changes that are not recorded yet, and forgets them.
func (s *agentTracker) takeChanges() []record.AgentChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := s.changes
	s.changes = nil
	return changes
}

var agentKinds = map[kind]record.AgentKind{
	llmKind:        record.LLMAgent,
	sequentialKind: record.SequentialAgent,
	parallelKind:   record.ParallelAgent,
	loopKind:       record.LoopAgent,
	remoteKind:     record.RemoteAgent,
}

// recordAgents records the changes that are not recorded yet.
func (t *turn) recordAgents(ctx context.Context) error {
	s := t.agents
	select {
	case s.recording <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.recording }()
	changes := s.takeChanges()
	for len(changes) > 0 {
		next := changes[:min(len(changes), maxAgentChanges)]
		if err := t.run.AgentsChanged(ctx, record.AgentsChanged{Changes: next}); err != nil {
			s.mu.Lock()
			s.changes = slices.Concat(changes, s.changes)
			s.mu.Unlock()
			return err
		}
		changes = changes[len(next):]
	}
	return nil
}

// recordAgentsAtEnd has what has changed last recorded with the turn's end, which is not a
// natural one: the agents that have ended before it have not ended as the turn.
func (t *turn) recordAgentsAtEnd(cause error) error {
	if cause == nil || errors.Is(cause, session.ErrSuspended) {
		return nil
	}
	for changes := range slices.Chunk(t.agents.takeChanges(), maxAgentChanges) {
		if err := t.run.AgentsChangedAtEnd(record.AgentsChanged{Changes: changes}); err != nil {
			return err
		}
	}
	return nil
}

// beforeAgent is what ADK calls before an agent runs.
func (t *turn) beforeAgent(n *node) []agent.BeforeAgentCallback {
	return []agent.BeforeAgentCallback{func(ctx agent.Context) (*genai.Content, error) {
		t.agents.start(n, lineage.Room(ctx.Branch()))
		return nil, nil
	}}
}

// afterAgent is what ADK calls when an agent has run without an error.
func (t *turn) afterAgent(n *node) []agent.AfterAgentCallback {
	return []agent.AfterAgentCallback{func(ctx agent.Context) (*genai.Content, error) {
		err := t.agentCompleted(ctx, n, lineage.Room(ctx.Branch()))
		if err != nil {
			t.stop(err)
		}
		return nil, err
	}}
}

// agentCompleted notes that an agent completes. An agent that is stopped does not
// complete: it ends with the turn, whose cause is known. Below a parallel agent, and as
// a tool, the change is recorded at once, since the next record of the others may be far
// away.
func (t *turn) agentCompleted(ctx context.Context, n *node, room string) error {
	if t.isStopped(ctx) {
		return nil
	}
	t.agents.end(n, room, record.AgentCompleted)
	if n.caller == nil && (n.parent == nil || n.parent.kind != parallelKind) {
		return nil
	}
	return t.recordAgents(ctx)
}

// isStopped reports whether the turn has failed, or its run is over.
func (t *turn) isStopped(ctx context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped || ctx.Err() != nil
}
