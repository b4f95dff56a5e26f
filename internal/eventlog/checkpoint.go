package eventlog

import (
	"encoding/json"
	"strings"

	"github.com/apzuk3/agentd/session/record"
)

// autonomous is the author of checkpoints of goals.
const autonomous = app + "/autonomous"

// checkpoint is the metadata of an event that says how far a goal has come. Texts are left out where the database is
// encrypted.
type checkpoint struct {
	Turn         int64   `json:"turn"`
	Goal         *string `json:"goal,omitempty"`
	Continuation *string `json:"continuation_prompt,omitempty"`
	Input        int64   `json:"input_tokens"`
	Output       int64   `json:"output_tokens"`
	Cost         float64 `json:"cost_usd"`
	Stop         string  `json:"stop_reason"`
	Detail       *string `json:"done_detail,omitempty"`
	Final        *string `json:"final_text,omitempty"`
}

// metadataOf returns the metadata of a checkpoint.
func metadataOf(c *record.GoalCheckpointed, texts bool) (string, error) {
	out := checkpoint{
		Turn: c.Totals.Turns, Input: c.Totals.Input, Output: c.Totals.Output, Cost: float64(c.Totals.Cost) / 1e9,
	}
	if c.Stop != 0 {
		out.Stop = strings.ToLower(strings.TrimPrefix(c.Stop.String(), "GOAL_REASON_"))
	}
	if texts {
		out.Goal, out.Continuation, out.Detail, out.Final = &c.Goal, &c.Continuation, &c.Detail, &c.Final
	}
	data, err := json.Marshal(out)
	return string(data), err
}
