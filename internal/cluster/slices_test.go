package cluster

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// spend appends a record that a tenant pays for, under an epoch.
func (d *db) spend(t rapid.TB, id string, epoch, day int64, spent record.Spent) error {
	t.Helper()
	h, err := d.store.Head(d.t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d.store.Append(d.t.Context(), store.Batch{
		SessionID: id, Epoch: epoch, After: h.LastSeq, Payer: "acme", PaidOn: day, Spent: spent,
		Records: []record.Record{{Seq: h.LastSeq + 1, TurnID: "t", Kind: record.KindEvent, Time: time.Now(), Data: []byte("{}")}},
	})
}

// TestSliceProperty: what PostgreSQL grants is what is free, in every order of slices, spending and deaths; and what a
// replica whose slice is gone writes is fenced.
func TestSliceProperty(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	day := int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		day += 100 // so that each check has a budget of its own, a month of three days
		budget := share.Ask{
			Tenant: "acme", Today: day + 2, First: day,
			Day:   record.Budget{Tokens: rapid.Int64Range(0, 1000).Draw(rt, "day")},
			Month: record.Budget{Tokens: 1500, Cost: 700},
		}
		if _, err := d.pool.Exec(t.Context(), `DELETE FROM spent`); err != nil {
			rt.Fatal(err)
		}
		days := map[int64]record.Spent{}
		rows := map[*member]share.Slice{}
		members := []*member{d.join("a", ""), d.join("b", ""), d.join("c", "")}
		defer func() {
			for _, m := range members {
				if err := m.Leave(t.Context()); err != nil {
					rt.Error(err)
				}
			}
		}()
		amount := func(most int64, name string) record.Spent {
			return record.Spent{
				Tokens: rapid.Int64Range(0, most).Draw(rt, name), Cost: record.NanoUSD(rapid.Int64Range(0, most).Draw(rt, name+"Cost")),
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			m := rapid.SampledFrom(members).Draw(rt, "member")
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				on := day + rapid.Int64Range(0, 2).Draw(rt, "on")
				spent := amount(200, "spent")
				if err := d.spend(rt, d.sessions(1, rapid.StringMatching("[a-z]{20}").Draw(rt, "id"), false)[0], 1, on, spent); err != nil {
					rt.Fatal(err)
				}
				days[on] = record.Spent{Tokens: days[on].Tokens + spent.Tokens, Cost: days[on].Cost + spent.Cost}
			case 1:
				if err := m.Leave(t.Context()); err != nil {
					rt.Fatal(err)
				}
				delete(rows, m)
				for i := range members {
					if members[i] == m {
						members[i] = d.join("n", "")
					}
				}
			default:
				ask := budget
				ask.Held, ask.Need, ask.Spare = amount(300, "held"), amount(300, "need"), amount(300, "spare")
				got, err := m.Slice(t.Context(), ask)
				if err != nil {
					rt.Fatal(err)
				}
				var others, month record.Spent
				for of, s := range rows {
					if of != m {
						others.Tokens, others.Cost = others.Tokens+s.Slice.Tokens, others.Cost+s.Slice.Cost
					}
				}
				for _, s := range days {
					month.Tokens, month.Cost = month.Tokens+s.Tokens, month.Cost+s.Cost
				}
				rest := 1500 - month.Tokens
				if ask.Day.Tokens > 0 {
					rest = min(rest, ask.Day.Tokens-days[day+2].Tokens)
				}
				free := record.Spent{Tokens: rest - others.Tokens, Cost: 700 - month.Cost - others.Cost}
				least := record.Spent{Tokens: ask.Held.Tokens + ask.Need.Tokens, Cost: ask.Held.Cost + ask.Need.Cost}
				fits := least.Tokens <= free.Tokens && least.Cost <= free.Cost
				want := share.Slice{
					Slice: ask.Held, Granted: fits, Today: days[day+2], Month: month,
					Waits: !fits && ask.Need != record.Spent{} &&
						ask.Need.Tokens <= rest && ask.Need.Cost <= 700-month.Cost,
				}
				if fits {
					want.Slice = record.Spent{
						Tokens: least.Tokens + min(ask.Spare.Tokens, (free.Tokens-least.Tokens)/4),
						Cost:   least.Cost + min(ask.Spare.Cost, (free.Cost-least.Cost)/4),
					}
				}
				if ask.Held == (record.Spent{}) && ask.Need == ask.Held {
					want = share.Slice{Granted: true}
				}
				if got != want {
					rt.Fatalf("%+v got %+v, want %+v", ask, got, want)
				}
				rows[m] = got
			}
		}
	})
}

// TestSliceDeath: the slice of a replica goes when nothing can be written under its epochs any more.
func TestSliceDeath(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	idle, busy := d.sessions(1, "idle", false)[0], d.sessions(1, "busy", true)[0]
	ofIdle, ofBusy := a.claims(idle), a.claims(busy)
	whole := share.Ask{Tenant: "acme", Day: record.Budget{Tokens: 100}, Need: record.Spent{Tokens: 100}}
	if got, err := a.Slice(t.Context(), whole); err != nil || !got.Granted {
		t.Fatal(got, err)
	}
	if got, err := b.Slice(t.Context(), whole); err != nil || got.Granted || !got.Waits {
		t.Fatal(got, err)
	}
	if wanted, err := a.Wanted(t.Context()); err != nil || len(wanted) != 1 || wanted[0] != "acme" {
		t.Errorf("wanted: %v %v", wanted, err)
	}
	if err := d.spend(t, busy, ofBusy, 0, record.Spent{Tokens: 10}); err != nil {
		t.Fatal(err)
	}
	a.kill()
	rest := whole
	rest.Need.Tokens = 90
	await(t, "slice of a dead replica", func() bool {
		b.due(10)
		got, err := b.Slice(t.Context(), rest)
		if err != nil {
			t.Fatal(err)
		}
		return got.Granted
	})
	for id, epoch := range map[string]int64{idle: ofIdle, busy: ofBusy} {
		if err := d.spend(t, id, epoch, 0, record.Spent{Tokens: 10}); !errors.Is(err, store.ErrFenced) {
			t.Errorf("%s was written to by a replica without a slice: %v", id, err)
		}
	}
	if got, err := a.Slice(t.Context(), whole); err == nil {
		t.Errorf("a replica whose row is gone got a slice: %+v", got)
	}
}
