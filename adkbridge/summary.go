package adkbridge

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

//go:embed summary.txt
var summaryText string

// summaryInstruction is the instruction of a model that writes a summary.
var summaryInstruction = strings.TrimSuffix(summaryText, "\n")

// The texts around a summary in a prompt.
const (
	summaryHead = "The beginning of this conversation is not shown any more. " +
		"This summary of it stands in its place:\n\n<summary>\n"
	summaryTail = "\n</summary>"
	keptHead    = "What I have said since then, word for word:"
)

// span names the records that a summary replaces.
type span struct {
	// Since is the first record that the agent saw.
	Since int64 `json:"since,omitempty"`
	// Kept are records up to Compacted.Through that the agent still sees: the user's
	// messages of the turn.
	Kept []int64 `json:"kept,omitempty"`
}

// summaryLocked returns a summary as an agent sees it.
func (h *history) summaryLocked(it *item) *genai.Content {
	c := genai.NewContentFromText(summaryHead+it.compacted.Summary+summaryTail, genai.RoleUser)
	for i, seq := range it.span.Kept {
		at := h.afterLocked(seq - 1)
		if at == len(h.items) || h.items[at].seq != seq || h.items[at].content == nil {
			continue
		}
		if i == 0 {
			c.Parts = append(c.Parts, &genai.Part{Text: keptHead})
		}
		c.Parts = append(c.Parts, h.items[at].content.Parts...)
	}
	return c
}

// passage is a part of a conversation as text.
type passage struct{ head, body string }

// passages returns contents as text.
func passages(contents []*genai.Content) []passage {
	var out []passage
	for _, c := range contents {
		who := "user"
		if c.Role == genai.RoleModel {
			who = "agent"
		}
		for _, p := range c.Parts {
			switch {
			case p.Thought:
			case p.FunctionCall != nil:
				out = append(out, passage{"[agent calls " + p.FunctionCall.Name + "]", adapter.ArgsText(p)})
			case p.FunctionResponse != nil:
				head := "[result of " + p.FunctionResponse.Name + "]"
				out = append(out, passage{head, jsonText(p.FunctionResponse.Response)})
				for _, f := range p.FunctionResponse.Parts {
					if file := fileOf(f); file != nil {
						out = append(out, passage{head, fileText(file)})
					}
				}
				for _, tool := range model.References(p) {
					out = append(out, passage{head, "(found: the tool " + tool + ")"})
				}
			case p.InlineData != nil, p.FileData != nil:
				out = append(out, passage{"[" + who + "]", fileText(p)})
			case p.ExecutableCode != nil:
				out = append(out, passage{"[agent runs code]", p.ExecutableCode.Code})
			case p.CodeExecutionResult != nil:
				out = append(out, passage{"[result of the code]", p.CodeExecutionResult.Output})
			case p.Text != "":
				out = append(out, passage{"[" + who + "]", p.Text})
			}
		}
	}
	return out
}

// fileText describes a file.
func fileText(p *genai.Part) string {
	if p.InlineData != nil {
		return strings.TrimSpace("(attached: "+p.InlineData.MIMEType+" "+p.InlineData.DisplayName) + ")"
	}
	return strings.TrimSpace("(attached: "+p.FileData.MIMEType+" "+p.FileData.FileURI) + ")"
}

// conversation returns contents as one text of at most limit bytes. The longest
// passages lose their middle.
func conversation(contents []*genai.Content, limit int) string {
	all := passages(contents)
	longest := maxPassage(all, limit)
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.head + "\n" + cutMiddle(p.body, longest) + "\n\n")
	}
	return cutMiddle(b.String(), limit)
}

// maxPassage returns the longest length of a passage with which all fit.
func maxPassage(all []passage, limit int) int {
	longest := 0
	lens := make([]int, len(all))
	for i, p := range all {
		lens[i] = len(p.body)
		limit -= len(p.head) + len("\n\n\n")
	}
	slices.Sort(lens)
	for i, n := range lens {
		if rest := len(lens) - i; n*rest > limit { // those from here on share what is left
			return max(limit/rest, 0)
		}
		limit -= n
		longest = n
	}
	return longest
}

// cutMiddle shortens a text to about n bytes and keeps more of its beginning than of
// its end.
func cutMiddle(text string, n int) string {
	if len(text) <= n {
		return text
	}
	gap := fmt.Sprintf(" … (%d bytes are left out) … ", len(text)-n)
	n = max(n-len(gap), 0)
	tail := n / 4
	return strings.ToValidUTF8(text[:n-tail], "") + gap + strings.ToValidUTF8(text[len(text)-tail:], "")
}
