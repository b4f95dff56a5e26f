package modelcall

import (
	"fmt"
	"hash/maphash"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// checker checks one call's response against the contract of model.Response. It keeps length and
// hash of the deltas, not their text. One goroutine owns it.
type checker struct {
	limits Limits
	size   int        // bytes emitted so far
	kinds  [2]emitted // text, thought
}

// emitted is what was emitted of one kind of text.
type emitted struct {
	n    int
	hash maphash.Hash
}

func newChecker(limits Limits) *checker {
	c := &checker{limits: limits}
	c.kinds[1].hash.SetSeed(c.kinds[0].hash.Seed())
	return c
}

// delta counts a delta, or refuses it.
func (c *checker) delta(d model.Delta) error {
	if c.size += len(d.Text); c.size > c.limits.ResponseBytes {
		return c.limitf("the response is longer than %d bytes", c.limits.ResponseBytes)
	}
	if !validText(d.Text) {
		return c.errorf("the response holds text that is not UTF-8")
	}
	k := &c.kinds[kindIndex(d.Thought)]
	k.n += len(d.Text)
	k.hash.WriteString(d.Text)
	return nil
}

// response checks a complete response and returns the text at its end that the adapter did not
// emit.
func (c *checker) response(resp *model.Response) ([]model.Delta, error) {
	if resp == nil {
		return nil, c.errorf("the adapter returned neither a response nor an error")
	}
	if resp.FinishReason == "" {
		return nil, c.errorf("the response has no finish reason: the stream was cut short")
	}
	var parts []*genai.Part
	if resp.Content != nil {
		if resp.Content.Role != genai.RoleModel {
			return nil, c.errorf("the response has role %q, want %q", resp.Content.Role, genai.RoleModel)
		}
		parts = resp.Content.Parts
	}
	if err := c.parts(parts); err != nil {
		return nil, err
	}
	return c.rest(parts)
}

// parts checks each part by itself, and their number and size.
func (c *checker) parts(parts []*genai.Part) error {
	size, calls := 0, 0
	for i, p := range parts {
		if p == nil {
			return c.errorf("part %d of the response is nil", i)
		}
		if !validText(p.Text) {
			return c.errorf("the response holds text that is not UTF-8")
		}
		size += partSize(p)
		if p.FunctionCall == nil {
			continue
		}
		if calls++; p.FunctionCall.Name == "" {
			return c.errorf("function call %d of the response has no name", calls)
		}
	}
	if size > c.limits.ResponseBytes {
		return c.limitf("the response is longer than %d bytes", c.limits.ResponseBytes)
	}
	if calls > c.limits.Calls {
		return c.limitf("the response has %d function calls, at most %d are allowed", calls, c.limits.Calls)
	}
	return nil
}

// rest returns the text of parts after what was emitted, in order, and an error if the parts do not
// begin with the emitted text.
func (c *checker) rest(parts []*genai.Part) ([]model.Delta, error) {
	var seen [2]emitted
	for k := range seen {
		seen[k].hash.SetSeed(c.kinds[k].hash.Seed())
	}
	var rest []model.Delta
	for _, p := range parts {
		k := kindIndex(p.Thought)
		head := min(len(p.Text), c.kinds[k].n-seen[k].n)
		seen[k].n += head
		seen[k].hash.WriteString(p.Text[:head])
		if tail := p.Text[head:]; tail != "" {
			rest = append(rest, model.Delta{Text: tail, Thought: p.Thought})
		}
	}
	for k := range seen {
		if seen[k].n != c.kinds[k].n || seen[k].hash.Sum64() != c.kinds[k].hash.Sum64() {
			return nil, c.errorf("the text that was streamed is not the text of the response")
		}
	}
	return rest, nil
}

func (c *checker) errorf(format string, args ...any) *model.Error {
	return &model.Error{Kind: model.KindUnavailable, Provider: c.limits.Provider, Message: fmt.Sprintf(format, args...)}
}

// limitf is errorf for a response that is too large: a retry would cost as much.
func (c *checker) limitf(format string, args ...any) *model.Error {
	e := c.errorf(format, args...)
	e.Final = true
	return e
}

// kindIndex returns the index of a kind of text in a checker.
func kindIndex(thought bool) int {
	if thought {
		return 1
	}
	return 0
}

// partSize returns roughly how many bytes a part takes.
func partSize(p *genai.Part) int {
	n := len(p.Text) + len(p.ThoughtSignature)
	if p.InlineData != nil {
		n += len(p.InlineData.Data)
	}
	if p.FunctionCall != nil {
		n += len(p.FunctionCall.Name) + len(p.FunctionCall.ID)
	}
	for _, v := range p.PartMetadata {
		if s, ok := v.(string); ok {
			n += len(s)
		}
	}
	return n
}
