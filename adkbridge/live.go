package adkbridge

import (
	"context"
	"time"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
)

// live is a model call whose answer the log does not hold.
type live struct {
	branch, id string // of the answer to come
	config     *genai.GenerateContentConfig
	chain      *chain
	shown      bool // something of the answer
}

// ask makes a live model call.
func (m *agentModel) ask(ctx context.Context, l *live) (*model.Response, *session.CallInfo, error) {
	t := m.t
	done, err := t.run.BeginCall(session.ModelCall{Path: m.n.path, Model: l.chain.last.n.modelName, MessageID: l.id})
	if err != nil {
		return nil, nil, err
	}
	defer done()
	began := time.Now()
	var first time.Duration
	resp, err := l.chain.generate(ctx, &model.Request{
		Contents: t.hist.prompt(m.n.name, l.branch, m.since()),
		Config:   l.config,
		Cache:    m.n.cacheOf(t.run.SessionID()),
		Origin:   model.Origin{Session: t.run.SessionID(), Turn: t.run.TurnID(), Path: m.n.path, MessageID: l.id},
	}, l.id, func() {
		if !l.shown {
			l.shown, first = true, time.Since(began)
		}
	})
	last := l.chain.last
	call := &session.CallInfo{Model: last.n.modelName, Provider: last.n.model.Provider, Took: time.Since(began), FirstText: first}
	if err != nil {
		last.spent(err, l.branch, call)
		last.before = session.Usage{} // it is kept
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, l.chain.failed(err)
	}
	return resp, call, nil
}
