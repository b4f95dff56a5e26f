package record

import (
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// GoalParent says whose child the session of a goal is.
type GoalParent struct {
	// Session is the key of the session whose agent has spawned it.
	Session string `json:"session"`
	// Name is the child's, unique among those of its parent, and Branch where it is in the tree of sessions.
	Name   string `json:"name"`
	Branch string `json:"branch"`
	// Depth is how many parents are above it, at least 1, and MaxDepth how many there may be.
	Depth    int `json:"depth"`
	MaxDepth int `json:"max_depth"`
}

// GoalAlert is what a child tells its parent while it works.
type GoalAlert struct {
	// Kind is "" for an alert, or what the text is about: AlertCompleted.
	Kind string `json:"kind,omitempty"`
	Text string `json:"text"`
}

// The kinds of reports of children.
const (
	AlertStarted   = "started"   // its goal has begun; parents are not told
	AlertCompleted = "completed" // it says so itself, or its goal was reached
	AlertFailed    = "failed"    // its goal has ended otherwise
	AlertStopped   = "stopped"   // somebody has stopped it
)

// ChildSpawned says that an agent of the session has spawned a child: a goal in a session of its own, which begins
// after this record.
type ChildSpawned struct {
	GoalParent
	// Child is the key of the child's session.
	Child string `json:"child"`
	// Call is the id of the call that has asked for it, and Turn the turn of that.
	Call string `json:"call"`
	Turn string `json:"turn"`
	// Goal is what the child is to reach, and Limits are how far it may go: they are cut out of what is left to the
	// parent.
	Goal   string     `json:"goal"`
	Limits GoalLimits `json:"limits"`
	// Run is what each of its turns runs, without a prompt.
	Run TurnStarted `json:"run"`
}

// ChildReported is what a child tells its parent: an alert, or its end. The parent's next turn reads it.
type ChildReported struct {
	// Name is the child's, and Seq the record of its log that says so; 0 for none.
	Name string `json:"name"`
	Seq  int64  `json:"seq,omitempty"`
	// Kind is "" for an alert, else one of the kinds of reports.
	Kind string `json:"kind,omitempty"`
	Text string `json:"text,omitempty"`
	// End is how its goal has ended, nil if it has not.
	End *ChildEnd `json:"end,omitempty"`
}

// ChildEnd is how the goal of a child has ended.
type ChildEnd struct {
	// Reason says why, 0 for a child that has not begun or whose session was deleted.
	Reason agentdv1.GoalReason `json:"reason,omitempty"`
	// Totals are what it has used, with what its own children have; Final is what it said last.
	Totals GoalTotals `json:"totals,omitzero"`
	Final  string     `json:"final_text,omitempty"`
}

// Reports says which reports of children a prompt begins with.
type Reports struct {
	// Upto is the record of the last one.
	Upto int64 `json:"upto"`
	// Prompt is that of the turn without them.
	Prompt string `json:"prompt"`
}
