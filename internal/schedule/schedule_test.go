package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// inMemory opens a database of a test's own.
func inMemory(t *testing.T) sqlledger.DB {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// kept is a registry in a database.
func kept(db sqlledger.DB) *Registry {
	return New(Config{
		DB: db, Objects: sqlledger.New(db), Check: func(context.Context, *record.Spec) error { return nil },
	}, func() {})
}

// started is a run that a driver has started.
type started struct {
	key, session string
	by           principal.Principal
	at           time.Time
	ex           *agentdv1.RunRequest_ExecuteRequest
}

// sessions start turns as a server does: one at a time in each session, and one under each key.
type sessions struct {
	mu   sync.Mutex
	all  []started
	busy map[string]bool
	fail error
}

func (s *sessions) start(ctx context.Context, ex *agentdv1.RunRequest_ExecuteRequest) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, before := range s.all {
		if before.key == ex.GetIdempotencyKey() {
			return fmt.Sprint("t", i+1), nil
		}
	}
	switch {
	case s.fail != nil:
		return "", s.fail
	case s.busy[ex.GetSessionId()]:
		return "", fault.Errorf(fault.Busy, "the session runs a turn")
	}
	s.all = append(s.all, started{ex.GetIdempotencyKey(), ex.GetSessionId(), principal.Of(ctx), time.Now().UTC(), ex})
	return fmt.Sprint("t", len(s.all)), nil
}

// startGoal starts a goal, whose session is busy until it is set free.
func (s *sessions) startGoal(ctx context.Context, goal *agentdv1.StartGoalRequest) (string, error) {
	turn, err := s.start(ctx, goal.GetExecute())
	if err == nil {
		s.set(goal.GetExecute().GetSessionId(), true)
	}
	return turn, err
}

func (s *sessions) set(busy string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy == nil {
		s.busy = map[string]bool{}
	}
	s.busy[busy] = is
}

func (s *sessions) runs() []started {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]started(nil), s.all...)
}

func (s *sessions) drive(db sqlledger.DB, mine func() bool) *Driver {
	return drive(DriverConfig{
		DB: db, Objects: sqlledger.New(db), Mine: mine, Start: s.start, StartGoal: s.startGoal, Logger: slog.New(slog.DiscardHandler),
	}, 5*time.Minute)
}

func always() bool { return true }

func request(id string) *agentdv1.CreateScheduleRequest {
	return &agentdv1.CreateScheduleRequest{Id: id, Execute: &agentdv1.RunRequest_ExecuteRequest{
		UserPrompt: "report", Agent: &agentdv1.Agent{Name: "a"}, Labels: map[string]string{"k": "v"},
	}}
}

func cronAt(id, expression, zone string) *agentdv1.CreateScheduleRequest {
	r := request(id)
	r.Timing = &agentdv1.CreateScheduleRequest_Cron{Cron: &agentdv1.CronTiming{Expression: expression, TimeZone: zone}}
	return r
}

func create(t *testing.T, g *Registry, r *agentdv1.CreateScheduleRequest) *agentdv1.Schedule {
	t.Helper()
	s, err := g.Create(as(t, "acme", "ann"), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func as(t *testing.T, tenant, id string) context.Context {
	return principal.With(t.Context(), principal.Principal{ID: id, Tenant: tenant, Role: principal.Caller})
}

// sleepUntil waits for a time of the fake clock, and for all that is due then.
func sleepUntil(at time.Time) {
	time.Sleep(time.Until(at))
	synctest.Wait()
}

// TestTimes: what follows a time, also where clocks change.
func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		name, cron, zone, from string
		want                   []string
	}{
		{"UTC", "30 2 * * *", "", "2026-01-01T00:00:00Z", []string{"2026-01-01T02:30:00Z", "2026-01-02T02:30:00Z"}},
		{"working days", "0 9 * * 1-5", "Europe/Berlin", "2026-11-27T09:00:00Z",
			[]string{"2026-11-30T08:00:00Z", "2026-12-01T08:00:00Z"}},
		// In New York 2:30 does not exist on 8 March 2026: it comes at 3:30 by the new clock.
		{"left out", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z",
			[]string{"2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"}},
		// 1:30 comes twice on 1 November 2026: it runs once, the first time.
		{"twice", "30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"twice, after the first", "30 1 * * *", "America/New_York", "2026-11-01T05:30:00Z",
			[]string{"2026-11-02T06:30:00Z"}},
		{"each hour, forward", "0 * * * *", "America/New_York", "2026-03-08T06:00:00Z",
			[]string{"2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"}},
		{"each hour, back", "0 * * * *", "America/New_York", "2026-11-01T04:30:00Z",
			[]string{"2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"}},
		{"Lord Howe changes by half an hour", "15 2 * * *", "Australia/Lord_Howe", "2026-10-02T00:00:00Z",
			[]string{"2026-10-02T15:45:00Z", "2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"}},
		{"leap day", "0 0 29 2 *", "", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, tt.from)
			if err != nil {
				t.Fatal(err)
			}
			all, err := (&timing{Cron: tt.cron, Zone: tt.zone}).times(at)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.want {
				if at = all.next(at); at.Format(time.RFC3339) != want {
					t.Fatalf("got %v, want %s", at, want)
				}
			}
		})
	}
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	every := interval{begun, 90 * time.Minute}
	for after, want := range map[time.Duration]time.Duration{
		0: 90 * time.Minute, time.Minute: 90 * time.Minute, 90 * time.Minute: 180 * time.Minute,
		1000 * time.Minute: 1080 * time.Minute, -time.Hour: 90 * time.Minute,
	} {
		if got := every.next(begun.Add(after)); !got.Equal(begun.Add(want)) {
			t.Errorf("after %v: %v, want %v", after, got.Sub(begun), want)
		}
	}
}

// TestWeeks: a schedule of a morning runs once each morning for weeks, over a change of the clocks and over restarts.
func TestWeeks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleepUntil(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) // the clock of the test begins in 2000
		db, s := inMemory(t), &sessions{}
		made := create(t, kept(db), cronAt("morning", "30 2 * * *", "America/New_York"))
		d := s.drive(db, always)
		var want []string
		for day := 2; day <= 15; day++ {
			at := time.Date(2026, 3, day, 7, 30, 0, 0, time.UTC)
			if day > 8 {
				at = at.Add(-time.Hour)
			}
			want = append(want, at.Format(time.RFC3339))
			if day%3 == 0 { // another server, a little before the run
				sleepUntil(at.Add(-time.Second))
				d.Close()
				d = s.drive(db, always)
			}
			sleepUntil(at.Add(time.Minute))
		}
		d.Close()
		var got []string
		keys := map[string]bool{}
		for _, r := range s.runs() {
			got, keys[r.key] = append(got, r.at.Truncate(time.Minute).Format(time.RFC3339)), true
			if r.session != made.GetSessionId() || r.by.ID != "ann" || r.by.Tenant != "acme" || r.by.Role != principal.Caller ||
				!r.ex.GetCreate() {
				t.Errorf("a run: %+v", r)
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") || len(keys) != len(want) {
			t.Errorf("ran at\n%v\nwant\n%v", got, want)
		}
		all := s.runs()
		if len(all[0].ex.GetLabels()) != 1 || len(all[1].ex.GetLabels()) != 0 {
			t.Error("labels are for the first run")
		}
		now, err := kept(db).Get(as(t, "acme", "bob"), "morning")
		if err != nil || now.GetRuns() != 14 || now.GetLastTurnId() != "t14" || now.GetLastError() != "" ||
			!now.GetNextTime().AsTime().Equal(time.Date(2026, 3, 16, 6, 30, 0, 0, time.UTC)) {
			t.Errorf("it is %v, %v", now, err)
		}
	})
}

// TestMissed: of the runs that were missed, because no server ran or the session was busy, one is made up.
func TestMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, s := inMemory(t), &sessions{}
		r := request("often")
		r.Timing = &agentdv1.CreateScheduleRequest_Every{Every: durationpb.New(time.Hour)}
		made := create(t, kept(db), r)
		begun := made.GetCreateTime().AsTime()
		ran := func() (out []time.Duration) {
			for _, r := range s.runs() {
				out = append(out, r.at.Sub(begun).Truncate(time.Minute))
			}
			return out
		}
		time.Sleep(5*time.Hour + 30*time.Minute) // nobody drives
		d := s.drive(db, always)
		time.Sleep(time.Minute)
		if got := ran(); fmt.Sprint(got) != "[5h30m0s]" {
			t.Errorf("after the outage: %v", got)
		}
		s.set(made.GetSessionId(), true)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		now, err := kept(db).Get(as(t, "acme", "ann"), "often")
		if err != nil || now.GetLastError() != "the session runs a turn" || now.GetRuns() != 1 ||
			!now.GetNextTime().AsTime().Equal(begun.Add(6*time.Hour)) {
			t.Errorf("while it is busy: %v, %v", now, err)
		}
		s.set(made.GetSessionId(), false)
		time.Sleep(2 * time.Hour)
		d.Close()
		if got := ran(); fmt.Sprint(got) != "[5h30m0s 8h31m0s 9h0m0s 10h0m0s]" {
			t.Errorf("after it was busy: %v", got)
		}
	})
}

// TestKilled: a server that dies between the start of a run and the note of it, and two that drive, start it once.
func TestKilled(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db sqlledger.DB) {
		s := &sessions{}
		for i := range 20 {
			r := request(fmt.Sprint("s", i))
			r.Timing = &agentdv1.CreateScheduleRequest_At{At: timestamppb.New(time.Now().Add(-time.Hour))}
			create(t, kept(db), r)
		}
		due, err := table{db}.soonest(t.Context(), 5)
		if err != nil || len(due) != 5 {
			t.Fatalf("%d are due, %v", len(due), err)
		}
		for i := range due { // a server that died has started these
			w, err := startedBy(t.Context(), sqlledger.New(db), &due[i])
			if err != nil {
				t.Fatal(err)
			}
			w.ex.IdempotencyKey = keyOf(&due[i])
			if _, err := s.start(t.Context(), w.ex); err != nil {
				t.Fatal(err)
			}
		}
		a, b := s.drive(db, always), s.drive(db, always)
		for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			left, err := table{db}.soonest(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			if len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d are still due", len(left))
			}
		}
		a.Close()
		b.Close()
		if n := len(s.runs()); n != 20 {
			t.Errorf("%d runs, want 20", n)
		}
		all, next, err := kept(db).List(as(t, "acme", "ann"), "", 12)
		if err != nil || len(all) != 12 || next == "" {
			t.Fatalf("listed %d, %q, %v", len(all), next, err)
		}
		rest, next, err := kept(db).List(as(t, "acme", "ann"), next, 12)
		if err != nil || len(rest) != 8 || next != "" {
			t.Fatalf("then %d, %q, %v", len(rest), next, err)
		}
		for _, x := range append(all, rest...) {
			if x.GetRuns() != 1 || x.GetNextTime() != nil || x.GetLastTurnId() == "" {
				t.Errorf("%v", x)
			}
		}
	})
}

// eachDatabase runs a test on both databases.
func eachDatabase(t *testing.T, test func(t *testing.T, db sqlledger.DB)) {
	t.Run("SQLite", func(t *testing.T) { test(t, inMemory(t)) })
	t.Run("PostgreSQL", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgserver.URL(t), postgres.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, s)
	})
}

// TestGoals: a goal that works longer than the time between two runs holds the next one up, of those that were missed
// one is made up, and a schedule says what it starts.
func TestGoals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, s := inMemory(t), &sessions{}
		ex := request("").GetExecute()
		ex.UserPrompt = ""
		r := &agentdv1.CreateScheduleRequest{Id: "tidy", Goal: &agentdv1.StartGoalRequest{
			Execute: ex, Goal: "tidy up", MaxTurns: new(int32(7)), MaxCost: 0.5,
		}}
		r.Timing = &agentdv1.CreateScheduleRequest_Every{Every: durationpb.New(time.Hour)}
		made := create(t, kept(db), r)
		if made.GetGoal().GetMaxTurns() != 7 || made.GetExecute() != nil {
			t.Errorf("made %v", made)
		}
		if again := create(t, kept(db), r); again.GetSessionId() != made.GetSessionId() || again.GetGoal().GetGoal() != "tidy up" {
			t.Errorf("a repeat: %v", again)
		}
		begun := time.Now()
		d := s.drive(db, always)
		time.Sleep(3*time.Hour + 20*time.Minute)
		waits, err := kept(db).Get(as(t, "acme", "ann"), "tidy")
		if n := len(s.runs()); n != 1 || err != nil || waits.GetRuns() != 1 || waits.GetLastError() == "" {
			t.Fatalf("%d runs while the goal works: %v, %v", n, waits, err)
		}
		d.Close() // another one takes over
		d = s.drive(db, always)
		defer d.Close()
		s.set(made.GetSessionId(), false)
		time.Sleep(6 * time.Second)
		s.set(made.GetSessionId(), false)
		time.Sleep(39 * time.Minute)
		if n := len(s.runs()); n != 2 {
			t.Fatalf("%d runs after it has ended, want one that is made up", n)
		}
		sleepUntil(begun.Add(4*time.Hour + time.Second))
		all := s.runs()
		if len(all) != 3 || all[0].session != made.GetSessionId() || len(all[0].ex.GetLabels()) != 1 || len(all[1].ex.GetLabels()) != 0 {
			t.Errorf("runs %+v", all)
		}
		list, _, err := kept(db).List(as(t, "acme", "ann"), "", 10)
		if err != nil || len(list) != 1 || list[0].GetGoal() == nil || list[0].GetGoal().GetGoal() != "" || list[0].GetLastError() != "" {
			t.Errorf("listed %v, %v", list, err)
		}
	})
}

// TestFailures: a run that can start later waits; one that cannot is noted, and the next one comes at its time.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, s := inMemory(t), &sessions{}
		r := request("often")
		r.Timing = &agentdv1.CreateScheduleRequest_Every{Every: durationpb.New(time.Hour)}
		create(t, kept(db), r)
		s.fail = fault.Errorf(fault.Unavailable, "the database is away")
		d := s.drive(db, always)
		time.Sleep(time.Hour + 2*time.Minute)
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		time.Sleep(5 * time.Minute)
		if n := len(s.runs()); n != 1 {
			t.Fatalf("%d runs after an outage, want 1", n)
		}
		s.mu.Lock()
		s.fail = errors.Join(fault.Errorf(fault.Invalid, "the tree is wrong"))
		s.mu.Unlock()
		time.Sleep(time.Hour)
		now, err := kept(db).Get(as(t, "acme", "ann"), "often")
		if err != nil || now.GetRuns() != 2 || now.GetLastError() != "the tree is wrong" || now.GetLastTurnId() != "" {
			t.Errorf("%v, %v", now, err)
		}
		d.Close()

		// Another server drives only when it is its turn; a schedule whose object was erased goes.
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		d = s.drive(db, func() bool { return false })
		time.Sleep(10 * time.Hour)
		if n := len(s.runs()); n != 1 {
			t.Errorf("a server that does not drive has started %d runs", n-1)
		}
		d.Close()
		if _, err := sqlledger.New(db).RemoveObjectsOf(t.Context(), "acme", "ann"); err != nil {
			t.Fatal(err)
		}
		d = s.drive(db, always)
		time.Sleep(time.Minute)
		d.Close()
		if all, _, err := kept(db).List(as(t, "acme", "ann"), "", 10); err != nil || len(all) != 0 || len(s.runs()) != 1 {
			t.Errorf("an erased schedule stays: %v, %v", all, err)
		}
	})
}

// timed adds a time to a request.
func timed(r *agentdv1.CreateScheduleRequest) *agentdv1.CreateScheduleRequest {
	r.Timing = &agentdv1.CreateScheduleRequest_Every{Every: durationpb.New(time.Hour)}
	return r
}

// TestRegistry: ids, tenants, repeats, refusals.
func TestRegistry(t *testing.T) {
	g := kept(inMemory(t))
	first := create(t, g, cronAt("a", "@daily", ""))
	again := create(t, g, cronAt("a", "@daily", ""))
	if again.GetSessionId() != first.GetSessionId() || again.GetSessionId() == "" || again.GetCreatedBy() != "ann" {
		t.Errorf("a repeat: %v, want %v", again, first)
	}
	for name, tt := range map[string]struct {
		req  *agentdv1.CreateScheduleRequest
		code agentdv1.ErrorCode
		says string
	}{
		"other timing":   {cronAt("a", "@hourly", ""), fault.Conflict, "delete it first"},
		"no timing":      {request("b"), fault.Invalid, "cron, every or at"},
		"zone":           {cronAt("b", "@daily", "Mars/Olympus"), fault.Invalid, "cron.time_zone"},
		"local zone":     {cronAt("b", "@daily", "Local"), fault.Invalid, "cron.time_zone"},
		"zone in it":     {cronAt("b", "TZ=UTC 0 0 * * *", ""), fault.Invalid, "names the zone"},
		"seconds":        {cronAt("b", "0 0 0 * * *", ""), fault.Invalid, "want minute"},
		"@every":         {cronAt("b", "@every 1h", ""), fault.Invalid, "every takes an interval"},
		"never":          {cronAt("b", "0 0 31 2 *", ""), fault.Invalid, "does not come"},
		"bad id":         {cronAt("-b", "@daily", ""), fault.Invalid, "id:"},
		"too large":      {large(), fault.LimitExceeded, "at most 262144"},
		"nothing":        {timed(&agentdv1.CreateScheduleRequest{}), fault.Invalid, "execute, which starts a turn, or goal"},
		"both":           {timed(&agentdv1.CreateScheduleRequest{Execute: request("").GetExecute(), Goal: &agentdv1.StartGoalRequest{}}), fault.Invalid, "one of them"},
		"no goal":        {timed(&agentdv1.CreateScheduleRequest{Goal: &agentdv1.StartGoalRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{Agent: &agentdv1.Agent{Name: "a"}}}}), fault.Invalid, "goal.goal"},
		"prompted goal":  {timed(&agentdv1.CreateScheduleRequest{Goal: &agentdv1.StartGoalRequest{Goal: "x", Execute: request("").GetExecute()}}), fault.Invalid, "goal.execute has a prompt"},
		"key of a goal":  {timed(&agentdv1.CreateScheduleRequest{Goal: &agentdv1.StartGoalRequest{Goal: "x", Execute: &agentdv1.RunRequest_ExecuteRequest{IdempotencyKey: "k"}}}), fault.Invalid, "goal.execute.idempotency_key"},
		"busy":           {with(func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.OnBusy = 2 }), fault.Invalid, "execute.on_busy"},
		"key":            {with(func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.IdempotencyKey = "k" }), fault.Invalid, "idempotency_key"},
		"no prompt":      {with(func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.UserPrompt = "" }), fault.Invalid, "user_prompt"},
		"no agent":       {with(func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.Agent = nil }), fault.Invalid, "execute needs an agent"},
		"bad session id": {with(func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.SessionId = new("/x") }), fault.Invalid, "session_id"},
	} {
		_, err := g.Create(as(t, "acme", "ann"), tt.req)
		if e := fault.As(err); err == nil || e.Code != tt.code || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %v, want %v and %q", name, err, tt.code, tt.says)
		}
	}
	if _, err := g.Get(as(t, "umbrella", "ann"), "a"); err == nil || fault.As(err).Code != fault.NotFound {
		t.Errorf("another tenant gets it: %v", err)
	}
	if err := g.Delete(as(t, "umbrella", "ann"), "a"); err == nil || fault.As(err).Code != fault.NotFound {
		t.Errorf("another tenant deletes it: %v", err)
	}
	if _, err := g.Create(as(t, "umbrella", "eve"), cronAt("a", "@hourly", "")); err != nil {
		t.Errorf("the id of another tenant: %v", err)
	}
	if err := g.Delete(as(t, "acme", "bob"), "a"); err != nil {
		t.Error(err)
	}
	if err := g.Delete(as(t, "acme", "bob"), "a"); err == nil || fault.As(err).Code != fault.NotFound {
		t.Errorf("deleted twice: %v", err)
	}
	create(t, g, cronAt("a", "@hourly", "")) // the id is free
	if n, err := g.RemoveOf(t.Context(), "acme", "ann"); err != nil || n != 1 {
		t.Errorf("removed %d, %v", n, err)
	}
}

func with(change func(*agentdv1.RunRequest_ExecuteRequest)) *agentdv1.CreateScheduleRequest {
	r := cronAt("c", "@daily", "")
	change(r.GetExecute())
	return r
}

func large() *agentdv1.CreateScheduleRequest {
	return with(func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.UserPrompt = strings.Repeat("x", 300<<10) })
}
