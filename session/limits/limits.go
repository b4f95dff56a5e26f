// Package limits is a part of agentd, not an API: it says what one client can make a server hold: the
// bounds, their defaults, and the refusal of a prompt that is past one.
//
// It knows neither sessions nor turns.
package limits

import (
	"errors"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// Limits bound what one client can make the server hold. A zero field means
// its default.
type Limits struct {
	// MaxTurns is how many turns may run at once. Default 1,000.
	MaxTurns int
	// MaxTenantTurns is how many turns of one tenant may run at once; it does not count for sessions without a tenant.
	// Default half of MaxTurns. With Config.Places it is the bound of all servers together.
	MaxTenantTurns int
	// MaxTenantSessions is how many sessions a tenant may have, also those whose logs are purged; callers without a
	// tenant have no bound. Default 1,000,000; below 0 is no bound.
	MaxTenantSessions int
	// MaxIdleSessions is how many sessions without a running turn stay in
	// memory. Default 256.
	MaxIdleSessions int
	// TurnTimeout bounds how long a turn runs; the time that it waits for a
	// client which is not there does not count, and it begins anew when one
	// comes. Default 1 h.
	TurnTimeout time.Duration
	// ToolTimeout is how long a client may take for one tool call, unless the
	// request or the tool says otherwise; then the model sees a tool error.
	// Default 10 min.
	ToolTimeout time.Duration
	// HandoverGrace is how long the calls of a client that has left wait for it
	// before another client is asked. Default 2 s.
	HandoverGrace time.Duration
	// HibernateAfter is how long a turn must only wait for results until it lets its
	// engine go, which runs again from the log; longer by a thousandth for each record
	// of the session. Default 1 s.
	HibernateAfter time.Duration
	// IdleTurn is how long a turn that waits for a client stays in memory.
	// Default 1 min.
	IdleTurn time.Duration
	// Retention is how long a turn waits for a client before it is ended.
	// Default 24 h.
	Retention time.Duration
	// QuarantineAfter is how often in a row a turn may be running when the process
	// dies, without a step forward in between, until it is failed. Default 3; below 0
	// is never.
	QuarantineAfter int
	// PurgeAfter is how long the log of a session that is not used is kept. Then
	// its records are removed for good, and a request for the session is
	// HISTORY_PURGED. Default 0: for ever.
	PurgeAfter time.Duration
	// MaxQueued is how many turns of one session may wait for their start.
	// Default 16.
	MaxQueued int
	// Budget and SessionBudget are what a turn and a session may spend at most,
	// whatever a request says. By default they have no bound.
	Budget, SessionBudget record.Budget
	// TenantDay and TenantMonth are what a tenant may spend on model calls in a day and in a month of UTC, in tokens
	// and money, by its name; "*" is each tenant that is not named. By default they have no bound.
	TenantDay, TenantMonth map[string]record.Budget
	// Instruction is put before that of each agent. It is pinned in the log when a
	// turn is recorded. Default: none.
	Instruction string
	// MaxCalls is how many tool calls one response may ask for. Default 128.
	MaxCalls int
	// MaxPromptBytes bounds the prompt, all of its texts together. Default 1 MiB.
	MaxPromptBytes int
	// MaxPartsBytes bounds the parts of one prompt together with the prompt, and
	// those of one tool result with its output, as they are in a message. Other
	// clients receive them in one message, so it should be a little less than the
	// largest message. Default 3.75 MiB.
	MaxPartsBytes int
	// MaxResultBytes bounds one tool result with its state, without its parts, as
	// JSON. Default 1 MiB.
	MaxResultBytes int
	// MaxStateBytes bounds the state a client may begin with, as JSON. Default
	// 1 MiB.
	MaxStateBytes int
	// MaxOwnBytes and MaxOwnKeys bound the keys of its own that a session has, as JSON.
	// Defaults 4 MiB and 10,000.
	MaxOwnBytes, MaxOwnKeys int
	// MaxSharedBytes and MaxSharedKeys bound the keys that sessions share, of each scope
	// by itself: app: and user:. Defaults 256 KiB and 1,000. What is past a bound stays,
	// and grows no more.
	MaxSharedBytes, MaxSharedKeys int
	// WatchItems and WatchBytes bound what waits for one watcher. Defaults
	// 1,024 and 1 MiB.
	WatchItems, WatchBytes int
	// StopGrace is how long turns may take to stop when the server stops.
	// Default 5 s.
	StopGrace time.Duration
	// StorePatience is how long a call of the store is retried that fails for no
	// known reason. Then the session's turn stays as the log has it, and is resumed
	// when a client attaches or the server starts again. While the store has no
	// space left, turns wait without a bound. Default 30 s.
	StorePatience time.Duration
}

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	span := func(p *time.Duration, v time.Duration) {
		if *p == 0 {
			*p = v
		}
	}
	set(&l.MaxTurns, 1000)
	set(&l.MaxTenantTurns, max(l.MaxTurns/2, 1))
	set(&l.MaxTenantSessions, 1_000_000)
	set(&l.MaxIdleSessions, 256)
	set(&l.MaxQueued, 16)
	set(&l.QuarantineAfter, 3)
	set(&l.MaxCalls, 128)
	set(&l.MaxPromptBytes, 1<<20)
	set(&l.MaxPartsBytes, 15<<18)
	set(&l.MaxResultBytes, 1<<20)
	set(&l.MaxStateBytes, 1<<20)
	set(&l.MaxOwnBytes, 4<<20)
	set(&l.MaxOwnKeys, 10_000)
	set(&l.MaxSharedBytes, 256<<10)
	set(&l.MaxSharedKeys, 1000)
	set(&l.WatchItems, 1024)
	set(&l.WatchBytes, 1<<20)
	span(&l.TurnTimeout, time.Hour)
	span(&l.ToolTimeout, 10*time.Minute)
	span(&l.HandoverGrace, 2*time.Second)
	span(&l.HibernateAfter, time.Second)
	span(&l.IdleTurn, time.Minute)
	span(&l.Retention, 24*time.Hour)
	span(&l.StopGrace, 5*time.Second)
	span(&l.StorePatience, 30*time.Second)
	return l
}

// Validate says which field is out of range.
func (l Limits) Validate() error {
	l = l.WithDefaults()
	counts := min(l.MaxTurns, l.MaxTenantTurns, l.MaxIdleSessions, l.MaxQueued, l.MaxCalls, l.MaxPromptBytes,
		l.MaxPartsBytes, l.MaxResultBytes, l.MaxStateBytes, l.MaxOwnBytes, l.MaxOwnKeys, l.MaxSharedBytes,
		l.MaxSharedKeys, l.WatchItems, l.WatchBytes)
	spans := min(l.TurnTimeout, l.ToolTimeout, l.HandoverGrace, l.HibernateAfter, l.IdleTurn, l.Retention,
		l.PurgeAfter, l.StopGrace, l.StorePatience)
	if counts < 0 || spans < 0 {
		return errors.New("session: Config.Limits has a negative field")
	}
	return nil
}

// TenantBudgets returns what a tenant may spend in a day and in a month.
func (l Limits) TenantBudgets(tenant string) (day, month record.Budget) {
	return budgetOf(l.TenantDay, tenant), budgetOf(l.TenantMonth, tenant)
}

// SessionsOf returns how many sessions a tenant may have, 0 for no bound.
func (l Limits) SessionsOf(tenant string) int64 {
	if tenant == "" {
		return 0
	}
	return int64(max(l.MaxTenantSessions, 0))
}

func budgetOf(of map[string]record.Budget, tenant string) record.Budget {
	b, named := of[tenant]
	if !named {
		b = of["*"]
	}
	return record.Budget{Tokens: b.Tokens, Cost: b.Cost}
}

// CheckPrompt refuses a prompt that says nothing, or too much.
func (l Limits) CheckPrompt(prompt string, parts record.Parts) *fault.Error {
	if strings.TrimSpace(prompt) == "" && parts.Blank() {
		return fault.Errorf(fault.Invalid, "user_prompt is empty: a turn needs something to respond to").
			Breaking("user_prompt", fault.RuleRequired)
	}
	if err := parts.Check("user_parts", false); err != nil {
		return err
	}
	_, texts := parts.Size()
	switch n, most := len(prompt)+texts, l.MaxPromptBytes; {
	case n <= most:
		return parts.CheckSize("user_parts", "user_prompt", len(prompt), l.MaxPartsBytes)
	case texts > 0:
		return fault.Errorf(fault.LimitExceeded,
			"user_prompt and the texts of user_parts have %d bytes, at most %d are allowed", n, most).
			Breaking("user_prompt", fault.RuleRange).Over("prompt_bytes", most, n)
	default:
		return fault.Errorf(fault.LimitExceeded, "user_prompt has %d bytes, at most %d are allowed", n, most).
			Breaking("user_prompt", fault.RuleRange).Over("prompt_bytes", most, n)
	}
}
