package schedule

import (
	"context"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// work is what a run starts: a turn, or a goal.
type work struct {
	ex   *agentdv1.RunRequest_ExecuteRequest // nil for a goal
	goal *agentdv1.StartGoalRequest          // nil for a turn
}

// workOf is what a request has started. The error is for the client.
func workOf(req *agentdv1.CreateScheduleRequest) (work, error) {
	w := work{req.GetExecute(), req.GetGoal()}
	if (w.ex == nil) == (w.goal == nil) {
		return w, fault.Errorf(fault.Invalid, "a schedule needs execute, which starts a turn, or goal: one of them").
			Breaking("execute", fault.RuleRequired)
	}
	return w, nil
}

// execute is what a turn of the run has, and where it stands in a request.
func (w work) execute() (ex *agentdv1.RunRequest_ExecuteRequest, at string) {
	if w.goal != nil {
		return w.goal.GetExecute(), "goal.execute"
	}
	return w.ex, "execute"
}

// encoded is what is kept of it.
func (w work) encoded() ([]byte, error) {
	var m proto.Message = w.ex
	if w.goal != nil {
		m = w.goal
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// decoded is what encoded has made.
func decoded(data []byte, goal bool) (w work, err error) {
	if goal {
		w.goal = new(agentdv1.StartGoalRequest)
		return w, proto.Unmarshal(data, w.goal)
	}
	w.ex = new(agentdv1.RunRequest_ExecuteRequest)
	return w, proto.Unmarshal(data, w.ex)
}

// listed is what lists say of it.
func listed(goal bool) (w work) {
	if goal {
		w.goal = new(agentdv1.StartGoalRequest)
	}
	return w
}

// startedBy is what the runs of a schedule start, or ledger.ErrNoObject.
func startedBy(ctx context.Context, objects ledger.Objects, r *row) (work, error) {
	o, err := objects.Object(ctx, object(r.tenant, r.id))
	if err != nil {
		return work{}, err
	}
	return decoded(o.Data, r.timing.Goal)
}

// check refuses what a schedule does not start.
func (g *Registry) check(ctx context.Context, w work) error {
	ex, at := w.execute()
	for field, set := range map[string]bool{
		"turn_id": ex.GetTurnId() != "", "idempotency_key": ex.GetIdempotencyKey() != "",
		"on_busy":       ex.GetOnBusy() != 0,
		"on_disconnect": ex.GetOnDisconnect() != 0, "disconnect_grace": ex.GetDisconnectGrace() != nil,
		"fork": ex.GetFork(), "create": ex.GetCreate(),
	} {
		if set {
			return fault.Errorf(fault.Invalid, "%s.%s is for one turn: leave it out", at, field).
				Breaking(at+"."+field, fault.RuleExcluded)
		}
	}
	prompted := ex.GetUserPrompt() != "" || len(ex.GetUserParts()) > 0
	switch {
	case w.goal != nil && w.goal.GetGoal() == "":
		return fault.Errorf(fault.Invalid, "goal.goal is empty: say what is to be reached").
			Breaking("goal.goal", fault.RuleRequired)
	case w.goal != nil && prompted:
		return fault.Errorf(fault.Invalid, "%s has a prompt, and that of a goal is its goal: leave it empty", at).
			Breaking(at+".user_prompt", fault.RuleExcluded)
	case w.goal == nil && !prompted:
		return fault.Errorf(fault.Invalid, "execute.user_prompt is empty: a turn needs something to respond to").
			Breaking("execute.user_prompt", fault.RuleRequired)
	case ex.GetAgent() == nil && ex.GetAgentRef() == nil && ex.GetSessionId() == "":
		return fault.Errorf(fault.Invalid,
			"%s needs an agent, an agent_ref, or the session_id of a session that has one", at).
			Breaking(at+".agent", fault.RuleRequired)
	case ex.GetSessionId() != "" && !idRule.MatchString(ex.GetSessionId()):
		return fault.Errorf(fault.Invalid, "%s.session_id: the id of a session has 1 to 128 of A-Z, a-z, 0-9 and "+
			". _ : @ -, a letter or a digit first", at).Breaking(at+".session_id", fault.RuleFormat)
	case ex.GetAgent() == nil:
		return nil
	}
	return g.cfg.Check(ctx, &record.Spec{
		Agent: proto.CloneOf(ex.GetAgent()), Tools: ex.GetTools(), Tenant: principal.Of(ctx).Tenant,
	})
}
