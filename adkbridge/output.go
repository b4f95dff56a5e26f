package adkbridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/session/fault"
)

// Bounds of an output. As a value it goes out in one message, which some clients
// read 100 levels deep: three for each of an object.
const (
	maxJSONValues = 100_000
	maxJSONDepth  = 30
)

// Bounds of what it takes to check an output, which is at most the schema's size
// times its own: in values for the time, in bytes for that of patterns. What does
// not fit an anyOf is repeated for each branch, so that bytes are memory there.
const (
	maxCheckValues = 4 << 20
	maxCheckBytes  = 256 << 20
	maxAnyOfBytes  = 16 << 20
)

// maxMisfit bounds the reason why an output does not satisfy its schema, in bytes.
const maxMisfit = 512

// outputSchema is the schema of an agent's final text. It is immutable.
type outputSchema struct {
	text     json.RawMessage // as the client wrote it: models heed the order of keys
	compiled *jsonschema.Resolved
	size     int // nodes, with references followed
	anyOf    bool
}

// readOutputSchema checks an output_schema; nil for none.
func readOutputSchema(text string) (*outputSchema, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	root, err := readSchema(text, "an agent's output is")
	if err != nil {
		return nil, err
	}
	if root["type"] == nil {
		return nil, errors.New(`"type" is missing; an agent's output is an "object"`)
	}
	switch root["$schema"] {
	case nil, "https://json-schema.org/draft/2020-12/schema",
		"http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft-07/schema#":
	default:
		return nil, fmt.Errorf("$schema is %.100q; known are draft-07 and draft 2020-12", fmt.Sprint(root["$schema"]))
	}
	b := &bounds{root: root, checks: true, sizes: map[string]int{}}
	size, err := b.measure()
	if err != nil {
		return nil, err
	}
	compiled, err := compileSchema(text)
	if err != nil {
		return nil, err
	}
	return &outputSchema{text: json.RawMessage(text), compiled: compiled, size: size, anyOf: b.anyOf}, nil
}

// check returns what is wrong with an output, nil if it is one JSON value that
// satisfies the schema.
func (o *outputSchema) check(text string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("the schema cannot be evaluated for it") // a fault of the checker
		}
	}()
	values, err := countValues(text)
	if err != nil {
		return err
	}
	maxBytes := maxCheckBytes
	if o.anyOf {
		maxBytes = maxAnyOfBytes
	}
	if values*o.size > maxCheckValues || len(text)*o.size > maxBytes {
		return fmt.Errorf("%d values in %d bytes are too many to be checked by a schema of %d nodes", values, len(text),
			o.size)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	if err := o.compiled.Validate(numbers(v)); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "validating root: "))
	}
	return nil
}

// numbers converts the numbers of a JSON value for the checker: integers of 64 bits
// stay exact, all others become float64. A number beyond float64 becomes the greatest
// one: exact ones could take a megabyte each.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return min(max(f, -math.MaxFloat64), math.MaxFloat64)
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	}
	return v
}

// countValues counts the values, and keys, of a text that must be one JSON value
// within the bounds.
func countValues(text string) (n int, err error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	for depth := 0; n == 0 || depth > 0; {
		tok, err := dec.Token()
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return 0, errors.New("it is empty, not JSON")
		case err != nil:
			return 0, fmt.Errorf("it is not JSON: %w", err)
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
			continue
		}
		if n++; n > maxJSONValues || depth > maxJSONDepth {
			return 0, fmt.Errorf("it has more than %d values or %d levels", maxJSONValues, maxJSONDepth)
		}
	}
	if rest := strings.TrimSpace(text[dec.InputOffset():]); rest != "" {
		return 0, fmt.Errorf("something follows the JSON value: %s", cut(rest, maxName))
	}
	return n, nil
}

// outputText returns what an agent with an output schema ends with: its final text, or,
// if that is not JSON as a whole, the last text between runs of the provider's tools.
// Models announce in words what they look up.
func outputText(c *genai.Content, m *meta) (string, bool) {
	whole, ok := finalText(c, m)
	if !ok || json.Valid([]byte(whole)) {
		return whole, ok
	}
	last := ""
	var b strings.Builder
	for _, p := range c.Parts {
		if ranByProvider(p) && strings.TrimSpace(b.String()) != "" {
			last = b.String()
			b.Reset()
		}
		if !p.Thought {
			b.WriteString(p.Text)
		}
	}
	if strings.TrimSpace(b.String()) != "" {
		last = b.String()
	}
	return last, true
}

// checkOutput checks an agent's final response against its output schema. ok reports
// that there is a schema and that the response satisfies it. It depends only on the
// response, the agent and the limits.
func (m *agentModel) checkOutput(a *response) (ok bool, err error) {
	if m.n.kind == remoteKind {
		return a.meta.Terminal, nil
	}
	o := m.n.output
	if o == nil || len(callsOf(a.content)) > 0 || onlyThoughts(a.content) {
		return false, nil
	}
	text, _ := outputText(a.content, a.meta)
	misfit := fmt.Errorf("it has %d bytes, at most %d are allowed", len(text), m.t.limits.ValueBytes)
	if len(text) <= m.t.limits.ValueBytes {
		misfit = o.check(text)
	}
	if misfit == nil {
		return true, nil
	}
	why := ""
	if a.finish == genai.FinishReasonMaxTokens {
		why = "; it was cut off at the limit of its length"
	}
	return false, fault.Errorf(codeOutput, "%s: the response of model %q does not satisfy output_schema: %s%s",
		m.n.at(), m.n.modelName, cut(misfit.Error(), maxMisfit), why)
}
