package treetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/client"
)

// transcript is what happened, in words.
type transcript struct {
	done   strings.Builder // turns that are over
	turn   *turn
	before map[string]string // the state when the turn began, as JSON
	state  map[string]string // and now
}

// newTranscript begins with the state of a session.
func newTranscript(state map[string]any) *transcript {
	t := &transcript{state: map[string]string{}}
	t.changed(state)
	return t
}

// turn is what happens in one.
type turn struct {
	root   *block
	blocks map[string]*block           // of agents, by path
	said   map[string]*strings.Builder // text of messages that are not complete, by id
	calls  map[string]*line            // by call
	ending string
}

// block is what one agent does, with those below it.
type block struct {
	path     string
	parallel bool
	items    []item
}

// item is a line, or a block.
type item struct {
	line  *line
	block *block
}

type line struct {
	text string
	more []string // what follows it, indented
}

func (t *transcript) prompt(text string) {
	root := &block{}
	t.turn = &turn{
		root: root, blocks: map[string]*block{"": root}, said: map[string]*strings.Builder{}, calls: map[string]*line{},
	}
	root.add(&line{text: "> " + indented(text)})
	t.before = maps.Clone(t.state)
}

func (b *block) add(l *line) *line {
	b.items = append(b.items, item{line: l})
	return l
}

// at is the block of an agent.
func (t *turn) at(path []string) *block {
	for n := len(path); n > 0; n-- {
		if b := t.blocks[strings.Join(path[:n], "/")]; b != nil {
			return b
		}
	}
	return t.root
}

// event notes an event.
func (t *transcript) event(e *client.Event) {
	u := t.turn
	switch d := e.Data.(type) {
	case *client.AgentStarted:
		b := &block{path: strings.Join(d.AgentPath, "/"), parallel: d.Kind == client.AgentParallel}
		above := u.at(d.AgentPath[:max(0, len(d.AgentPath)-1)])
		above.items = append(above.items, item{block: b})
		u.blocks[b.path] = b
	case *client.OutputChunk:
		if d.IsThought || d.MessageID == "" {
			return
		}
		if u.said[d.MessageID] == nil {
			u.said[d.MessageID] = &strings.Builder{}
		}
		u.said[d.MessageID].WriteString(d.Content)
	case *client.MessageRetracted:
		if d.MessageID == "" {
			clear(u.said)
		}
		delete(u.said, d.MessageID)
	case *client.MessageCompleted:
		if said := u.said[d.MessageID]; said != nil && said.Len() > 0 {
			u.at(d.AgentPath).add(&line{text: who(d.AgentPath) + ": " + indented(said.String())})
		}
		delete(u.said, d.MessageID)
	case *client.ToolCall:
		u.call(d.ID, d.AgentPath, d.Name, d.Input)
	case *client.ToolCallAnnounced:
		u.call(d.ID, d.AgentPath, d.Name, d.Input)
	case *client.ToolCallAnswered:
		l := u.calls[d.ID]
		if l == nil { // of a tool of the server
			l = u.call(d.ID, d.AgentPath, d.Name, nil)
		}
		if d.Error != "" {
			l.more = append(l.more, "failed: "+indented(d.Error))
		} else {
			l.more = append(l.more, "= "+indented(d.Output))
		}
	case *client.Transferred:
		u.at(d.AgentPath).add(&line{text: who(d.AgentPath) + " hands over to " + who(d.ToAgentPath)})
	case *client.InteractionResolved:
		u.asked(d.Interaction)
	case *client.StateUpdate:
		t.changed(d.Delta)
	case *client.End:
		u.ending = "completed"
		if !d.Completed {
			u.ending = "ended: " + indented(d.Reason)
		}
	}
}

func (t *turn) call(id string, path []string, name string, input json.RawMessage) *line {
	if l := t.calls[id]; l != nil {
		return l
	}
	text := who(path) + " calls " + name
	if input != nil {
		text += " " + compact(input)
	}
	l := t.at(path).add(&line{text: text})
	t.calls[id] = l
	return l
}

// asked notes a question and what a person has said.
func (t *turn) asked(in *client.Interaction) {
	text := who(in.AgentPath) + " asks: " + indented(in.Question)
	if in.Kind == client.InteractionApproval {
		text = who(in.AgentPath) + " asks to call " + in.ToolName + " " + compact(in.ToolInput)
	}
	l := t.at(in.AgentPath).add(&line{text: text})
	switch r := in.Resolution; {
	case r == nil:
		l.more = append(l.more, "- nobody has replied")
	case r.Kind == client.ResolutionApproval:
		l.more = append(l.more, "- approved")
	case r.Kind == client.ResolutionAnswer:
		l.more = append(l.more, "- "+indented(r.Answer))
	default:
		l.more = append(l.more, strings.TrimSuffix("- denied: "+indented(r.Reason), ": "))
	}
}

// changed notes keys of the state, whether they have changed or not.
func (t *transcript) changed(delta map[string]any) {
	for key, value := range delta {
		text, err := json.Marshal(value)
		if err != nil {
			text = []byte(err.Error())
		}
		t.state[key] = string(text)
	}
}

// fail notes why the turn has failed.
func (t *transcript) fail(err error) {
	t.turn.ending = "failed: " + indented(err.Error())
	if e, ok := errors.AsType[*client.Error](err); ok {
		t.turn.ending = "failed: " + e.Code.Error() + ": " + indented(e.Message)
	}
}

// end ends a turn.
func (t *transcript) end() {
	u := t.turn
	u.root.write(&t.done)
	for _, key := range slices.Sorted(maps.Keys(t.state)) {
		if t.before[key] != t.state[key] {
			fmt.Fprintf(&t.done, "state %s = %s\n", key, t.state[key])
		}
	}
	t.done.WriteString(u.ending + "\n")
}

// String is the transcript.
func (t *transcript) String() string { return t.done.String() }

func (b *block) write(to *strings.Builder) {
	items := b.items
	if b.parallel { // whoever was first
		slices.SortStableFunc(items, func(x, y item) int {
			if x.block == nil || y.block == nil {
				return 0
			}
			return strings.Compare(x.block.path, y.block.path)
		})
	}
	for _, i := range items {
		if i.block != nil {
			i.block.write(to)
			continue
		}
		to.WriteString(i.line.text + "\n")
		for _, more := range i.line.more {
			to.WriteString("  " + more + "\n")
		}
	}
}

// indented is a text whose further lines cannot be taken for others.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

func who(path []string) string {
	if len(path) == 0 {
		return "agent"
	}
	return path[len(path)-1]
}

// compact is JSON on one line.
func compact(text json.RawMessage) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(text) != nil {
		return string(text)
	}
	return strings.TrimSpace(out.String())
}
