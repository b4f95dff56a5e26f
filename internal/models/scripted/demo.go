package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

const (
	// demoName is the script that is always there.
	demoName = "demo"
	// demoDelay is what it waits before each piece, so that streaming shows.
	demoDelay = 15 * time.Millisecond
	// maxSchemaDepth bounds how deep arguments are made up.
	maxSchemaDepth = 8
)

// control are functions that steer agents; the demonstration leaves them alone.
var control = []string{"transfer_to_agent", "exit_loop", "set_model_response"}

// demo is the built-in script. When the request declares functions and none has
// returned since the user spoke, it calls the first with arguments made up from
// its schema and the last word of the prompt; else it tells what came back, or
// what it heard.
type demo struct{ delay time.Duration }

// Generate plays the demonstration.
func (d demo) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	s := look(req)
	b := &adapter.Builder{Provider: name, Emit: emit}
	fn := demoFunction(s.req)
	var thoughts, text string
	switch {
	case len(s.results) > 0:
		text = report(s.results)
	case fn != nil:
		thoughts = fmt.Sprintf("The user says %q. The tool %s can help with that.", clip(s.user), fn.Name)
		text = fmt.Sprintf("Let me use %s for that.", fn.Name)
	default:
		text = fmt.Sprintf("Hello! You said: %q. "+
			"I am a scripted model without a provider behind me, so that is all I can do.", clip(s.user))
	}
	for _, piece := range []struct {
		text string
		add  func(string)
	}{{thoughts, b.Thought}, {text, b.Text}} {
		for w := range words.Split(piece.text) {
			if err := backoff.Wait(ctx, d.delay); err != nil {
				return nil, err
			}
			piece.add(w)
		}
	}
	if len(s.results) == 0 && fn != nil {
		args, err := rawjson.Marshal(demoArgs(fn, s.user))
		if err != nil {
			return nil, errorf(model.KindInvalid, "arguments of %s: %v", fn.Name, err)
		}
		b.Part(adapter.NewCall("", fn.Name, string(args)))
	}
	content := b.Content()
	var none *Usage
	return &model.Response{
		Content: content, FinishReason: genai.FinishReasonStop,
		Usage: none.orCounted(req, content), Model: demoName,
	}, nil
}

// demoFunction is the first declared function that does not steer agents.
func demoFunction(req *model.Request) *genai.FunctionDeclaration {
	for _, f := range req.Functions() {
		if !slices.Contains(control, f.Name) {
			return f
		}
	}
	return nil
}

// report puts tool results into words.
func report(results []*genai.FunctionResponse) string {
	var b strings.Builder
	for _, r := range results {
		if text, ok := r.Response["error"]; ok && len(r.Response) == 1 {
			fmt.Fprintf(&b, "The tool %s failed: %v. ", r.Name, text)
		} else {
			fmt.Fprintf(&b, "The tool %s says: %s ", r.Name, resultText(r))
		}
	}
	return strings.TrimSpace(b.String())
}

// clip shortens text to what fits a sentence.
func clip(text string) string {
	r := []rune(text)
	if len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return text
}

// demoArgs makes up arguments of f for the prompt.
func demoArgs(f *genai.FunctionDeclaration, prompt string) map[string]any {
	schema := any(f.Parameters)
	if f.ParametersJsonSchema != nil {
		schema = f.ParametersJsonSchema
	}
	var s argSchema
	if data, err := json.Marshal(schema); err == nil {
		_ = json.Unmarshal(data, &s) // what cannot be read asks for nothing
	}
	args, _ := s.value(prompt, 0).(map[string]any)
	if args == nil {
		args = map[string]any{}
	}
	return args
}

// argSchema is as much of a JSON schema as the demonstration understands.
type argSchema struct {
	Type       any                   `json:"type"`
	Properties map[string]*argSchema `json:"properties"`
	Required   []string              `json:"required"`
	Enum       []any                 `json:"enum"`
	Default    any                   `json:"default"`
	Minimum    *float64              `json:"minimum"`
}

// number finds numbers in prompts.
var number = regexp.MustCompile(`-?\d+(\.\d+)?`)

// value makes up a value: what is required, or everything when nothing is.
func (s *argSchema) value(prompt string, depth int) any {
	switch {
	case s == nil || depth > maxSchemaDepth:
		return nil
	case len(s.Enum) > 0:
		for _, e := range s.Enum {
			if word, ok := e.(string); ok && strings.Contains(strings.ToLower(prompt), strings.ToLower(word)) {
				return e
			}
		}
		return s.Enum[0]
	case s.Default != nil:
		return s.Default
	}
	switch s.typeName() {
	case "object":
		names := s.Required
		if len(names) == 0 {
			names = slices.Sorted(maps.Keys(s.Properties))
		}
		out := map[string]any{}
		for _, n := range names {
			if v := s.Properties[n].value(prompt, depth+1); v != nil {
				out[n] = v
			}
		}
		return out
	case "array":
		return []any{}
	case "boolean":
		return true
	case "integer":
		whole, _, _ := strings.Cut(s.numberText(prompt), ".")
		return json.Number(whole)
	case "number":
		return json.Number(s.numberText(prompt))
	case "null":
		return nil
	default:
		return lastWord(prompt)
	}
}

// numberText is the first number of the prompt, or else the least allowed one.
func (s *argSchema) numberText(prompt string) string {
	if n := number.FindString(prompt); n != "" {
		return trimZeros(n)
	}
	if s.Minimum != nil {
		return fmt.Sprint(int64(*s.Minimum))
	}
	return "1"
}

// trimZeros makes "007" the number 7, which JSON would not take otherwise.
func trimZeros(n string) string {
	sign, digits := "", n
	if strings.HasPrefix(n, "-") {
		sign, digits = "-", n[1:]
	}
	whole, frac, _ := strings.Cut(digits, ".")
	whole = strings.TrimLeft(whole, "0")
	if whole == "" {
		whole = "0"
	}
	if frac != "" {
		whole += "." + frac
	}
	return sign + whole
}

// typeName is the schema's type in lower case; of several, the first that is
// not null.
func (s *argSchema) typeName() string {
	switch t := s.Type.(type) {
	case string:
		return strings.ToLower(t)
	case []any:
		for _, v := range t {
			if name, ok := v.(string); ok && name != "null" {
				return strings.ToLower(name)
			}
		}
	}
	if s.Properties != nil {
		return "object"
	}
	return ""
}
