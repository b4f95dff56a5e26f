package chaos

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/session/record"
)

// clone copies what a mutation may change.
func (e evidence) clone() evidence {
	e.records = slices.Clone(e.records)
	e.runs = slices.Clone(e.runs)
	e.outcome = slices.Clone(e.outcome)
	chains := make([]*chain, 0, len(e.chains))
	for _, c := range e.chains {
		own := *c
		own.msgs = slices.Clone(c.msgs)
		chains = append(chains, &own)
	}
	e.chains = chains
	attempts := map[step][]attempt{}
	for s, as := range e.attempts {
		attempts[s] = slices.Clone(as)
	}
	e.attempts = attempts
	if p := e.pursuit; p != nil {
		own := &pursuit{tried: p.tried, injected: maps.Clone(p.injected), paused: p.paused, stopped: p.stopped}
		for _, g := range p.ended {
			own.ended = append(own.ended, proto.CloneOf(g))
		}
		e.pursuit = own
	}
	return e
}

// on finds the n-th message of a kind in the wire's chain of a client.
func (e evidence) on(t *testing.T, who string, w what, n int) (*chain, int) {
	t.Helper()
	for _, c := range e.chains {
		for i, m := range c.msgs {
			if c.who == who && m.what == w {
				if n == 0 {
					return c, i
				}
				n--
			}
		}
	}
	t.Fatalf("%s has not seen so many %s", who, w)
	return nil, 0
}

// record finds the first record of a kind.
func (e evidence) record(t *testing.T, k record.Kind) int {
	t.Helper()
	i := slices.IndexFunc(e.records, func(r record.Record) bool { return r.Kind == k })
	if i < 0 {
		t.Fatalf("no %s", k)
	}
	return i
}

// Each kind of fault is seen in evidence that has it, and none in what it was
// made of.
func TestChecker(t *testing.T) {
	whole := (&point{p: newProvider(t, false), shape: shapes()[1]}).run(t).evidence
	const wire = "driver's stream"
	lost := func(v verdict) int { return v.lost }
	repeated := func(v verdict) int { return v.repeated }
	rerun := func(v verdict) int { return v.rerun }
	for name, tc := range map[string]struct {
		count  func(verdict) int
		mutate func(*testing.T, *evidence)
	}{
		"the log has lost its end": {lost, func(_ *testing.T, e *evidence) {
			e.records = e.records[:len(e.records)-1]
		}},
		"the log has lost a result": {lost, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindToolResult)
			e.records = slices.Delete(e.records, i, i+1)
			for j := range e.records {
				e.records[j].Seq = int64(j + 1)
			}
		}},
		"the log has an answer that was not given": {lost, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindEvent)
			e.records[i].Data = []byte(strings.Replace(string(e.records[i].Data), " w1:1", " w1:2", 1))
		}},
		"the log has other usage": {lost, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindEvent)
			e.records[i].Data = []byte(strings.Replace(string(e.records[i].Data), `"prompt":`, `"prompt":1`, 1))
		}},
		"the log has another result": {lost, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindToolResult)
			e.records[i].Data = []byte(strings.Replace(string(e.records[i].Data), "result of", "rumour of", 1))
		}},
		"a client has missed a fact": {lost, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawCall, 0)
			c.msgs = slices.Delete(c.msgs, i, i+1)
		}},
		"a client has missed text": {lost, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawText, 1)
			c.msgs = slices.Delete(c.msgs, i, i+1)
		}},
		"a client saw what is not in the log": {lost, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawEnd, 0)
			c.msgs[i].seq += 1 << recordBits
		}},
		"two clients saw different things": {lost, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawState, 0)
			c.msgs[i].text += "?"
		}},
		"a client was told another end": {lost, func(_ *testing.T, e *evidence) {
			e.outcome[0].result = failed
		}},
		"the turn has not come so far": {lost, func(_ *testing.T, e *evidence) {
			e.shape.root = group("root", sequence, append(slices.Clone(e.shape.root.kids), one("fourth", 0))...)
		}},
		"a handler's call is in no log": {lost, func(_ *testing.T, e *evidence) {
			e.runs = append(e.runs, execution{call: "forged"})
		}},

		"a message came twice": {repeated, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawState, 0)
			c.msgs = slices.Insert(c.msgs, i, c.msgs[i])
		}},
		"text came twice": {repeated, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawText, 1)
			again := c.msgs[i]
			again.seq = 0 // as if it had no place
			c.msgs = slices.Insert(c.msgs, i, again)
		}},
		"a turn has ended twice": {repeated, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawEnd, 0)
			again := c.msgs[i]
			again.seq++
			c.msgs = append(c.msgs, again)
		}},
		"the log has two ends": {repeated, func(_ *testing.T, e *evidence) {
			last := e.records[len(e.records)-1]
			last.Seq++
			e.records = append(e.records, last)
		}},
		"the log has two results": {repeated, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindToolResult)
			e.records = slices.Insert(e.records, i, e.records[i])
			for j := range e.records {
				e.records[j].Seq = int64(j + 1)
			}
		}},
		"a handler ran twice": {repeated, func(_ *testing.T, e *evidence) {
			again := e.runs[0]
			again.from, again.to = again.to.Add(time.Second), again.to.Add(2*time.Second)
			e.runs = append(e.runs, again)
		}},
		"a handler ran twice at once": {repeated, func(_ *testing.T, e *evidence) {
			again := e.runs[0]
			again.final = false
			e.runs = slices.Insert(e.runs, 0, again)
		}},

		"a recorded call was made again": {rerun, func(_ *testing.T, e *evidence) {
			for s, as := range e.attempts {
				e.attempts[s] = append(as, attempt{number: 2, made: made{epoch: 2}, digest: as[0].digest, prompt: as[0].prompt})
				return
			}
		}},
		"a call that went well was made again": {rerun, func(t *testing.T, e *evidence) {
			i := e.record(t, record.KindEvent)
			e.records[i].Data = []byte(strings.NewReplacer(":1 ", ":2 ", `:1"`, `:2"`).Replace(string(e.records[i].Data)))
			for s, as := range e.attempts {
				e.attempts[s] = append(as, attempt{number: 2, made: as[0].made, digest: as[0].digest, prompt: as[0].prompt})
			}
		}},
		"a call was asked again after the model had its result": {rerun, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawCall, 0)
			_, args, _ := strings.Cut(c.msgs[i].text, "{")
			args, _, _ = strings.Cut(args, "}")
			var in keyed
			if err := json.Unmarshal([]byte("{"+args+"}"), &in); err != nil {
				t.Fatal(err)
			}
			told := c.msgs[i].opened.Add(time.Millisecond)
			e.results = func(key string) (time.Time, bool) { return told, key == in.Key }
			again := c.msgs[i]
			again.opened = told.Add(time.Millisecond)
			c.msgs = slices.Insert(c.msgs, i+1, again)
		}},
		"a call was asked again after its result was recorded": {rerun, func(t *testing.T, e *evidence) {
			c, i := e.on(t, wire, sawCall, 0)
			again := c.msgs[i]
			again.opened = again.opened.Add(time.Minute)
			c.msgs = slices.Insert(c.msgs, i+1, again)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := whole.clone()
			if v := e.check(); v.bad() || v.facts == 0 {
				t.Fatalf("before the fault: %+v", v)
			}
			tc.mutate(t, &e)
			if v := e.check(); tc.count(v) == 0 {
				t.Errorf("the fault is not seen: %+v", v)
			}
		})
	}
}
