package modelcall

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// bounded returns the response with its Provided within bounds (UTF-8, valid JSON where JSON is
// due, citations of parts that the text has) and with a consistent usage.
func bounded(r *model.Response) *model.Response {
	usage := r.Usage.Normal()
	if r.Provided == nil && r.Usage == usage {
		return r
	}
	out := *r
	out.Usage = usage
	if r.Provided == nil {
		return &out
	}
	b := &bounds{left: seam.MaxProvided, text: adapter.Text(r.Content)}
	out.Provided = b.apply(r.Provided).OrNil()
	return &out
}

// bounds are those of one response.
type bounds struct {
	left int    // what texts may take yet, in bytes
	text string // what is cited from
}

func (b *bounds) apply(p *model.Provided) *model.Provided {
	out := &model.Provided{}
	for _, u := range p.Uses[:min(len(p.Uses), seam.MaxUses)] {
		out.Uses = append(out.Uses, model.Use{
			ID: b.cut(u.ID), Name: b.cut(u.Name), Input: b.value(u.Input), Output: b.value(u.Output),
			Error: b.cut(u.Error),
		})
	}
	for _, c := range p.Citations {
		if len(out.Citations) == seam.MaxCitations || b.left <= 0 {
			break
		}
		c.URI, c.Title, c.Text = b.cut(c.URI), b.cut(c.Title), b.cut(c.Text)
		if !b.holds(c.Start, c.End) {
			c.Start, c.End = 0, 0
		}
		out.Citations = append(out.Citations, c)
	}
	return out
}

// holds reports whether the text has such a part.
func (b *bounds) holds(start, end int) bool {
	edge := func(i int) bool { return i == len(b.text) || utf8.RuneStart(b.text[i]) }
	return 0 <= start && start < end && end <= len(b.text) && edge(start) && edge(end)
}

// take returns the beginning of s, at most limit bytes and at most what is left.
func (b *bounds) take(s string, limit int) (head string, cut bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	n := max(min(limit, b.left), 0)
	if len(s) > n {
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s, cut = s[:n], true
	}
	b.left -= len(s)
	return s, cut
}

func (b *bounds) cut(s string) string {
	s, _ = b.take(s, seam.MaxUseText)
	return s
}

// value bounds JSON. Quoting at most doubles the length of JSON.
func (b *bounds) value(s string) string {
	limit := seam.MaxUseValue
	if len(s) > limit || len(s) > b.left {
		limit /= 2
	}
	s, cut := b.take(s, limit)
	if s == "" || !cut && json.Valid([]byte(s)) {
		return s
	}
	if cut {
		s += "…"
	}
	quoted, err := rawjson.Marshal(s)
	if err != nil {
		return "" // A string always encodes.
	}
	return string(quoted)
}
