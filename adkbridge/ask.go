package adkbridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/toolutils"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// askDecl declares ask_user.
var askDecl = &genai.FunctionDeclaration{
	Name: askUserTool,
	Description: "Asks the user a question and returns the answer. " +
		"Use it when you cannot go on without knowing something that only the user can tell. " +
		"Give choices when a few answers are likely; the user may answer anything else.",
	ParametersJsonSchema: map[string]any{
		"type": "object",
		"properties": map[string]any{
			"question": map[string]any{"type": "string", "description": "The question, as the user is to read it."},
			"choices": map[string]any{"type": "array", "items": map[string]any{"type": "string"},
				"description": "Answers to suggest."},
		},
		"required": []any{"question"},
	},
}

// askTool puts a question to a person. As with the client's tools, the session
// knows the call when Run is called.
type askTool struct{ remoteTool }

var _ tool.Tool = (*askTool)(nil)

func (a *askTool) ProcessRequest(_ agent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, a)
}

// questionOf reads the arguments of ask_user. Its errors are for the model.
func questionOf(args map[string]any) (*record.Question, error) {
	text, ok := args["question"].(string)
	if !ok || strings.TrimSpace(text) == "" {
		return nil, errors.New(`not asked: "question" must be a text that is not empty`)
	}
	q := &record.Question{Kind: agentdv1.InteractionKind_INTERACTION_KIND_INPUT, Text: text}
	switch list := args["choices"].(type) {
	case nil:
	case []any:
		for _, v := range list {
			choice, ok := v.(string)
			if !ok {
				return nil, errors.New(`not asked: "choices" must be a list of texts`)
			}
			q.Choices = append(q.Choices, choice)
		}
	default:
		return nil, errors.New(`not asked: "choices" must be a list of texts`)
	}
	if len(q.Choices) > 0 {
		q.Kind = agentdv1.InteractionKind_INTERACTION_KIND_CLARIFICATION
	}
	return q, nil
}

// approval is the question about a call that needs a person's approval.
var approval = &record.Question{Kind: agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL}

// asks is what a call of an event asks a person, nil for nothing.
func (m *meta) asks(call *genai.FunctionCall) *record.Question {
	i := slices.Index(m.Asks, call.ID)
	if i < 0 {
		return nil
	}
	q := &record.Question{Kind: approval.Kind}
	if call.Name == askUserTool {
		var err error
		if q, err = questionOf(call.Args); err != nil { // not reached: such a call is refused
			q = &record.Question{Kind: agentdv1.InteractionKind_INTERACTION_KIND_INPUT}
		}
	}
	if i < len(m.Interactions) {
		q.ID = m.Interactions[i]
	}
	return q
}

// needsApproval reports whether a tool of the agent's waits for a person.
func (n *node) needsApproval(tool string) bool {
	return slices.ContainsFunc(n.tools, func(d *declaration) bool { return d.name == tool && d.approve })
}

// editedText begins the note on a call whose arguments a person has changed. It is a part of logs.
const editedText = "A person has changed the arguments of this call. The tool was called with "

// result returns what the model sees of a call's result. A person's reply is passed as
// it is. If a person changed the arguments of the call, a note says so.
func (t *turn) result(callID string, res record.ToolResult) map[string]any {
	t.keepExtras(callID, res.Parts)
	out := withTexts(resultOf(res), res.Parts)
	resolution, ok := t.run.Resolved(callID)
	switch {
	case !ok:
	case resolution.Decision == record.Reply && res.Output != nil:
		return map[string]any{"output": *res.Output}
	case resolution.Decision == record.Approve && resolution.Input != nil:
		if res.Outcome == record.Returned && res.Output != nil && isObject(*res.Output) && !hasTexts(res.Parts) {
			out = map[string]any{"output": out}
		}
		out["note"] = editedText + string(resolution.Input)
	}
	return out
}

// isObject reports whether resultOf passes a text as an object.
func isObject(text string) bool {
	v, ok := parseJSON(text)
	_, object := v.(map[string]any)
	return ok && object
}

// CheckInput checks a JSON object as the arguments of a tool. The error says what is
// wrong.
func (*Runner) CheckInput(spec *record.Spec, name string, input json.RawMessage) error {
	i := slices.IndexFunc(spec.Tools, func(t *agentdv1.Tool) bool { return t.GetName() == name })
	if i < 0 || strings.TrimSpace(spec.Tools[i].GetInputSchema()) == "" {
		return nil
	}
	_, resolved, err := toolSchema(spec.Tools[i].GetInputSchema())
	if err != nil {
		return fmt.Errorf("the schema is none: %w", err)
	}
	var args map[string]any
	if err := json.Unmarshal(input, &args); err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if err := resolved.Validate(args); err != nil {
		return errors.New(cut(strings.TrimPrefix(err.Error(), "validating root: "), 512))
	}
	return nil
}
