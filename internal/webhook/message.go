package webhook

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// message is the body of a request.
type message struct {
	Type      Event     `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of the fact
	Data      data      `json:"data"`
}

// data says what has happened. Of the parts below the ids the event has its own.
type data struct {
	Tenant    string            `json:"tenant,omitempty"`
	SessionID string            `json:"session_id,omitempty"`
	TurnID    string            `json:"turn_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`

	Turn        *turnData        `json:"turn,omitempty"`
	Interaction *interactionData `json:"interaction,omitempty"`
	Budget      *budgetData      `json:"budget,omitempty"`
	Goal        *goalData        `json:"goal,omitempty"`
	Child       *childData       `json:"child,omitempty"`
}

// turnData is a turn that is over.
type turnData struct {
	Status string     `json:"status"` // succeeded, failed or canceled
	Error  string     `json:"error,omitempty"`
	Usage  *usageData `json:"usage,omitempty"`
	// With content.
	Message string `json:"message,omitempty"`
	Output  string `json:"output,omitempty"`
}

type usageData struct {
	LLMCalls         int64   `json:"llm_calls"`
	PromptTokens     int64   `json:"prompt_tokens"`
	CompletionTokens int64   `json:"completion_tokens"`
	TotalTokens      int64   `json:"total_tokens"`
	CostUSD          float64 `json:"cost_usd"`
}

// interactionData is a question to a person, as it is now.
type interactionData struct {
	ID         string   `json:"id"`
	Kind       string   `json:"kind"`
	Status     string   `json:"status"` // pending, resolved or canceled
	ToolCallID string   `json:"tool_call_id,omitempty"`
	AgentPath  []string `json:"agent_path,omitempty"`
	// With content.
	Question  string   `json:"question,omitempty"`
	Choices   []string `json:"choices,omitempty"`
	ToolName  string   `json:"tool_name,omitempty"`
	ToolInput string   `json:"tool_input,omitempty"`
}

// budgetData is a mark that was reached.
type budgetData struct {
	Period  string `json:"period"` // session, goal, day or month
	Part    string `json:"part"`   // tokens or cost; of a goal input_tokens, output_tokens or cost
	Percent int64  `json:"percent"`
	// Used and Limit are tokens, or US dollars.
	Used  float64 `json:"used"`
	Limit float64 `json:"limit"`
}

// textBytes bounds each text of a message that is a session's content.
const textBytes = 16 << 10

// cut bounds a text.
func cut(text string) string {
	if len(text) <= textBytes {
		return text
	}
	return strings.ToValidUTF8(text[:textBytes], "") + "…"
}

// compose makes the body of a notice; nil if the hook is not told of the session. What was purged of the session is
// left out.
func (s *Sender) compose(ctx context.Context, h *Hook, d *delivery) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	msg := &message{
		Type: Event(d.Event), Timestamp: d.At, Data: data{Tenant: d.tenant, TurnID: d.TurnID},
	}
	if d.session != "" {
		info, err := s.cfg.Reader.Info(ctx, d.session)
		if err != nil {
			return nil, err
		}
		if !h.fits(info.Labels) {
			return nil, nil
		}
		_, msg.Data.SessionID = (&store.Batch{SessionID: d.session}).Names()
		msg.Data.Labels = info.Labels
	}
	var err error
	switch msg.Type {
	case TurnEnded:
		msg.Data.Turn, err = s.turn(ctx, h, d)
	case InteractionRequested:
		msg.Data.Interaction, err = s.interaction(ctx, h, d)
	case GoalEnded, GoalAsks:
		msg.Data.Goal, err = s.goal(ctx, h, d)
	case ChildReported:
		msg.Data.Child, err = s.child(ctx, h, d)
	case BudgetMarked:
		msg.Data.Budget = budget(d.Subject)
	}
	return msg, err
}

// turn is what a session has of a turn that is over.
func (s *Sender) turn(ctx context.Context, h *Hook, d *delivery) (*turnData, error) {
	row, err := s.cfg.Reader.Row(ctx, store.RowTurn, d.session, d.TurnID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	t := new(index.Turn)
	if err := t.Read(row); err != nil {
		return nil, err
	}
	u := t.Usage
	out := &turnData{Status: row.Status, Usage: &usageData{
		LLMCalls: u.Calls, PromptTokens: u.Prompt, CompletionTokens: u.Completion, TotalTokens: u.Total,
		CostUSD: u.Cost.Dollars(),
	}}
	if t.End != nil && t.End.Code != 0 {
		out.Error = t.End.Code.String()
	}
	if h.Content {
		out.Output = cut(t.Output)
		if t.End != nil {
			out.Message = cut(t.End.Message)
		}
	}
	return out, nil
}

// interaction is what a session has of a question.
func (s *Sender) interaction(ctx context.Context, h *Hook, d *delivery) (*interactionData, error) {
	row, err := s.cfg.Reader.Row(ctx, store.RowInteraction, d.session, d.Subject)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	in := new(index.Interaction)
	if err := in.Read(row); err != nil {
		return nil, err
	}
	out := &interactionData{
		ID: in.ID(), Kind: word(in.Call.Asks.Kind.String(), "INTERACTION_KIND_"), Status: row.Status,
		ToolCallID: in.Call.ID, AgentPath: in.Call.Path,
	}
	if h.Content {
		q := in.Call.Asks
		out.Question, out.Choices = cut(q.Text), q.Choices
		out.ToolName, out.ToolInput = in.Call.Name, cut(string(in.Call.Input))
	}
	return out, nil
}

// budget is what a notice says of a mark; nil if it says none.
func budget(subject string) *budgetData {
	m, err := parseMark(subject)
	if err != nil {
		return nil
	}
	out := &budgetData{m.period, m.part, m.percent, float64(m.used), float64(m.limit)}
	if m.part == partCost {
		out.Used, out.Limit = record.NanoUSD(m.used).Dollars(), record.NanoUSD(m.limit).Dollars()
	}
	return out
}
