package scripted

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/yamlfile"
	"github.com/apzuk3/agentd/model"
)

// Script is a list of responses. For each request the first one that applies is
// played:
//
//   - a response with When applies when all that When says holds; an empty When
//     always holds, so it belongs at the end;
//   - a response without When applies to one call: the first such response to the
//     first call that the agent makes in its session, and so on. The call's
//     number is one more than the number of model turns in the request.
//
// When none applies the call fails with KindInvalid.
//
// Texts, arguments, call ids and messages may hold actions of text/template with the
// functions last_user (the newest thing the user said, files in words), last_word (its last
// word), system (the system instruction), call and step (see When), and
// tool_result "name" (the newest result of that tool, "" if there is none):
//
//	answers:
//	  - text: I will greet them.
//	    calls:
//	      - name: greet
//	        args: {name: "{{last_word}}"}
//	  - when: {after_tool: greet}
//	    text: 'The tool says: {{tool_result "greet"}}'
type Script struct {
	// Responses are the responses; at least one.
	Responses []Response `yaml:"answers"`
}

// Response is one response of the model.
type Response struct {
	// When says to which calls the response applies; nil: by its place.
	When *When `yaml:"when"`
	// Delay is waited before anything is sent, as in "10ms".
	Delay time.Duration `yaml:"delay"`
	// ChunkDelay is waited before each piece; default the provider's.
	ChunkDelay time.Duration `yaml:"chunk_delay"`
	// Thoughts is sent first, Text next, Calls at the end.
	Thoughts Chunks `yaml:"thoughts"`
	Text     Chunks `yaml:"text"`
	Calls    []Call `yaml:"calls"`
	// Error ends the response before its end.
	Error *Failure `yaml:"error"`
	// Usage is what is reported; default counts words as tokens, and nothing for an
	// response that fails.
	Usage *Usage `yaml:"usage"`
	// Finish is the finish reason; default STOP.
	Finish genai.FinishReason `yaml:"finish"`
}

// When says to which calls a response applies. Fields that are set must all
// hold; patterns are regular expressions.
type When struct {
	// Call is the number of the call in the agent's session, from 1: one more
	// than the number of model turns in the request.
	Call int `yaml:"call"`
	// Step is the number of the call since the user last said something, from 1.
	Step int `yaml:"step"`
	// Try is the number of the try of a call that is made again after a failure,
	// from 1.
	Try int `yaml:"try"`
	// User matches the newest thing the user said.
	User string `yaml:"user"`
	// System matches the system instruction.
	System string `yaml:"system"`
	// AfterTool is the name of a tool whose result came in since the user last
	// said something.
	AfterTool string `yaml:"after_tool"`
	// HasTool is the name of a function that the request declares.
	HasTool string `yaml:"has_tool"`

	user, system *regexp.Regexp
}

// Call is one function call.
type Call struct {
	// Name is the function's name.
	Name string `yaml:"name"`
	// ID is the id that the provider gives the call; default none.
	ID string `yaml:"id"`
	// Args are the arguments; strings in it may hold template actions.
	Args map[string]any `yaml:"args"`
	// ArgsText is their text, sent as it is, for arguments that are no object.
	ArgsText string `yaml:"args_text"`
}

// Failure is how a response fails, after some of its pieces were sent.
type Failure struct {
	// Kind is a model.Kind, or "truncate" (the stream ends early), "hang" (it
	// stays silent until the call is aborted) or "panic".
	Kind string `yaml:"kind"`
	// Message is the provider's message.
	Message string `yaml:"message"`
	// After is how many pieces are sent before; default none.
	After int `yaml:"after"`
	// Status is the HTTP status.
	Status int `yaml:"status"`
	// RetryAfter is what the provider asks to wait.
	RetryAfter time.Duration `yaml:"retry_after"`
}

// Usage is model.Usage; Total is Prompt plus Completion, whatever is said.
type Usage struct {
	Prompt     int64 `yaml:"prompt"`
	Completion int64 `yaml:"completion"`
	Cached     int64 `yaml:"cached"`
	CacheWrite int64 `yaml:"cache_write"`
	// CacheWriteHour is part of CacheWrite.
	CacheWriteHour int64 `yaml:"cache_write_hour"`
	Thoughts       int64 `yaml:"thoughts"`
	Total          int64 `yaml:"total"`
}

// Chunks is text: a single one is sent word by word, several piece by piece. In
// a file it may be a string in place of a list of one.
type Chunks []string

// UnmarshalYAML accepts a string or a list of strings.
func (c *Chunks) UnmarshalYAML(decode func(any) error) error {
	var list []string
	if err := decode(&list); err == nil {
		*c = list
		return nil
	}
	var text string
	if err := decode(&text); err != nil {
		return errors.New("want a string or a list of strings")
	}
	*c = Chunks{text}
	return nil
}

// limits bounds a script. Only aliases can make its values more than its bytes.
var limits = yamlfile.Limits{
	Bytes:   maxScript,
	Tokens:  maxScript,
	Depth:   64,
	Anchors: 100,
	Values:  maxScript,
	Holds:   "a script with at least one answer",
}

// Parse reads a script as YAML or JSON; see package yamlfile. Unknown fields are
// errors. The error has a line line:column for each problem.
func Parse(data []byte) (*Script, error) {
	var s Script
	if err := yamlfile.Decode(data, limits, &s); err != nil {
		return nil, fmt.Errorf("parse script: %w", err)
	}
	return s.compiled()
}

// failures are the kinds of Failure.
var failures = []string{
	"truncate", "hang", "panic",
	string(model.KindRateLimited), string(model.KindAuth), string(model.KindUnavailable), string(model.KindTimeout),
	string(model.KindInvalid), string(model.KindBlocked), string(model.KindContextTooLong),
}

// compiled returns a checked copy of s with its patterns compiled.
func (s *Script) compiled() (*Script, error) {
	if s == nil || len(s.Responses) == 0 {
		return nil, errors.New("a script needs at least one answer")
	}
	out := &Script{Responses: slices.Clone(s.Responses)}
	for i := range out.Responses {
		if err := out.Responses[i].compile(); err != nil {
			return nil, fmt.Errorf("answer %d: %w", i+1, err)
		}
	}
	return out, nil
}

// compile checks a and replaces its When by a compiled copy.
func (a *Response) compile() error {
	for i, c := range a.Calls {
		if c.Name == "" {
			return fmt.Errorf("call %d has no name", i+1)
		}
		if c.Args != nil && c.ArgsText != "" {
			return fmt.Errorf("call %d has both args and args_text", i+1)
		}
	}
	if a.Error != nil && !slices.Contains(failures, a.Error.Kind) {
		return fmt.Errorf("error kind %q: want one of %v", a.Error.Kind, failures)
	}
	for _, text := range a.templates() {
		if _, err := parseTemplate(text); err != nil {
			return err
		}
	}
	if a.When == nil {
		return nil
	}
	w := *a.When
	var err error
	if w.user, err = pattern(w.User); err != nil {
		return fmt.Errorf("when.user: %w", err)
	}
	if w.system, err = pattern(w.System); err != nil {
		return fmt.Errorf("when.system: %w", err)
	}
	a.When = &w
	return nil
}

// templates are all texts of a that may hold actions, but for arguments.
func (a *Response) templates() []string {
	out := slices.Concat(a.Thoughts, a.Text)
	for _, c := range a.Calls {
		out = append(out, c.ID, c.ArgsText)
	}
	if a.Error != nil {
		out = append(out, a.Error.Message)
	}
	return out
}

// pattern compiles p, nil when it is empty.
func pattern(p string) (*regexp.Regexp, error) {
	if p == "" {
		return nil, nil
	}
	return regexp.Compile(p)
}
