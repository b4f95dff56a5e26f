package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
)

// maxArgsDepth bounds the nesting of a function call's arguments.
const maxArgsDepth = 100

// parseArgs decodes the JSON text of a function call's arguments. Blank text is an empty object. If
// text is no JSON object, args is empty and the error says why.
func parseArgs(text string) (args map[string]any, err error) {
	args = map[string]any{}
	if strings.TrimSpace(text) == "" {
		return args, nil
	}
	if err := checkDepth(text); err != nil {
		return args, err
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return args, fmt.Errorf("arguments are not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return args, errors.New("arguments hold more than one JSON value")
	}
	switch v := v.(type) {
	case map[string]any:
		return v, nil
	case nil:
		return args, nil
	default:
		return args, fmt.Errorf("arguments are no JSON object but %s", kindOf(v))
	}
}

// checkDepth refuses text that nests too deeply, before it is decoded.
func checkDepth(text string) error {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxArgsDepth {
				return fmt.Errorf("arguments nest deeper than %d levels", maxArgsDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// kindOf names the JSON type of a decoded value.
func kindOf(v any) string {
	switch v.(type) {
	case []any:
		return "an array"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}

// NewCall returns the part of a function call as model.Response wants it: with the decoded
// arguments, and in its metadata their text ("{}" if blank) or why they are no JSON object. id is
// the provider's own, or "".
func NewCall(id, name, argsText string) *genai.Part {
	if t := strings.TrimSpace(argsText); t == "" || t == "null" {
		argsText = "{}"
	}
	argsText = strings.ToValidUTF8(argsText, "\uFFFD")
	args, err := parseArgs(argsText)
	p := &genai.Part{
		FunctionCall: &genai.FunctionCall{ID: id, Name: name, Args: args},
		PartMetadata: map[string]any{seam.MetaArgs: argsText},
	}
	if err != nil {
		p.PartMetadata[seam.MetaArgsError] = err.Error()
	}
	return p
}

// ArgsText returns the JSON text of a call's arguments as it goes back to a provider: the model's
// own text if that is a JSON object, else Args encoded with sorted keys. It is always a JSON
// object.
func ArgsText(p *genai.Part) string {
	if text, ok := p.PartMetadata[seam.MetaArgs].(string); ok {
		if _, bad := p.PartMetadata[seam.MetaArgsError]; !bad && isObject(text) {
			return text
		}
	}
	text, err := rawjson.Marshal(p.FunctionCall.Args)
	if err != nil || p.FunctionCall.Args == nil {
		return "{}"
	}
	return string(text)
}

// isObject reports whether parseArgs accepts a text that is neither blank nor null.
func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "{") && checkDepth(text) == nil && json.Valid([]byte(text))
}

// CallIDs maps the id of each function call in contents, as the engine wrote it, to the provider's
// own, as the provider wants it back; "" if the provider gave none. The call goes out under that
// id, and so does its result.
func CallIDs(contents []*genai.Content) map[string]string {
	ids := map[string]string{}
	for _, c := range contents {
		for _, p := range c.Parts {
			if p.FunctionCall != nil {
				ids[p.FunctionCall.ID], _ = p.PartMetadata[seam.MetaCallID].(string)
			}
		}
	}
	return ids
}

// Owned reports whether the opaque data of p belongs to the named provider: only then may p's
// signature and opaque data go to it.
func Owned(p *genai.Part, provider string) bool {
	owner, _ := p.PartMetadata[seam.MetaProvider].(string)
	return owner == provider
}

// Opaque returns the opaque JSON text in p if it is the named provider's, else "".
func Opaque(p *genai.Part, provider string) string {
	if !Owned(p, provider) {
		return ""
	}
	s, _ := p.PartMetadata[seam.MetaOpaque].(string)
	return s
}

// Text joins the texts of c that are no thoughts. c may be nil.
func Text(c *genai.Content) string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range c.Parts {
		if p != nil && !p.Thought {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}
