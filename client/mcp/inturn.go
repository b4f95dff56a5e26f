package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/apzuk3/agentd/client"
)

// maxAnswers is how often a person may answer one question of a form before it counts as canceled.
const maxAnswers = 3

// InTurn is an [Elicitor] that asks in the turn: what a server asks about a call that it runs becomes interactions of
// that call, one for each field of the form, which anybody may resolve; see [client.Call.Ask]. A denial of a field that
// may be left out leaves it out, any other declines. A question about no call, or of a daemon that does not know such
// questions, is declined.
func InTurn(ctx context.Context, server string, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
	f := form{call: client.CallFrom(ctx), before: server + " asks: " + r.Params.Message}
	var res *sdk.ElicitResult
	var err error
	if r.Params.URL != "" {
		res, err = f.visit(ctx, r.Params.URL)
	} else {
		res, err = f.fill(ctx, r.Params.RequestedSchema)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return &sdk.ElicitResult{Action: "decline"}, nil
	}
	return res, err
}

// form is what a server asks.
type form struct {
	call   *client.Call
	before string // each question
}

// visit asks a person to open a page.
func (f *form) visit(ctx context.Context, url string) (*sdk.ElicitResult, error) {
	said, err := f.call.Ask(ctx, client.Question{
		Kind: client.InteractionApproval, Text: f.before + "\nOpen " + url + " and approve when that is done.",
	})
	switch {
	case err != nil:
		return nil, err
	case said.Kind != client.ResolutionApproval:
		return &sdk.ElicitResult{Action: "decline"}, nil
	}
	return &sdk.ElicitResult{Action: "accept"}, nil
}

// fill asks for the fields of a form.
func (f *form) fill(ctx context.Context, requested any) (*sdk.ElicitResult, error) {
	schema := &jsonschema.Schema{}
	data, err := json.Marshal(requested)
	if err == nil && requested != nil {
		err = json.Unmarshal(data, schema)
	}
	if err != nil {
		return nil, fmt.Errorf("the schema of the question: %w", err)
	}
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { // those that it must have first, in the order of the schema
		at := func(name string) int {
			if i := slices.Index(schema.Required, name); i >= 0 {
				return i
			}
			return len(schema.Required)
		}
		if at(a) != at(b) {
			return at(a) - at(b)
		}
		return strings.Compare(a, b)
	})
	if len(names) == 0 {
		said, err := f.call.Ask(ctx, client.Question{Kind: client.InteractionApproval, Text: f.before})
		if err != nil {
			return nil, err
		}
		if said.Kind != client.ResolutionApproval {
			return &sdk.ElicitResult{Action: "decline"}, nil
		}
	}
	content := map[string]any{}
	for _, name := range names {
		value, action, err := f.field(ctx, name, schema.Properties[name])
		switch {
		case err != nil:
			return nil, err
		case action == "decline" && !slices.Contains(schema.Required, name):
			continue
		case action != "":
			return &sdk.ElicitResult{Action: action}, nil
		}
		content[name] = value
	}
	return &sdk.ElicitResult{Action: "accept", Content: content}, nil
}

// field asks for one field. action is empty if it has a value.
func (f *form) field(ctx context.Context, name string, s *jsonschema.Schema) (value any, action string, err error) {
	q := client.Question{Kind: client.InteractionInput, Choices: choicesOf(s)}
	if len(q.Choices) > 0 {
		q.Kind = client.InteractionClarification
	}
	about := f.before + "\n" + name
	if s.Title != "" {
		about = f.before + "\n" + s.Title
	}
	if s.Description != "" {
		about += ": " + s.Description
	}
	q.Text = about
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, "", fmt.Errorf("the schema of %q: %w", name, err)
	}
	for range maxAnswers {
		said, err := f.call.Ask(ctx, q)
		switch {
		case err != nil:
			return nil, "", err
		case said.Kind != client.ResolutionAnswer:
			return nil, "decline", nil
		}
		value, err := valueOf(s, said.Answer)
		if err == nil {
			err = resolved.Validate(value)
		}
		if err == nil {
			return value, "", nil
		}
		q.Text = fmt.Sprintf("%s\nThe answer %.100q does not fit: %v", about, said.Answer, err)
	}
	return nil, "cancel", nil
}

// choicesOf are the answers that a field may have; none if it may have any.
func choicesOf(s *jsonschema.Schema) (choices []string) {
	if s.Type == "boolean" {
		return []string{"true", "false"}
	}
	for _, v := range s.Enum {
		choices = append(choices, fmt.Sprint(v))
	}
	for _, one := range s.OneOf { // an enum with titles
		if one.Const != nil {
			choices = append(choices, fmt.Sprint(*one.Const))
		}
	}
	return choices
}

// valueOf reads an answer as the type of a field.
func valueOf(s *jsonschema.Schema, answer string) (any, error) {
	text := strings.TrimSpace(answer)
	switch s.Type {
	case "boolean":
		switch strings.ToLower(text) {
		case "true", "yes", "y":
			return true, nil
		case "false", "no", "n":
			return false, nil
		}
		return nil, errors.New("want true or false")
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errors.New("want a whole number")
		}
		return float64(n), nil
	case "number":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errors.New("want a number")
		}
		return n, nil
	case "array": // of choices
		var list []any
		for item := range strings.SplitSeq(text, ",") {
			list = append(list, strings.TrimSpace(item))
		}
		return list, nil
	default:
		return answer, nil
	}
}
