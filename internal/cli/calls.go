package cli

import (
	"fmt"
	"io"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// ModelCalls shows the input of model calls, one call below the other.
func (p *Printer) ModelCalls(calls []*agentdv1.ModelCallDetails) error {
	if !p.JSON && len(calls) == 0 {
		_, err := fmt.Fprintln(p.Out, "nothing")
		return err
	}
	for i, c := range calls {
		if p.JSON {
			if err := WriteJSON(p.Out, c); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			if _, err := io.WriteString(p.Out, "\n"); err != nil {
				return err
			}
		}
		if err := describe(p.Out, p.modelCall(c)); err != nil {
			return err
		}
	}
	return nil
}

// modelCall describes one call. Without contents the log cannot give its input.
func (*Printer) modelCall(c *agentdv1.ModelCallDetails) []fact {
	end := c.GetCall()
	facts := []fact{
		{"agent", strings.Join(end.GetAgentPath(), "/")},
		{"model", end.GetModel()},
		{"message", end.GetMessageId()},
		{"took", ""},
		{"tokens", fmt.Sprintf("%s in, %s out",
			number(end.GetUsage().GetPromptTokens()), number(end.GetUsage().GetCompletionTokens()))},
		{"cost", "price unknown"},
	}
	if u := end.GetUsage(); u.GetUnpricedCalls() > 0 || u != nil && u.CostUsd != nil {
		facts[5].value = cost(u)
	}
	if said := outcome(end); said != "" {
		facts[2] = fact{"outcome", said}
	}
	if end.GetDuration() != nil {
		facts[3].value = duration(end.GetDuration().AsDuration())
	}
	if c.GetContents() == 0 {
		input := "cannot be made again from the log"
		switch {
		case outcome(end) != "":
			input = "nothing that can be made again"
		case end.GetMessageId() == "":
			input = "nothing that can be made again: the call wrote a summary, or failed"
		}
		return append(facts, fact{"told", input})
	}
	if c.GetGeneration() != nil {
		facts = append(facts, fact{"generation", jsonOr(c.GetGeneration())})
	}
	return append(facts,
		fact{"tools", strings.Join(c.GetToolNames(), ", ")},
		fact{"contents", number(int64(c.GetContents()))},
		fact{"summary", c.GetSummary()},
		fact{"instruction", c.GetInstruction()},
	)
}
