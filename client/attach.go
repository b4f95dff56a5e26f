package client

import (
	"context"
	"iter"
	"maps"
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Attach yields what happens in the last turn of a session, or in that of
// [WithTurnID], which may be running, waiting, or over, and which any client may
// have started: all of it, or what comes after the position of [WithAfterSeq].
// It ends as [Client.Run] does and reconnects as it does, also when the first
// connection fails. After a position in an earlier turn it yields that turn to
// its end; at the very end of the session it yields nothing.
//
// Attach offers the tools of the client and its attachments, or those of
// [WithTools] alone, and so may be asked for calls that have no result yet.
// People are asked only with a [WithPrompter] among opts: that of the client is for
// turns that it starts. With [Observe] it only watches.
//
// Leaving the loop, like the end of ctx or of [WithTimeout], leaves the turn as
// it is, unless [WithOnLeave] says otherwise; the contexts of tool calls end.
// [Control] ends or cancels the turn.
func (c *Client) Attach(ctx context.Context, sessionID string, opts ...AttachOption) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		run, end, err := c.withServers(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		defer end()
		req, rc, err := run.prepareAttach(sessionID, opts)
		if err != nil {
			yield(nil, err)
			return
		}
		run.yieldRun(ctx, req, rc, yield)
	}
}

// prepareAttach is prepare for Attach.
func (c *Client) prepareAttach(sessionID string, opts []AttachOption) (*agentdv1.RunRequest, *runConfig, error) {
	rc, err := c.configure(useAttach, attachOptions(opts))
	if err != nil {
		return nil, nil, err
	}
	if sessionID == "" {
		return nil, nil, errorf(ErrInvalidRequest, "client.Attach needs the id of a session")
	}
	if rc.observe && (rc.prompter != nil || rc.onLeave == OnLeaveCancel) {
		return nil, nil, errorf(ErrInvalidRequest,
			"client.Observe only watches: it goes with neither WithPrompter nor OnLeaveCancel")
	}
	rc.sessionID = sessionID
	sets, attachments := []*ToolSet{c.tools}, c.cfg.attachments
	if rc.observe || len(rc.tools) > 0 {
		sets, attachments = nil, nil
	}
	if !rc.observe {
		sets = slices.Concat(sets, rc.tools)
	}
	rc.available, err = toolsOf(sets)
	if err != nil {
		return nil, nil, err
	}
	w := &treeWalk{available: rc.available, attachments: attachments, used: make(map[string]*tool)}
	if err := w.attachAll(); err != nil {
		return nil, nil, err
	}
	maps.Copy(rc.available, w.used)
	rc.offered = slices.Sorted(maps.Keys(rc.available))
	attach := &agentdv1.AttachRequest{
		SessionId: sessionID, TurnId: rc.turnID, AfterSeq: rc.after, ToolNames: rc.offered, Observe: rc.observe,
	}
	req := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: attach}}
	if err := c.checkMessage(req); err != nil {
		return nil, nil, err
	}
	return req, rc, nil
}

// protosOf returns the declarations of tools, ordered by name.
func protosOf(tools map[string]*tool) []*agentdv1.Tool {
	var out []*agentdv1.Tool
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		out = append(out, tools[name].proto)
	}
	return out
}
