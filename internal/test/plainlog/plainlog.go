// Package plainlog writes the log of a session as text that is the same for two
// sessions to which the same has happened: without ids, times and what else
// differs from run to run. Tests compare with it.
//
// The package knows the records of package session and no other part of agentd.
// Its functions keep nothing and may be called from any goroutine.
package plainlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/session/record"
)

// Text is a whole log, turn by turn. Of agents that run side by side each has its
// own order, and results that follow each other have none. An error names a record
// that is no JSON, which is left out.
func Text(recs []record.Record) (string, error) {
	var order []string // of the turns
	var out strings.Builder
	var errs []error
	turns := map[string][]record.Record{}
	for _, rec := range recs {
		if turns[rec.TurnID] == nil {
			order = append(order, rec.TurnID)
		}
		turns[rec.TurnID] = append(turns[rec.TurnID], rec)
	}
	beside := slices.ContainsFunc(recs, func(rec record.Record) bool {
		return rec.Kind == record.KindTurnStarted && bytes.Contains(rec.Data, []byte(`"parallel"`))
	})
	if !beside && len(order) > 1 {
		for _, rec := range recs {
			fmt.Fprintf(&out, "%d ", slices.Index(order, rec.TurnID))
		}
		out.WriteString("are the turns of the records\n")
	}
	for _, id := range order {
		lines, err := turn(turns[id], beside)
		errs = append(errs, err)
		for _, line := range Loose(lines, string(record.KindToolResult)+" ") {
			out.WriteString(line + "\n")
		}
	}
	return out.String(), errors.Join(errs...)
}

func turn(recs []record.Record, beside bool) ([]string, error) {
	seen := map[string]int{}
	var common []string
	var errs []error
	agents := map[string][]string{}
	for _, rec := range recs {
		var body any
		if err := json.Unmarshal(rec.Data, &body); err != nil {
			errs = append(errs, fmt.Errorf("record %d (%s): %w", rec.Seq, rec.Kind, err))
			continue
		}
		author := ""
		if ev, ok := body.(map[string]any); ok && rec.Kind == record.KindEvent {
			author, _ = ev["author"].(string)
		}
		if f, ok := body.(map[string]any); ok && rec.Kind == record.KindInteractionResolved && f["key"] != nil {
			f["key"] = "KEY" // a client's own
		}
		if beside && rec.Kind == record.KindAgentsChanged {
			errs = append(errs, changes(rec, agents))
			continue
		}
		Scrub(body)
		untimed(body)
		data, err := json.Marshal(body)
		errs = append(errs, err)
		line := string(rec.Kind) + " " + withoutIDs(string(data), seen, beside)
		switch {
		case beside && author != "":
			agents[author] = append(agents[author], line)
		case beside && rec.Kind == record.KindToolResult:
			agents[" results"] = append(agents[" results"], line)
		default:
			common = append(common, line)
		}
	}
	slices.Sort(agents[" results"])
	for _, author := range slices.Sorted(maps.Keys(agents)) {
		common = append(common, agents[author]...)
	}
	return common, errors.Join(errs...)
}

// changes adds the starts and ends of agents to those of each: which of them are in one
// record depends on time.
func changes(rec record.Record, agents map[string][]string) error {
	var f record.AgentsChanged
	if err := json.Unmarshal(rec.Data, &f); err != nil {
		return err
	}
	for _, c := range f.Changes {
		key := " agent " + strings.Join(c.Path, "/")
		agents[key] = append(agents[key], strings.TrimSpace(fmt.Sprintln(key, c.Kind, c.Model, c.Ended)))
	}
	return nil
}

// Loose leaves out, in place, which id is which, and the order of lines that begin
// with mark and follow each other: whose tools run side by side answers in any. The
// ids are those that WithoutIDs has numbered.
func Loose(lines []string, mark string) []string {
	for i := range lines {
		lines[i] = anyID.ReplaceAllString(lines[i], "ID")
	}
	for from := 0; from < len(lines); from++ {
		to := from
		for to < len(lines) && strings.HasPrefix(lines[to], mark) {
			to++
		}
		slices.Sort(lines[from:to])
		from = max(from, to)
	}
	return lines
}

// Scrub takes out of an event's JSON what is another each time it is written.
func Scrub(v any) {
	without(v, "id", "timestamp", "invocationId", "calls", "marks", "took", "first_text")
}

// untimed takes out how long things took.
func untimed(v any) { without(v, "took", "Took", "ran", "Ran", "wait", "Wait", "queued_seq") }

func without(v any, keys ...string) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range keys {
			delete(v, key)
		}
		for _, sub := range v {
			without(sub, keys...)
		}
	case []any:
		for _, sub := range v {
			without(sub, keys...)
		}
	}
}

var (
	// anID is what the daemon names sessions, turns and calls.
	anID = regexp.MustCompile(`(?:call_|loop_|e-|\b[0-9a-v]{9}|\b)[a-z2-7]{26}\b`)
	// anyID is one that WithoutIDs has numbered.
	anyID = regexp.MustCompile(`ID\d+`)
	// local is what of an error depends on where and when it was made: a provider may name
	// the moment from which on it can be asked again.
	local = regexp.MustCompile(`127\.0\.0\.1:\d+|retry after [0-9hms.]+|"retry_after":\d+|"retryAfter":"[0-9.]+s"`)
)

// WithoutIDs writes for each id how many others came first: seen are those, and
// takes in the new ones.
func WithoutIDs(s string, seen map[string]int) string { return withoutIDs(s, seen, false) }

// withoutIDs writes nothing of an id where the order is another each time.
func withoutIDs(s string, seen map[string]int, mixed bool) string {
	s = local.ReplaceAllString(s, "HERE")
	return anID.ReplaceAllStringFunc(s, func(id string) string {
		if mixed {
			return "ID"
		}
		if _, ok := seen[id]; !ok {
			seen[id] = len(seen)
		}
		return fmt.Sprint("ID", seen[id])
	})
}

// Difference shows where two texts begin to differ: what was over Run, and over
// SessionService.
func Difference(run, sessions string) string {
	a, b := strings.Split(run, "\n"), strings.Split(sessions, "\n")
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	some := func(lines []string) string { return strings.Join(lines[:min(len(lines), 8)], "\n") }
	return fmt.Sprintf("from line %d on, after\n%s\nover Run\n%s\nover SessionService\n%s",
		at, some(a[max(0, at-4):at]), some(a[at:]), some(b[at:]))
}
