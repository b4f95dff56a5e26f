package client

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// OnBusy is what happens to the prompt of a Run when the session already runs a
// turn. A turn that only waits for a client which is not there gives way to any
// prompt but an injected one.
type OnBusy agentdv1.OnBusy

// Ways to deal with a busy session.
const (
	// OnBusyReject fails the run with SESSION_BUSY. This is what servers do if
	// they are not notified.
	OnBusyReject = OnBusy(agentdv1.OnBusy_ON_BUSY_REJECT)
	// OnBusyEnqueue has the prompt wait until the turns before it are over.
	OnBusyEnqueue = OnBusy(agentdv1.OnBusy_ON_BUSY_ENQUEUE)
	// OnBusyInterrupt cancels the running turn; the prompt is next, before those
	// that wait.
	OnBusyInterrupt = OnBusy(agentdv1.OnBusy_ON_BUSY_INTERRUPT)
	// OnBusyInject makes the prompt a message of the running turn: the models of
	// its next calls see it. The run then yields the rest of that turn, and
	// leaving the run early cancels that turn. If it ends without another model
	// call, the prompt has a turn of its own, as if enqueued; only then the run's
	// budget, initial state and keys count. Without an agent the run may be asked
	// for tools of the turn that no other client can be asked for.
	OnBusyInject = OnBusy(agentdv1.OnBusy_ON_BUSY_INJECT)
	// OnBusyWait is OnBusyEnqueue behind a turn that may also wait for a client which is not
	// there: it does not give way.
	OnBusyWait = OnBusy(agentdv1.OnBusy_ON_BUSY_WAIT)
)

// WithOnBusy says what happens when the session of [WithSessionID] already runs
// a turn. A prompt that waits yields [TurnQueued] first and [TurnStarted]
// when it is its turn; a run that is canceled or left in between takes its
// prompt back.
func WithOnBusy(what OnBusy) TurnOption {
	return option{useRun, func(c *runConfig) {
		switch what {
		case OnBusyReject, OnBusyEnqueue, OnBusyInterrupt, OnBusyInject, OnBusyWait:
			c.onBusy = agentdv1.OnBusy(what)
		default:
			c.failf(errorf(ErrInvalidRequest, "client.WithOnBusy: "+
				"want client.OnBusyReject, OnBusyEnqueue, OnBusyInterrupt, OnBusyInject or OnBusyWait, got %d", what))
		}
	}}
}

// TurnQueued says that a prompt waits because the session runs a turn: it is on the
// server and survives lost connections and restarts. As the first event of a
// [Client.Run] it is about that run's own prompt; later ones are about those of
// other runs.
type TurnQueued struct {
	// SessionID names the session.
	SessionID string
	// TurnID names the turn that the prompt waits for, its own; see
	// [WithTurnID]. A prompt that is injected gets none: its TurnStarted, and what
	// follows, have the TurnID of the running turn.
	TurnID string
	// Prompt is what the user says.
	Prompt string
	// Parts are what the user says behind it; see [WithParts].
	Parts []Part
	// Ahead is how many turns wait before it; the running one is not counted.
	Ahead int
	// Inject is true when the prompt becomes a message of the running turn, if
	// that one calls a model again.
	Inject bool
	// CreatedBy is the id of the principal whose prompt it is, as the server knows it.
	CreatedBy string
}

// MessageInjected is what a user has said to the running turn: a prompt that was
// injected. Models see it from their next calls on.
type MessageInjected struct {
	// Prompt is what the user says.
	Prompt string
	// Parts are what the user says behind it.
	Parts []Part
	// QueuedTurnID is the TurnID of the [TurnQueued] that it came with.
	QueuedTurnID string
	// CreatedBy is the id of the principal whose prompt it is, as the server knows it.
	CreatedBy string
}

func queuedOf(m *agentdv1.RunResponse) *TurnQueued {
	q := m.GetTurnQueued()
	return &TurnQueued{
		SessionID: q.GetSessionId(),
		TurnID:    m.GetTurnId(),
		Prompt:    q.GetUserPrompt(),
		Parts:     partsOf(q.GetUserParts()),
		Ahead:     int(q.GetAhead()),
		Inject:    q.GetInject(),
		CreatedBy: q.GetCreatedBy(),
	}
}

func injectedOf(m *agentdv1.MessageInjected) *MessageInjected {
	return &MessageInjected{
		Prompt: m.GetUserPrompt(), Parts: partsOf(m.GetUserParts()),
		QueuedTurnID: m.GetQueuedTurnId(), CreatedBy: m.GetCreatedBy(),
	}
}

func (*TurnQueued) eventData()      {}
func (*MessageInjected) eventData() {}
