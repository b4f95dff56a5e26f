package adkbridge

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session/record"
)

// agentLog holds the starts and ends of agents in a turn's log, and those of the run.
// Parallel agents start and end in any order, so each agent is compared by itself. The
// log holds a change of an agent before the agent's next event: the start of each agent
// that spoke is there, and what follows its last record is not, as in a turn that ends
// naturally.
type agentLog struct {
	first int64 // the record that says something first; 0: there is none, as in older logs
	agent map[roomKey]*agentChanges

	mu sync.Mutex // protects ran of all agents
}

// agentChanges are the starts and ends of one agent, in order.
type agentChanges struct {
	logged []loggedChange
	ran    []record.AgentChange
}

// loggedChange is one in the log, at a field of a record.
type loggedChange struct {
	rec    record.Record
	field  string
	change record.AgentChange
}

func newAgentLog() *agentLog { return &agentLog{agent: map[roomKey]*agentChanges{}} }

func (a *agentLog) of(c *record.AgentChange) *agentChanges {
	name := roomKey{changeKeyOf(c).name, c.Room}
	if a.agent[name] == nil {
		a.agent[name] = &agentChanges{}
	}
	return a.agent[name]
}

// read reads a change of the log.
func (a *agentLog) read(rec record.Record, field string, c record.AgentChange) {
	if a.first == 0 {
		a.first = rec.Seq
	}
	of := a.of(&c)
	of.logged = append(of.logged, loggedChange{rec, field, c})
}

// agentChanged implements observer. It compares a change of the run with the log, as
// far as the log goes.
func (v *verifier) agentChanged(c record.AgentChange) {
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

func jsonOf(c record.AgentChange) (any, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return jsondiff.Decode(data)
}

// startsRecorded is a divergence unless the log holds, before a response, all changes
// of the agent and of those above it that the run has seen.
func (v *verifier) startsRecorded(n *node, branch string, seq int64) error {
	a := v.agents
	if a.first == 0 || seq < a.first {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for room := lineage.Room(branch); n != nil; n, room = n.above(room) {
		of := a.agent[roomKey{n.name, room}]
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

// checkLeftOver is a divergence at the first change of the log that the run has not
// reached.
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

// changeText describes a change, bounded.
func changeText(c *record.AgentChange) string {
	if c.Ended != "" {
		return cut(fmt.Sprintf("end (%s) of agent %s", c.Ended, pathString(c.Path)), maxShown)
	}
	return cut("start of agent "+pathString(c.Path), maxShown)
}
