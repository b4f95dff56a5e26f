package adkbridge

import (
	"context"
	"maps"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// instructionMark is the instruction that ADK sees. A live model call replaces it. A
// response of the log needs no instruction, and the state may lack its keys then.
const instructionMark = "{agentd instruction}"

// instructed reports whether an agent has an instruction besides ADK's own.
func (t *turn) instructed(n *node) bool {
	spec := t.run.Spec()
	return n.kind != remoteKind && (n.instruction.source != "" || spec.Before != "" || spec.After != "")
}

// filling is an instruction with the values of its keys. Its size is known before the
// text is built: a key that occurs many times multiplies its value.
type filling struct {
	template
	n             *node
	before, after string // the server's text and the caller's for this turn
	mode          agentdv1.InstructionMode
	values        map[string]string // of the keys; what is missing is absent
}

// fill reads the values of an agent's keys. A value is encoded once, however often
// it is used. It takes the place of ADK's templates, whose errors name neither key
// nor agent and which print objects and large numbers as Go does.
func (n *node) fill(spec *record.Spec, state map[string]any) *filling {
	f := &filling{
		template: n.instruction, n: n, before: spec.Before, after: spec.After, mode: spec.Mode,
		values: map[string]string{},
	}
	if spec.Mode == agentdv1.InstructionMode_INSTRUCTION_MODE_REPLACE {
		f.template = template{}
	}
	for key := range f.uses {
		if v, ok := state[key]; ok {
			f.values[key] = stateText(v)
		}
	}
	return f
}

// missing returns the first required key that the state lacks, "" for none.
func (f *filling) missing() string {
	for s := range f.segments() {
		if _, ok := f.values[s.key]; !ok && s.key != "" && !s.optional {
			return s.key
		}
	}
	return ""
}

// size returns the most bytes that the instruction takes, with the texts around it.
func (f *filling) size() int {
	n := f.literal + len(f.before) + len(f.after) + 2*len(layerBreak) + f.n.transferBytes()
	for key, times := range f.uses {
		n += times * len(f.values[key])
	}
	return n
}

// check refuses an instruction that is too long.
func (f *filling) check(most int) error {
	n := f.size()
	if n <= most {
		return nil
	}
	largest, why := 0, ""
	for _, key := range slices.Sorted(maps.Keys(f.uses)) {
		if bytes := f.uses[key] * len(f.values[key]); bytes > largest {
			largest = bytes
			why = fault.Errorf(codeLimit, "; key %q has %d bytes and stands in it %d times", key, len(f.values[key]),
				f.uses[key]).Message
		}
	}
	return fault.Errorf(codeLimit, "%s: instruction: filled in it takes %d bytes, at most %d are allowed%s", f.n.at(),
		n, most, why).
		Over("filled_instruction_bytes", most, n)
}

// layerBreak separates the texts of an instruction.
const layerBreak = "\n\n"

// text returns the whole instruction: the server's text, then the agent's own and the caller's, which may come before
// it or be there in its place.
func (f *filling) text() string {
	var own strings.Builder
	own.Grow(f.size())
	for s := range f.segments() {
		own.WriteString(s.text)
		own.WriteString(f.values[s.key])
	}
	layers := []string{f.before, own.String(), f.after}
	if f.mode == agentdv1.InstructionMode_INSTRUCTION_MODE_PREPEND {
		layers[1], layers[2] = layers[2], layers[1]
	}
	layers = slices.DeleteFunc(layers,
		func(s string) bool { return strings.TrimSpace(s) == "" })
	return strings.Join(layers, layerBreak)
}

// instruction returns an agent's instruction filled in from this state.
func (t *turn) instruction(n *node, state map[string]any) (string, error) {
	f := n.fill(t.run.Spec(), state)
	if key := f.missing(); key != "" {
		return "", fault.Errorf(codeTree,
			"%s: instruction: the state has no key %q; set it before this agent runs, or write {%s?}", n.at(), key, key)
	}
	if err := f.check(t.limits.FilledBytes); err != nil {
		return "", err
	}
	return f.text(), nil
}

// stateOf returns the current values of the keys in an agent's instruction.
func (t *turn) stateOf(n *node) map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.stateOf(t.state)
}

func (n *node) stateOf(state map[string]any) map[string]any {
	out := make(map[string]any, min(len(n.instruction.uses), len(state)))
	for key := range n.instruction.uses {
		if v, ok := state[key]; ok {
			out[key] = v
		}
	}
	return out
}

// transferWords is about how many bytes ADK writes about agents to transfer to, besides
// names and descriptions; targetWords is the same for each agent.
const (
	transferWords = 700
	targetWords   = 40
)

// transferBytes returns the size of the list of agents to transfer to. Each occurs
// twice.
func (n *node) transferBytes() int {
	size := 0
	for target := range n.reaches() {
		size += 2*len(target.name) + len(target.description) + targetWords
	}
	if size > 0 {
		size += transferWords
	}
	return size
}

// requestBytes returns about how large an agent's next request is before an adapter
// encodes it.
func (m *agentModel) requestBytes() int {
	n := m.n
	size := n.fill(m.t.run.Spec(), m.t.stateOf(n)).size() + m.t.hist.size()
	for _, tool := range n.tools {
		size += tool.bytes
	}
	if n.output != nil {
		size += len(n.output.text)
	}
	return size
}

// enterCall waits until the turn's other requests, and then those of all turns, leave
// room for the agent's next one. The caller calls leave when the call is over.
func (m *agentModel) enterCall(ctx context.Context) (leave func(), err error) {
	leave = func() {}
	err = m.t.run.Wait(ctx, false, func(ctx context.Context) (err error) {
		whole := int64(m.requestBytes())
		size := min(whole, int64(m.t.limits.RequestBytes))
		if err := m.t.requests.Acquire(ctx, size); err != nil {
			return context.Cause(ctx)
		}
		all, err := m.t.allRequests.enter(ctx, whole)
		if err != nil {
			m.t.requests.Release(size)
			return err
		}
		leave = func() {
			all()
			m.t.requests.Release(size)
		}
		return nil
	})
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// checkFilled refuses a tree if an agent's instruction is too large with the state at
// the turn's start. Keys that agents write by an output_key are not known yet.
func (t *tree) checkFilled(spec *record.Spec, state map[string]any, most int) error {
	written := map[string]bool{}
	for n := range t.root.all() {
		written[n.outputKey] = true
	}
	for n := range t.root.all() {
		known := n.stateOf(state)
		maps.DeleteFunc(known, func(key string, _ any) bool { return written[key] })
		if n.kind != llmKind {
			continue
		}
		if err := n.fill(spec, known).check(most); err != nil {
			return err
		}
	}
	return nil
}

// CheckState refuses a spec that [Runner.Check] has accepted and that cannot run
// with the state which its turn would begin with.
func (r *Runner) CheckState(spec *record.Spec, state map[string]any) error {
	c, ok := spec.Checked.(*checkedTree)
	if !ok {
		return nil
	}
	return c.tree.checkFilled(spec, state, r.limits().FilledBytes)
}
