package storetest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// wantSessions reads a list in pages of each size; want are the ids.
func wantSessions(t testing.TB, s store.Store, q store.InfoQuery, want ...string) {
	t.Helper()
	for limit := range len(want) + 2 {
		q.Limit, q.After = limit+1, nil
		var got []string
		for {
			page, err := s.Sessions(t.Context(), q)
			if err != nil || len(page) > q.Limit {
				t.Fatalf("Sessions(%+v) = %d sessions, %v", q, len(page), err)
			}
			for _, i := range page {
				got = append(got, i.ID)
			}
			if len(page) < q.Limit {
				break
			}
			q.After = &page[len(page)-1]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("Sessions(%+v) in pages = %q, want %q", q, got, want)
		}
	}
}

var listTests = []test{
	{"Sessions/NewestFirst", func(t *testing.T, s store.Store) {
		wantSessions(t, s, store.InfoQuery{})
		var want []string
		for i, id := range []string{"m", "Z", "é", "a", "b", "a1", "日"} {
			n := fresh(id)
			n.CreatedAt = epoch.Add(-time.Duration(i/3) * time.Microsecond)
			if err := s.Create(t.Context(), n, nil); err != nil {
				t.Fatalf("Create: %v", err)
			}
		}
		want = []string{"é", "m", "Z", "b", "a1", "a", "日"}
		wantSessions(t, s, store.InfoQuery{}, want...)
		// Nothing that is written to a session moves it.
		add(t, s, batch("日", started(1, "t")))
		if _, err := s.Update(t.Context(), "a", store.Change{At: epoch.Add(time.Hour)}); err != nil {
			t.Fatalf("Update: %v", err)
		}
		wantSessions(t, s, store.InfoQuery{}, want...)
		after := &store.Info{Head: store.Head{ID: "aa", CreatedAt: epoch.Add(-time.Microsecond)}}
		got, err := s.Sessions(t.Context(), store.InfoQuery{Limit: 1, After: after})
		if err != nil || len(got) != 1 || got[0].ID != "a1" {
			t.Fatalf("Sessions after one that there is not = %v, %v, want a1", got, err)
		}
		for _, limit := range []int{0, -1} {
			_, err = s.Sessions(t.Context(), store.InfoQuery{Limit: limit})
			wantRefused(t, "Sessions without a limit", err)
		}
	}},
	{"Sessions/AreWhole", func(t *testing.T, s store.Store) {
		n := fresh("a")
		n.Labels, n.ClientRef = map[string]string{"k": "v", "l": "w"}, "ref"
		b := withRows("a", 1, row(turnRow, "a", "t", 1, "runs"))
		b.Create, b.Usage, b.LastTurn, b.LastStatus = &n, record.Usage{Total: 3, Cost: 100_000_000}, "t", "runs"
		add(t, s, b)
		create(t, s, "b")
		for _, q := range []store.InfoQuery{
			{Limit: 5},
			{Limit: 5, ClientRef: "ref"},
			{Limit: 5, Labels: n.Labels},
			{Limit: 5, LastStatuses: []string{"runs"}},
		} {
			got, err := s.Sessions(t.Context(), q)
			if err != nil || len(got) == 0 {
				t.Fatalf("Sessions(%+v) = %+v, %v", q, got, err)
			}
			want, err := s.Info(t.Context(), "a")
			if err != nil || !reflect.DeepEqual(got[len(got)-1], want) {
				t.Fatalf("Sessions(%+v) = %+v, want %+v, %v", q, got, want, err)
			}
		}
	}},
	{"Sessions/OfATenant", func(t *testing.T, s store.Store) {
		for n, id := range []string{"a", "acme/a", "acme/b", "acme%2Fb/a", "acm/c", "b"} {
			b := withRows(id, 1, row(turnRow, id, "t", 1, "runs"), row(askRow, id, "i", 1, "over"))
			made := fresh(id)
			made.CreatedAt = epoch.Add(time.Duration(n) * time.Minute)
			made.Labels, made.ClientRef = map[string]string{"k": "v"}, "ref"
			b.Create, b.LastTurn, b.LastStatus = &made, "t", "runs"
			add(t, s, b)
		}
		for of, want := range map[string][]string{
			"": {"b", "a"}, "acme": {"acme/b", "acme/a"}, "acme/b": {"acme%2Fb/a"}, "acm": {"acm/c"},
			"ac": nil, "acme%2Fb": nil,
		} {
			for _, q := range []store.InfoQuery{
				{}, {ClientRef: "ref"}, {Labels: map[string]string{"k": "v"}}, {LastStatuses: []string{"runs"}},
			} {
				q.Tenant = &of
				wantSessions(t, s, q, want...)
			}
			wantSessions(t, s, store.InfoQuery{Tenant: &of, ClientRef: "re"})
			for _, q := range []store.RowQuery{
				{Kind: turnRow}, {Kind: turnRow, Statuses: []string{"runs", "over"}},
				{Kind: askRow, Statuses: []string{"over"}},
			} {
				q.Tenant = &of
				id := map[store.RowKind]string{turnRow: "t", askRow: "i"}[q.Kind]
				var rows []store.Row
				for _, session := range slices.Sorted(slices.Values(want)) {
					status := map[store.RowKind]string{turnRow: "runs", askRow: "over"}[q.Kind]
					rows = append(rows, row(q.Kind, session, id, 1, status))
				}
				slices.Reverse(rows) // all began at one time
				wantRows(t, s, q, rows...)
			}
			for _, session := range []string{"a", "acme/a"} {
				var rows []store.Row
				if slices.Contains(want, session) {
					rows = []store.Row{row(turnRow, session, "t", 1, "runs")}
				}
				wantRows(t, s, store.RowQuery{Kind: turnRow, Tenant: &of, SessionID: session}, rows...)
			}
		}
		wantSessions(t, s, store.InfoQuery{}, "b", "acm/c", "acme%2Fb/a", "acme/b", "acme/a", "a")
		wantSessions(t, s, store.InfoQuery{ClientRef: "ref", Labels: map[string]string{"k": "v"}},
			"b", "acm/c", "acme%2Fb/a", "acme/b", "acme/a", "a")
	}},
	{"Sessions/Filters", func(t *testing.T, s store.Store) {
		// "0" is the oldest; what they have follows from their number.
		all := []string{"8", "7", "6", "5", "4", "3", "2", "1", "0"}
		for n := range all {
			b := withRows(fmt.Sprint(n), 1)
			made := fresh(b.SessionID)
			made.CreatedAt = epoch.Add(time.Duration(n/2) * time.Minute)
			made.Labels = map[string]string{"half": fmt.Sprint(n / 2), "odd": fmt.Sprint(n % 2)}
			if n >= 6 {
				made.ClientRef = "ref"
			}
			b.Create, b.LastTurn, b.LastStatus = &made, "t", []string{"runs", "over", "failed"}[n%3]
			b.Records[0].Time = epoch.Add(time.Duration(100-n) * time.Minute)
			add(t, s, b)
		}
		for _, id := range []string{"2", "6"} {
			at := epoch.Add(time.Duration(98-int(id[0]-'2')) * time.Minute)
			if _, err := s.Update(t.Context(), id, store.Change{Archived: new(true), At: at}); err != nil {
				t.Fatalf("Update: %v", err)
			}
		}
		wantSessions(t, s, store.InfoQuery{}, all...)
		wantSessions(t, s, store.InfoQuery{Archived: new(true)}, "6", "2")
		wantSessions(t, s, store.InfoQuery{Archived: new(false)}, "8", "7", "5", "4", "3", "1", "0")
		wantSessions(t, s, store.InfoQuery{ClientRef: "ref"}, "8", "7", "6")
		wantSessions(t, s, store.InfoQuery{ClientRef: "re"})
		wantSessions(t, s, store.InfoQuery{LastStatuses: []string{"runs"}}, "6", "3", "0")
		wantSessions(t, s, store.InfoQuery{LastStatuses: []string{"runs", "over", "runs"}},
			"7", "6", "4", "3", "1", "0")
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"odd": "1"}}, "7", "5", "3", "1")
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"odd": "1", "half": "2"}}, "5")
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"odd": "2"}})
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"odd": ""}})
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"none": ""}})
		wantSessions(t, s, store.InfoQuery{
			CreatedFrom:   epoch.Add(2 * time.Minute),
			CreatedBefore: epoch.Add(3 * time.Minute),
		}, "5", "4")
		wantSessions(t, s, store.InfoQuery{CreatedFrom: epoch.Add(4 * time.Minute)}, "8")
		wantSessions(t, s, store.InfoQuery{CreatedBefore: epoch}, []string(nil)...)
		wantSessions(t, s, store.InfoQuery{UpdatedFrom: epoch.Add(98 * time.Minute)}, "2", "1", "0")
		wantSessions(t, s, store.InfoQuery{
			UpdatedFrom:   epoch.Add(94 * time.Minute),
			UpdatedBefore: epoch.Add(96 * time.Minute),
		}, "6", "5")
		wantSessions(t, s, store.InfoQuery{
			ClientRef:     "ref",
			Labels:        map[string]string{"odd": "0"},
			Archived:      new(false),
			LastStatuses:  []string{"failed"},
			CreatedFrom:   epoch.Add(4 * time.Minute),
			UpdatedBefore: epoch.Add(93 * time.Minute),
		}, "8")
		// A label that has changed is found as it is.
		change := store.Change{Labels: map[string]string{"odd": "yes", "half": ""}, ClientRef: new("ref")}
		if _, err := s.Update(t.Context(), "3", change); err != nil {
			t.Fatalf("Update: %v", err)
		}
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"odd": "1"}}, "7", "5", "1")
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"odd": "yes"}}, "3")
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"half": "1"}}, "2")
		wantSessions(t, s, store.InfoQuery{ClientRef: "ref"}, "8", "7", "6", "3")
	}},
}
