package scripted

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/record"
	"github.com/apzuk3/agentd/internal/models/words"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// tape is a file of recorded calls, see package record. It is immutable.
type tape struct {
	calls []*taped // in the order of the file
}

// taped is one recorded call.
type taped struct {
	line record.Line
	at   int // its place in the file, from 1
	path string
	key  string // see callKey
	view requestView
	sum  [sha256.Size]byte // of the normal request
	// failed is what other models took that failed before at the same call.
	failed []model.Usage
}

// requestView is what a lenient replay goes by.
type requestView struct {
	// call is the number of the call in the agent's session, as in When.
	call int
	// user is the newest thing the user said.
	user string
}

// readTape reads recorded calls. Those that were canceled before there was a
// response are left out, and so are failed ones that another model took over.
func readTape(data []byte) (*tape, error) {
	lines, err := record.Read(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return newTape(lines)
}

// newTape is readTape of what was read.
func newTape(lines []record.Line) (*tape, error) {
	t := &tape{}
	var err error
	for i, l := range lines {
		if l.Error != nil && l.Error.Kind == record.Canceled {
			continue
		}
		c := &taped{line: l, at: i + 1, path: strings.Join(l.Path, "/"), key: callKey(l.Turn, l.MessageID)}
		if c.view, err = recordedView(l.Request); err != nil {
			return nil, fmt.Errorf("call %d: request: %w", c.at, err)
		}
		if _, c.sum, err = normal(l.Request, l.Version); err != nil {
			return nil, fmt.Errorf("call %d: request: %w", c.at, err)
		}
		t.calls = append(t.calls, c)
	}
	t.calls = withoutReplaced(t.calls)
	if len(t.calls) == 0 {
		return nil, errors.New("no recorded call has a response")
	}
	return t, nil
}

// callKey is the part of a message's id that is the same when its turn is played
// again: which call of which agent it is.
func callKey(turn, message string) string {
	if key, ok := strings.CutPrefix(message, turn+"/"); ok {
		return key
	}
	return ""
}

// withoutReplaced leaves out failed calls behind which the same message was asked
// for again with the same request: a tape plays what became of the call, and counts
// what all of them took.
func withoutReplaced(calls []*taped) []*taped {
	type asked struct {
		session, turn, message string
		sum                    [sha256.Size]byte
	}
	later := map[asked]*taped{}
	var out []*taped
	for _, c := range slices.Backward(calls) {
		key := asked{c.line.Session, c.line.Turn, c.line.MessageID, c.sum}
		last := later[key]
		if c.line.Error == nil || c.line.MessageID == "" || last == nil {
			out, later[key] = append(out, c), c
			continue
		}
		last.failed = append(failedUsage(&c.line), last.failed...)
	}
	slices.Reverse(out)
	return out
}

// recordedView is viewOf of a recorded request. It reads who said what and nothing
// else: inline data may be hashes there, which genai does not read.
func recordedView(request json.RawMessage) (requestView, error) {
	var in struct {
		Contents []struct {
			Role  string `json:"role"`
			Parts []struct {
				Text    string `json:"text"`
				Thought bool   `json:"thought"`
			} `json:"parts"`
		} `json:"contents"`
	}
	if err := json.Unmarshal(request, &in); err != nil {
		return requestView{}, err
	}
	req := &model.Request{}
	for _, c := range in.Contents {
		content := &genai.Content{Role: c.Role}
		for _, p := range c.Parts {
			content.Parts = append(content.Parts, &genai.Part{Text: p.Text, Thought: p.Thought})
		}
		req.Contents = append(req.Contents, content)
	}
	return viewOf(req), nil
}

func viewOf(req *model.Request) requestView {
	s := look(req)
	return requestView{call: s.call, user: s.user}
}

// failedUsage is what the tries of a failed call took, as far as it was reported.
func failedUsage(l *record.Line) []model.Usage {
	var out []model.Usage
	for _, t := range l.Tries {
		if t.Error != nil && t.Error.Usage != nil {
			out = append(out, t.Error.Usage.Model())
		}
	}
	if l.Error != nil && l.Error.Usage != nil {
		out = append(out, l.Error.Usage.Model())
	}
	return out
}

// normal is a recorded request in the form in which it is compared with one of a
// line of that form, and its hash.
func normal(request json.RawMessage, version int) (v any, sum [sha256.Size]byte, err error) {
	if v, err = record.Normal(request, version); err != nil {
		return nil, sum, err
	}
	data, err := rawjson.Marshal(v)
	return v, sha256.Sum256(data), err
}

// tapePlayer is an open tape. It is immutable.
type tapePlayer struct {
	name   string
	tape   *tape
	strict bool
	delay  time.Duration
}

// Generate responds as the model of the recorded call did.
func (p *tapePlayer) Generate(
	ctx context.Context, req *model.Request, emit func(model.Delta),
) (*model.Response, error) {
	info := modelcall.From(ctx)
	c, err := p.find(req, info)
	if err != nil {
		return nil, err
	}
	if try := max(info.Try, 1); try <= len(c.line.Tries) {
		if e := c.line.Tries[try-1].Error.Model(); e != nil {
			e.RetryAfter = 0 // what was waited then is not waited again
			return nil, e
		}
	}
	return c.play(ctx, p.delay, emit)
}

// play shows and returns what came of the call.
func (c *taped) play(ctx context.Context, delay time.Duration, emit func(model.Delta)) (*model.Response, error) {
	if c.line.Error == nil {
		return c.respond(ctx, delay, emit)
	}
	e := c.line.Error.Model()
	if e == nil {
		e = errorf(model.KindUnavailable, "recorded: %s", c.line.Error.Message).ForCaller()
	}
	e.Final, e.Failed = true, c.failed // as it was then
	for _, s := range c.line.Shown {
		if err := say(ctx, delay, model.Delta{Text: s.Text, Thought: s.Thought}, emit); err != nil {
			return nil, err
		}
	}
	return nil, e
}

// say sends a text word by word.
func say(ctx context.Context, delay time.Duration, d model.Delta, emit func(model.Delta)) error {
	for word := range words.Split(d.Text) {
		if err := backoff.Wait(ctx, delay); err != nil {
			return err
		}
		emit(model.Delta{Text: word, Thought: d.Thought})
	}
	return nil
}

// respond sends the recorded response word by word.
func (c *taped) respond(ctx context.Context, delay time.Duration, emit func(model.Delta)) (*model.Response, error) {
	r := c.line.Response
	out := &model.Response{
		FinishReason: genai.FinishReason(r.Finish), Usage: r.Usage.Model(), Failed: c.failed, Model: c.line.Served,
		Provided: r.Provided,
	}
	if len(r.Content) == 0 {
		return out, nil
	}
	dec := json.NewDecoder(bytes.NewReader(r.Content))
	dec.UseNumber()
	if err := dec.Decode(&out.Content); err != nil {
		return nil, errorf(model.KindInvalid, "recorded call %d: response: %v", c.at, err)
	}
	for _, part := range out.Content.Parts {
		if part == nil {
			return nil, errorf(model.KindInvalid, "recorded call %d: response: a part is null", c.at)
		}
		if part.FunctionCall != nil && part.FunctionCall.Args == nil {
			part.FunctionCall.Args = map[string]any{} // JSON leaves it out
		}
		if err := say(ctx, delay, model.Delta{Text: part.Text, Thought: part.Thought}, emit); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// find returns the recorded call for a request: one of the same agent, or of one
// that the tape does not name, with an equal request, of several the one that was the same call of its turn, and
// of those the first. If none is equal that is, unless the tape is strict, the call
// of that number; of several the one that follows the same words of the user, and
// of those the first.
func (p *tapePlayer) find(req *model.Request, info modelcall.Info) (*taped, error) {
	asked, err := record.Request(req)
	if err != nil {
		return nil, errorf(model.KindInvalid, "recording %q: %v", p.name, err)
	}
	forms := map[int]any{} // by the form of the line, of those that the tape has
	sums := map[int][sha256.Size]byte{}
	path, view, key := strings.Join(info.Path, "/"), viewOf(req), callKey(info.Turn, info.MessageID)
	var equal, best *taped
	for _, c := range p.tape.calls {
		if path != "" && c.path != "" && c.path != path {
			continue
		}
		form := c.line.Version
		if _, made := forms[form]; !made {
			if forms[form], sums[form], err = normal(asked, form); err != nil {
				return nil, errorf(model.KindInvalid, "recording %q: %v", p.name, err)
			}
		}
		if c.sum == sums[form] && (equal == nil || equal.key != key && c.key == key) {
			equal = c
		}
		if c.view.call == view.call && (best == nil || best.view.user != view.user && c.view.user == view.user) {
			best = c
		}
	}
	switch {
	case equal != nil:
		return equal, nil
	case best == nil:
		return nil, errorf(model.KindInvalid, "recording %q has no call %d of agent %s: %s", p.name, view.call,
			cmp.Or(path, "any"), p.tape.contents())
	case p.strict:
		return nil, errorf(model.KindInvalid,
			"recording %q: call %d of agent %s is not the recorded one (call %d of the file): %v",
			p.name, view.call, cmp.Or(path, "any"), best.at, best.diff(forms[best.line.Version])).ForCaller()
	}
	return best, nil
}

// diff says where a request differs from the recorded one.
func (c *taped) diff(got any) *jsondiff.Difference {
	want, _, err := normal(c.line.Request, c.line.Version)
	if err != nil { // not reached: it was read before
		return &jsondiff.Difference{Want: err.Error()}
	}
	return jsondiff.First(want, got)
}

// contents says, bounded, whose calls are on the tape.
func (t *tape) contents() string {
	const most = 8
	var agents []string
	for _, c := range t.calls {
		if !slices.Contains(agents, c.path) {
			agents = append(agents, c.path)
		}
	}
	more := ""
	if len(agents) > most {
		agents, more = agents[:most], ", …"
	}
	return fmt.Sprintf("it has %d calls, of %s%s", len(t.calls), strings.Join(agents, ", "), more)
}
