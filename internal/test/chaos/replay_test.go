package chaos

import (
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// prompt is what a model was told in a call, as far as ListModelCalls says.
type prompt struct {
	instruction, summary string
	tools                []string
}

type chatTool struct {
	Function struct{ Name string }
}

var summaryText = regexp.MustCompile(`(?s)<summary>\n(.*)\n</summary>`)

func promptOf(req *chatRequest) prompt {
	p := prompt{instruction: req.Messages[0].Content.text}
	for _, m := range req.Messages[1:] {
		if found := summaryText.FindStringSubmatch(m.Content.text); found != nil {
			p.summary = found[1]
		}
	}
	for _, t := range req.Tools {
		p.tools = append(p.tools, t.Function.Name)
	}
	return p
}

func all(records []record.Record) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for _, rec := range records {
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// verified runs the turns of a log again: it is what the engine would write.
func (e *evidence) verified(t *testing.T, records []record.Record) {
	t.Helper()
	rep, err := adkbridge.Verify(t.Context(), e.id, all(records), nil)
	if err != nil || rep.Divergence != nil || rep.Records != len(records) {
		t.Errorf("%s: a log of %d records is run again: %+v, %v: %v", e.shape.name, len(records), rep, err, rep.Divergence)
	}
}

// replayed checks that the log is what the engine would write, and that what it
// says of each answered call is what the provider was sent.
func (e *evidence) replayed(t *testing.T) {
	t.Helper()
	e.verified(t, e.records)
	l := readLog(e.records)
	for _, turn := range l.turns {
		calls, _, err := adkbridge.New(adkbridge.Config{}).ModelCalls(t.Context(), session.TurnLog{SessionID: e.id, TurnID: turn.id, Records: all(e.records)}, math.MaxInt)
		if err != nil {
			t.Errorf("%s: the calls of turn %s: %v", e.shape.name, turn.id, err)
			continue
		}
		var sum record.Usage
		answers := 0
		for _, one := range calls {
			c := one.Details
			sum.Calls += c.GetCall().GetUsage().GetModelCalls()
			sum.Total += c.GetCall().GetUsage().GetTotalTokens()
			a := l.answers[c.GetCall().GetMessageId()]
			if a == nil {
				continue // a summary, or what a failed call took
			}
			answers++
			m := attemptMark.FindStringSubmatch(a.text)
			i := slices.IndexFunc(e.attempts[a.step], func(t attempt) bool { return len(m) > 1 && strconv.Itoa(t.number) == m[1] })
			if i < 0 {
				continue // is reported
			}
			want := e.attempts[a.step][i].told
			if c.GetInstruction() != want.instruction || c.GetSummary() != want.summary || !slices.Equal(c.GetToolNames(), want.tools) || c.GetContents() == 0 {
				t.Errorf("%s: step %s is told as %v, its model was sent %+v", e.shape.name, a.step, c, want)
			}
		}
		if answers != len(turn.answers) || sum.Calls != turn.told.Calls || sum.Total != turn.told.Total {
			t.Errorf("%s: turn %s has %d answers and took %+v, its calls are %d and took %+v", e.shape.name, turn.id, len(turn.answers), turn.told, answers, sum)
		}
	}
}
