package adkbridge

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"google.golang.org/genai"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/session"
)

// The reasons why a backend has stopped, in the log.
const (
	endTurn        = agentdv1.RemoteSession_TERMINAL_END_TURN
	requiresAction = agentdv1.RemoteSession_TERMINAL_REQUIRES_ACTION
	terminated     = agentdv1.RemoteSession_TERMINAL_TERMINATED
)

// remoteState is the session that an agent of the turn has on its backend, as the log says. It follows from records
// alone: those of kind remote_session have its ids, events what the backend has done.
type remoteState struct {
	ids *agentdv1.RemoteSession // the newest; nil for none yet
	// The rest is of the events that the run has reached.
	cursor   string
	terminal agentdv1.RemoteSession_Terminal
	messages int           // that have their last answer
	answers  int           // to the present message
	took     time.Duration // by them
	last     int64         // the record of the last answer to a message; 0 for none
	calls    []askedCall   // of the last answer, those that were asked
	rest     []remote.Call // and those that were not
	results  map[string]*genai.FunctionResponse
}

// askedCall is a call of a backend, and its id in the session.
type askedCall struct {
	id   string
	call remote.Call
}

// noteRemote reads a record of kind remote_session.
func (o *openTurn) noteRemote(data []byte) error {
	f := &agentdv1.RemoteSession{}
	if err := unmarshal(data, f); err != nil {
		return err
	}
	path := f.GetAgentPath()
	if len(path) == 0 || f.GetTerminal() == terminated {
		return nil
	}
	if o.remotes == nil {
		o.remotes = map[string]*remoteState{}
	}
	o.remotes[path[len(path)-1]] = &remoteState{ids: f}
	return nil
}

// remoteOf returns the session of an agent. What it holds is not changed by others: an agent does one thing at a time.
func (t *turn) remoteOf(agent string) *remoteState {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.remotes == nil {
		t.remotes = map[string]*remoteState{}
	}
	if t.remotes[agent] == nil {
		t.remotes[agent] = &remoteState{}
	}
	return t.remotes[agent]
}

// noteRemoteLocked takes from an event what it says of a session on a backend.
func (t *turn) noteRemoteLocked(seq int64, s *stored) {
	m := &s.CustomMetadata.Agentd
	st := t.remotes[s.Author]
	if m.Remote != nil {
		if st == nil {
			if t.remotes == nil {
				t.remotes = map[string]*remoteState{}
			}
			st = &remoteState{ids: m.Remote}
			t.remotes[s.Author] = st
		}
		st.answered(seq, m)
	}
	if st == nil || s.Content == nil {
		return
	}
	for _, p := range s.Content.Parts {
		if c := p.FunctionCall; c != nil && m.LLM != "" {
			if m.Remote == nil && len(st.rest) > 0 { // those that were left are asked in their order
				st.rest = st.rest[1:]
			}
			id, _ := p.PartMetadata[seam.MetaCallID].(string)
			input, _ := p.PartMetadata[seam.MetaArgs].(string)
			st.calls = append(st.calls, askedCall{c.ID, remote.Call{ID: id, Name: c.Name, Input: []byte(input)}})
		}
		if r := p.FunctionResponse; r != nil {
			if st.results == nil {
				st.results = map[string]*genai.FunctionResponse{}
			}
			st.results[r.ID] = r
		}
	}
}

// answered notes the first event of an answer.
func (st *remoteState) answered(seq int64, m *meta) {
	st.cursor, st.terminal = m.Remote.GetCursor(), m.Remote.GetTerminal()
	st.calls, st.results, st.rest = nil, nil, slices.Clone(m.Rest)
	st.answers++
	if m.Call != nil {
		st.took += m.Call.Took
	}
	if st.terminal == endTurn {
		st.messages++
		st.answers, st.took, st.last = 0, 0, seq
	}
}

// session is the session for the driver.
func (st *remoteState) session(key remote.Key, spec remote.Spec) remote.Session {
	return remote.Session{
		Agent: st.ids.GetRemoteAgentId(), ID: st.ids.GetRemoteSessionId(), Key: key, Spec: spec,
		Cursor: st.cursor, Message: st.messages,
	}
}

// keyOf names the session of an agent at a path.
func (t *turn) keyOf(path []string) remote.Key {
	return remote.Key{Tenant: t.run.Spec().Tenant, Session: t.run.SessionID(), Turn: t.run.TurnID(), Path: path}
}

// maxProvisioned is how many agents of backends a Runner knows.
const maxProvisioned = 256

// provisioned names an agent of a backend.
type provisioned struct {
	driver remote.Driver
	name   string
}

// recordRemote appends what the backend has now, or is about to have, and takes it over.
func (t *turn) recordRemote(ctx context.Context, st *remoteState, f *agentdv1.RemoteSession) error {
	if err := t.run.RemoteSession(ctx, f); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	st.ids = f
	return nil
}

// openRemote makes the agent's session on its backend, unless there is one. What is to be made is in the log before it
// is made, and what was made before it is used.
func (m *agentModel) openRemote(ctx context.Context, st *remoteState, spec remote.Spec) error {
	t, n := m.t, m.n
	ids := &agentdv1.RemoteSession{AgentPath: n.path, Backend: n.remote.backend, SpecHash: spec.Hash()}
	if st.ids != nil {
		ids = proto.CloneOf(st.ids)
		ids.Cursor, ids.Terminal, ids.Reason = "", 0, ""
	} else if err := t.recordRemote(ctx, st, ids); err != nil {
		return err
	}
	name := remote.NameOf(n.name, spec)
	again := true // who has logged the key before may have opened the session
	if ids.GetRemoteAgentId() == "" {
		id, err := m.provision(ctx, name, spec)
		if err != nil {
			return err
		}
		ids, again = proto.CloneOf(ids), false
		ids.RemoteAgentId = id
		if err := t.recordRemote(ctx, st, ids); err != nil {
			return err
		}
	}
	if ids.GetRemoteSessionId() != "" {
		return nil
	}
	id := ""
	err := remote.Retry(ctx, func(repeated bool) (err error) {
		id, err = n.remote.driver.Open(ctx, st.session(t.keyOf(n.path), spec), again || repeated)
		return err
	})
	if err != nil {
		t.provisioned.Remove(provisioned{n.remote.driver, name}) // it may not be there any more
		return err
	}
	ids = proto.CloneOf(ids)
	ids.RemoteSessionId = id
	return t.recordRemote(ctx, st, ids)
}

// provision returns the id of the agent of a spec.
func (m *agentModel) provision(ctx context.Context, name string, spec remote.Spec) (string, error) {
	key := provisioned{m.n.remote.driver, name}
	if id, ok := m.t.provisioned.Get(key); ok {
		return id, nil
	}
	id := ""
	err := remote.Retry(ctx, func(bool) (err error) {
		id, err = m.n.remote.driver.Provision(ctx, name, spec)
		return err
	})
	if err == nil {
		m.t.provisioned.Add(key, id)
	}
	return id, err
}

// closeTimeout bounds what a turn's end takes on backends, all of them together.
const closeTimeout = 5 * time.Second

// closeRemotes ends what the turn has running on backends, unless the turn goes on later. A backend that does not
// listen keeps it until it ends by itself.
func (r *Runner) closeRemotes(ctx context.Context, t *turn, cause error) {
	if errors.Is(cause, session.ErrSuspended) || r.backend == nil || len(t.remotes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	for _, agent := range slices.Sorted(maps.Keys(t.remotes)) {
		st := t.remotes[agent]
		if st.ids.GetRemoteSessionId() == "" {
			continue
		}
		driver, err := r.backend(st.ids.GetBackend())
		if err == nil {
			err = t.closeRemote(ctx, driver, st, cause == nil)
		}
		if err != nil {
			t.log.WarnContext(ctx, "the session of a backend was not closed", slog.String("session", t.run.SessionID()),
				slog.String("turn", t.run.TurnID()), slog.String("backend", st.ids.GetBackend()),
				slog.String("remote_session", st.ids.GetRemoteSessionId()), slog.Any("error", err))
		}
	}
}

// closeRemote ends what an agent has running. completed is true if the turn has finished, so that no message is on its
// way.
func (t *turn) closeRemote(ctx context.Context, d remote.Driver, st *remoteState, completed bool) error {
	s := st.session(t.keyOf(st.ids.GetAgentPath()), remote.Spec{})
	if st.terminal == endTurn && (len(st.rest) > 0 || completed) {
		before := s
		before.Message--
		before.Over = len(st.rest) == 0
		if err := d.Close(ctx, before); err != nil || completed {
			return err
		}
	}
	return d.Close(ctx, s)
}
