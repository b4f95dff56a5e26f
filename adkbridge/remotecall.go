package adkbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/remote"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// remoteCalls is how many calls of a backend run at the same time.
const remoteCalls = 8

// errRemoteTimeout ends what takes too long on a backend.
var errRemoteTimeout = errors.New("the backend takes too long")

// callRemote is callLive for an agent that a backend runs: its response is what the backend does up to the next
// boundary, or some of the calls that it has asked for then.
func (m *agentModel) callRemote(ctx context.Context, req *adkmodel.LLMRequest, key, branch string) (*response, error) {
	t, st := m.t, m.t.remoteOf(m.n.name)
	if m.n.remote.driver == nil {
		return nil, m.n.errorf("backend %q: this server has no backends", m.n.remote.backend)
	}
	if err := t.recordAgents(ctx); err != nil {
		return nil, err
	}
	if st.terminal == requiresAction && len(st.rest) > 0 {
		a := m.remoteResponse(key, branch)
		a.ask(st.rest)
		return a, m.interpret(a, req)
	}
	a, err := m.exchange(ctx, st, key, branch)
	if err != nil {
		return nil, err
	}
	return a, m.interpret(a, req)
}

// remoteResponse is an empty response of a backend.
func (m *agentModel) remoteResponse(key, branch string) *response {
	return &response{
		author: m.n.name, branch: branch, content: &genai.Content{Role: genai.RoleModel},
		finish: genai.FinishReasonStop, meta: &meta{LLM: key, Path: m.n.path},
	}
}

// ask adds as many calls as may run at the same time.
func (a *response) ask(calls []remote.Call) (rest []remote.Call) {
	n := min(len(calls), remoteCalls)
	for _, c := range calls[:n] {
		a.content.Parts = append(a.content.Parts, withOwnID(adapter.NewCall(c.ID, c.Name, string(c.Input))))
	}
	return slices.Clone(calls[n:])
}

// remoteSpec is what the backend's agent is made of in this turn.
func (m *agentModel) remoteSpec() remote.Spec {
	spec := m.n.remote.spec
	if m.t.run.Spec().Mode == agentdv1.InstructionMode_INSTRUCTION_MODE_REPLACE {
		spec.Instruction = ""
	}
	return spec
}

// exchange gives the backend what it waits for, and returns what it does then.
func (m *agentModel) exchange(ctx context.Context, st *remoteState, key, branch string) (*response, error) {
	t, n := m.t, m.n
	x := &remoteExchange{m: m, st: st, id: messageID(t.run.TurnID(), key), spec: m.remoteSpec(), began: time.Now()}
	input := m.remoteInput(st, branch)
	bytes := len(input.Message) + len(x.spec.Instruction)
	for _, r := range input.Results {
		bytes += len(r.Text)
	}
	call := record.ModelCall{Path: n.path, Model: n.modelName, MessageID: x.id}
	done, err := t.run.BeginCall(ctx, call, func() record.Spent { return n.most(int64(bytes), 0) })
	if err != nil {
		return nil, err
	}
	owed := true // the response is recorded later
	defer func() { done(owed) }()
	limited, cancel := context.WithTimeoutCause(ctx, n.remote.timeout-st.took, errRemoteTimeout)
	defer cancel()
	err = x.run(limited, input)
	if ctx.Err() != nil {
		owed = x.keepUsage(ctx, branch)
		return nil, context.Cause(ctx)
	}
	if failed := x.keepRaw(ctx); failed != nil {
		return nil, failed
	}
	if err == nil {
		err = x.refused()
	}
	if err != nil {
		owed = x.keepUsage(ctx, branch)
		return nil, x.fail(ctx, err)
	}
	a := m.remoteResponse(key, branch)
	x.fill(a)
	return a, nil
}

// remoteExchange is one exchange with a backend.
type remoteExchange struct {
	m      *agentModel
	st     *remoteState
	id     string // of the message to come
	spec   remote.Spec
	began  time.Time
	first  time.Duration // to the first text; 0 for none
	answer *remote.Answer
}

// run opens the session, if there is none, and makes the exchange. A server that stops does not wait for a backend that
// keeps what it has said.
func (x *remoteExchange) run(ctx context.Context, in remote.Input) error {
	t, n := x.m.t, x.m.n
	do := func(ctx context.Context) (err error) {
		if err := x.m.openRemote(ctx, x.st, x.spec); err != nil {
			return err
		}
		opts := remote.Options{Said: x.said, Raw: t.run.Spec().Raw, Retrying: x.retrying}
		x.answer, err = remote.Exchange(ctx, n.remote.driver, x.st.session(t.keyOf(n.path), x.spec), in, opts)
		return err
	}
	if _, keeps := n.remote.driver.(remote.Pusher); keeps {
		return t.run.Wait(ctx, true, do)
	}
	return do(ctx)
}

func (x *remoteExchange) said(text string) {
	if x.first == 0 {
		x.first = time.Since(x.began)
	}
	x.m.t.run.Delta(record.Delta{MessageID: x.id, Path: x.m.n.path, Text: text})
}

func (x *remoteExchange) retrying(err error, wait time.Duration) {
	t := x.m.t
	t.log.Info("a backend is asked again", slog.String("session", t.run.SessionID()),
		slog.String("turn", t.run.TurnID()), slog.String("agent", x.m.n.at()),
		slog.String("backend", x.m.n.remote.backend), slog.Duration("wait", wait),
		slog.Any("error", err))
}

// refused is why an answer ends the agent; nil for one with which it goes on.
func (x *remoteExchange) refused() error {
	n, a := x.m.n, x.answer
	switch {
	case a.Terminal == remote.Terminated:
		return &remote.Error{Code: agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, Message: a.Reason}
	case a.Terminal == remote.RequiresAction && !x.over() && x.st.answers+1 >= n.remote.answers:
		why := fault.Errorf(codeLimit, "it has given %d answers to one message and is not done, which is how many "+
			"max_turns allows", n.remote.answers)
		return &remote.Error{Code: codeLimit, Message: why.Message}
	}
	return nil
}

// terminalCall returns the call of the terminal tool, nil for none.
func (x *remoteExchange) terminalCall() *remote.Call {
	last := x.spec.TerminalTool
	i := slices.IndexFunc(x.answer.Calls, func(c remote.Call) bool { return c.Name == last && last != "" })
	if i < 0 {
		return nil
	}
	return &x.answer.Calls[i]
}

// over reports whether the agent is done.
func (x *remoteExchange) over() bool {
	return x.answer.Terminal == remote.EndTurn || x.terminalCall() != nil
}

// fail records that the agent has failed, and returns its error.
func (x *remoteExchange) fail(ctx context.Context, err error) error {
	n := x.m.n
	var code agentdv1.ErrorCode
	switch e, ok := errors.AsType[*remote.Error](err); {
	case ok:
		code = remoteCode(e.Code)
	case errors.Is(err, errRemoteTimeout):
		code = codeTimeout
		err = fault.Errorf(code, "it was not done within %v", n.remote.timeout)
	default:
		return err // of ours: the log, or a fault
	}
	reason := strings.ToValidUTF8(err.Error(), "\uFFFD")
	fact := x.fact(terminated, reason)
	if err := x.m.t.run.RemoteSession(ctx, fact); err != nil {
		return err
	}
	return fault.Errorf(code, "%s: backend %q: %s", n.at(), n.remote.backend, reason)
}

// remoteCode is what the code of a backend's error is to a caller of ours, who has asked it nothing himself.
func remoteCode(code agentdv1.ErrorCode) agentdv1.ErrorCode {
	switch code {
	case agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED,
		agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED, codeTimeout, codeLimit:
		return code
	default:
		return agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE
	}
}

// fact says where the backend has come to.
func (x *remoteExchange) fact(terminal agentdv1.RemoteSession_Terminal, reason string) *agentdv1.RemoteSession {
	out := &agentdv1.RemoteSession{
		AgentPath: x.m.n.path, Backend: x.m.n.remote.backend, SpecHash: x.spec.Hash(),
		Terminal: terminal, Reason: reason,
		RemoteAgentId: x.st.ids.GetRemoteAgentId(), RemoteSessionId: x.st.ids.GetRemoteSessionId(), Cursor: x.st.cursor,
	}
	if x.answer != nil {
		out.Cursor = x.answer.Cursor
	}
	return out
}

// info describes the exchange as a call of a model.
func (x *remoteExchange) info() *record.CallInfo {
	return &record.CallInfo{Model: x.m.n.modelName, Provider: x.m.n.remote.backend, Took: time.Since(x.began),
		FirstText: x.first}
}

// fill makes the answer a response.
func (x *remoteExchange) fill(a *response) {
	ans, terminal := x.answer, requiresAction
	if x.over() {
		terminal = endTurn
	}
	a.model = strings.ToValidUTF8(ans.Served, "\uFFFD")
	a.meta.Usage, a.meta.Call = x.m.usage(ans.Usages), x.info()
	a.meta.Provided = providedBy(ans.Uses)
	a.meta.Marks = x.m.t.run.Marks(x.id)
	a.meta.Remote = x.fact(terminal, ans.Reason)
	text := ans.Text
	if last := x.terminalCall(); last != nil {
		// What it has said before stays; its output is what stands behind this part, see outputText.
		if text != "" {
			border := map[string]any{seam.MetaProvider: x.m.n.remote.backend, seam.MetaOpaque: "{}"}
			a.content.Parts = append(a.content.Parts, &genai.Part{Text: text + "\n"}, &genai.Part{PartMetadata: border})
		}
		a.content.Parts = append(a.content.Parts, &genai.Part{Text: string(last.Input)})
		a.meta.Terminal, a.meta.Rest = true, ans.Calls
		a.meta.Remote.Reason = "it called " + last.Name
		return
	}
	if text != "" {
		a.content.Parts = append(a.content.Parts, &genai.Part{Text: text})
	}
	a.meta.Rest = a.ask(ans.Calls)
}

// providedBy returns what a backend's own tools did; nil for nothing.
func providedBy(uses []remote.Use) *record.Provided {
	var p model.Provided
	for _, u := range uses {
		p.Uses = append(p.Uses, model.Use(u))
	}
	return provided(&p)
}

// keepUsage keeps what an exchange took that brought no response, and reports whether there is any. What a suspended
// turn has read of an answer it reads again.
func (x *remoteExchange) keepUsage(ctx context.Context, branch string) bool {
	if x.answer == nil || len(x.answer.Usages) == 0 || errors.Is(context.Cause(ctx), session.ErrSuspended) {
		return false
	}
	x.m.t.keepCallEnd(&response{
		author: x.m.n.name, branch: branch, content: &genai.Content{Role: genai.RoleModel},
		meta: &meta{Path: x.m.n.path, Usage: x.m.usage(x.answer.Usages), Call: x.info()},
	})
	return true
}

// maxRawPiece is the largest body of a record of raw payloads, in bytes.
const maxRawPiece = 1 << 20

// keepRaw records the events as they came, in pieces of whole lines.
func (x *remoteExchange) keepRaw(ctx context.Context) error {
	if x.answer == nil || len(x.answer.Raw) == 0 {
		return nil
	}
	for rest := x.answer.Raw; len(rest) > 0; {
		n := len(rest)
		if n > maxRawPiece {
			n = maxRawPiece
			if at := bytes.LastIndexByte(rest[:n], '\n'); at > 0 {
				n = at + 1
			}
		}
		err := x.m.t.run.Raw(ctx, record.RawPayload{
			MessageID: x.id, Path: x.m.n.path, Attempt: 1, Provider: x.m.n.remote.backend, Status: 200,
			ContentType: "application/x-ndjson", Body: rest[:n], Truncated: x.answer.Truncated && n == len(rest),
		})
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// remoteInput is what the backend gets next: the results of its calls, or a message.
func (m *agentModel) remoteInput(st *remoteState, branch string) remote.Input {
	var in remote.Input
	if st.terminal == requiresAction {
		for _, c := range st.calls {
			text, failed := resultText(st.results[c.id])
			in.Results = append(in.Results, remote.Result{Call: c.call, Text: text, Error: failed})
		}
		return in
	}
	for _, c := range st.rest { // of an agent that runs again, behind its terminal tool
		r := remote.Result{Call: c, Text: "not run: the agent had ended", Error: true}
		if c.Name == m.n.remote.spec.TerminalTool {
			r.Text, r.Error = "taken", false
		}
		in.Results = append(in.Results, r)
	}
	in.Message = m.remoteMessage(st, branch)
	return in
}

// resultText is a result as a backend gets it, and whether it is an error.
func resultText(r *genai.FunctionResponse) (text string, failed bool) {
	if r == nil {
		return lostText, true
	}
	value := any(r.Response)
	if len(r.Response) == 1 {
		if e, ok := r.Response["error"].(string); ok {
			return e, true
		}
		if output, ok := r.Response["output"]; ok {
			value = output
		}
	}
	text, ok := value.(string)
	if !ok {
		data, err := json.Marshal(value)
		if err != nil { // not reached: it is from the log
			return lostText, true
		}
		text = string(data)
	}
	for _, f := range r.Parts {
		text = strings.TrimPrefix(text+"\n"+resultFileText(f), "\n")
	}
	return text, false
}
