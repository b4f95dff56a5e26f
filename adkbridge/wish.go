package adkbridge

import "github.com/apzuk3/agentd/internal/lineage"

// A summary may be asked for: by a caller, with a record of the session, or by the model with mark_task_done. The
// request stands until a summary of the agent's conversation follows it in the log, or one that brought nothing.

// wish is a request for a summary; the zero value is none.
type wish struct {
	seq   int64  // of the record that asks, or from which on it holds
	done  bool   // the model asks, since a task is done
	focus string // what the summary is to keep
}

// wishes are what a prompt knows of requests for its summary.
type wishes struct {
	done   string // the detail of a mark_task_done
	marked bool   // its result is in the prompt, and the model has not spoken since
	wished wish   // by the model
	tried  int64  // the last summary, or the last that was asked for and brought nothing
}

// noteWish notes what an event says of summaries, before it is added. A task that is done is summarized once the model
// has spoken again: with its closing words, and not for the call that gives it the result of the tool alone.
func (p *prompt) noteWish(it *item, key promptKey) {
	if it.author != key.agent || it.branch != key.branch || it.seq < p.since {
		return
	}
	if it.compacted != nil && it.span.Since == p.since || it.tried {
		p.tried = it.seq
	}
	if it.content == nil {
		return
	}
	if it.response && p.marked {
		p.wished, p.marked = wish{seq: it.seq, done: true, focus: p.done}, false
	}
	for _, part := range it.content.Parts {
		switch {
		case part.FunctionCall != nil && part.FunctionCall.Name == taskDoneTool:
			detail, _ := part.FunctionCall.Args["detail"].(string)
			p.done = cut(detail, maxCompactionText)
		case part.FunctionResponse != nil && part.FunctionResponse.Name == taskDoneTool &&
			part.FunctionResponse.Response["output"] == doneText:
			p.marked = true
		}
	}
}

// wish returns the request for a summary that stands, the newest one.
func (m *agentModel) wish(l *liveCall) wish {
	seq, focus := m.t.run.CompactionAsked()
	if lineage.Room(l.branch) != "" {
		seq = 0 // it is about the session's conversation
	}
	w := m.t.hist.wish(promptKey{m.n.name, l.branch}, m.since(), m.n.taskDone)
	switch {
	case seq > w.tried && seq > w.wished.seq && seq > m.since():
		return wish{seq: seq, focus: focus}
	case w.wished.seq > w.tried:
		return w.wished
	}
	return wish{}
}

// wish returns what the prompt of a key knows of requests. An agent that has mark_task_done no more asks for nothing.
func (h *history) wish(key promptKey, since int64, mayMark bool) wishes {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.upToDateLocked(key, since).wishes
	if !mayMark {
		w.wished = wish{}
	}
	return w
}
