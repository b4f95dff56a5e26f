// Package team says which children the agents of a session have spawned, by its log, and what those have reported.
//
// A child is a goal in a session of its own. What it may spend is cut out of what is left to its parent: while it
// works, all of that counts as spent, and then what it has spent. So all sessions below a parent together never spend
// more than the parent may, whatever servers they run on, and nobody has to be asked before a call.
//
// What a child reports waits in its parent's log for the parent's next turn. [State.Apply] alone changes a [State]. All
// of it is a function of records.
//
// The package must not know sessions, stores, nor how a turn is run.
package team

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/record"
)

const (
	// MaxChildren bounds the children that a session has had.
	MaxChildren = 1000
	// MaxReports bounds the reports that wait, and maxReportBytes their texts; beyond, the oldest are dropped.
	MaxReports     = 256
	maxReportBytes = 1 << 20
)

// BranchOf returns the branch of a child of a session that is none itself.
func BranchOf(name string) string { return "bg." + name }

// SessionOf returns the id of the session of a child.
func SessionOf(parent, name string) string { return parent + ":sub:" + BranchOf(name) }

// Child is a child of the session. It must not be changed.
type Child struct {
	// Seq is the record of ChildSpawned, At its time, and F what it says.
	Seq int64
	At  time.Time
	F   *record.ChildSpawned
	// Seen is the last record of the child's log that was reported, 0 before it has begun.
	Seen int64
	// End is the report of its end, nil before.
	End *record.ChildReported
}

// Status is how it is, as models and people read it.
func (c *Child) Status() string {
	switch {
	case c.End != nil:
		return c.End.Kind
	case c.Seen == 0:
		return "starting"
	default:
		return "running"
	}
}

// held is what counts as spent by the child and those below it.
func (c *Child) held() record.Spent {
	if c.End == nil {
		return record.Spent{Tokens: c.F.Limits.Tokens, Cost: c.F.Limits.Cost}
	}
	t := c.End.End.Totals
	return record.Spent{Tokens: t.Input + t.Output, Cost: t.Cost}
}

// State is what a log says of the children of its session. The zero value is that of a session without any. A copy
// changes by itself.
type State struct {
	children []*Child // in order; never changed in place
	waiting  []report // in order; never changed in place
	bytes    int      // of waiting
}

// report is one that waits for the next turn.
type report struct {
	seq              int64
	name, kind, text string
}

// Apply applies a record, and reports whether it is about children.
func (s *State) Apply(rec record.Record, fact any) bool {
	switch f := fact.(type) {
	case *record.ChildSpawned:
		s.children = append(slices.Clip(s.children), &Child{Seq: rec.Seq, At: rec.Time, F: f})
	case *record.ChildReported:
		s.report(rec.Seq, f)
	case *record.TurnStarted:
		if f.Reports == nil {
			return false
		}
		s.drain(f.Reports.Upto)
	default:
		return false
	}
	return true
}

func (s *State) report(seq int64, f *record.ChildReported) {
	i := slices.IndexFunc(s.children, func(c *Child) bool { return c.F.Name == f.Name })
	if i < 0 {
		return
	}
	c := *s.children[i]
	c.Seen = max(c.Seen, f.Seq)
	if f.End != nil && c.End == nil {
		c.End = f
	}
	s.children = slices.Clone(s.children)
	s.children[i] = &c
	if f.Kind == record.AlertStarted {
		return
	}
	s.waiting = append(slices.Clone(s.waiting), report{seq, f.Name, f.Kind, f.Text})
	s.bytes += len(f.Text)
	for len(s.waiting) > MaxReports || s.bytes > maxReportBytes {
		s.bytes -= len(s.waiting[0].text)
		s.waiting = s.waiting[1:]
	}
}

// drain forgets the reports up to a record.
func (s *State) drain(upTo int64) {
	for len(s.waiting) > 0 && s.waiting[0].seq <= upTo {
		s.bytes -= len(s.waiting[0].text)
		s.waiting = s.waiting[1:]
	}
}

// Children returns the children in the order in which they were spawned. The slice must not be changed.
func (s *State) Children() []*Child { return s.children }

// Child returns a child by its name, nil for none.
func (s *State) Child(name string) *Child {
	for _, c := range s.children {
		if c.F.Name == name {
			return c
		}
	}
	return nil
}

// Open returns how many children have not ended.
func (s *State) Open() int {
	n := 0
	for _, c := range s.children {
		if c.End == nil {
			n++
		}
	}
	return n
}

// Waiting returns how many reports wait.
func (s *State) Waiting() int { return len(s.waiting) }

// Held is what counts as spent by the children that a turn has spawned, or by all of them for "".
func (s *State) Held(turn string) (sum record.Spent) {
	for _, c := range s.children {
		if turn == "" || c.F.Turn == turn {
			sum.Tokens += c.held().Tokens
			sum.Cost += c.held().Cost
		}
	}
	return sum
}

// HeldSince is Held for the children that were spawned after a record.
func (s *State) HeldSince(seq int64) (sum record.Spent) {
	for _, c := range s.children {
		if c.Seq > seq {
			sum.Tokens += c.held().Tokens
			sum.Cost += c.held().Cost
		}
	}
	return sum
}

// Reports returns what the prompt of the next turn begins with, nil if nothing waits.
func (s *State) Reports(prompt string) (text string, r *record.Reports) {
	if len(s.waiting) == 0 {
		return "", nil
	}
	var b strings.Builder
	b.WriteString("[Background reports]\n")
	for _, w := range s.waiting {
		if w.kind == "" {
			fmt.Fprintf(&b, "- [%s] %s\n", w.name, w.text)
		} else {
			fmt.Fprintf(&b, "- [%s] (%s) %s\n", w.name, w.kind, w.text)
		}
	}
	b.WriteString("\n---\n\n")
	return b.String(), &record.Reports{Upto: s.waiting[len(s.waiting)-1].seq, Prompt: prompt}
}
