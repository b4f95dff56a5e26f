package chaos

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// recordBits is how far a position is from its record: seq of a message, shifted
// by it, is the record's. A client must not know; the check of every position
// against the log has to.
const recordBits = 20

// evidence is all that is known about a session from its four sides.
type evidence struct {
	seed     uint64
	number   int
	id       string
	shape    shape
	records  []record.Record
	chains   []*chain
	attempts map[step][]attempt
	downs    map[step][]made
	sums     []sum
	bills    []bill
	results  func(key string) (time.Time, bool) // when the provider was first told
	runs     []execution
	died     map[int]bool
	outcome  []driven
	pursuit  *pursuit // of the session's goal, nil for none
	// shared is set for a session that several processes may own.
	shared *shared
}

// examine holds the sides against each other.
type examine struct {
	evidence
	log   *logged
	v     verdict
	facts map[int64]seen // every fact that somebody has seen, by position
}

func (e evidence) check() verdict {
	x := &examine{evidence: e, log: readLog(e.records), facts: map[int64]seen{}}
	x.v.add(x.log.faults)
	x.turns()
	for _, a := range x.log.answers {
		x.answer(a)
	}
	x.unlogged()
	x.models()
	for _, c := range x.chains {
		x.gather(c)
	}
	x.complete()
	for _, c := range x.chains {
		x.order(c)
		x.gaps(c)
		x.texts(c)
	}
	x.tools()
	x.goals()
	for i, text := range x.v.texts {
		x.v.texts[i] = "session " + strconv.Itoa(e.number) + " (" + e.id + ", " + e.shape.name + "): " + text
	}
	return x.v
}

// turns checks how turns ended, and that those which finished did all that they
// had to, once.
func (x *examine) turns() {
	known := map[string]driven{}
	for _, d := range x.outcome {
		if d.id != "" {
			known[d.id] = d
		}
	}
	numbers := map[int]bool{}
	for _, t := range x.log.turns {
		if numbers[t.number] {
			x.v.repeatedf("turn %d was begun twice", t.number)
		}
		numbers[t.number] = true
		if t.ended == nil {
			continue // is reported
		}
		d, driven := known[t.id]
		delete(known, t.id)
		r := stopped
		switch {
		case t.ended.Completed:
			r = completed
		case t.ended.Code == agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE:
			r = failed
		}
		if driven && d.result != r {
			x.v.lostf("turn %s ended as %v for its client, as %+v in the log", t.id, d.result, *t.ended)
		}
		if r == stopped && (driven || t.ended.Code != 0) && !x.mayStop(t) {
			x.v.otherf("turn %s (%d) ended as %+v", t.id, t.number, *t.ended)
		}
		if r == failed && !x.faulted(t.number) {
			x.v.otherf("turn %s (%d) failed and its provider did not: %+v", t.id, t.number, *t.ended)
		}
		if r == completed {
			x.finished(t)
		}
	}
	for id := range known {
		x.v.lostf("a client has driven turn %s, which the log does not have", id)
	}
}

func (x *examine) faulted(turn int) bool {
	for s, as := range x.attempts {
		if s.turn == turn && slices.ContainsFunc(as, func(a attempt) bool { return a.fault != "" }) {
			return true
		}
	}
	return false
}

// finished checks that a turn holds each answer that its tree comes to.
func (x *examine) finished(t *loggedTurn) {
	start := ""
	if x.shape.root.kind == leaf {
		start = t.start
	}
	got := map[step]int{}
	for _, a := range t.answers {
		got[a.step]++
	}
	for _, want := range x.shape.root.steps(x.seed, x.number, t.number, x.shape.asks, start) {
		switch n := got[want]; {
		case n == 0:
			x.v.lostf("turn %s has finished without step %s", t.id, want)
		case n > 1:
			x.v.repeatedf("turn %s holds step %s %d times", t.id, want, n)
		}
		delete(got, want)
	}
	for s := range got {
		x.v.otherf("turn %s holds step %s, which it does not come to", t.id, s)
	}
	for id, c := range x.log.calls {
		if c.turn != t || c.internal {
			continue
		}
		if c.result == nil || c.result.Outcome != record.Returned {
			x.v.lostf("turn %s has finished and call %s has the result %+v", t.id, id, c.result)
		}
	}
}

// attemptMark is the attempt that a word is of.
var attemptMark = regexp.MustCompile(`\b[wt]\d+:(\d+)`)

// answer holds a recorded answer against what the provider has said, and finds
// calls that were made again although it was there.
func (x *examine) answer(a *loggedAnswer) {
	m := attemptMark.FindStringSubmatch(a.text)
	p := x.shape.root.find(a.agent)
	if a.step == (step{}) || m == nil || p == nil {
		x.v.lostf("record %d: %s says %q, which is no answer of the provider", a.seq, a.agent, a.text)
		return
	}
	number, _ := strconv.Atoi(m[1]) // digits
	as := x.attempts[a.step]
	i := slices.IndexFunc(as, func(t attempt) bool { return t.number == number })
	if i < 0 || a.step.agent != a.agent || a.step.turn != a.turn.number || a.step.session != x.number {
		x.v.lostf("record %d: %s says %q, for which the provider was not asked", a.seq, a.agent, a.text)
		return
	}
	this := as[i]
	want := answerOf(x.seed, p, a.step, number, this.prompt)
	if a.text != want.text || a.thoughts != want.thoughts {
		x.v.lostf("record %d: step %s says %q and thinks %q, the provider said %q and %q", a.seq, a.step, a.text, a.thoughts, want.text, want.thoughts)
	}
	var calls []string
	for _, c := range want.calls {
		calls = append(calls, c.Function.Name+" "+c.Function.Arguments)
	}
	if !slices.Equal(calls, a.calls) {
		x.v.lostf("record %d: step %s calls %v, the provider said %v", a.seq, a.step, a.calls, calls)
	}
	if u := a.usage; u == nil || u.Calls != 1 || u.Prompt != want.prompt || u.Completion != want.completion {
		x.v.lostf("record %d: step %s took %+v, the provider said %d and %d tokens", a.seq, a.step, a.usage, want.prompt, want.completion)
	}
	for _, other := range as {
		if other.digest != this.digest {
			x.v.otherf("step %s: attempts %d and %d were told different things", a.step, other.number, this.number)
		}
		switch {
		case other.number == this.number:
		case x.afterwards(other.made, this.made, a.seq), x.undisturbed(other.made, this.made, a.turn) && other.number > this.number:
			x.rerunf(other.made, "step %s: attempt %d of process %d was made, the answer of attempt %d of process %d is in the log",
				a.step, other.number, other.epoch, this.number, this.epoch)
		case x.undisturbed(other.made, this.made, a.turn) && other.fault == "":
			x.rerunf(this.made, "step %s: attempt %d went well, and process %d made attempt %d", a.step, other.number, this.epoch, this.number)
		}
	}
}

// unlogged checks the steps that are in no log: the turn must be known, and one
// process asks again only after a fault.
func (x *examine) unlogged() {
	logged := map[step]bool{}
	for _, a := range x.log.answers {
		logged[a.step] = true
	}
	turns := map[int]*loggedTurn{}
	for _, t := range x.log.turns {
		turns[t.number] = t
	}
	for s, as := range x.attempts {
		if logged[s] {
			continue
		}
		t := turns[s.turn]
		if t == nil || t.ended != nil && t.ended.Completed {
			x.v.lostf("the provider was asked for step %s, which the log does not have", s)
		}
		for i, a := range as[1:] {
			if before := as[i]; x.undisturbed(before.made, a.made, t) && before.fault == "" {
				x.rerunf(a.made, "step %s: attempt %d went well, and the same process made another one", s, before.number)
			}
		}
	}
}

// gather takes the facts of a chain, each against its record and against what
// others have seen in the same place.
func (x *examine) gather(c *chain) {
	for _, m := range c.msgs {
		switch m.what {
		case sawCall, sawNotice, sawCancelled:
			x.callSeen(c, m)
		case sawResult:
			x.resultSeen(c, m)
		case sawCost:
			x.costSeen(c, m)
		default:
		}
		if !m.fact() || c.events && m.what == sawCall {
			continue
		}
		x.v.facts++
		at := m.seq >> recordBits
		if at < 1 || at > int64(len(x.records)) {
			x.v.lostf("%s saw a %s of record %d, the log ends at %d", c.who, m.what, at, len(x.records))
			continue
		}
		if rec := x.records[at-1]; rec.TurnID != m.turn && m.what != sawGoal || !rec.Time.Equal(m.stamp) || !fits(m.what, rec.Kind) {
			x.v.lostf("%s saw a %s of turn %s at %v in record %d, which is a %s of %s at %v",
				c.who, m.what, m.turn, m.stamp, at, rec.Kind, rec.TurnID, rec.Time)
			continue
		}
		if m.what == sawNotice {
			m.what = sawCall // the same to another client
		}
		m.opened = time.Time{}
		if before, ok := x.facts[m.seq]; ok && before != m {
			x.v.lostf("%s saw %+v, another one %+v", c.who, m, before)
		}
		x.facts[m.seq] = m
	}
}

// fits tells whether a record can be behind a message.
func fits(w what, k record.Kind) bool {
	switch w {
	case sawStart:
		return k == record.KindTurnStarted
	case sawRetract:
		return k == record.KindTurnResumed
	case sawCall, sawNotice:
		return k == record.KindEvent || k == record.KindToolCall
	case sawEnd, sawError:
		return k == record.KindTurnEnded
	case sawCancelled:
		return k == record.KindToolResult || k == record.KindTurnEnded
	case sawResult:
		return k == record.KindToolResult
	case sawGoal:
		return k.OfSession()
	default:
		return true
	}
}

// settleMargin is how long after the time that a record bears it may become
// durable.
const settleMargin = time.Second

// callSeen checks what is said about a tool call, and that none is asked for
// whose result is known.
func (x *examine) callSeen(c *chain, m seen) {
	call := x.log.calls[m.id]
	if call == nil || call.internal || m.what != sawCancelled && call.text != m.text {
		x.v.lostf("%s saw the call %s %q, the log has %+v", c.who, m.id, m.text, call)
		return
	}
	if m.what != sawCall || c.events {
		return
	}
	_, args, _ := strings.Cut(m.text, `{"key":"`)
	key, _, _ := strings.Cut(args, `"`)
	if told, ok := x.results(key); ok && key != "" && m.opened.After(told) {
		x.v.rerunf("%s was asked for call %s (%s) %v after the model had its result", c.who, m.id, key, m.opened.Sub(told))
	}
	if r := call.settledAt; call.result != nil && m.opened.After(r.Time.Add(settleMargin)) {
		x.v.rerunf("%s was asked for call %s %v after its result was recorded", c.who, m.id, m.opened.Sub(r.Time))
	}
}

// resultSeen checks that a result is the one that the log has. What a client
// tells of its own answers is before that.
func (x *examine) resultSeen(c *chain, m seen) {
	call := x.log.calls[m.id]
	if m.seq == 0 {
		return
	}
	if call == nil || call.result == nil || call.result.Outcome != record.Returned {
		x.v.lostf("%s saw a result of call %s, the log has %+v", c.who, m.id, call)
		return
	}
	text := call.result.Error
	if call.result.Output != nil {
		text = *call.result.Output
	}
	if text != m.text || call.settledAt.Seq != m.seq>>recordBits {
		x.v.lostf("%s saw the result %q of call %s at %d, the log has %q in record %d", c.who, m.text, m.id, m.seq, text, call.settledAt.Seq)
	}
}

// complete checks that what the log has was shown, and with the same end.
func (x *examine) complete() {
	starts, ends, calls := map[string]int{}, map[string]int{}, map[string]bool{}
	costs := 0
	for _, m := range x.facts {
		switch m.what {
		case sawStart:
			starts[m.turn]++
			if m.text != x.id {
				x.v.otherf("turn %s is said to be of session %s", m.turn, m.text)
			}
		case sawEnd:
			ends[m.turn]++
		case sawCall:
			calls[m.id] = true
		case sawCost:
			costs++
		default: // is compared by its place
		}
	}
	if costs != len(x.log.costs) {
		x.v.lostf("of %d model calls it was told what they took, the log has %d", costs, len(x.log.costs))
	}
	for _, t := range x.log.turns {
		if starts[t.id] != 1 {
			x.v.lostf("turn %s has %d beginnings for its watchers", t.id, starts[t.id])
		}
		switch {
		case t.ended == nil: // is reported
		case ends[t.id] == 0:
			x.v.lostf("nobody was told the end of turn %s", t.id)
		case ends[t.id] > 1:
			x.v.repeatedf("turn %s has %d ends", t.id, ends[t.id])
		}
	}
	for _, m := range x.facts {
		i := slices.IndexFunc(x.log.turns, func(t *loggedTurn) bool { return t.id == m.turn })
		if m.what != sawEnd || i < 0 || x.log.turns[i].ended == nil {
			continue
		}
		t := x.log.turns[i]
		want := strconv.FormatBool(t.ended.Completed) + " " + t.ended.Reason + " " + usageText(t.usage.Calls, t.usage.Prompt, t.usage.Completion, t.usage.Total)
		if m.text != want {
			x.v.lostf("turn %s ended with %q for its watchers, with %q in the log", t.id, m.text, want)
		}
	}
	for id, c := range x.log.calls {
		if !c.internal && !calls[id] {
			x.v.lostf("nobody was told of call %s", id)
		}
	}
}

// order checks that positions rise. A call that is asked again has the place of
// what came before it.
func (x *examine) order(c *chain) {
	last := max(c.after, 0)
	ended := ""
	for _, m := range c.msgs {
		if m.seq == 0 {
			continue
		}
		if m.what == sawGoal && m.seq > last {
			last = m.seq // whichever turn it is told with
			continue
		}
		if ended != "" && m.turn == ended {
			x.v.repeatedf("%s saw a %s after the end of turn %s", c.who, m.what, m.turn)
		}
		if m.what == sawEnd {
			ended = m.turn
		}
		switch {
		case m.seq > last:
			last = m.seq
		case m.what != sawCall:
			x.v.repeatedf("%s saw a %s at %d after %d", c.who, m.what, m.seq, last)
		}
	}
}

// gaps checks that a chain holds every fact between its first and its last
// position.
func (x *examine) gaps(c *chain) {
	have := map[int64]bool{}
	calls := map[string]bool{}
	end := int64(0)
	for _, m := range c.msgs {
		have[m.seq] = true
		if m.what == sawCall {
			calls[m.id] = true
		}
		end = max(end, m.seq)
	}
	for pos, m := range x.facts {
		if pos <= c.after || pos > end || have[pos] || m.what == sawCall && (c.events || calls[m.id]) {
			continue
		}
		if c.events && (m.what == sawCancelled || m.what == sawResult || m.what == sawError || m.what == sawEnd) {
			continue // what a client tells in another way
		}
		if m.what == sawState && x.snapshot(pos) {
			continue // of an earlier turn only those are told who were there
		}
		x.v.lostf("%s saw what comes after %d up to %d, but not the %s at %d: %s", c.who, c.after, end, m.what, pos, m.text)
	}
}

// snapshot tells whether a state is the one that a turn began with.
func (x *examine) snapshot(pos int64) bool {
	return x.records[pos>>recordBits-1].Kind == record.KindTurnStarted
}

// heard is a message as a chain has put it together.
type heard struct {
	text, thoughts string
	again          bool // it was retracted: it starts over if it is said again
}

// texts checks that what was said, joined, is what the log holds, for all turns
// that the chain has whole.
func (x *examine) texts(c *chain) {
	turn, whole := "", false
	messages := map[string]*heard{}
	for _, m := range c.msgs {
		if m.what == sawGoal {
			continue
		}
		if m.turn != "" && m.turn != turn {
			turn, whole, messages = m.turn, false, map[string]*heard{}
		}
		switch m.what {
		case sawStart:
			whole = true
		case sawRetract:
			for id, h := range messages {
				h.again = h.again || m.id == "" || m.id == id
			}
		case sawText, sawThought:
			h := messages[m.id]
			if h == nil || h.again {
				h = &heard{}
				messages[m.id] = h
			}
			if m.what == sawText {
				h.text += m.text
			} else {
				h.thoughts += m.text
			}
		case sawEnd:
			if whole {
				x.said(c, turn, messages)
			}
		default: // no text
		}
	}
}

func (x *examine) said(c *chain, turn string, messages map[string]*heard) {
	i := slices.IndexFunc(x.log.turns, func(t *loggedTurn) bool { return t.id == turn })
	if i < 0 {
		return // is reported
	}
	t := x.log.turns[i]
	for _, a := range t.answers {
		h := messages[a.id]
		if h == nil {
			h = &heard{}
		}
		delete(messages, a.id)
		switch {
		case h.text == a.text && h.thoughts == a.thoughts:
		case len(h.text) > len(a.text) || strings.Count(h.text, " w0:") > 1:
			x.v.repeatedf("%s heard %q in %s, it is %q", c.who, h.text+"|"+h.thoughts, a.id, a.text+"|"+a.thoughts)
		default:
			x.v.lostf("%s heard %q in %s, it is %q", c.who, h.text+"|"+h.thoughts, a.id, a.text+"|"+a.thoughts)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(messages)) {
		if h := messages[id]; t.ended.Completed || !x.beginning(t, h) {
			x.v.lostf("%s heard %q in %s, which is not in the log", c.who, h.text+"|"+h.thoughts, id)
		}
	}
}

// beginning tells whether a text that is not in the log is what the provider had
// begun to say when it failed.
func (x *examine) beginning(t *loggedTurn, h *heard) bool {
	for s, as := range x.attempts {
		p := x.shape.root.find(s.agent)
		if s.turn != t.number || p == nil {
			continue
		}
		for _, a := range as {
			ans := answerOf(x.seed, p, s, a.number, a.prompt)
			if strings.HasPrefix(ans.text, h.text) && strings.HasPrefix(ans.thoughts, h.thoughts) {
				return true
			}
		}
	}
	return false
}

// tools holds the handlers' own records against the log: each call runs once to
// its end, and what it returned is its result.
func (x *examine) tools() {
	last := map[string]execution{}
	runs := slices.SortedFunc(slices.Values(x.runs), func(a, b execution) int { return a.from.Compare(b.from) })
	for _, r := range runs {
		call := x.log.calls[r.call]
		if call == nil {
			x.v.lostf("a handler ran for call %s, which the log does not have", r.call)
			continue
		}
		if before, ok := last[r.call]; ok {
			// An error that was returned as the process died settles nothing.
			settled := before.final && !(before.failed && x.died[before.client])
			if settled || !before.to.Before(r.from) && before.client == r.client {
				x.v.repeatedf("the handler of call %s (%s) ran again %v after client %d had answered", r.call, r.key, r.from.Sub(before.to), before.client)
			}
		}
		last[r.call] = r
		if res := call.result; r.final && res != nil && res.Outcome == record.Returned {
			if r.failed && res.Error != toolError(r.key) || !r.failed && (res.Output == nil || *res.Output != r.output) {
				x.v.lostf("call %s returned %q, the log has %+v", r.call, r.output, *res)
			}
		}
	}
	for id, c := range x.log.calls {
		if _, ran := last[id]; !c.internal && c.result != nil && c.result.Outcome == record.Returned && !ran {
			x.v.otherf("call %s has an answer and no handler ran", id)
		}
	}
}
