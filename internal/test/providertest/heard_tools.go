package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// ToolUse is what the bytes of a stream say of a tool that the provider has run.
// Input and Output are compact JSON with sorted keys, or "".
type ToolUse struct{ ID, Name, Input, Output, Error string }

// Source is what they say of a source that the answer cites; About is the part of
// the answer's text, "" where they do not say which.
type Source struct{ URI, Title, Text, About string }

// HearTools reads what a stream, which is whole, says of the provider's own tools
// and of sources: from all of it at once, as no adapter can.
func HearTools(wire Wire, stream string) (uses []ToolUse, sources []Source) {
	t := &toolHearing{}
	for _, e := range parseEvents(stream) {
		var o object
		if json.Unmarshal([]byte(e.data), &o) == nil {
			t.events = append(t.events, o)
		}
	}
	switch wire {
	case OpenAIChat:
		t.chat()
	case OpenAIResponses:
		t.responses()
	case Anthropic:
		t.anthropic()
	case Gemini:
		t.gemini()
	}
	return t.uses, t.sources
}

type toolHearing struct {
	events  []object
	uses    []ToolUse
	sources []Source
}

// SortedJSON is JSON in the form of ToolUse; "" for what is none.
func SortedJSON(raw []byte) string {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || v == nil {
		return ""
	}
	return string(encode(v))
}

// runes is the part of text between two characters.
func runes(text string, o object) string {
	all := []rune(text)
	start, end := int(number(o, "start_index")), int(number(o, "end_index"))
	if start < 0 || end <= start || end > len(all) {
		return ""
	}
	return string(all[start:end])
}

func (t *toolHearing) chat() {
	var content strings.Builder
	var notes, executed []object
	for _, e := range t.events {
		for _, c := range e.list("choices") {
			d := c.obj("delta")
			content.WriteString(d.str("content"))
			notes = append(notes, d.list("annotations")...)
			executed = append(executed, d.list("executed_tools")...)
		}
	}
	for _, x := range executed {
		out := object{}
		for _, key := range []string{"output", "search_results", "code_results"} {
			if x.has(key) && present(x[key]) {
				out[key] = x[key]
			}
		}
		name := x.str("type")
		if standard := map[string]string{"search": "web_search", "python": "code_execution"}[name]; standard != "" {
			name = standard
		}
		t.uses = append(t.uses, ToolUse{
			Name:   name,
			Input:  SortedJSON([]byte(x.str("arguments"))),
			Output: SortedJSON(encode(out)),
		})
	}
	for _, n := range notes {
		n = n.obj("url_citation")
		s := Source{n.str("url"), n.str("title"), n.str("content"), runes(content.String(), n)}
		t.sources = append(t.sources, s)
	}
}

func (t *toolHearing) responses() {
	for _, item := range t.events[len(t.events)-1].obj("response").list("output") {
		u := ToolUse{ID: item.str("id")}
		if item.str("status") == "failed" {
			u.Error = "failed"
		}
		switch item.str("type") {
		case "web_search_call":
			u.Name = "web_search"
			action := item.obj("action")
			if found := action["sources"]; present(found) {
				u.Output = SortedJSON(encode(object{"sources": found}))
			}
			delete(action, "sources")
			u.Input = SortedJSON(encode(action))
		case "code_interpreter_call":
			u.Name = "code_execution"
			u.Input = SortedJSON(encode(object{"code": item["code"]}))
			u.Output = SortedJSON(item["outputs"])
		case "message":
			for _, c := range item.list("content") {
				for _, n := range c.list("annotations") {
					address, title := n.str("url")+n.str("file_id"), n.str("title")+n.str("filename")
					t.sources = append(t.sources, Source{address, title, "", runes(c.str("text"), n)})
				}
			}
			continue
		default:
			continue
		}
		t.uses = append(t.uses, u)
	}
}

func (t *toolHearing) anthropic() {
	var blocks []object
	texts, inputs, cites := map[int]string{}, map[int]string{}, map[int][]object{}
	for _, e := range t.events {
		at, d := len(blocks)-1, e.obj("delta")
		switch e.str("type") {
		case "content_block_start":
			blocks = append(blocks, e.obj("content_block"))
			texts[at+1] = blocks[at+1].str("text")
		case "content_block_delta":
			texts[at] += d.str("text")
			inputs[at] += d.str("partial_json")
			if d.has("citation") {
				cites[at] = append(cites[at], d.obj("citation"))
			}
		}
	}
	for i, b := range blocks {
		for _, c := range cites[i] {
			t.sources = append(t.sources, Source{c.str("url"), c.str("title"), c.str("cited_text"), texts[i]})
		}
		kind := b.str("type")
		switch {
		case kind == "server_tool_use":
			t.uses = append(t.uses, ToolUse{ID: b.str("id"), Name: b.str("name"), Input: SortedJSON([]byte(inputs[i]))})
		case strings.HasSuffix(kind, "_tool_result"):
			n := slices.IndexFunc(t.uses, func(u ToolUse) bool { return u.ID == b.str("tool_use_id") })
			if code := b.obj("content").str("error_code"); code != "" {
				t.uses[n].Error = code
				continue
			}
			var found []object
			for _, r := range b.list("content") {
				delete(r, "encrypted_content")
				found = append(found, r)
			}
			t.uses[n].Output = SortedJSON(encode(found))
		}
	}
}

func (t *toolHearing) gemini() {
	var text strings.Builder
	var grounding object
	var pages []object
	for _, e := range t.events {
		for _, c := range e.list("candidates") {
			for _, p := range c.obj("content").list("parts") {
				t.geminiPart(p)
				if string(p["thought"]) != "true" {
					text.WriteString(p.str("text"))
				}
			}
			if g := c.obj("groundingMetadata"); len(g) > 0 {
				grounding = g
			}
			pages = append(pages, c.obj("urlContextMetadata").list("urlMetadata")...)
		}
	}
	chunks := grounding.list("groundingChunks")
	if queries := grounding["webSearchQueries"]; present(queries) {
		found := []object{}
		for _, c := range chunks {
			if web := c.obj("web"); len(web) > 0 {
				found = append(found, object{"uri": web["uri"], "title": web["title"]})
			}
		}
		t.uses = append(t.uses, ToolUse{
			Name:   "google_search",
			Input:  SortedJSON(encode(object{"queries": queries})),
			Output: SortedJSON(encode(object{"sources": encode(found)})),
		})
	}
	for _, p := range pages {
		u := ToolUse{Name: "url_context", Input: SortedJSON(encode(object{"url": p["retrievedUrl"]}))}
		if status := p.str("urlRetrievalStatus"); status != "URL_RETRIEVAL_STATUS_SUCCESS" {
			u.Error = status
		}
		t.uses = append(t.uses, u)
	}
	cited := map[int]bool{}
	source := func(i int, about string) {
		cited[i] = true
		c := chunks[i].obj("web")
		if len(c) == 0 {
			c = chunks[i].obj("retrievedContext")
		}
		t.sources = append(t.sources, Source{c.str("uri"), c.str("title"), c.str("text"), about})
	}
	for _, s := range grounding.list("groundingSupports") {
		about := s.obj("segment").str("text")
		if strings.Count(text.String(), about) != 1 {
			about = fmt.Sprintf("%q stands %d times in the answer", about, strings.Count(text.String(), about))
		}
		var indices []int
		_ = json.Unmarshal(s["groundingChunkIndices"], &indices)
		for _, i := range indices {
			source(i, about)
		}
	}
	for i := range chunks {
		if !cited[i] {
			source(i, "")
		}
	}
}

func (t *toolHearing) geminiPart(p object) {
	if code := p.obj("executableCode"); len(code) > 0 {
		in := object{"language": code["language"], "code": code["code"]}
		t.uses = append(t.uses, ToolUse{ID: code.str("id"), Name: "code_execution", Input: SortedJSON(encode(in))})
	}
	if call := p.obj("toolCall"); len(call) > 0 {
		t.uses = append(t.uses, ToolUse{
			ID:    call.str("id"),
			Name:  strings.ToLower(call.str("toolType")),
			Input: SortedJSON(call["args"]),
		})
	}
	if r := p.obj("codeExecutionResult"); len(r) > 0 {
		u := &t.uses[len(t.uses)-1]
		u.Output = SortedJSON(encode(object{"output": r["output"]}))
		if outcome := r.str("outcome"); outcome != "OUTCOME_OK" {
			u.Error = outcome
		}
	}
}
