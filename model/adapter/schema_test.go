package adapter

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
)

// TestWithSchema makes calls natively, in words, or one after the other.
func TestWithSchema(t *testing.T) {
	const text = `{"z":1,"a":"<b>"}`
	refusal := &model.Error{Kind: model.KindInvalid, Status: 400, Message: "invalid_request_error: The compiled Grammar is too large"}
	for name, c := range map[string]struct {
		schema any
		native bool
		errs   []error // of the calls
		emits  bool    // before the first error
		want   string  // n for a native call, w for one in words
		fails  bool
	}{
		"no schema":              {errs: []error{nil}, want: "n"},
		"native":                 {schema: json.RawMessage(text), native: true, errs: []error{nil}, want: "n"},
		"in words":               {schema: json.RawMessage(text), errs: []error{nil}, want: "w"},
		"refused":                {schema: json.RawMessage(text), native: true, errs: []error{refusal, nil}, want: "nw"},
		"refused again":          {schema: json.RawMessage(text), native: true, errs: []error{refusal, refusal}, want: "nw", fails: true},
		"refused in words":       {schema: json.RawMessage(text), errs: []error{refusal}, want: "w", fails: true},
		"refused after a delta":  {schema: json.RawMessage(text), native: true, errs: []error{refusal}, emits: true, want: "n", fails: true},
		"refused with usage":     {schema: json.RawMessage(text), native: true, errs: []error{model.Usage{Prompt: 1, Total: 1}.Spent(refusal)}, want: "n", fails: true},
		"refused without schema": {errs: []error{refusal}, native: true, want: "n", fails: true},
		"another error":          {schema: json.RawMessage(text), native: true, errs: []error{&model.Error{Kind: model.KindInvalid, Message: "no such tool"}}, want: "n", fails: true},
		"overloaded":             {schema: json.RawMessage(text), native: true, errs: []error{&model.Error{Kind: model.KindUnavailable, Message: "schema service"}}, want: "n", fails: true},
		"cancelled":              {schema: json.RawMessage(text), native: true, errs: []error{context.Canceled}, want: "n", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &genai.GenerateContentConfig{SystemInstruction: genai.NewContentFromText("be brief", genai.RoleUser), ResponseMIMEType: "application/json", ResponseJsonSchema: c.schema}
			req := &model.Request{Config: cfg}
			got, emitted := "", 0
			resp, err := WithSchema(req, c.native, func(model.Delta) { emitted++ }, func(r *model.Request, emit func(model.Delta)) (*model.Response, error) {
				if n := len(got); n >= len(c.errs) {
					t.Fatalf("call %d", n)
				}
				err := c.errs[len(got)]
				switch said := Text(r.Config.SystemInstruction); {
				case r.Config.ResponseMIMEType != "" && said == "be brief":
					got += "n"
				case r.Config.ResponseMIMEType == "" && r.Config.ResponseJsonSchema == nil && strings.HasPrefix(said, "be briefWhen ") && strings.HasSuffix(said, "\n\n"+text):
					got += "w"
				default:
					t.Errorf("request %+v says %q", r.Config, said)
				}
				if c.emits {
					emit(model.Delta{Text: "x"})
				}
				if err != nil {
					return nil, err
				}
				return &model.Response{}, nil
			})
			if got != c.want || (err != nil) != c.fails || (resp == nil) != c.fails || (emitted > 0) != c.emits {
				t.Errorf("calls %q, response %v, error %v, %d deltas", got, resp, err, emitted)
			}
			if len(cfg.SystemInstruction.Parts) != 1 || cfg.ResponseMIMEType == "" {
				t.Error("the request was changed")
			}
		})
	}
}
