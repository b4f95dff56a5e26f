package providertest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	anthropicsdk "github.com/anthropics/anthropic-sdk-go"
	openaisdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/test/providertest"
)

// geminiRequest is the body of a call, made of the SDK's own types, which has
// none for the whole.
type geminiRequest struct {
	Contents          []*genai.Content        `json:"contents"`
	SystemInstruction *genai.Content          `json:"systemInstruction,omitempty"`
	Tools             []*genai.Tool           `json:"tools,omitempty"`
	ToolConfig        *genai.ToolConfig       `json:"toolConfig,omitempty"`
	GenerationConfig  *genai.GenerationConfig `json:"generationConfig,omitempty"`
	SafetySettings    []*genai.SafetySetting  `json:"safetySettings,omitempty"`
}

// checkRequest checks a request against the types of the provider's own SDK,
// which know every field and lose what they do not, and against the rules of its
// wire that no type tells.
func checkRequest(wire providertest.Wire, body []byte) error {
	var params any
	switch wire {
	case providertest.OpenAIChat:
		params = new(openaisdk.ChatCompletionNewParams)
	case providertest.OpenAIResponses:
		params = new(responses.ResponseNewParams)
	case providertest.Anthropic:
		params = new(anthropicsdk.MessageNewParams)
	default:
		params = new(geminiRequest)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(params); err != nil {
		return fmt.Errorf("the SDK does not read the request: %w", err)
	}
	again, err := json.Marshal(params)
	if err != nil {
		return err
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(body, &want), json.Unmarshal(again, &got)); err != nil {
		return err
	}
	delete(want.(map[string]any), "stream") // The SDKs set it by which method is called.
	if want, got = bare(wire, want), bare(wire, got); !reflect.DeepEqual(want, got) {
		again, _ := json.Marshal(got)
		return fmt.Errorf("the SDK reads the request as %s", again)
	}
	return checkRules(wire, body)
}

// bare is a value without what the SDKs write although it is not there, or leave
// out although it is: empty ids, texts and objects. On chat's wire fields of
// compatible servers go too, and the choice of one tool, which the SDK writes and
// does not read.
func bare(wire providertest.Wire, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if wire == providertest.OpenAIChat && (key == "reasoning_content" || key == "reasoning" || key == "reasoning_details" || key == "extra_content") {
				continue
			}
			if _, ok := value.(map[string]any); ok && key == "tool_choice" && wire != providertest.Anthropic {
				continue
			}
			switch value = bare(wire, value); value := value.(type) {
			case string:
				if value == "" {
					continue
				}
			case map[string]any:
				if len(value) == 0 {
					continue
				}
			case bool:
				if !value && wire == providertest.Gemini {
					continue
				}
			}
			out[key] = value
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, bare(wire, e))
		}
		return out
	default:
		return v
	}
}

// object is a JSON object.
type object = map[string]any

func list(o object, key string) []object {
	var out []object
	all, _ := o[key].([]any)
	for _, e := range all {
		if m, ok := e.(object); ok {
			out = append(out, m)
		}
	}
	return out
}

func str(o object, key string) string {
	s, _ := o[key].(string)
	return s
}

// pairs follows the calls that have no result yet.
type pairs struct {
	open map[string]bool
	seen map[string]bool
}

func (p *pairs) call(id string) error {
	if id == "" || p.seen[id] {
		return fmt.Errorf("a call has the id %q, which is empty or not its own", id)
	}
	p.open[id], p.seen[id] = true, true
	return nil
}

func (p *pairs) result(id string) error {
	if !p.open[id] {
		return fmt.Errorf("a result for %q, which is no open call", id)
	}
	delete(p.open, id)
	return nil
}

func (p *pairs) closed(where string) error {
	if len(p.open) > 0 {
		return fmt.Errorf("%s comes before the results of %v", where, p.open)
	}
	return nil
}

// checkRules checks what a provider demands of a conversation.
func checkRules(wire providertest.Wire, body []byte) error {
	var r object
	if err := json.Unmarshal(body, &r); err != nil {
		return err
	}
	if err := toolRules(wire, r); err != nil {
		return err
	}
	p := &pairs{map[string]bool{}, map[string]bool{}}
	switch wire {
	case providertest.OpenAIChat:
		return chatRules(p, r)
	case providertest.OpenAIResponses:
		return responsesRules(p, r)
	case providertest.Anthropic:
		return anthropicRules(p, r)
	default:
		return geminiRules(r)
	}
}

// keyRule is what Anthropic demands of the names of arguments.
var keyRule = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// toolRules: the schema of a tool's arguments is an object's, without alternatives at
// its top.
func toolRules(wire providertest.Wire, r object) error {
	tools := list(r, "tools")
	if wire == providertest.Gemini {
		tools = functionsOf(r)
	}
	for _, t := range tools {
		if f, ok := t["function"].(object); ok {
			t = f
		}
		for _, key := range []string{"input_schema", "parameters", "parametersJsonSchema"} {
			if t[key] == nil {
				continue
			}
			schema, ok := t[key].(object)
			if kind, has := schema["type"]; !ok || kind != "object" && (has || wire != providertest.Gemini) {
				return fmt.Errorf("the arguments of %v are of type %v", t["name"], schema["type"])
			}
			for _, refused := range []string{"oneOf", "anyOf", "allOf", "enum", "const", "not"} {
				if _, has := schema[refused]; has {
					return fmt.Errorf("the arguments of %v have %s at the top", t["name"], refused)
				}
			}
			properties, ok := schema["properties"].(object)
			if !ok && wire != providertest.Gemini {
				return fmt.Errorf("the arguments of %v have no properties", t["name"])
			}
			for name := range properties {
				if wire == providertest.Anthropic && !keyRule.MatchString(name) {
					return fmt.Errorf("an argument of %v has the name %q", t["name"], name)
				}
			}
		}
	}
	return nil
}

func chatRules(p *pairs, r object) error {
	messages := list(r, "messages")
	for i, m := range messages {
		role := str(m, "role")
		if role == "tool" {
			if err := p.result(str(m, "tool_call_id")); err != nil {
				return err
			}
			continue
		}
		if err := p.closed("message " + role); err != nil {
			return err
		}
		calls := list(m, "tool_calls")
		parts, isList := m["content"].([]any)
		switch {
		case role == "system" && i > 0:
			return errors.New("a system message in the middle")
		case len(calls) == 0 && str(m, "content") == "" && len(parts) == 0:
			return fmt.Errorf("message %d, of role %s, is empty", i, role)
		case isList && role != "user":
			return fmt.Errorf("message %d, of role %s, has parts", i, role)
		}
		for _, c := range calls {
			if err := p.call(str(c, "id")); err != nil {
				return err
			}
			fn, _ := c["function"].(object)
			if str(fn, "name") == "" || !json.Valid([]byte(str(fn, "arguments"))) {
				return fmt.Errorf("a call without a name or whose arguments are no JSON: %v", fn)
			}
		}
	}
	if n := len(messages); n == 0 || str(messages[n-1], "role") == "assistant" {
		return errors.New("the conversation does not end on the user's side")
	}
	return p.closed("the end")
}

var mistralID = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)

// serverRules are what a chat completions server demands beyond chatRules, and what
// it refuses that others know.
func serverRules(base string, r object) error {
	for i, m := range list(r, "messages") {
		thought := strings.Contains(base, "deepseek") || strings.Contains(base, "moonshot")
		if thought && str(m, "role") == "assistant" && str(m, "reasoning_content") == "" {
			return fmt.Errorf("message %d has no thinking", i)
		}
		if !strings.Contains(base, "mistral") {
			continue
		}
		for _, c := range append(list(m, "tool_calls"), object{"id": m["tool_call_id"]}) {
			if id := str(c, "id"); id != "" && !mistralID.MatchString(id) {
				return fmt.Errorf("message %d has a call with the id %q", i, id)
			}
			if c["extra_content"] != nil {
				return fmt.Errorf("message %d has a call with extra content", i)
			}
		}
		for _, field := range []string{"reasoning", "reasoning_content", "reasoning_details"} {
			if m[field] != nil {
				return fmt.Errorf("message %d has the field %s", i, field)
			}
		}
	}
	return nil
}

func responsesRules(p *pairs, r object) error {
	if err := searchRules(r); err != nil {
		return err
	}
	items, last := list(r, "input"), ""
	for i, item := range items {
		kind := str(item, "type")
		if last == "reasoning" && (kind == "message" && str(item, "role") == "user" || kind == "function_call_output") {
			return fmt.Errorf("item %d follows reasoning that led to nothing", i)
		}
		last = kind
		switch kind {
		case "message":
			if str(item, "role") == "user" {
				if err := p.closed("a message"); err != nil {
					return err
				}
			}
			if len(list(item, "content")) == 0 {
				return fmt.Errorf("item %d is an empty message", i)
			}
			for _, part := range list(item, "content") {
				if str(part, "type") == "input_text" && str(part, "text") == "" {
					return fmt.Errorf("item %d has an empty part", i)
				}
			}
		case "function_call":
			if err := p.call(str(item, "call_id")); err != nil {
				return err
			}
		case "function_call_output":
			if err := p.result(str(item, "call_id")); err != nil {
				return err
			}
		case "reasoning":
			if str(item, "encrypted_content") == "" || item["id"] != nil {
				return fmt.Errorf("item %d is reasoning that OpenAI has not kept: %v", i, item)
			}
		}
	}
	if last == "reasoning" || last == "function_call" || len(items) == 0 {
		return fmt.Errorf("the conversation ends on a %s", last)
	}
	return p.closed("the end")
}

func anthropicRules(p *pairs, r object) error {
	if marks := strings.Count(raw(r), `"cache_control"`); marks > 4 {
		return fmt.Errorf("%d marks of the cache, at most 4 are allowed", marks)
	}
	waiting := 0
	for _, t := range list(r, "tools") {
		if later, _ := t["defer_loading"].(bool); later {
			waiting++
			if t["cache_control"] != nil {
				return fmt.Errorf("a mark of the cache on the deferred tool %s", str(t, "name"))
			}
		}
	}
	if n := len(list(r, "tools")); n > 0 && n == waiting {
		return errors.New("all tools are deferred")
	}
	if err := searchRules(r); err != nil {
		return err
	}
	want := "user"
	runs := &runs{open: map[string]bool{}}
	for i, m := range list(r, "messages") {
		if role := str(m, "role"); role != want {
			return fmt.Errorf("message %d is the %s's, want the %s's", i, role, want)
		}
		blocks := list(m, "content")
		if len(blocks) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		if want == "assistant" {
			if err := runs.answer(blocks); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		for _, b := range blocks {
			kind := str(b, "type")
			if want == "user" && kind != "tool_result" {
				if err := p.closed("a block of type " + kind); err != nil {
					return err
				}
			}
			var err error
			switch kind {
			case "text":
				if strings.TrimSpace(str(b, "text")) == "" {
					err = errors.New("a text is only white space")
				}
			case "tool_use":
				if err = p.call(str(b, "id")); err == nil && b["input"] == nil {
					err = errors.New("a call without input")
				}
			case "tool_result":
				err = errors.Join(p.result(str(b, "tool_use_id")), referenceRules(r, b), failureRules(b))
			case "tool_search_tool_result":
				found, _ := b["content"].(object)
				for _, ref := range list(found, "tool_references") {
					if !deferredTools(r)[str(ref, "tool_name")] {
						err = fmt.Errorf("a search has found %q, which is not deferred", str(ref, "tool_name"))
					}
				}
			case "thinking":
				if str(b, "signature") == "" {
					err = errors.New("thinking without a signature")
				}
			}
			if err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		want = map[string]string{"user": "assistant", "assistant": "user"}[want]
	}
	if want == "user" {
		return errors.New("the conversation does not end on the user's side")
	}
	if len(runs.open) > 0 && !runs.waits {
		return fmt.Errorf("Anthropic's own runs %v have no result", runs.open)
	}
	return p.closed("the end")
}

// failureRules: a result that is an error holds text, and no other content.
func failureRules(result object) error {
	failed, _ := result["is_error"].(bool)
	content := list(result, "content")
	for _, b := range content {
		if failed && str(b, "type") != "text" {
			return fmt.Errorf("a result that is an error holds a block of type %q", str(b, "type"))
		}
	}
	if failed && len(content) == 0 {
		return errors.New("a result that is an error is empty")
	}
	return nil
}

// searchRules: who searches for tools has some to find.
func searchRules(r object) error {
	for _, t := range list(r, "tools") {
		if strings.HasPrefix(str(t, "type"), "tool_search") && len(deferredTools(r)) == 0 {
			return errors.New("a search for tools, of which none is deferred")
		}
	}
	return nil
}

// deferredTools are the tools that the request defers.
func deferredTools(r object) map[string]bool {
	deferred := map[string]bool{}
	for _, t := range list(r, "tools") {
		if later, _ := t["defer_loading"].(bool); later {
			deferred[str(t, "name")] = true
		}
	}
	return deferred
}

// referenceRules: a result with references to tools holds nothing else, and they are
// of tools that the request defers, each once.
func referenceRules(r, result object) error {
	content, deferred := list(result, "content"), deferredTools(r)
	refs := 0
	for _, c := range content {
		if str(c, "type") != "tool_reference" {
			continue
		}
		name := str(c, "tool_name")
		if !deferred[name] {
			return fmt.Errorf("a reference to the tool %q, which is not deferred, or referred to before", name)
		}
		deferred[name] = false
		refs++
	}
	if failed, _ := result["is_error"].(bool); refs > 0 && (refs < len(content) || failed) {
		return fmt.Errorf("a result with references to tools and more: %v", content)
	}
	return nil
}

// runs follows the runs of Anthropic's own tools: a result follows its use, and
// what has none yet waits for the results of the answer's own calls.
type runs struct {
	open  map[string]bool
	waits bool // the newest answer has calls
}

func (r *runs) answer(blocks []object) error {
	if len(r.open) > 0 && !r.waits {
		return fmt.Errorf("an answer behind the runs %v, which have no result", r.open)
	}
	r.waits = false
	for _, b := range blocks {
		switch kind := str(b, "type"); {
		case kind == "tool_use":
			r.waits = true
		case kind == "server_tool_use":
			r.open[str(b, "id")] = true
		case strings.HasSuffix(kind, "_tool_result"):
			id := str(b, "tool_use_id")
			if !r.open[id] {
				return fmt.Errorf("a result of the run %q, which has no use", id)
			}
			delete(r.open, id)
		}
	}
	return nil
}

// geminiRules: Gemini counts: the content that follows one with calls has as many
// results.
func geminiRules(r object) error {
	calls, last := 0, ""
	for i, c := range list(r, "contents") {
		parts := list(c, "parts")
		if len(parts) == 0 {
			return fmt.Errorf("content %d is empty", i)
		}
		role := str(c, "role")
		if i == 0 && role != "user" {
			return fmt.Errorf("the conversation begins with the %s", role)
		}
		if role == last {
			return fmt.Errorf("content %d is the %s's as the one before", i, role)
		}
		last = role
		made, results := 0, 0
		for _, p := range parts {
			if len(p) == 0 {
				return fmt.Errorf("content %d has an empty part", i)
			}
			if p["functionCall"] != nil {
				made++
			}
			if p["functionResponse"] != nil {
				results++
			}
		}
		if results != calls {
			return fmt.Errorf("content %d has %d results for %d calls", i, results, calls)
		}
		calls = made
	}
	if last != "user" || calls > 0 {
		return errors.New("the conversation does not end on the user's side")
	}
	return nil
}
