package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/logjson"
)

// Parts are pieces of what a user says, or of a tool's result. In JSON they are a list of protobuf JSON.
// Their contents are shared and must not be changed.
type Parts []*agentdv1.Part

// MarshalJSON implements json.Marshaler.
func (p Parts) MarshalJSON() ([]byte, error) {
	out := make([]json.RawMessage, 0, len(p))
	for i, part := range p {
		data, err := protojson.Marshal(part)
		if err != nil {
			return nil, fmt.Errorf("parts[%d]: %w", i, err)
		}
		out = append(out, data)
	}
	return logjson.Marshal(out) // which takes out the spaces that protojson varies on purpose
}

// UnmarshalJSON implements json.Unmarshaler. Fields that it does not know are left out.
func (p *Parts) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*p = make(Parts, 0, len(list))
	opts := protojson.UnmarshalOptions{DiscardUnknown: true}
	for i, one := range list {
		part := &agentdv1.Part{}
		if err := opts.Unmarshal(one, part); err != nil {
			return fmt.Errorf("parts[%d]: %w", i, err)
		}
		*p = append(*p, part)
	}
	return nil
}

// Size is what the parts take in a message, and texts what their texts do, both in bytes.
func (p Parts) Size() (size, texts int) {
	for _, part := range p {
		size += proto.Size(part)
		texts += len(part.GetText())
	}
	return size, texts
}

// Blank reports whether the parts say nothing: none is a file or a reference, and the texts are white
// space.
func (p Parts) Blank() bool {
	for _, part := range p {
		if part.GetInline() != nil || part.GetFile() != nil || part.GetTool() != nil ||
			strings.TrimSpace(part.GetText()) != "" {
			return false
		}
	}
	return true
}

// Check refuses empty parts, and references to tools outside a result. name is the field that the parts
// come from.
func (p Parts) Check(name string, result bool) *fault.Error {
	kinds := "text, inline or file"
	if result {
		kinds = "text, inline, file or tool"
	}
	for i, part := range p {
		if part.GetContent() == nil {
			return fault.Errorf(fault.Invalid, "%s[%d] is empty: set %s", name, i, kinds).
				Breaking(fmt.Sprintf("%s[%d]", name, i), fault.RuleRequired)
		}
		if part.GetTool() != nil && !result {
			return fault.Errorf(fault.Invalid,
				"%s[%d].tool: a reference to a tool is for the result of a tool that looks for others; "+
					"a prompt takes text, inline and file",
				name, i).
				Breaking(fmt.Sprintf("%s[%d].tool", name, i), fault.RuleExcluded)
		}
		uri := part.GetFile().GetUri()
		if scheme, _, ok := strings.Cut(uri, ":"); ok && !slices.Contains(schemes, strings.ToLower(scheme)) {
			return fault.Errorf(fault.Invalid,
				"%s[%d].file.uri: the schemes are https, http and gs, "+
					"besides the names of files that were uploaded to the provider; "+
					"send others as inline (received %.80q)",
				name, i, uri).
				Breaking(fmt.Sprintf("%s[%d].file.uri", name, i), fault.RuleRange)
		}
	}
	return nil
}

// schemes are the schemes of files that a provider may fetch. None of them makes the provider, or a model
// server nearby, open a file of its own.
var schemes = []string{"https", "http", "gs"}

// CheckSize refuses parts that are, together with the text beside them, more than fits into a message. text
// is the field of that.
func (p Parts) CheckSize(name, text string, beside, most int) *fault.Error {
	size, _ := p.Size()
	switch {
	case len(p) == 0 || size+beside <= most:
		return nil
	case size > most:
		return fault.Errorf(fault.LimitExceeded, "%s take %d bytes, at most %d are allowed", name, size, most).
			Breaking(name, fault.RuleRange).Over("parts_bytes", most, size)
	default:
		return fault.Errorf(fault.LimitExceeded,
			"%s and %s take %d bytes, at most %d are allowed",
			text, name, size+beside, most).
			Breaking(name, fault.RuleRange).Over("parts_bytes", most, size+beside)
	}
}

// WithoutParts is what a session keeps of the start of a turn that is over.
func (f *TurnStarted) WithoutParts() *TurnStarted {
	if len(f.Parts) == 0 && len(f.Seed) == 0 {
		return f
	}
	kept := *f
	kept.Parts, kept.Seed = nil, nil
	return &kept
}
