package webhook

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// Event is what a hook may be told.
type Event string

// The events.
const (
	// TurnEnded: a turn is over, however it went, also one that never began.
	TurnEnded Event = "turn.ended"
	// InteractionRequested: a person is asked something.
	InteractionRequested Event = "interaction.requested"
	// BudgetMarked: 80 or 100 per cent of what a session, a goal or a tenant may spend is spent.
	BudgetMarked Event = "budget.marked"
	// GoalEnded: a goal has ended, however it went.
	GoalEnded Event = "goal.ended"
	// GoalAsks: a goal waits for an answer, before a turn or after one that has failed.
	GoalAsks Event = "goal.asks"
	// ChildReported: a background agent has told its parent something, or has ended.
	ChildReported Event = "child.reported"
)

// events are all of them.
var events = []Event{TurnEnded, InteractionRequested, BudgetMarked, GoalEnded, GoalAsks, ChildReported}

// Hook is a receiver that an operator names.
type Hook struct {
	Name string
	// URL is where it is. It may hold a secret, and is not shown.
	URL Secret
	// Keys are what requests are signed with, each by a signature of its own: the present one, and one of before.
	Keys []Key
	// Events are what it is told.
	Events []Event
	// Tenants are whose sessions it is told of, "" for those without one; nil is all.
	Tenants []string
	// Labels are what a session must have; a mark of a tenant has no session, and goes to hooks without labels alone.
	Labels map[string]string
	// Content has requests say what is in a session: questions, tool inputs, outputs, error messages. Else they have
	// ids, statuses and amounts.
	Content bool
	// Allow are networks that are not public and may be reached all the same.
	Allow []netip.Prefix
	// Timeout bounds one request.
	Timeout time.Duration
}

// wants reports whether a hook is told an event of a tenant.
func (h *Hook) wants(e Event, tenant string) bool {
	return slices.Contains(h.Events, e) && (h.Tenants == nil || slices.Contains(h.Tenants, tenant))
}

// fits reports whether a session's labels are those that a hook asks for.
func (h *Hook) fits(labels map[string]string) bool {
	for name, want := range h.Labels {
		if got, is := labels[name]; !is || got != want {
			return false
		}
	}
	return true
}

// Secret is a text that prints as ***.
type Secret string

// String hides the secret.
func (Secret) String() string { return "***" }

// GoString hides the secret.
func (Secret) GoString() string { return "***" }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }
