package adkbridge

import (
	"context"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// liveCall is a model call whose response the log does not hold.
type liveCall struct {
	branch, id string // of the response to come
	config     *genai.GenerateContentConfig
	chain      *chain
	shown      bool // something of the response was shown
	wish       wish // for a summary before it
}

// callModel makes a live model call.
func (m *agentModel) callModel(ctx context.Context, l *liveCall) (*model.Response, *record.CallInfo, error) {
	t := m.t
	call := record.ModelCall{Path: m.n.path, Model: l.chain.last.n.modelName, MessageID: l.id}
	done, err := t.run.BeginCall(ctx, call, func() record.Spent {
		return most(t.hist.prompt(m.n.name, l.branch, m.since()), l.config, l.chain.models())
	})
	if err != nil {
		return nil, nil, err
	}
	owed := true // the response is recorded later
	defer func() { done(owed) }()
	l.chain.takeCutUsage(l.branch)
	began := time.Now()
	var first time.Duration
	contents, kept := t.hist.request(m.n.name, l.branch, m.since())
	req := &model.Request{
		Contents: contents,
		Config:   l.config,
		Cache:    m.n.cacheOf(t.run.SessionID()),
		Encoded:  kept,
	}
	info := modelcall.Info{Session: t.run.SessionID(), Turn: t.run.TurnID(), Path: m.n.path, MessageID: l.id}
	resp, err := l.chain.generate(ctx, l.id, func(last *agentModel, replaceable bool) (*model.Response, bool, error) {
		one, shown := *req, false
		info := info
		info.Replaceable = replaceable
		resp, err := last.generate(ctx, &one, info, func() {
			shown = true
			if !l.shown {
				l.shown, first = true, time.Since(began)
			}
		})
		return resp, shown, err
	})
	last := l.chain.last
	made := &record.CallInfo{Model: last.n.modelName, Provider: last.n.model.Provider, Took: time.Since(began),
		FirstText: first}
	if err != nil {
		owed = last.keepUsage(err, l.branch, made)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, l.chain.callError(err)
	}
	return resp, made, nil
}
