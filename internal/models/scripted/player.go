package scripted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// player is an open script. It is immutable.
type player struct {
	name   string
	script *Script
	delay  time.Duration
	played func(script string, answer int) // may be nil
}

// Generate plays the response that applies to the request.
func (p *player) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	s := look(req)
	s.try = max(modelcall.From(ctx).Try, 1)
	a, err := p.choose(s)
	if err != nil {
		return nil, err
	}
	if err := backoff.Wait(ctx, a.Delay); err != nil {
		return nil, err
	}
	b := &adapter.Builder{Provider: name, Emit: emit}
	sent := 0
	send := func(chunks Chunks, add func(string)) error {
		pieces, err := s.pieces(chunks)
		if err != nil {
			return err
		}
		for _, piece := range pieces {
			if a.Error != nil && sent >= a.Error.After {
				return a.fail(ctx, s)
			}
			if err := backoff.Wait(ctx, cmp.Or(a.ChunkDelay, p.delay)); err != nil {
				return err
			}
			add(piece)
			sent++
		}
		return nil
	}
	if err := send(a.Thoughts, b.Thought); err != nil {
		return nil, err
	}
	if err := send(a.Text, b.Text); err != nil {
		return nil, err
	}
	if a.Error != nil {
		return nil, a.fail(ctx, s)
	}
	for _, c := range a.Calls {
		part, err := c.part(s)
		if err != nil {
			return nil, err
		}
		b.Part(part)
	}
	content := b.Content()
	return &model.Response{
		Content:      content,
		FinishReason: cmp.Or(a.Finish, genai.FinishReasonStop),
		Usage:        a.Usage.orCounted(req, content),
		Model:        p.name,
	}, nil
}

// choose returns the response that applies.
func (p *player) choose(s *scene) (*Response, error) {
	place := 0
	for i := range p.script.Responses {
		a := &p.script.Responses[i]
		if a.When == nil {
			place++
		}
		if a.When == nil && place == s.call || a.When != nil && a.When.holds(s) {
			if p.played != nil {
				p.played(p.name, i)
			}
			return a, nil
		}
	}
	return nil, errorf(model.KindInvalid, "script %q has no answer for call %d (step %d): it has %d answers by place",
		p.name, s.call, s.step, place)
}

// holds reports whether all that w says is true of s.
func (w *When) holds(s *scene) bool {
	return (w.Call == 0 || w.Call == s.call) &&
		(w.Step == 0 || w.Step == s.step) &&
		(w.Try == 0 || w.Try == s.try) &&
		(w.user == nil || w.user.MatchString(s.user)) &&
		(w.system == nil || w.system.MatchString(adapter.Text(s.req.Config.SystemInstruction))) &&
		(w.AfterTool == "" || slices.ContainsFunc(s.results,
			func(r *genai.FunctionResponse) bool { return r.Name == w.AfterTool })) &&
		(w.HasTool == "" || slices.ContainsFunc(s.req.Functions(),
			func(f *genai.FunctionDeclaration) bool { return f.Name == w.HasTool }))
}

// fail is how the response fails.
func (a *Response) fail(ctx context.Context, s *scene) error {
	err := a.Error.happen(ctx, s)
	if a.Usage != nil {
		err = a.Usage.orCounted(s.req, nil).Spent(err)
	}
	return err
}

// happen is the failure.
func (f *Failure) happen(ctx context.Context, s *scene) error {
	switch f.Kind {
	case "panic":
		panic("scripted: panic, as the script says")
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "truncate":
		return adapter.Truncated(name)
	}
	message, err := s.expand(cmp.Or(f.Message, "an error, as the script says"))
	if err != nil {
		return err
	}
	return &model.Error{Kind: model.Kind(f.Kind), Provider: name, Status: f.Status, Message: message,
		RetryAfter: f.RetryAfter}
}

// part is the call as a part of the response.
func (c *Call) part(s *scene) (*genai.Part, error) {
	id, err := s.expand(c.ID)
	if err != nil {
		return nil, err
	}
	text, err := s.expand(c.ArgsText)
	if err != nil {
		return nil, err
	}
	if c.ArgsText == "" {
		args, err := s.expandAll(c.Args)
		if err != nil {
			return nil, err
		}
		data, err := rawjson.Marshal(args)
		if err != nil {
			return nil, errorf(model.KindInvalid, "arguments of %s: %v", c.Name, err)
		}
		text = string(data)
	}
	return adapter.NewCall(id, c.Name, text), nil
}

// orCounted returns u as model.Usage, or words counted as tokens when u is nil.
func (u *Usage) orCounted(req *model.Request, response *genai.Content) model.Usage {
	if u != nil {
		return seam.WithCacheWriteHour(model.Usage{
			Prompt: u.Prompt, Completion: u.Completion, Cached: u.Cached, CacheWrite: u.CacheWrite,
			Thoughts: u.Thoughts,
		}, u.CacheWriteHour).Normal()
	}
	out := model.Usage{Prompt: words.Count(req)}
	if response != nil {
		for _, p := range response.Parts {
			n := int64(len(strings.Fields(p.Text)))
			if p.Thought {
				out.Thoughts += n
			}
			out.Completion += n
			if p.FunctionCall != nil {
				out.Completion += int64(len(strings.Fields(adapter.ArgsText(p)))) + 1
			}
		}
	}
	out.Total = out.Prompt + out.Completion
	return out
}

// scene is what a request looks like to a script.
type scene struct {
	req *model.Request
	// user is the newest thing the user said.
	user string
	// call, step and try count as in When.
	call, step, try int
	// results are the tool results since the user last said something.
	results []*genai.FunctionResponse
	// all are all tool results.
	all []*genai.FunctionResponse
}

// look reads the request, as a model without references to tools receives it.
func look(asked *model.Request) *scene {
	found := *asked.Load()
	found.Contents = found.ReferencesInWords(nil, nil)
	req := &found
	s := &scene{req: req, call: 1, step: 1}
	var last int
	last, s.user = words.LastUser(req)
	for i, c := range req.Contents {
		if c.Role == genai.RoleModel {
			s.call++
			if i > last {
				s.step++
			}
		}
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				s.all = append(s.all, p.FunctionResponse)
				if i >= last {
					s.results = append(s.results, p.FunctionResponse)
				}
			}
		}
	}
	return s
}

// funcs are the functions of templates, for the scene they are about.
func (s *scene) funcs() template.FuncMap {
	return template.FuncMap{
		"last_user": func() string { return s.user },
		"last_word": func() string { return lastWord(s.user) },
		"system":    func() string { return adapter.Text(s.req.Config.SystemInstruction) },
		"call":      func() int { return s.call },
		"step":      func() int { return s.step },
		"tool_result": func(tool string) string {
			for _, r := range slices.Backward(s.all) {
				if r.Name == tool {
					return resultText(r)
				}
			}
			return ""
		},
	}
}

// parseTemplate parses text as a template over an empty scene.
func parseTemplate(text string) (*template.Template, error) {
	return template.New("text").Funcs((&scene{req: &model.Request{}}).funcs()).Parse(text)
}

// expand executes the template actions in text.
func (s *scene) expand(text string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := parseTemplate(text)
	if err != nil {
		return "", errorf(model.KindInvalid, "%v", err)
	}
	var b strings.Builder
	if err := t.Funcs(s.funcs()).Execute(&b, nil); err != nil {
		return "", errorf(model.KindInvalid, "%v", err)
	}
	return b.String(), nil
}

// pieces expands chunks into what is sent piece by piece.
func (s *scene) pieces(chunks Chunks) ([]string, error) {
	var out []string
	for _, c := range chunks {
		text, err := s.expand(c)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	if len(out) == 1 {
		return slices.Collect(words.Split(out[0])), nil
	}
	return out, nil
}

// expandAll returns a copy of args with all strings in it expanded.
func (s *scene) expandAll(args map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(args))
	for k, v := range args {
		e, err := s.expandValue(v)
		if err != nil {
			return nil, err
		}
		out[k] = e
	}
	return out, nil
}

func (s *scene) expandValue(v any) (any, error) {
	switch v := v.(type) {
	case string:
		return s.expand(v)
	case map[string]any:
		return s.expandAll(v)
	case []any:
		out := make([]any, len(v))
		var errs []error
		for i := range v {
			var err error
			out[i], err = s.expandValue(v[i])
			errs = append(errs, err)
		}
		return out, errors.Join(errs...)
	default:
		return v, nil
	}
}

// resultText is a tool's result in words: the one string in it under a usual
// name, else its JSON; then its files, on lines of their own.
func resultText(r *genai.FunctionResponse) string {
	text := valueText(r.Response)
	for _, p := range r.Parts {
		if p != nil {
			text = strings.TrimPrefix(text+"\n", "\n") + words.DescribeResultFile(p)
		}
	}
	return text
}

func valueText(r map[string]any) string {
	for _, key := range []string{"output", "result", "error"} {
		if text, ok := r[key].(string); ok && len(r) == 1 {
			return text
		}
	}
	data, err := rawjson.Marshal(r)
	if err != nil {
		return fmt.Sprint(r)
	}
	return string(data)
}

// lastWord is the last word of text without punctuation around it.
func lastWord(text string) string {
	for _, w := range slices.Backward(strings.Fields(text)) {
		if w = strings.Trim(w, ".,;:!?\"'()[]{}<>`“”‘’…"); w != "" {
			return w
		}
	}
	return ""
}
