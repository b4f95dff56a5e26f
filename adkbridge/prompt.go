package adkbridge

import (
	"slices"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/encoded"
)

// continueText ends a prompt that would end on a model's turn; ADK's words.
const continueText = "Continue processing previous requests as instructed. " +
	"Exit or provide a summary if no more outputs are needed."

// lostText is the result of a call whose own result never came.
const lostText = "cancelled: the call was interrupted, its result is not known"

// promptKey names a prompt: an agent sees what its branch may see.
type promptKey struct{ agent, branch string }

// prompt is what one agent on one branch has seen. Requests share its contents: what
// was handed out never changes, it only grows.
type prompt struct {
	since    int64 // what happened before this record is not part of it
	contents []*genai.Content
	next     int         // index into history.items of the first one not seen
	open     []*openCall // own calls without a result, rarely more than one
	encoded  *encoded.Conversation
	measures
	wishes
}

// openCall is a content of an agent's own with calls that lack results.
type openCall struct {
	at         int // index into contents
	hasResults bool
	missing    []*genai.FunctionCall
}

// prompt returns the contents of an agent's request: the history as the agent sees it
// from a record on, ending on a user's turn. The result is shared and must not be
// changed.
func (h *history) prompt(agent, branch string, since int64) []*genai.Content {
	contents, _ := h.request(agent, branch, since)
	return contents
}

// request returns the prompt, and what is kept of it between calls.
func (h *history) request(agent, branch string, since int64) ([]*genai.Content, *encoded.Conversation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.upToDateLocked(promptKey{agent, branch}, since)
	out := slices.Clip(p.contents)
	if n := len(out); n == 0 || out[n-1].Role != genai.RoleUser {
		out = append(out, genai.NewContentFromText(continueText, genai.RoleUser))
	}
	return out, p.encoded
}

// upToDateLocked returns the prompt of a key with all events, from a record or from the
// end of a summary.
func (h *history) upToDateLocked(key promptKey, since int64) *prompt {
	p := h.prompts[key]
	if p == nil || p.since != since {
		if p != nil {
			h.forgetLocked(key)
		}
		p = &prompt{since: since, encoded: h.room.Conversation()}
		h.prompts[key] = p
	}
	for ; p.next < len(h.items); p.next++ {
		it := h.items[p.next]
		p.noteWish(it, key)
		if it.compacted == nil {
			h.addVisibleLocked(p, it, key)
		} else if h.summarizesLocked(it, key) && it.span.Since == since {
			p.startFromSummary(h.summaryLocked(it))
			for _, kept := range h.items[h.afterLocked(it.compacted.Through):p.next] {
				h.addVisibleLocked(p, kept, key)
			}
			p.summaryDone(it.compacted)
		}
	}
	p.closeOrphanCalls()
	return p
}

// afterLocked returns the index of the first item after a record.
func (h *history) afterLocked(seq int64) int {
	i, _ := slices.BinarySearchFunc(h.items, seq+1, func(e *item, seq int64) int { return int(e.seq - seq) })
	return i
}

// addVisibleLocked adds one event if the agent sees it.
func (h *history) addVisibleLocked(p *prompt, it *item, key promptKey) {
	if it.compacted != nil || p.since > 0 && it.seq < p.since || it.content == nil || len(it.content.Parts) == 0 ||
		!h.seesLocked(key.branch, it) {
		return
	}
	p.noteBefore(it, key)
	p.add(it, key.agent)
	p.noteAfter(it)
}

// add adds one event.
func (p *prompt) add(it *item, agent string) {
	if it.author != agent && it.author != user {
		if c := it.asForeign(); c != nil {
			p.contents = append(p.contents, c)
		}
		return
	}
	var calls []*genai.FunctionCall
	var results []*genai.Part
	for _, part := range it.content.Parts {
		if part.FunctionCall != nil {
			calls = append(calls, part.FunctionCall)
		}
		if part.FunctionResponse != nil {
			results = append(results, part)
		}
	}
	switch {
	case len(results) > 0:
		p.addResults(results)
	case it.content.Role != "":
		p.contents = append(p.contents, it.content)
		if len(calls) > 0 {
			p.open = append(p.open, &openCall{at: len(p.contents) - 1, missing: calls})
		}
	}
}

// addResults puts results right after their calls. It drops results without an open
// call.
func (p *prompt) addResults(results []*genai.Part) {
	for _, o := range p.open {
		var mine []*genai.Part
		results = slices.DeleteFunc(slices.Clone(results), func(r *genai.Part) bool {
			i := slices.IndexFunc(o.missing, func(c *genai.FunctionCall) bool { return c.ID == r.FunctionResponse.ID })
			if i < 0 {
				return false
			}
			o.missing = slices.Delete(slices.Clone(o.missing), i, i+1)
			mine = append(mine, r)
			return true
		})
		if len(mine) > 0 {
			p.placeResults(o, mine)
		}
	}
	p.open = slices.DeleteFunc(p.open, func(o *openCall) bool { return len(o.missing) == 0 })
}

// placeResults puts results after the content that o names. Contents that were handed
// out do not change: all but an append works on a copy.
func (p *prompt) placeResults(o *openCall, results []*genai.Part) {
	at := o.at + 1
	if o.hasResults {
		p.contents = slices.Clone(p.contents)
		p.contents[at] = &genai.Content{Role: genai.RoleUser, Parts: slices.Concat(p.contents[at].Parts, results)}
		return
	}
	o.hasResults = true
	c := &genai.Content{Role: genai.RoleUser, Parts: results}
	if at == len(p.contents) {
		p.contents = append(p.contents, c)
		return
	}
	p.contents = slices.Insert(slices.Clone(p.contents), at, c)
	for _, other := range p.open {
		if other.at >= at {
			other.at++
		}
	}
}

// closeOrphanCalls gives a result to each call that will never get one, since providers
// refuse a history with such a call. An agent calls its model only when all its calls
// are over, so a call that is open now is lost.
func (p *prompt) closeOrphanCalls() {
	for _, o := range p.open {
		var lost []*genai.Part
		for _, c := range o.missing {
			lost = append(lost, responsePart(c, errorResult(lostText)))
		}
		p.placeResults(o, lost)
	}
	p.open = nil
}

// responsePart is the result of a call.
func responsePart(c *genai.FunctionCall, result map[string]any) *genai.Part {
	return &genai.Part{FunctionResponse: &genai.FunctionResponse{ID: c.ID, Name: c.Name, Response: result}}
}

// errorResult is a result that holds an error.
func errorResult(text string) map[string]any { return map[string]any{"error": text} }
