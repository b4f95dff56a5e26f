package adkbridge

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// journal is ADK's session service for one turn. What ADK appends goes into the
// session's log; of the history ADK sees nothing, prompts are built elsewhere.
type journal struct{ t *turn }

var _ adksession.Service = (*journal)(nil)

// Get is called once, at the start of a run.
func (j *journal) Get(context.Context, *adksession.GetRequest) (*adksession.GetResponse, error) {
	return &adksession.GetResponse{Session: &adkSession{t: j.t}}, nil
}

func (*journal) Create(context.Context, *adksession.CreateRequest) (*adksession.CreateResponse, error) {
	return nil, errors.ErrUnsupported
}

func (*journal) List(context.Context, *adksession.ListRequest) (*adksession.ListResponse, error) {
	return nil, errors.ErrUnsupported
}

func (*journal) Delete(context.Context, *adksession.DeleteRequest) error {
	return errors.ErrUnsupported
}

// AppendEvent makes an event durable; ADK continues only when it returns. An event that
// the log already holds is taken from there. It refuses events when ctx has ended or
// the turn has failed: ADK makes those events of errors.
func (j *journal) AppendEvent(ctx context.Context, _ adksession.Session, ev *adksession.Event) error {
	if ev.Partial {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ev.InvocationID = j.t.run.TurnID() // ADK has its own before every id, see uuids
	m, ok := j.t.metaOf(ev)
	if !ok {
		return nil // ADK's own bookkeeping; nothing in it is part of the history
	}
	l, err := j.t.nextLogged(ev, m)
	if err != nil {
		return err
	}
	if j.t.observer != nil {
		switch err := j.t.observer.event(l, ev, m); {
		case errors.Is(err, errSkip):
			return nil
		case err != nil:
			j.t.stop(err)
			return err
		}
	}
	if l != nil {
		return j.t.replay(l, ev, m)
	}
	if err := j.t.commit(ctx, ev, m); err != nil {
		return err
	}
	j.t.recordTransfer(ev)
	return nil
}

// replay takes over an event that the log holds, in a turn that resumes.
func (t *turn) replay(l *loggedEvent, ev *adksession.Event, m *meta) error {
	if l.ev.CustomMetadata.Agentd.LLM != m.LLM || !slices.Equal(responses(l.ev.Content), responses(ev.Content)) {
		t.putBack(l)
		err := diverged("%s, branch %q, does not match record %d", pathString(m.Path), ev.Branch, l.seq)
		t.stop(err)
		return err
	}
	refused := t.stateRefusal(ev, m, l.ev)
	ev.ID, ev.Timestamp = l.ev.ID, l.ev.Timestamp
	temp := tempKeys(ev.Actions.StateDelta) // of a result of loop_continue
	maps.Copy(temp, t.tempOf(l.ev))
	t.apply(l.seq, l.ev, l.size, temp)
	if refused != nil {
		t.stop(refused)
	}
	t.recordTransfer(ev)
	return refused
}

// metaOf returns our meta of an event, and whether to keep the event: a model's
// response, the results of its calls, or a change of state.
func (t *turn) metaOf(ev *adksession.Event) (*meta, bool) {
	if m, ok := ev.CustomMetadata[metaKey].(*meta); ok {
		return m, true
	}
	m := &meta{}
	if n := t.tree.byName[ev.Author]; n != nil {
		m.Path = n.path
	}
	return m, len(responses(ev.Content)) > 0 || len(ev.Actions.StateDelta) > 0
}

// nextLogged takes the event that the log holds in the place of ev; nil if the log
// holds none.
func (t *turn) nextLogged(ev *adksession.Event, m *meta) (*loggedEvent, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil, errStopped
	}
	says := m.LLM != "" || ev.Content != nil || len(durable(ev.Actions.StateDelta)) > 0
	key := promptKey{ev.Author, ev.Branch}
	queue := t.logged[key]
	for len(queue) > 0 && queue[0].ev.isBlank() && says {
		queue = queue[1:]
	}
	if len(queue) == 0 {
		delete(t.logged, key)
		return nil, nil
	}
	l := &queue[0]
	if t.logged[key] = queue[1:]; len(queue) == 1 {
		delete(t.logged, key)
	}
	return l, nil
}

// putBack undoes nextLogged.
func (t *turn) putBack(l *loggedEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := promptKey{l.ev.Author, l.ev.Branch}
	t.logged[key] = slices.Insert(t.logged[key], 0, *l)
}

// commit appends an event to the log and adds it to the history as the log holds it, so
// a reloaded history yields the same prompts.
func (t *turn) commit(ctx context.Context, ev *adksession.Event, m *meta) error {
	return t.write(ev, m, func(data []byte, s *stored) error {
		event, put := s.sessionEvent(), t.run.Append
		if t.mayWait(ev, m, event) {
			put = t.run.AppendLater
		}
		rec, err := put(ctx, data, event)
		if err == nil {
			t.apply(rec.Seq, s, len(data), tempKeys(ev.Actions.StateDelta))
		}
		return err
	})
}

// mayWait reports whether nobody waits for an event: it gives results to the model, without anything that clients are
// told; it is what an agent that is called as a tool is told; or it is the response with which a tree of one agent is
// about to end.
func (t *turn) mayWait(ev *adksession.Event, m *meta, event *record.Event) bool {
	switch {
	case m.Request != "": // the call says it
		return true
	case len(event.State) > 0, len(event.To) > 0, event.Injected != "", event.Compacted != nil, t.tree == nil,
		event.Goal != nil:
		return false
	case m.LLM == "":
		return !event.Last && event.Usage == nil && len(responses(ev.Content)) > 0
	}
	root := t.tree.root
	return root.kind == llmKind && len(root.kids) == 0 && event.Usage != nil && event.Final()
}

// commitAtEnd appends an event together with the turn's end. The event is not added to
// the history: if the turn ends, whoever loads the history next finds it in the log.
func (t *turn) commitAtEnd(ctx context.Context, ev *adksession.Event, m *meta) error {
	return t.write(ev, m, func(data []byte, s *stored) error { return t.run.AppendAtEnd(ctx, data, s.sessionEvent()) })
}

// write passes an event to put, as the log will hold it. If the state refuses the
// event's keys, put gets the event without them, the turn stops, and write returns the
// refusal.
func (t *turn) write(ev *adksession.Event, m *meta, put func(data []byte, s *stored) error) error {
	data, s, err := t.encoded(ev, m)
	if err != nil {
		return err
	}
	refused := put(data, s)
	if !t.keptWithoutState(ev, refused) {
		return refused
	}
	// The response is paid for and is history; only its keys are left out.
	bare := *ev
	bare.Actions.StateDelta = nil
	if data, err = encode(&bare, m); err == nil {
		s, err = decode(data)
	}
	if err == nil {
		err = put(data, s)
	}
	if err == nil {
		t.stop(refused)
	}
	return refused
}

// encoded completes an event, and returns it as the log will hold it.
func (t *turn) encoded(ev *adksession.Event, m *meta) ([]byte, *stored, error) {
	t.setOutput(ev, m)
	t.setExtras(ev)
	t.setTransfer(ev, m)
	t.setGoal(ev, m)
	data, err := encode(ev, m)
	if err != nil {
		return nil, nil, err
	}
	s, err := decode(data)
	return data, s, err
}

// keptWithoutState reports whether an event is committed without its keys because the
// state refuses them.
func (t *turn) keptWithoutState(ev *adksession.Event, err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && e.Code == codeLimit && len(durable(ev.Actions.StateDelta)) > 0
}

// stateRefusal returns why the turn ends after an event that the log holds without its
// keys (see commit), nil if the log holds them.
func (t *turn) stateRefusal(ev *adksession.Event, m *meta, s *stored) error {
	edited := *ev
	t.setOutput(&edited, m)
	keys := durable(edited.Actions.StateDelta)
	if len(keys) == 0 || len(durable(s.Actions.StateDelta)) > 0 || s.isCutOff() {
		return nil
	}
	return fault.Errorf(codeLimit, "%s: the state had no room for %s; a null value removes a key", pathString(m.Path),
		quoteAll(slices.Sorted(maps.Keys(keys))))
}

// setTransfer names the agent to which the results of a response's calls transfer.
func (t *turn) setTransfer(ev *adksession.Event, m *meta) {
	if name := ev.Actions.TransferToAgent; name != "" && t.tree != nil && t.tree.byName[name] != nil {
		m.To = t.tree.byName[name].path
	}
}

// recordTransfer ends the agent whose event transfers the conversation.
func (t *turn) recordTransfer(ev *adksession.Event) {
	if n := t.nodeOf(ev.Author); n != nil && ev.Actions.TransferToAgent != "" {
		t.agents.end(n, lineage.Room(ev.Branch), record.AgentTransferred)
	}
}

// setOutput writes an agent's final output into the state if the agent has an
// output_key.
func (t *turn) setOutput(ev *adksession.Event, m *meta) {
	if n := t.nodeOf(ev.Author); n != nil {
		if text, ok := n.outputOf(ev.Content, m, t.limits.ValueBytes); ok {
			delta := maps.Clone(ev.Actions.StateDelta)
			if delta == nil {
				delta = map[string]any{}
			}
			delta[n.outputKey] = text
			ev.Actions.StateDelta = delta
		}
	}
}

// outputOf returns what an event of the agent writes into the state by output_key.
func (n *node) outputOf(c *genai.Content, m *meta, most int) (string, bool) {
	if n.outputKey == "" || n.output != nil && !m.Structured {
		return "", false
	}
	text, ok := n.finalText(c, m)
	return text, ok && len(text) <= most
}

// tempOf returns the keys of scope temp that an event of the log set. No event holds
// them: an output_key is found in what the agent says, other keys in the results.
func (t *turn) tempOf(s *stored) map[string]any {
	out := map[string]any{}
	for _, id := range responses(s.Content) {
		if res, ok := t.run.ResultNow(id); ok {
			maps.Copy(out, tempKeys(res.State))
		}
	}
	n := t.nodeOf(s.Author)
	if n == nil || !strings.HasPrefix(n.outputKey, adksession.KeyPrefixTemp) {
		return out
	}
	if text, ok := n.outputOf(s.Content, &s.CustomMetadata.Agentd, t.limits.ValueBytes); ok {
		out[n.outputKey] = text
	}
	return out
}

// nodeOf finds an event's agent; nil for an interrupted turn, which has no tree.
func (t *turn) nodeOf(author string) *node {
	if t.tree == nil {
		return nil
	}
	return t.tree.byName[author]
}

// finalText returns what an agent's output_key receives.
func (n *node) finalText(c *genai.Content, m *meta) (string, bool) {
	if n.output != nil || n.kind == remoteKind && m.Terminal {
		return outputText(c, m)
	}
	return finalText(c, m)
}

// finalText returns the text an agent ends with: that of a response without calls, or
// its text when it leaves a loop or transfers.
func finalText(c *genai.Content, m *meta) (string, bool) {
	if m.LLM == "" || c == nil {
		return "", false
	}
	var b strings.Builder
	calls, thoughts := 0, 0
	for _, p := range c.Parts {
		switch {
		case p.FunctionCall != nil && p.FunctionCall.Name != exitLoopTool && p.FunctionCall.Name != transferTool:
			return "", false
		case p.FunctionCall != nil:
			calls++
		case p.Thought:
			thoughts++
		default:
			b.WriteString(p.Text)
		}
	}
	if b.Len() == 0 && (calls > 0 || thoughts == len(c.Parts) && thoughts > 0) {
		return "", false
	}
	return b.String(), true
}

// responses returns the ids of the calls whose results a content holds.
func responses(c *genai.Content) []string {
	if c == nil {
		return nil
	}
	var ids []string
	for _, p := range c.Parts {
		if p.FunctionResponse != nil {
			ids = append(ids, p.FunctionResponse.ID)
		}
	}
	return ids
}

// tempKeys returns the keys of a delta that live as long as the turn.
func tempKeys(delta map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range delta {
		if strings.HasPrefix(k, adksession.KeyPrefixTemp) {
			out[k] = v
		}
	}
	return out
}

// adkSession is the session as ADK sees it: its state, and no events.
type adkSession struct{ t *turn }

func (s *adkSession) ID() string              { return s.t.run.SessionID() }
func (*adkSession) AppName() string           { return appName }
func (*adkSession) UserID() string            { return appName }
func (s *adkSession) State() adksession.State { return adkState{s.t} }
func (*adkSession) Events() adksession.Events { return noEvents{} }
func (*adkSession) LastUpdateTime() time.Time { return time.Time{} }

// noEvents is the history that ADK is shown. All that ADK would do with events
// (find the agent to start with, resume, build prompts) costs time in
// proportion to them, and is done here instead.
type noEvents struct{}

func (noEvents) All() iter.Seq[*adksession.Event] { return func(func(*adksession.Event) bool) {} }
func (noEvents) Len() int                         { return 0 }
func (noEvents) At(int) *adksession.Event         { return nil }

// adkState is the state of the running turn.
type adkState struct{ t *turn }

// Get returns an error that names the key; ADK's own services leave it out.
func (s adkState) Get(key string) (any, error) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	v, ok := s.t.state[key]
	if !ok {
		return nil, fmt.Errorf("%w: %q", adksession.ErrStateKeyNotExist, key)
	}
	return v, nil
}

func (s adkState) Set(key string, value any) error {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.t.state[key] = value
	return nil
}

func (s adkState) All() iter.Seq2[string, any] {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return maps.All(maps.Clone(s.t.state))
}
