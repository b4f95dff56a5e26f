package sqlite

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/store"
)

// TestPlans checks that a page costs what it returns: each query walks an index
// that has the answer in its order, from the place where the page begins.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	defer mustClose(t, s)
	at := &store.Info{Head: store.Head{ID: "a", CreatedAt: start}}
	behind := &store.Row{ID: "a", SessionID: "a", CreatedAt: start, Seq: 1}
	sessions := func(q store.InfoQuery) string {
		q.Limit, q.After, q.Tenant = 10, at, new("acme")
		text, args := sessionsQuery(&q)
		return plan(t, s, text, args)
	}
	rows := func(q store.RowQuery) string {
		q.Kind, q.Limit, q.After, q.Tenant = store.RowTurn, 10, behind, new("acme")
		text, args := rowsQuery(&q)
		return plan(t, s, text, args)
	}
	for what, c := range map[string]struct{ plan, want string }{
		"all sessions":   {sessions(store.InfoQuery{}), "SEARCH s USING INDEX sessions_by_creation (tenant=? AND (created_at,id)<(?,?))"},
		"by label":       {sessions(store.InfoQuery{Labels: map[string]string{"k": "v", "l": "w"}}), "SEARCH l USING COVERING INDEX labels_by_value (tenant=? AND key=? AND value=? AND (created_at,session_id)<(?,?))"},
		"by ref":         {sessions(store.InfoQuery{ClientRef: "r", Archived: new(false)}), "SEARCH s USING INDEX sessions_by_ref (tenant=? AND client_ref=? AND (created_at,id)<(?,?))"},
		"by status":      {sessions(store.InfoQuery{LastStatuses: []string{"a", "b"}, Archived: new(true)}), "SEARCH s USING INDEX sessions_by_creation (tenant=? AND (created_at,id)<(?,?))"},
		"all rows":       {rows(store.RowQuery{}), "SEARCH entries USING INDEX entries_by_time (kind=? AND tenant=? AND (created_at,session_id,seq,id)<(?,?,?,?))"},
		"of a session":   {rows(store.RowQuery{SessionID: "a", TurnID: "t", Statuses: []string{"a", "b"}}), "SEARCH entries USING INDEX entries_of_session (session_id=? AND kind=? AND created_at<?)"},
		"of a status":    {rows(store.RowQuery{Statuses: []string{"a"}}), "SEARCH entries USING INDEX entries_by_status (kind=? AND status=? AND tenant=? AND (created_at,session_id,seq,id)<(?,?,?,?))"},
		"of some status": {rows(store.RowQuery{Statuses: []string{"a", "b"}, CreatedFrom: start.Add(-time.Hour)}), "SEARCH entries USING INDEX entries_by_status (kind=? AND status=? AND tenant=? AND "},
		"no index yet":   {plan(t, s, unindexedQuery, []any{"", 10}), "SEARCH sessions USING INDEX sessions_without_index (id>?)"},
		"a row":          {plan(t, s, rowQuery, []any{"a", "turn", "t"}), "SEARCH entries USING PRIMARY KEY (session_id=? AND kind=? AND id=?)"},
		"a key":          {plan(t, s, keyQuery, []any{"a", "k"}), "SEARCH keys USING PRIMARY KEY (scope=? AND name=?)"},
	} {
		if !strings.Contains(c.plan, c.want) || strings.Contains(c.plan, "TEMP B-TREE") || strings.Contains(c.plan, "SCAN") {
			t.Errorf("%s: the plan is\n%s\nwant %q in it and nothing sorted or scanned", what, c.plan, c.want)
		}
	}
	// What is deleted is found by an index as well.
	for _, table := range []string{"records", "entries", "labels", "keys"} {
		got := plan(t, s, "DELETE FROM "+table+" WHERE session_id = ?", []any{"a"})
		if !strings.Contains(got, "SEARCH "+table) {
			t.Errorf("deleting from %s: the plan is %s", table, got)
		}
	}
}

// plan returns the lines of a query's plan, sorted.
func plan(t *testing.T, s *Store, query string, args []any) string {
	t.Helper()
	rows, err := s.readers.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("plan of %s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
