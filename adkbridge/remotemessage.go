package adkbridge

import (
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/models/words"
)

// maxRemoteMessage bounds a message to a backend, in bytes: agentd takes no more in a prompt.
const maxRemoteMessage = 1 << 20

// Texts of messages to backends.
const (
	earlierText  = "The conversation so far:"
	leftOutText  = "(What was said before is left out.)"
	nothingText  = "Go on."
	notShownText = "not shown to you"
)

// remoteMessage is what an agent of a backend is told: what has happened since its last message, and before its first
// one the whole conversation, as it sees it, and the texts around its instruction.
func (m *agentModel) remoteMessage(st *remoteState, branch string) string {
	spec := m.t.run.Spec()
	var before []string
	if st.messages == 0 {
		for _, text := range []string{spec.Before, spec.After} {
			if strings.TrimSpace(text) != "" {
				before = append(before, text)
			}
		}
	}
	head := strings.Join(before, layerBreak)
	room := maxRemoteMessage - len(head) - 2*len(layerBreak)
	body := m.t.hist.told(promptKey{m.n.name, branch}, m.t.run.StartSeq(), st.last, room)
	if body == "" {
		body = nothingText
	}
	if head == "" {
		return body
	}
	return head + layerBreak + body
}

// told returns what an agent has not been told: all records after one, and of earlier turns, if that is 0, as many of
// the newest as fit. It has at most so many bytes.
func (h *history) told(key promptKey, start, after int64, most int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var now []string
	var earlier []*item
	for _, it := range h.items {
		switch {
		case it.compacted != nil || it.content == nil || !visible(key.branch, it.branch) || it.seq <= after:
		case it.seq < start:
			earlier = append(earlier, it)
		case it.author == key.agent: // its own calls, and their results
		case it.author == user:
			now = append(now, words.Said(it.content))
		default:
			now = append(now, contextOf(it.asForeign())...)
		}
	}
	text := cutFront(strings.Join(now, layerBreak), most)
	room := most - len(text) - len(earlierText) - len(leftOutText) - 4*len(layerBreak)
	var lines []string
	for _, it := range slices.Backward(earlier) {
		line := it.line()
		if line == "" {
			continue
		}
		if room -= len(line) + 1; room < 0 {
			lines = append(lines, leftOutText)
			break
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return text
	}
	lines = append(lines, earlierText)
	slices.Reverse(lines)
	return strings.Join(lines, "\n") + layerBreak + text
}

// line is what was said in an earlier turn.
func (it *item) line() string {
	if it.author != user {
		return strings.Join(contextOf(it.asForeign()), "\n")
	}
	name := user
	if it.content.Role == genai.RoleModel { // of the history that a session begins with
		name = "assistant"
	}
	if text := words.Said(it.content); text != "" {
		return "[" + name + "] said: " + text
	}
	return ""
}

// contextOf returns the texts of what other agents did, without the words that introduce them.
func contextOf(c *genai.Content) []string {
	if c == nil {
		return nil
	}
	var out []string
	for i, p := range c.Parts {
		switch {
		case i == 0:
		case p.Text != "":
			out = append(out, p.Text)
		default:
			if file := words.DescribeFile(p); file != "" {
				out = append(out, file)
			}
		}
	}
	return out
}

// cutFront keeps the end of a text that is too long.
func cutFront(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return leftOutText + "\n" + strings.ToValidUTF8(text[len(text)-most+len(leftOutText)+1:], "")
}

// resultFileText describes a file of a result, which backends do not get.
func resultFileText(f *genai.FunctionResponsePart) string {
	return strings.TrimSuffix(words.DescribeResultFile(f), "]") + ", " + notShownText + "]"
}
