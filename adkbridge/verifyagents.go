package adkbridge

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/session"
)

// agentLog is what the log of a turn says of its agents' starts and ends, and what the
// run of it has come to. Agents below a parallel one start and end in an order of their
// own, so each agent is compared for itself. What is recorded of one comes ahead of what
// it says: the start of an agent that has spoken is there, and what follows its last
// record is not, as with a turn that has ended naturally.
type agentLog struct {
	first int64 // the record that says something first; 0: there is none, as in older logs
	agent map[string]*agentChanges

	mu sync.Mutex // protects ran of all agents
}

// agentChanges are the starts and ends of one agent, in order.
type agentChanges struct {
	logged []loggedChange
	ran    []session.AgentChange
}

// loggedChange is one in the log, at a field of a record.
type loggedChange struct {
	rec    session.Record
	field  string
	change session.AgentChange
}

func newAgentLog() *agentLog { return &agentLog{agent: map[string]*agentChanges{}} }

func (a *agentLog) of(c *session.AgentChange) *agentChanges {
	name := changeKeyOf(c).name
	if a.agent[name] == nil {
		a.agent[name] = &agentChanges{}
	}
	return a.agent[name]
}

// read takes in a change of the log.
func (a *agentLog) read(rec session.Record, field string, c session.AgentChange) {
	if a.first == 0 {
		a.first = rec.Seq
	}
	of := a.of(&c)
	of.logged = append(of.logged, loggedChange{rec, field, c})
}

// agentChanged implements observer: it holds what the run says of an agent against the
// log, as far as that goes.
func (v *verifier) agentChanged(c session.AgentChange) {
	a := v.agents
	if v.recorder != nil || a.first == 0 {
		return
	}
	a.mu.Lock()
	of := a.of(&c)
	of.ran = append(of.ran, c)
	at := len(of.ran) - 1
	a.mu.Unlock()
	if at >= len(of.logged) {
		return
	}
	l := of.logged[at]
	want, wantErr := jsonOf(l.change)
	got, gotErr := jsonOf(c)
	if wantErr != nil || gotErr != nil {
		return // not reached: a change is made of texts
	}
	if d := jsondiff.First(want, got); d != nil {
		_ = v.diverge(l.rec, l.field+"."+d.Path, d.Want, d.Got)
	}
}

func jsonOf(c session.AgentChange) (any, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return jsondiff.Decode(data)
}

// startsRecorded is a divergence unless the log has, ahead of a model's answer, all that the
// run has said so far of the agent and of those around it.
func (v *verifier) startsRecorded(n *node, seq int64) error {
	a := v.agents
	if a.first == 0 || seq < a.first {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for ; n != nil; n = n.parent {
		of := a.agent[n.name]
		if of == nil {
			continue
		}
		recorded := 0
		for recorded < len(of.logged) && of.logged[recorded].rec.Seq < seq {
			recorded++
		}
		if recorded < len(of.ran) {
			what := "no " + changeText(&of.ran[recorded])
			return v.diverge(v.record(seq), "", what+" before it", "records it")
		}
	}
	return nil
}

// checkLeftOver is a divergence at the first change of the log that the run has not come to.
func (v *verifier) checkLeftOver() {
	a := v.agents
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.agent {
		if len(of.ran) < len(of.logged) {
			l := of.logged[len(of.ran)]
			_ = v.diverge(l.rec, l.field, changeText(&l.change), "nothing")
		}
	}
}

// changeText says, bounded, what a change is.
func changeText(c *session.AgentChange) string {
	if c.Ended != "" {
		return cut(fmt.Sprintf("end (%s) of agent %s", c.Ended, pathString(c.Path)), maxShown)
	}
	return cut("start of agent "+pathString(c.Path), maxShown)
}
