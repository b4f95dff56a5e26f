package openai

import (
	"bytes"
	"encoding/json"
	"strings"
)

// sameArgs reports whether two texts of arguments say the same; servers differ in
// the white space of what they repeat.
func sameArgs(a, b string) bool {
	if a == b {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, []byte(a)) == nil && json.Compact(&y, []byte(b)) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// sameText reports whether two texts say the same, up to white space.
func sameText(a, b string) bool {
	return a == b || strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}

// setArgs takes the arguments of a call as a whole. Pieces that say something
// else were lost, doubled or mixed up on the way.
func (a *responsesResponse) setArgs(it *itemState, args string) error {
	if args == "" {
		return nil
	}
	if it.args.Len() > 0 && !sameArgs(it.args.String(), args) {
		return a.llm.broken("the arguments of a function call are not what was streamed of them")
	}
	it.args.Reset()
	it.args.WriteString(args)
	return nil
}

// repeated holds the items that the last event of a complete response repeats
// against those that came before it: an item that was lost on the way must not
// be missed. Servers that repeat none are believed, also that number them
// differently or leave out one kind of them.
func (a *responsesResponse) repeated(output []json.RawMessage) error {
	var text strings.Builder
	calls := map[string]string{} // arguments by call id
	for _, raw := range output {
		item, err := readItem(raw)
		if err != nil {
			return a.llm.broken("an item of the response is not the JSON expected")
		}
		switch item.Type {
		case "message":
			for _, c := range item.Content {
				if c.Type == "output_text" {
					text.WriteString(c.Text)
				}
			}
		case "function_call":
			calls[item.CallID] = item.Arguments
		}
	}
	var said strings.Builder
	made := 0
	if c := a.builder.Content(); c != nil {
		for _, p := range c.Parts {
			if p.FunctionCall != nil {
				made++
			}
			if !p.Thought {
				said.WriteString(p.Text)
			}
		}
	}
	switch {
	case text.Len() > 0 && !sameText(text.String(), said.String()):
		return a.llm.broken("the text of the response is not what was streamed of it")
	case len(calls) > made:
		return a.llm.broken("a function call of the response was not streamed")
	default:
		return nil
	}
}
