package adkbridge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/record"
)

// narrowModels is a model with a context window, as large as the number after the last
// dash of its name. It counts four bytes as a token and refuses what does not fit. Its
// response depends only on the request. A prompt "N rounds" makes it search until a
// result holds N; it responds to any other prompt at once; a summary is a hash. A model
// whose name begins with "down" fails.
type narrowModels struct {
	// known is true if the bridge knows the window.
	known bool
	// longest is the longest response that the bridge knows of; 0 is none.
	longest int64
	// say, if set, may say something else than the models say by themselves.
	say func(contents []*genai.Content) []*genai.Part
	// summary, if set, writes summaries.
	summary func(ctx context.Context) (*model.Response, error)

	mu       sync.Mutex // protects the fields below
	requests []*model.Request
	agents   []string // the callers of requests
	refused  int
	down     int
	summed   []*model.Request
	billed   record.Usage
}

// bill is what the models have said that they took.
func (w *narrowModels) bill() record.Usage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.billed
}

func (w *narrowModels) take(u model.Usage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.billed = w.billed.Add(record.Usage{Prompt: u.Prompt, Completion: u.Completion, Total: u.Total, Calls: 1, Cost: record.NanoUSD(u.Total)})
}

func (w *narrowModels) Resolve(name string, _ map[string]string) (Model, error) {
	var window int64
	if _, err := fmt.Sscanf(name[strings.LastIndex(name, "-")+1:], "%d", &window); err != nil {
		return Model{}, &model.Error{Kind: model.KindUnavailable, Provider: "narrow", Message: "there is no such model"}
	}
	m := Model{Longest: w.longest, LLM: narrowModel{w, window, strings.HasPrefix(name, "down")}, Provider: "narrow", Cost: func(u model.Usage) record.NanoUSD { return record.NanoUSD(u.Total) }}
	if w.known {
		m.Window = window
	}
	return m, nil
}

// thinking returns a summary after so many tokens of thoughts, which count for the
// limit.
func (w *narrowModels) thinking(tokens int64) func(context.Context) (*model.Response, error) {
	return func(context.Context) (*model.Response, error) {
		w.mu.Lock()
		limit := int64(w.summed[len(w.summed)-1].Config.MaxOutputTokens)
		w.mu.Unlock()
		resp := &model.Response{Content: genai.NewContentFromText("what matters", "model"), FinishReason: genai.FinishReasonStop}
		if limit < tokens {
			resp.Content, resp.FinishReason = genai.NewContentFromText("what", "model"), genai.FinishReasonMaxTokens
		}
		took := min(tokens, limit)
		resp.Usage = model.Usage{Prompt: 100, Completion: took, Thoughts: took, Total: 100 + took}
		return resp, nil
	}
}

type narrowModel struct {
	w      *narrowModels
	window int64
	down   bool
}

func (m narrowModel) Generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	resp, err := m.generate(ctx, req, emit)
	if resp != nil {
		m.w.take(resp.Usage)
	}
	if e, ok := errors.AsType[*model.Error](err); ok && e.Usage != nil {
		m.w.take(*e.Usage)
	}
	return resp, err
}

func (m narrowModel) generate(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	data, err := json.Marshal(req.Contents)
	if err != nil {
		return nil, err
	}
	tokens := int64(len(data)+len(adapter.Text(req.Config.SystemInstruction))) / 4
	sum := sha256.Sum256([]byte(transcript(req.Contents))) // without the ids of calls
	if onRaw := modelcall.From(ctx).OnRaw; onRaw != nil {
		if err := onRaw(modelcall.Raw{Attempt: 1, Provider: "narrow", Status: 200, Body: []byte("{}")}); err != nil {
			return nil, err
		}
	}
	u := model.Usage{Prompt: tokens, Completion: 10, Total: tokens + 10}
	sums := strings.HasPrefix(adapter.Text(req.Config.SystemInstruction), summaryInstruction)
	m.w.mu.Lock()
	if m.down {
		m.w.down++
		m.w.mu.Unlock()
		return nil, &model.Error{Kind: model.KindUnavailable, Provider: "narrow", Status: 404, Message: "gone", Usage: &model.Usage{Prompt: 1, Total: 1}}
	}
	m.w.requests = append(m.w.requests, req)
	m.w.agents = append(m.w.agents, path.Base(strings.Join(modelcall.From(ctx).Path, "/")))
	if tokens > m.window {
		m.w.refused++
		m.w.mu.Unlock()
		return nil, &model.Error{Kind: model.KindContextTooLong, Provider: "narrow", Status: 400, Message: fmt.Sprintf("%d tokens, at most %d", tokens, m.window)}
	}
	summary := m.w.summary
	if sums {
		m.w.summed = append(m.w.summed, req)
	}
	m.w.mu.Unlock()
	resp := &model.Response{Content: &genai.Content{Role: genai.RoleModel}, FinishReason: genai.FinishReasonStop, Usage: u, Model: "narrow"}
	if sums {
		if summary != nil {
			return summary(ctx)
		}
		resp.Content.Parts = []*genai.Part{{Text: fmt.Sprintf("summary %x", sum)}}
		return resp, nil
	}
	if m.w.say != nil {
		if resp.Content.Parts = m.w.say(req.Contents); resp.Content.Parts != nil {
			return resp, nil
		}
	}
	var rounds, round int
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			if _, err := fmt.Sscanf(p.Text, "%d rounds", &rounds); err == nil {
				round = 0
			}
			if p.FunctionResponse != nil && p.FunctionResponse.Name != taskDoneTool {
				n, err := p.FunctionResponse.Response["n"].(json.Number).Int64()
				if err != nil {
					return nil, err
				}
				round = int(n)
			}
		}
	}
	if round < rounds {
		resp.Content.Parts = []*genai.Part{
			adapter.NewCall("", "search", fmt.Sprintf(`{"q":%d}`, round+1)), adapter.NewCall("", "fetch", fmt.Sprintf(`{"q":%d}`, round+1)),
		}
		return resp, nil
	}
	text := fmt.Sprintf("answer %x", sum)
	emit(model.Delta{Text: text})
	resp.Content.Parts = []*genai.Part{{Text: text}}
	return resp, nil
}
