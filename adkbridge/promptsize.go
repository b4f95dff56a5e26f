package adkbridge

import (
	"slices"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// A token takes from minRatio to maxRatio bytes. maxRatio counts until a provider has
	// counted tokens.
	minRatio, maxRatio = 2, 4
	// pictureWeight is the weight of a picture, in bytes of text that take as many tokens.
	pictureWeight = 1600 * maxRatio
	// partWeight is the weight of a part besides its content.
	partWeight = 16
)

// measures hold the size of a prompt and the places where it may be cut.
type measures struct {
	bytes      int     // weight of the contents, about
	points     []point // rising
	summarized bool    // the first content is a summary
	fresh      bool    // nothing has happened since that was written
	overflow   bool    // it was written because the prompt before was refused
	// The provider has counted context tokens when the prompt weighed counted;
	// context is 0 while it has not.
	context int64
	counted int
}

// point is a place in a prompt at which no call is without its result.
type point struct {
	seq   int64 // of the last record before it
	n     int   // contents before it
	bytes int   // their weight
	asks  bool  // the user speaks next
}

// noteBefore updates the measures before an event is added.
func (p *prompt) noteBefore(it *item, key promptKey) {
	p.fresh = false
	if it.response && it.context > 0 && it.author == key.agent && it.branch == key.branch {
		p.context, p.counted = it.context, p.bytes
	}
	if n := len(p.points); it.author == user && it.content.Role != genai.RoleModel && n > 0 {
		p.points[n-1].asks = true
	}
}

// noteAfter updates the measures after an event is added.
func (p *prompt) noteAfter(it *item) {
	p.bytes += it.weigh()
	if len(p.open) == 0 {
		p.points = append(p.points, point{seq: it.seq, n: len(p.contents), bytes: p.bytes})
	}
}

// startFromSummary restarts the prompt with a summary of its contents.
func (p *prompt) startFromSummary(c *genai.Content) {
	p.contents, p.open = []*genai.Content{c}, nil
	p.measures = measures{summarized: true, bytes: weigh(c)}
}

// summaryDone notes that the prompt holds all that the summary does not replace. The
// provider's earlier count was of another prompt.
func (p *prompt) summaryDone(c *record.Compacted) {
	p.fresh, p.overflow = true, c.Overflow
	p.context, p.counted = 0, 0
}

// outline is a prompt at one moment.
type outline struct {
	contents []*genai.Content // shared; without what only a request needs
	measures
	said []*item // what the user has said in the turn
}

// outline returns an agent's prompt with its measures; start is the turn's first
// record.
func (h *history) outline(key promptKey, since, start int64) *outline {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.upToDateLocked(key, since)
	o := &outline{contents: slices.Clip(p.contents), measures: p.measures}
	o.points = slices.Clone(o.points)
	for _, it := range h.items[h.afterLocked(start-1):] {
		if it.author == user && it.content != nil && h.seesLocked(key.branch, it) {
			o.said = append(o.said, it)
			it.weigh()
		}
	}
	return o
}

// ratio returns how many bytes a token takes.
func (o *outline) ratio() float64 {
	if o.context == 0 {
		return maxRatio
	}
	return min(max(float64(o.counted)/float64(o.context), minRatio), maxRatio)
}

// tokens estimates what the prompt takes, and rest bytes that go with every prompt.
func (o *outline) tokens(rest int) int64 {
	if o.context == 0 {
		return int64(o.bytes+rest) / maxRatio
	}
	return o.context + int64(float64(max(o.bytes-o.counted, 0))/o.ratio())
}

// section is the beginning of a prompt that a summary may replace.
type section struct {
	point
	kept []int64 // messages of the user before the point that stay
	gain int     // what the prompt loses, in bytes
}

// choose finds the beginning that leaves at most keep bytes, or as few as possible. The
// newest round of calls stays, unless all may go. It also reports whether a summary is
// worth its cost.
func (o *outline) choose(keep int, all bool) (section, bool) {
	var best section
	first := 0
	if o.summarized {
		first = 1
	}
	for _, p := range o.points {
		if p.n <= first || p.n == len(o.contents) && !all {
			continue
		}
		s := o.section(p, keep)
		rest := o.bytes - s.gain
		switch fits := best.n > 0 && o.bytes-best.gain <= keep; {
		case !fits && (rest <= keep || best.n == 0 || s.gain > best.gain):
			best = s
		case fits && rest < keep/2:
			return best, best.gain >= o.bytes/8
		case fits && s.asks && !best.asks:
			best = s // better, since the rest begins with what the user says
		}
	}
	return best, best.n > 0 && best.gain >= o.bytes/8
}

// section returns the section that ends at a point. Of the prompts of the turn it keeps
// the newest word for word, and more if they are small.
func (o *outline) section(p point, keep int) section {
	s := section{point: p, gain: p.bytes}
	for i, it := range slices.Backward(o.said) {
		if it.seq > p.seq {
			continue
		}
		if i < len(o.said)-1 && p.bytes-s.gain+it.weight > keep/2 {
			break
		}
		s.kept = append(s.kept, it.seq)
		s.gain -= it.weight
	}
	slices.Reverse(s.kept)
	return s
}

// weigh returns the weight of the event's content.
func (it *item) weigh() int {
	if it.weight == 0 {
		it.weight = weigh(it.content)
	}
	return it.weight
}

// weigh returns how many bytes of text take about as many tokens as a content.
func weigh(c *genai.Content) int { return weighWith(c, weighMedia, pictureWeight) }

// weighWith returns the weight of a content, with that of inline data and of a file that the provider has.
func weighWith(c *genai.Content, inline func(mime string, size int) int, file int) int {
	n := 0
	for _, p := range c.Parts {
		n += partWeight + len(p.Text)
		if p.FunctionCall != nil {
			n += len(p.FunctionCall.Name) + len(adapter.ArgsText(p))
		}
		if r := p.FunctionResponse; r != nil {
			n += len(r.Name) + weighValue(r.Response)
			for _, tool := range model.References(p) {
				n += partWeight + len(tool)
			}
			for _, media := range r.Parts {
				if media.InlineData != nil {
					n += inline(media.InlineData.MIMEType, len(media.InlineData.Data))
				}
				if media.FileData != nil {
					n += file
				}
			}
		}
		if p.InlineData != nil {
			n += inline(p.InlineData.MIMEType, len(p.InlineData.Data))
		}
		if p.FileData != nil {
			n += file
		}
		if p.ExecutableCode != nil {
			n += len(p.ExecutableCode.Code)
		}
		if p.CodeExecutionResult != nil {
			n += len(p.CodeExecutionResult.Output)
		}
		if opaque, ok := p.PartMetadata[seam.MetaOpaque].(string); ok {
			n += len(opaque)
		}
	}
	return n
}

// weighValue returns about the size of a JSON value.
func weighValue(v any) int {
	const other = 6
	n := other
	switch v := v.(type) {
	case string:
		n += len(v)
	case map[string]any:
		for k, member := range v {
			n += len(k) + weighValue(member)
		}
	case []any:
		for _, member := range v {
			n += weighValue(member)
		}
	}
	return n
}

// weighMedia returns the weight of inline data. Providers count pictures by area and
// other media by length; bytes say little about either.
func weighMedia(mime string, size int) int {
	const perToken = 32
	if len(mime) > 6 && mime[:6] == "image/" {
		return pictureWeight
	}
	return max(pictureWeight, size/perToken*maxRatio)
}
