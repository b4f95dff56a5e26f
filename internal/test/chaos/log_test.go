package chaos

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/apzuk3/agentd/adkbridge"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/session/record"
)

// logged is a session's log, taken apart.
type logged struct {
	records []record.Record
	turns   []*loggedTurn
	answers map[string]*loggedAnswer // by message id
	calls   map[string]*loggedCall   // by id
	costs   map[int64]string         // what is told of model calls, by record
	falls   []loggedFact[record.ModelFallback]
	raws    []loggedFact[record.RawPayload]
	sums    []loggedFact[*record.Event] // summaries
	faults  verdict
	started int // turns of goals
}

// loggedFact is a fact with its place.
type loggedFact[T any] struct {
	seq  int64
	turn *loggedTurn
	fact T
}

type loggedTurn struct {
	id      string
	number  int
	begin   int64
	start   string // the agent that had spoken last
	ended   *record.TurnEnded
	usage   record.Usage // of all records
	said    record.Usage // of answers and summaries alone
	told    record.Usage // of the calls that have ended, as clients are told
	answers []*loggedAnswer
	resumed int
	resumes []time.Time
}

type loggedAnswer struct {
	id, agent      string
	text, thoughts string
	seq            int64
	turn           *loggedTurn
	step           step
	usage          *record.Usage
	calls          []string // of any kind: name and arguments
}

type loggedCall struct {
	text      string // as seen.text
	turn      *loggedTurn
	result    *record.ToolResult
	settledAt record.Record
	responses int // in the history
	internal  bool
}

// storedEvent is what is read of an event's stored form besides its meaning.
type storedEvent struct {
	Author  string `json:"author"`
	Branch  string `json:"branch"` // with "@" below a call of an agent
	Content *struct {
		Parts []struct {
			FunctionCall *struct {
				ID   string         `json:"id"`
				Name string         `json:"name"`
				Args map[string]any `json:"args"`
			} `json:"functionCall"`
			FunctionResponse *struct {
				ID string `json:"id"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"content"`
}

var engine = adkbridge.New(adkbridge.Config{})

// readLog takes a log apart and finds what no log may hold.
func readLog(records []record.Record) *logged {
	l := &logged{records: records, answers: map[string]*loggedAnswer{}, calls: map[string]*loggedCall{}, costs: map[int64]string{}}
	var open *loggedTurn
	author := ""
	for i, rec := range records {
		if rec.Seq != int64(i+1) {
			l.faults.lostf("record %d stands in place %d of the log", rec.Seq, i+1)
		}
		if rec.Kind == record.KindTurnStarted {
			if open != nil {
				l.faults.otherf("record %d: a turn starts while %s runs", rec.Seq, open.id)
			}
			open = &loggedTurn{id: rec.TurnID, begin: rec.Seq, start: author}
			l.turns = append(l.turns, open)
		}
		if rec.Kind.OfSession() {
			l.goal(rec)
			continue
		}
		if open == nil || open.id != rec.TurnID {
			if rec.Kind == record.KindTurnEnded {
				l.faults.repeatedf("record %d: a second end of turn %s", rec.Seq, rec.TurnID)
			} else {
				l.faults.otherf("record %d (%s) is outside of its turn %s", rec.Seq, rec.Kind, rec.TurnID)
			}
			continue
		}
		if err := l.take(open, rec, &author); err != nil {
			l.faults.otherf("record %d (%s): %v", rec.Seq, rec.Kind, err)
		}
		if open.ended != nil {
			open = nil
		}
	}
	if open != nil {
		l.faults.lostf("turn %s (%d) has no end", open.id, open.number)
	}
	for id, c := range l.calls {
		if c.turn.ended != nil && c.responses == 0 && !strings.HasPrefix(id, "loop_") {
			l.faults.lostf("call %s has no response in the history", id)
		}
	}
	return l
}

func (l *logged) take(t *loggedTurn, rec record.Record, author *string) error {
	switch rec.Kind {
	case record.KindTurnStarted:
		var f record.TurnStarted
		if err := json.Unmarshal(rec.Data, &f); err != nil {
			return err
		}
		if f.Goal != nil { // they are counted, whichever goal they are of
			l.started++
			t.number = l.started * tries
			return nil
		}
		n, ok := f.State["turn"].(float64)
		if !ok {
			return fmt.Errorf("no turn in the state %v", f.State)
		}
		t.number = int(n)
	case record.KindTurnResumed:
		t.resumed++
		t.resumes = append(t.resumes, rec.Time)
	case record.KindEvent:
		return l.event(t, rec, author)
	case record.KindToolCall:
		var c record.ToolCall
		if err := json.Unmarshal(rec.Data, &c); err != nil {
			return err
		}
		l.call(t, c)
	case record.KindToolResult:
		var r record.ToolResult
		if err := json.Unmarshal(rec.Data, &r); err != nil {
			return err
		}
		c := l.calls[r.CallID]
		switch {
		case c == nil:
			l.faults.otherf("record %d: a result of call %s, which nobody has made", rec.Seq, r.CallID)
		case c.result != nil:
			l.faults.repeatedf("record %d: a second result of call %s", rec.Seq, r.CallID)
		default:
			c.result, c.settledAt = &r, rec
		}
	case record.KindModelFallback:
		f := loggedFact[record.ModelFallback]{seq: rec.Seq, turn: t}
		if err := json.Unmarshal(rec.Data, &f.fact); err != nil {
			return err
		}
		l.falls = append(l.falls, f)
		if f.fact.Usage != nil {
			t.usage = t.usage.Add(*f.fact.Usage)
		}
	case record.KindModelRetry:
		var f record.ModelRetry
		if err := json.Unmarshal(rec.Data, &f); err != nil {
			return err
		}
		if f.Usage != nil {
			t.usage = t.usage.Add(*f.Usage)
		}
	case record.KindRawPayload:
		f := loggedFact[record.RawPayload]{seq: rec.Seq, turn: t}
		defer func() { l.raws = append(l.raws, f) }()
		return json.Unmarshal(rec.Data, &f.fact)
	case record.KindTurnEnded:
		if t.told != t.usage {
			l.faults.lostf("turn %s took %+v, of its calls is told %+v", t.id, t.usage, t.told)
		}
		t.ended = &record.TurnEnded{}
		return json.Unmarshal(rec.Data, t.ended)
	default: // says nothing that is checked
	}
	return nil
}

func (l *logged) call(t *loggedTurn, c record.ToolCall) {
	if l.calls[c.ID] != nil && !l.calls[c.ID].internal {
		l.faults.repeatedf("call %s is twice in the log", c.ID)
	}
	l.calls[c.ID] = &loggedCall{text: callText(c.Name, string(c.Input), c.Path), turn: t}
}

func (l *logged) event(t *loggedTurn, rec record.Record, author *string) error {
	ev, err := engine.Decode(rec.Data)
	if err != nil {
		return err
	}
	var stored storedEvent
	if err := json.Unmarshal(rec.Data, &stored); err != nil {
		return err
	}
	if ev.Usage != nil {
		t.usage, t.said, t.told = t.usage.Add(*ev.Usage), t.said.Add(*ev.Usage), t.told.Add(*ev.Usage)
		if ev.Before != nil {
			t.told = t.told.Add(*ev.Before)
		}
		ended := ev.CallEnded("")
		l.costs[rec.Seq] = costText(ev.MessageID, ev.Path, client.UsageOf(ended.GetUsage()))
	}
	var made []string
	if stored.Content != nil {
		for _, p := range stored.Content.Parts {
			if c := p.FunctionCall; c != nil {
				if l.calls[c.ID] != nil {
					l.faults.repeatedf("record %d: call %s is twice in the log", rec.Seq, c.ID)
				}
				l.calls[c.ID] = &loggedCall{turn: t, internal: true}
				args := "{}"
				if len(c.Args) > 0 {
					args = canonical(c.Args)
				}
				made = append(made, c.Name+" "+args)
			}
			if r := p.FunctionResponse; r != nil {
				c := l.calls[r.ID]
				if c == nil {
					l.faults.otherf("record %d: a response to call %s, which nobody has made", rec.Seq, r.ID)
				} else if c.responses++; c.responses > 1 {
					l.faults.repeatedf("record %d: a second response to call %s", rec.Seq, r.ID)
				}
			}
		}
	}
	if ev.Compacted != nil {
		l.sums = append(l.sums, loggedFact[*record.Event]{rec.Seq, t, ev})
	}
	if ev.MessageID == "" {
		return nil
	}
	if !strings.Contains(stored.Branch, "@") { // a turn begins with no agent that is called as a tool
		*author = stored.Author
	}
	a := &loggedAnswer{
		id: ev.MessageID, agent: stored.Author, text: ev.Text, thoughts: ev.Thoughts,
		seq: rec.Seq, turn: t, usage: ev.Usage, calls: made,
	}
	if m := stepMark.FindStringSubmatch(ev.Text); m != nil {
		a.step = stepOf(m)
	}
	if l.answers[a.id] != nil {
		l.faults.repeatedf("record %d: message %s is twice in the log", rec.Seq, a.id)
	}
	l.answers[a.id] = a
	t.answers = append(t.answers, a)
	for _, c := range ev.Calls {
		l.call(t, c)
	}
	return nil
}
