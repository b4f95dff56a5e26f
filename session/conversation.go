package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/store"
)

// maxSeeds bounds the messages that a session may begin with.
const maxSeeds = 512

// maxAuthor bounds Request.Author, in bytes.
const maxAuthor = 256

// checkConversation checks what a request says of the conversation besides its prompt.
func (m *Manager) checkConversation(req *Request) error {
	if err := checkPairs("labels", req.Labels); err != nil {
		return err
	}
	if err := checkPairs("metadata", req.Metadata); err != nil {
		return err
	}
	switch {
	case len(req.Author) > maxAuthor:
		return fault.Errorf(fault.LimitExceeded, "author has %d bytes, at most %d are allowed",
			len(req.Author), maxAuthor).
			Breaking("author", fault.RuleRange).Over("author_bytes", maxAuthor, len(req.Author))
	case req.Mode > agentdv1.InstructionMode_INSTRUCTION_MODE_APPEND && strings.TrimSpace(req.Instruction) == "":
		return fault.Errorf(fault.Invalid,
			"instruction_mode %v without instruction: it says where the instruction goes, send that too", req.Mode).
			Breaking("instruction", fault.RuleRequired)
	case req.Fork && req.SessionID == "":
		return fault.Errorf(fault.Invalid, "fork without session_id: say which session is to be forked").
			Breaking("session_id", fault.RuleRequired)
	case req.Fork && len(req.Seed) > 0:
		return fault.Errorf(fault.Invalid,
			"seed_messages together with fork: a fork begins with the history of its parent, leave out one of them").
			Breaking("seed_messages", fault.RuleExcluded).Breaking("fork", fault.RuleExcluded)
	}
	return m.checkSeeds(req.Seed)
}

// checkSeeds checks the messages that a session is to begin with.
func (m *Manager) checkSeeds(seeds []*agentdv1.SeedMessage) error {
	if n := len(seeds); n > maxSeeds {
		return fault.Errorf(fault.LimitExceeded, "seed_messages: %d of them, at most %d are allowed", n, maxSeeds).
			Breaking("seed_messages", fault.RuleRange).Over("seed_messages", maxSeeds, n)
	}
	size := 0
	for i, s := range seeds {
		size += len(s.GetContent())
		switch role := s.GetRole(); {
		case role != "user" && role != "assistant":
			return fault.Errorf(fault.Invalid, "seed_messages[%d].role is %.40q, must be user or assistant", i, role).
				Breaking(fmt.Sprintf("seed_messages[%d].role", i), fault.RuleRange)
		case strings.TrimSpace(s.GetContent()) == "":
			return fault.Errorf(fault.Invalid, "seed_messages[%d].content is empty: leave the message out", i).
				Breaking(fmt.Sprintf("seed_messages[%d].content", i), fault.RuleRequired)
		}
	}
	if most := m.limits().MaxPromptBytes; size > most {
		return fault.Errorf(fault.LimitExceeded, "seed_messages have %d bytes of text, at most %d are allowed: "+
			"leave out the oldest ones", size, most).
			Breaking("seed_messages", fault.RuleRange).Over("seed_messages_bytes", most, size)
	}
	return nil
}

// checkSeed refuses seeds, of which there are n, for a session that there is.
func checkSeed(s *live.Session, n int) error {
	if n == 0 || s.IsUnmade() {
		return nil
	}
	return fault.Errorf(fault.Invalid,
		"seed_messages are the history of a new session, and there is a session %q: "+
			"leave them out, or name another session", s.ID()).
		Breaking("seed_messages", fault.RuleExcluded)
}

// setLabels sets labels of a session that there is. A session that is not made yet gets them with its first record.
func (m *Manager) setLabels(ctx context.Context, s *live.Session, labels map[string]string) error {
	if len(labels) == 0 || s.IsUnmade() {
		return nil
	}
	now, err := m.lists.Session(ctx, s.Key())
	if err != nil {
		return err
	}
	for k, v := range labels {
		if now.Labels[k] != v {
			_, err := m.UpdateSession(ctx, s.ID(), store.Change{Labels: labels})
			return err
		}
	}
	return nil
}

// startOnFork is start on a fork of the session. What it refuses leaves no fork. If the server dies before the turn has
// started, a repeat of the request finds the fork by its key.
func (m *Manager) startOnFork(ctx context.Context, req Request) (*Turn, error) {
	fork, err := m.ForkSession(ctx, ForkRequest{
		SessionID: req.SessionID, Names: Names{Labels: req.Labels}, Once: req.Once, scope: scopeTurnOn,
	})
	if err != nil {
		m.turns.Done()
		return nil, err
	}
	req.SessionID, req.Create, req.Fork, req.Labels = fork.ID, false, false, nil
	t, err := m.start(ctx, req)
	// Upon UNAVAILABLE for another reason the turn may have started.
	if err != nil && (fault.As(err).Code != fault.Unavailable || errors.Is(err, errNoRoom)) {
		if failed := m.DeleteSession(context.WithoutCancel(ctx), fork.ID); failed != nil {
			m.log.LogAttrs(ctx, slog.LevelWarn, "the fork for a turn that was refused is left over",
				slog.String("session", fork.ID), slog.String("error", failed.Error()))
		}
	}
	return t, err
}
