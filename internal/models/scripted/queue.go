package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/models/record"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// queueName is the name of the provider that plays one file as all models.
const queueName = "script"

// Queue is a provider that plays one file of recorded calls as every model, one call after the other, whatever is
// asked. A model whose name the file has gets its own calls, with a cursor of its own; all other models share one that
// goes over the whole file. Cursors are of the process: they count calls of all sessions, and begin anew with it. Tries
// that failed are not played again, what came of a call is.
//
// Its methods may be called from any goroutine.
type Queue struct {
	strict bool
	names  []string // of models, in the order of the file

	mu    sync.Mutex        // protects the field below, and the cursors in it
	lists map[string]*queue // by model, "" for all that have none
}

// queue is what one model plays.
type queue struct {
	calls []*taped
	next  int // the cursor: how many were played
}

// OpenQueue reads a file of recorded calls of either form, see record.ReadAny, of at most 64 MiB. Strict refuses a call
// whose contents are not those of the recorded one; ids of tool calls do not count.
func OpenQueue(file string, strict bool) (*Queue, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := readAll(f, maxTape)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	lines, err := record.ReadAny(strings.NewReader(string(data)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t, err := newTape(lines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	q := &Queue{strict: strict, lists: map[string]*queue{"": {calls: t.calls}}}
	for _, c := range t.calls {
		c.line.Tries = nil
		name := c.line.Model
		if name == "" {
			continue
		}
		if q.lists[name] == nil {
			q.lists[name] = &queue{}
			q.names = append(q.names, name)
		}
		q.lists[name].calls = append(q.lists[name].calls, c)
	}
	return q, nil
}

// Describe says that it serves every name.
func (q *Queue) Describe() model.Description {
	return model.Description{
		Name: queueName, Models: q.names, Rest: true, Keyless: true, Free: true, Builtins: TapeBuiltins(),
	}
}

// Open returns a model that plays the calls of that name. The key is ignored.
func (q *Queue) Open(name, _ string) (model.Model, error) {
	list := q.lists[name]
	if list == nil {
		_, after, _ := strings.Cut(name, "/") // others' names have no provider
		list = q.lists[after]
	}
	if list == nil {
		list = q.lists[""]
	}
	return model.Model{LLM: &queuePlayer{q, list}}, nil
}

// queuePlayer is an open model of a Queue.
type queuePlayer struct {
	from *Queue
	list *queue
}

// Generate plays the next call. Its errors are final.
func (p *queuePlayer) Generate(
	ctx context.Context, req *model.Request, emit func(model.Delta),
) (*model.Response, error) {
	p.from.mu.Lock()
	at := p.list.next
	if at >= len(p.list.calls) {
		p.from.mu.Unlock()
		return nil, queueErrorf("script exhausted at turn %d (no more recorded responses)", at)
	}
	p.list.next++
	p.from.mu.Unlock()
	c := p.list.calls[at]
	if p.from.strict {
		d, err := c.otherContents(req)
		if err != nil {
			return nil, queueErrorf("script: turn %d: %v", at, err)
		}
		if d != nil {
			return nil, queueErrorf("script: strict mismatch on turn %d: %v", at, d).ForCaller()
		}
	}
	return c.play(ctx, 0, emit)
}

func queueErrorf(format string, args ...any) *model.Error {
	e := errorf(model.KindInvalid, format, args...)
	e.Provider, e.Final = queueName, true
	return e
}

// otherContents says where the contents of a request are not the recorded ones; nil if they are.
func (c *taped) otherContents(req *model.Request) (*jsondiff.Difference, error) {
	asked, err := record.Request(req)
	if err != nil {
		return nil, err
	}
	got, err := contentsOf(asked)
	if err != nil {
		return nil, err
	}
	want, err := contentsOf(c.line.Request)
	if err != nil {
		return nil, err
	}
	return jsondiff.First(want, got), nil
}

// contentsOf is the normal form of what was said in a recorded request.
func contentsOf(request json.RawMessage) (any, error) {
	var in struct {
		Contents json.RawMessage `json:"contents"`
	}
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, err
	}
	data, err := rawjson.Marshal(map[string]any{"contents": in.Contents})
	if err != nil {
		return nil, err
	}
	return record.Normal(data, record.Version)
}
