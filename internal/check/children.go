package check

import (
	"github.com/apzuk3/agentd/session/record"
)

// children checks what a log says of the children of its session.
type children struct {
	seen  map[string]int64 // the last record of each child that was reported; below 0 when it has ended
	read  int64            // the last report that a turn has read
	known int64            // the last report
}

// child applies a record of a child. A fork has none of its parent's.
func (o *order) child(rec record.Record, fact any) {
	if rec.Seq <= o.inherited {
		return
	}
	c := &o.children
	switch f := fact.(type) {
	case *record.ChildSpawned:
		if c.seen == nil {
			c.seen = map[string]int64{}
		}
		if _, there := c.seen[f.Name]; there {
			o.reportf(ruleOrder, rec.Seq, "a new name", "child %q is spawned, and the log has such a child", f.Name)
		}
		c.seen[f.Name] = 0
	case *record.ChildReported:
		seen, there := c.seen[f.Name]
		switch {
		case !there:
			o.reportf(ruleOrder, rec.Seq, "one of a child", "child %q reports, and was not spawned", f.Name)
			return
		case seen < 0:
			o.reportf(ruleOrder, rec.Seq, "nothing of that child", "child %q reports, and has ended", f.Name)
			return
		case f.Seq < seen: // several alerts may be in one record of the child
			o.reportf(ruleOrder, rec.Seq, "a later record of the child",
				"child %q reports its record %d after record %d", f.Name, f.Seq, seen)
		}
		c.known, c.seen[f.Name] = rec.Seq, f.Seq
		if f.End != nil {
			c.seen[f.Name] = -1
		}
	case *record.TurnStarted:
		if f.Reports == nil {
			return
		}
		if upto := f.Reports.Upto; upto <= c.read || upto > c.known {
			o.reportf(ruleOrder, rec.Seq, "reports that no turn has read",
				"turn %q reads the reports up to record %d, the last one is %d, and %d was read before",
				rec.TurnID, upto, c.known, c.read)
		}
		c.read = f.Reports.Upto
	}
}
