package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/model/internal/wire"
)

// maxDetails bounds the details of one response's thinking while it is read.
const maxDetails = 1024

// detail is one entry of reasoning_details, in which OpenRouter and others send
// thinking, its signatures, and what is encrypted of it. It goes back as it came.
type detail map[string]json.RawMessage

// str returns a text of d, "" if there is none.
func (d detail) str(key string) string {
	var s string
	_ = json.Unmarshal(d[key], &s) // Not all are there.
	return s
}

// streamedDetail is a detail while it is collected.
type streamedDetail struct {
	detail
	kind string
	text strings.Builder // of the field that comes in pieces
}

// pieced are the fields that come in pieces, by type of detail. A detail of another
// type comes whole.
var pieced = map[string]string{"reasoning.text": "text", "reasoning.summary": "summary"}

// addDetails takes in a piece of the list. What is not of the form expected is not
// seen.
func (a *chatResponse) addDetails(list json.RawMessage) error {
	if len(list) == 0 {
		return nil
	}
	var details []detail
	_ = json.Unmarshal(list, &details)
	for _, d := range details {
		maps.DeleteFunc(d, func(_ string, v json.RawMessage) bool { return string(v) == "null" })
		kind := d.str("type")
		if kind == "" {
			continue
		}
		to := a.continued(kind, d)
		if to == nil {
			if len(a.details) >= maxDetails {
				return a.llm.tooMuch("the thinking of the response has more than %d details", maxDetails)
			}
			to = &streamedDetail{detail: detail{}, kind: kind}
			a.details = append(a.details, to)
		}
		to.text.WriteString(d.str(pieced[kind]))
		maps.Copy(to.detail, d)
	}
	return nil
}

// continued returns the detail of which d is a further piece, nil if d begins one.
func (a *chatResponse) continued(kind string, d detail) *streamedDetail {
	if pieced[kind] == "" {
		return nil
	}
	for _, c := range slices.Backward(a.details) {
		if c.kind == kind && string(c.detail["index"]) == string(d["index"]) {
			return c
		}
	}
	return nil
}

// keepDetails adds the list to the response as it goes back. Thinking of Claude and of
// Gemini is refused without its signature, as when the response was cut off within it.
func (a *chatResponse) keepDetails() {
	var list []detail
	for _, s := range a.details {
		format := s.str("format")
		if s.kind == "reasoning.text" && s.str("signature") == "" &&
			(format == "anthropic-claude-v1" || format == "google-gemini-v1") {
			continue
		}
		if s.text.Len() > 0 {
			s.detail[pieced[s.kind]] = json.RawMessage(rawjson.JSON(s.text.String()))
		}
		list = append(list, s.detail)
	}
	if len(list) > 0 {
		a.builder.Opaque(strings.ToValidUTF8(rawjson.JSON(list), "\uFFFD"), true)
		parts := a.builder.Content().Parts
		parts[len(parts)-1].PartMetadata[seam.MetaModel] = a.llm.model
		wire.MarkAccount(parts[len(parts)-1], a.llm.account)
	}
}

// detailsOf are the details in a part p of a turn of the model. One that names a call
// of the turn goes out with the call's id, which may be another one by then. Claude
// models refuse each other's; what is encrypted of a Responses API, whose format says
// so, is for one account.
func (l *llm) detailsOf(p *genai.Part, turn []*genai.Part, names *wire.Names) []detail {
	var list []detail
	if json.Unmarshal([]byte(adapter.Opaque(p, l.owner)), &list) != nil {
		return nil
	}
	if p.PartMetadata[seam.MetaModel] != l.model {
		list = slices.DeleteFunc(list, func(d detail) bool { return d.str("format") == "anthropic-claude-v1" })
	}
	if wire.Foreign(p, l.account) {
		list = slices.DeleteFunc(list, func(d detail) bool {
			return d.str("type") == "reasoning.encrypted" && strings.Contains(d.str("format"), "-responses-")
		})
	}
	for _, d := range list {
		for _, c := range turn {
			if id := d.str("id"); c.FunctionCall != nil && id != "" && id == wire.CallID(c) {
				d["id"] = json.RawMessage(rawjson.JSON(names.ID(c.FunctionCall.ID)))
			}
		}
	}
	return list
}
