package record

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// MaxExchange bounds a line with an Exchange, in bytes.
const MaxExchange = 16 << 20

// Exchange is one model call as programs on Google's ADK for Go record it: what their model was asked, and all that it
// yielded. A file has one on each line of JSON. Names of members are read in any case.
type Exchange struct {
	Request   ExchangeRequest `json:"request"`
	Responses []Yielded       `json:"responses"`
}

// ExchangeRequest is what a model was asked.
type ExchangeRequest struct {
	Model    string
	Contents []*genai.Content
	// Config is in genai's JSON form.
	Config json.RawMessage
}

// Yielded is one piece of what a model responded: a partial one, or the one that says it all.
type Yielded struct {
	Content       *genai.Content
	Partial       bool
	TurnComplete  bool
	FinishReason  string
	UsageMetadata *genai.GenerateContentResponseUsageMetadata
	ErrorCode     string
	ErrorMessage  string `json:",omitempty"`
	ModelVersion  string `json:",omitempty"`
}

// ErrEmpty is the error of a file without a recorded call.
var ErrEmpty = errors.New("the file has no recorded model call")

// ReadAny reads recorded calls of either form: lines as this package writes them, or Exchanges, whose lines say neither
// when a call was made, nor by which agent. Which one it is, the first line says. Empty lines are skipped, and, of
// Exchanges, those that begin with '#'. An error names the line. A file without calls is ErrEmpty.
func ReadAny(r io.Reader) ([]Line, error) {
	in, ours, err := form(r)
	if err != nil {
		return nil, err
	}
	if ours {
		lines, err := Read(in)
		if err == nil && len(lines) == 0 {
			err = ErrEmpty
		}
		return lines, err
	}
	var out []Line
	for e, err := range exchanges(in) {
		if err != nil {
			return nil, err
		}
		l, err := e.x.line()
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", e.at, err)
		}
		out = append(out, *l)
	}
	if len(out) == 0 {
		return nil, ErrEmpty
	}
	return out, nil
}

// Converted is what Convert has done.
type Converted struct {
	// Calls is how many were written, and Left how many canceled ones were left out.
	Calls, Left int
	// Ours is true if lines of this package's form were read, and false if they were written.
	Ours bool
}

// Convert writes recorded calls of one of the two forms in the other one. See ReadAny for what is read. After an error
// a part may be written.
func Convert(r io.Reader, w io.Writer) (done Converted, err error) {
	in, ours, err := form(r)
	if err != nil {
		return done, err
	}
	done.Ours = ours
	put := func(v any, most, at int) error {
		data, err := rawjson.Marshal(v)
		if err == nil && len(data) >= most {
			err = fmt.Errorf("the call takes %d bytes in the other form, at most %d are allowed", len(data), most)
		}
		if err != nil {
			return fmt.Errorf("call %d: %w", at, err)
		}
		done.Calls++
		_, err = w.Write(append(data, '\n'))
		return err
	}
	if ours {
		lines, err := Read(in)
		if err != nil {
			return done, err
		}
		for i := range lines {
			if e := lines[i].Error; e != nil && e.Kind == Canceled {
				done.Left++
				continue
			}
			x, err := lines[i].exchange()
			if err != nil {
				return done, fmt.Errorf("call %d: %w", i+1, err)
			}
			if err := put(x, MaxExchange, i+1); err != nil {
				return done, err
			}
		}
	} else {
		for e, err := range exchanges(in) {
			if err != nil {
				return done, err
			}
			l, err := e.x.line()
			if err != nil {
				return done, fmt.Errorf("line %d: %w", e.at, err)
			}
			if err := put(l, MaxLine, e.at); err != nil {
				return done, err
			}
		}
	}
	if done.Calls == 0 {
		return done, ErrEmpty
	}
	return done, nil
}

// form skips lines that say nothing, and reports whether what follows is of this package's form. in is at its
// beginning.
func form(r io.Reader) (in io.Reader, ours bool, err error) {
	buf := bufio.NewReader(r)
	var seen bytes.Buffer
	for {
		line, err := readLine(buf, MaxLine)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, false, err
		}
		seen.Write(line)
		line = bytes.TrimSpace(line)
		if skipped(line) && err == nil {
			continue
		}
		var first struct {
			Version *json.Number `json:"agentd_record"`
		}
		_ = json.Unmarshal(line, &first) // whoever reads it says what is wrong
		return io.MultiReader(&seen, buf), first.Version != nil, nil
	}
}

func skipped(line []byte) bool { return len(line) == 0 || line[0] == '#' }

// placed is an Exchange, and its line in the file, from 1.
type placed struct {
	x  *Exchange
	at int
}

// exchanges reads Exchanges, the last one with or without an end of its line. It ends with an error.
func exchanges(r io.Reader) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		in := bufio.NewReader(r)
		for at := 1; ; at++ {
			line, err := readLine(in, MaxExchange)
			end := errors.Is(err, io.EOF)
			if err != nil && !end {
				yield(placed{}, fmt.Errorf("line %d: %w", at, err))
				return
			}
			if line = bytes.TrimSpace(line); !skipped(line) {
				x, err := readExchange(line)
				if err != nil {
					yield(placed{}, fmt.Errorf("line %d: %w", at, err))
					return
				}
				if !yield(placed{x, at}, nil) {
					return
				}
			}
			if end {
				return
			}
		}
	}
}

func readExchange(line []byte) (*Exchange, error) {
	x := &Exchange{}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if err := dec.Decode(x); err != nil {
		return nil, fmt.Errorf("this is no recorded model call: %w", err)
	}
	if dec.More() {
		return nil, errors.New("more than one JSON value: want one model call on each line")
	}
	if len(x.Responses) == 0 {
		return nil, errors.New("no responses: want a recorded model call, with request and responses")
	}
	return x, nil
}

// line is the call in this package's form.
func (x *Exchange) line() (*Line, error) {
	asked := map[string]any{"contents": x.Request.Contents, "config": map[string]any{}}
	if x.Request.Contents == nil {
		asked["contents"] = []*genai.Content{}
	}
	if len(x.Request.Config) > 0 {
		v, err := jsondiff.Decode(x.Request.Config)
		if err != nil {
			return nil, fmt.Errorf("request: Config: %w", err)
		}
		if cfg, ok := v.(map[string]any); ok {
			delete(cfg, "httpOptions")
			asked["config"] = cfg
		} else if v != nil {
			return nil, errors.New("request: Config is no object")
		}
	}
	data, err := rawjson.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	v, err := jsondiff.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	l := &Line{Version: Version, Model: x.Request.Model}
	if l.Request, err = rawjson.Marshal(blobs(v, unwrapped)); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return l, x.outcome(l)
}

// outcome fills in how the call ended: the pieces together, without the partial ones that others repeat.
func (x *Exchange) outcome(l *Line) error {
	whole := &genai.Content{Role: genai.RoleModel}
	var seen shown
	var usage model.Usage
	finish, failed := string(genai.FinishReasonStop), ""
	for _, y := range x.Responses {
		if y.Content != nil {
			for _, p := range y.Content.Parts {
				switch {
				case p == nil:
					return errors.New("responses: a part is null")
				case y.Partial && p.Text != "":
					seen.add(model.Delta{Text: p.Text, Thought: p.Thought})
				case !y.Partial:
					whole.Parts = append(whole.Parts, p)
				}
			}
		}
		if y.FinishReason != "" {
			finish = y.FinishReason
		}
		if y.UsageMetadata != nil {
			usage = usageIn(y.UsageMetadata)
		}
		if y.ModelVersion != "" {
			l.Served = y.ModelVersion
		}
		if y.ErrorCode != "" || y.ErrorMessage != "" {
			failed = strings.TrimPrefix(strings.TrimSuffix(y.ErrorCode+": "+y.ErrorMessage, ": "), ": ")
		}
	}
	if failed != "" {
		l.Error, l.Shown = &Error{Kind: Internal, Message: failed}, seen.lines(strings.NewReplacer())
		return nil
	}
	if len(whole.Parts) == 0 {
		for _, s := range seen.lines(strings.NewReplacer()) {
			whole.Parts = append(whole.Parts, &genai.Part{Text: s.Text, Thought: s.Thought})
		}
	}
	l.Response = &Response{Finish: finish, Usage: usageOf(usage)}
	if len(whole.Parts) == 0 {
		return nil
	}
	var err error
	l.Response.Content, err = rawjson.Marshal(whole)
	return err
}

// exchange is the call in the other form.
func (l *Line) exchange() (*Exchange, error) {
	v, err := jsondiff.Decode(l.Request)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	top, _ := blobs(v, wrapped).(map[string]any)
	x := &Exchange{Request: ExchangeRequest{Model: l.Model}}
	if err := into(top["contents"], &x.Request.Contents); err != nil {
		return nil, fmt.Errorf("request: contents: %w", err)
	}
	if x.Request.Contents == nil {
		x.Request.Contents = []*genai.Content{}
	}
	if err := into(top["config"], &x.Request.Config); err != nil {
		return nil, fmt.Errorf("request: config: %w", err)
	}
	if e := l.Error; e != nil {
		for _, s := range l.Shown {
			part := &genai.Part{Text: s.Text, Thought: s.Thought}
			x.Responses = append(x.Responses, Yielded{
				Content: genai.NewContentFromParts([]*genai.Part{part}, genai.RoleModel), Partial: true,
			})
		}
		x.Responses = append(x.Responses, Yielded{TurnComplete: true, ErrorCode: e.Kind, ErrorMessage: e.Message})
		return x, nil
	}
	y := Yielded{
		TurnComplete: true, FinishReason: l.Response.Finish, UsageMetadata: l.Response.Usage.metadata(),
		ModelVersion: l.Served,
	}
	if len(l.Response.Content) > 0 {
		v, err := jsondiff.Decode(l.Response.Content)
		if err != nil {
			return nil, fmt.Errorf("response: %w", err)
		}
		if err := into(blobs(v, wrapped), &y.Content); err != nil {
			return nil, fmt.Errorf("response: %w", err)
		}
	}
	x.Responses = append(x.Responses, y)
	return x, nil
}

// into decodes what was decoded as another type; its numbers stay as they are.
func into(v any, to any) error {
	data, err := rawjson.Marshal(v)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec.Decode(to)
}

// hashText is what inline makes of data that it does not keep.
var hashText = regexp.MustCompile(`^sha256:[0-9a-f]{64} \(\d+ bytes\)$`)

// wrapped is inline data that genai reads: what is no base64, such as a hash, becomes it.
func wrapped(text string) string {
	if _, err := base64.StdEncoding.DecodeString(text); err == nil {
		return text
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}

// unwrapped takes back what wrapped did to a hash.
func unwrapped(text string) string {
	if data, err := base64.StdEncoding.DecodeString(text); err == nil && hashText.Match(data) {
		return string(data)
	}
	return text
}

// blobs returns v, which it changes, with inline data as to says.
func blobs(v any, to func(string) string) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = blobs(v[i], to)
		}
	case map[string]any:
		_, typed := v["mimeType"].(string)
		for name, member := range v {
			if text, ok := member.(string); ok && name == "data" && typed {
				v[name] = to(text)
				continue
			}
			v[name] = blobs(member, to)
		}
	}
	return v
}

// usageIn is what genai counts as package model does.
func usageIn(m *genai.GenerateContentResponseUsageMetadata) model.Usage {
	prompt := int64(m.PromptTokenCount) + int64(m.ToolUsePromptTokenCount)
	return model.Usage{
		Prompt: prompt, Cached: int64(m.CachedContentTokenCount), Thoughts: int64(m.ThoughtsTokenCount),
		Completion: max(int64(m.CandidatesTokenCount)+int64(m.ThoughtsTokenCount), int64(m.TotalTokenCount)-prompt),
	}.Normal()
}

// metadata is the usage as genai counts; what was written to a cache has no place there.
func (u Usage) metadata() *genai.GenerateContentResponseUsageMetadata {
	n := u.Model().Normal()
	return &genai.GenerateContentResponseUsageMetadata{
		PromptTokenCount: int32(n.Prompt), CachedContentTokenCount: int32(n.Cached),
		CandidatesTokenCount: int32(n.Completion - n.Thoughts),
		ThoughtsTokenCount:   int32(n.Thoughts), TotalTokenCount: int32(min(n.Total, 1<<31-1)),
	}
}
