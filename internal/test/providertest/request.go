package providertest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Kind is what an [Item] is.
type Kind string

// The kinds of items.
const (
	User      Kind = "user"      // a text of the user
	Assistant Kind = "assistant" // a text of the model
	Call      Kind = "call"      // a call of a client's tool
	Result    Kind = "result"    // a client's answer to a call
	Other     Kind = "other"     // media, provider-side items, anything unknown
)

// Item is one thing said in a conversation. System texts, thoughts and their
// signatures are no items.
type Item struct {
	Kind Kind
	// Text is the text, the result's output, or what the other thing is.
	Text string
	// ID ties a result to its call; "" where the wire has none.
	ID string
	// Name is the tool's; a result has it only on Gemini's wire.
	Name string
	// Args is the JSON text of a call's arguments.
	Args string
	// IsError marks a result that the wire marks as an error.
	IsError bool
}

// Tool is a client's tool as it was declared.
type Tool struct {
	Name, Description string
	// Schema is the JSON Schema of the arguments, nil if none was given.
	Schema json.RawMessage
}

// Request is a model request of any wire in one form.
type Request struct {
	Wire   Wire
	Model  string
	Stream bool
	// System is the system text, its pieces joined by blank lines.
	System string
	Tools  []Tool
	// Builtins are the tools that the provider runs, by agentd's names:
	// google_search, url_context, web_search, code_execution, file_search; or the
	// provider's own name for others.
	Builtins []string
	Items    []Item
	// Signatures are the opaque proofs of thinking that the request hands back.
	Signatures []string
}

// ParseRequest reads the body of a request that went to a URL or path.
func ParseRequest(address string, body []byte) (*Request, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("reading a model request: %w", err)
	}
	return parseRequest(WireOf(u.Path), u, body)
}

func parseRequest(wire Wire, u *url.URL, body []byte) (*Request, error) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("reading a %s request: %w", wire, err)
	}
	r := &Request{Wire: wire, Model: o.str("model"), Stream: string(o["stream"]) == "true"}
	switch wire {
	case OpenAIChat:
		r.chat(o)
	case OpenAIResponses:
		r.responses(o)
	case Anthropic:
		r.anthropic(o)
	case Gemini:
		r.Model, _, _ = strings.Cut(path.Base(u.Path), ":")
		r.Stream = strings.HasSuffix(u.Path, ":streamGenerateContent")
		r.gemini(o)
	default:
		return nil, fmt.Errorf("reading a model request: %q is not the path of a model call", u.Path)
	}
	return r, nil
}

func (r *Request) system(s string) {
	if r.System != "" && s != "" {
		r.System += "\n\n"
	}
	r.System += s
}

func (r *Request) add(items ...Item) {
	for _, i := range items {
		if i.Text != "" || i.Kind == Call || i.Kind == Result {
			r.Items = append(r.Items, i)
		}
	}
}

func (r *Request) signature(s string) {
	if s != "" {
		r.Signatures = append(r.Signatures, s)
	}
}

// content reads a content that is a string or a list of parts; texts become
// items of a kind, anything else is other.
func content(kind Kind, raw json.RawMessage) []Item {
	if s := text(raw); s != "" {
		return []Item{{Kind: kind, Text: s}}
	}
	var items []Item
	for _, part := range objects(raw) {
		switch t := part.str("type"); t {
		case "text", "input_text", "output_text":
			items = append(items, Item{Kind: kind, Text: part.str("text")})
		case "refusal":
			items = append(items, Item{Kind: kind, Text: part.str("refusal")})
		case "thinking", "reasoning":
		default:
			items = append(items, Item{Kind: Other, Text: t})
		}
	}
	return items
}

// joined is the text of a content, with the names of what is not text.
func joined(raw json.RawMessage) string {
	var b strings.Builder
	for _, item := range content(User, raw) {
		if item.Kind == Other {
			b.WriteString("[" + item.Text + "]")
			continue
		}
		b.WriteString(item.Text)
	}
	return b.String()
}

func (r *Request) chat(o object) {
	for _, m := range o.list("messages") {
		switch role := m.str("role"); role {
		case "system", "developer":
			r.system(joined(m["content"]))
		case "user":
			r.add(content(User, m["content"])...)
		case "assistant":
			r.add(content(Assistant, m["content"])...)
			for _, d := range m.list("reasoning_details") {
				r.signature(d.str("signature"))
				r.signature(d.str("data"))
			}
			for _, call := range m.list("tool_calls") {
				fn := call.obj("function")
				r.add(Item{Kind: Call, ID: call.str("id"), Name: fn.str("name"), Args: fn.str("arguments")})
			}
		case "tool":
			r.add(Item{Kind: Result, ID: m.str("tool_call_id"), Text: joined(m["content"])})
		default:
			r.add(Item{Kind: Other, Text: "role " + role})
		}
	}
	for _, t := range o.list("tools") {
		if t.has("function") {
			fn := t.obj("function")
			tool := Tool{Name: fn.str("name"), Description: fn.str("description"), Schema: fn["parameters"]}
			r.Tools = append(r.Tools, tool)
			continue
		}
		r.Builtins = append(r.Builtins, builtin(t.str("type")))
	}
	if o.has("web_search_options") {
		r.Builtins = append(r.Builtins, "web_search")
	}
}

func (r *Request) responses(o object) {
	r.system(o.str("instructions"))
	r.add(Item{Kind: User, Text: text(o["input"])})
	for _, m := range o.list("input") {
		r.item(m)
	}
	for _, t := range o.list("tools") {
		if t.str("type") == "function" {
			tool := Tool{Name: t.str("name"), Description: t.str("description"), Schema: t["parameters"]}
			r.Tools = append(r.Tools, tool)
			continue
		}
		r.Builtins = append(r.Builtins, builtin(t.str("type")))
	}
}

func (r *Request) item(m object) {
	switch t := m.str("type"); t {
	case "", "message":
		switch m.str("role") {
		case "system", "developer":
			r.system(joined(m["content"]))
		case "user":
			r.add(content(User, m["content"])...)
		default:
			r.add(content(Assistant, m["content"])...)
		}
	case "reasoning":
		r.signature(m.str("encrypted_content"))
	case "function_call":
		r.add(Item{Kind: Call, ID: m.str("call_id"), Name: m.str("name"), Args: m.str("arguments")})
	case "function_call_output":
		r.add(Item{Kind: Result, ID: m.str("call_id"), Text: joined(m["output"])})
	default:
		r.add(Item{Kind: Other, Text: t})
	}
}

func (r *Request) anthropic(o object) {
	r.system(joined(o["system"]))
	for _, m := range o.list("messages") {
		kind := User
		if m.str("role") == "assistant" {
			kind = Assistant
		}
		r.add(Item{Kind: kind, Text: text(m["content"])})
		for _, block := range m.list("content") {
			r.block(kind, block)
		}
	}
	for _, t := range o.list("tools") {
		if typ := t.str("type"); typ != "" && typ != "custom" {
			r.Builtins = append(r.Builtins, builtin(typ))
			continue
		}
		tool := Tool{Name: t.str("name"), Description: t.str("description"), Schema: t["input_schema"]}
		r.Tools = append(r.Tools, tool)
	}
}

func (r *Request) block(kind Kind, block object) {
	switch t := block.str("type"); t {
	case "text":
		r.add(Item{Kind: kind, Text: block.str("text")})
	case "thinking":
		r.signature(block.str("signature"))
	case "redacted_thinking":
		r.signature(block.str("data"))
	case "tool_use":
		r.add(Item{Kind: Call, ID: block.str("id"), Name: block.str("name"), Args: string(block["input"])})
	case "tool_result":
		r.add(Item{
			Kind: Result, ID: block.str("tool_use_id"), Text: joined(block["content"]),
			IsError: string(block["is_error"]) == "true",
		})
	default:
		r.add(Item{Kind: Other, Text: t})
	}
}

// builtin is agentd's name of a tool that a provider runs, whose own name may
// end with a date.
func builtin(name string) string {
	for prefix, ours := range map[string]string{
		"web_search": "web_search", "web_fetch": "url_context", "code_execution": "code_execution",
		"code_interpreter": "code_execution", "googleSearch": "google_search", "google_search": "google_search",
		"urlContext": "url_context", "url_context": "url_context", "codeExecution": "code_execution",
		"fileSearch": "file_search",
	} {
		if strings.HasPrefix(name, prefix) {
			return ours
		}
	}
	return name
}
