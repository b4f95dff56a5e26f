package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// database is a store with what is beside it.
type database interface {
	store.Store
	DB
}

// inMemory opens a database of a test's own.
func inMemory(t *testing.T) database {
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

// eachDatabase runs a test on both databases.
func eachDatabase(t *testing.T, test func(t *testing.T, db database)) {
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

const testKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func hookOf(t *testing.T, name, url string, told ...Event) Hook {
	t.Helper()
	key, err := ParseKey(testKey)
	if err != nil {
		t.Fatal(err)
	}
	return Hook{
		Name: name, URL: Secret(url), Keys: []Key{key}, Events: told, Timeout: time.Second,
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}
}

// told is a store that tells hooks, and how often it said so.
func told(db database, hooks ...Hook) (s *Store, written *int) {
	written = new(int)
	return NewStore(db, StoreConfig{
		Hooks: func() []Hook { return hooks }, SessionBudget: func() record.Budget { return record.Budget{} },
		Written: func() { *written++ },
	}), written
}

// turn is the batches of a turn of a session: its start, a question, its end.
func turn(session string, created bool, budget record.Budget) []store.Batch {
	at := time.Now().UTC().Truncate(time.Microsecond)
	rec := func(seq int64, kind record.Kind, data string) record.Record {
		return record.Record{Seq: seq, TurnID: "t1", Kind: kind, Time: at.Add(time.Duration(seq)), Data: []byte(data)}
	}
	row := func(kind store.RowKind, id, status, data string, seq int64) store.Row {
		return store.Row{
			Kind: kind, SessionID: session, ID: id, TurnID: "t1", Seq: seq, CreatedAt: at, Status: status, Data: []byte(data),
		}
	}
	start := store.Batch{
		SessionID: session, Records: []record.Record{rec(1, record.KindTurnStarted, `{"prompt":"go"}`)},
		Rows: []store.Row{row(store.RowTurn, "t1", "open", `{"id":"t1"}`, 1)}, LastTurn: "t1", LastStatus: "open",
	}
	if created {
		start.Create = &store.NewSession{ID: session, CreatedAt: at, Budget: budget, Labels: map[string]string{"team": "ops"}}
	}
	asks := store.Batch{
		SessionID: session, After: 1, Records: []record.Record{rec(2, record.KindToolCall, `{}`)},
		Rows: []store.Row{row(store.RowInteraction, "i-1", "pending",
			`{"call":{"id":"c1","name":"deploy","asks":{"id":"i-1","kind":1,"text":"Deploy now?"}},"status":1}`, 2)},
		Usage: record.Usage{Total: 85, Cost: 10}, Spent: record.Spent{Tokens: 85, Cost: 10}, PaidOn: 20_000,
		LastTurn: "t1", LastStatus: "open",
	}
	ends := store.Batch{
		SessionID: session, After: 2, Records: []record.Record{rec(3, record.KindTurnEnded, `{"completed":true}`)},
		Rows: []store.Row{
			row(store.RowInteraction, "i-1", "canceled", `{"call":{"id":"c1","asks":{"id":"i-1","kind":1}},"status":3}`, 2),
			row(store.RowTurn, "t1", "succeeded",
				`{"id":"t1","output":"It is done.","usage":{"total":110,"calls":2},"end":{"completed":true}}`, 1),
		},
		Usage: record.Usage{Total: 110, Cost: 12}, Spent: record.Spent{Tokens: 25, Cost: 2}, PaidOn: 20_000,
		LastTurn: "t1", LastStatus: "succeeded",
	}
	for _, b := range []*store.Batch{&start, &asks, &ends} {
		b.Payer, _ = b.Names()
	}
	return []store.Batch{start, asks, ends}
}

// noted are the notices of a database, by hook, event and subject.
func noted(t *testing.T, db DB) (out []string) {
	t.Helper()
	all, err := queue{db}.take(t.Context(), "h", 100, lease{"test", time.Now().Add(time.Hour), time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		out = append(out, fmt.Sprint(d.tenant, " ", d.session, " ", d.TurnID, " ", d.Event, " ", d.Subject))
	}
	return out
}

// TestNoticesWithFacts: what hooks are told stands in the database exactly if the fact does, once.
func TestNoticesWithFacts(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		s, written := told(db, hookOf(t, "h", "https://x.example", TurnEnded, InteractionRequested, BudgetMarked))
		batches := turn("acme/s", true, record.Budget{Tokens: 100})
		for _, b := range batches {
			for range 2 { // the repeat of an append whose outcome was unknown
				if err := s.Append(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
		}
		other := batches[2]
		other.Records = []record.Record{batches[2].Records[0]}
		other.Records[0].Data = []byte(`{"completed":false}`)
		if err := s.Append(t.Context(), other); err == nil {
			t.Error("another end of the turn was written")
		}
		want := []string{
			"acme acme/s t1 interaction.requested i-1",
			"acme acme/s t1 budget.marked session:tokens:80:85:100",
			"acme acme/s t1 turn.ended ", "acme acme/s t1 budget.marked session:tokens:100:110:100",
		}
		got := noted(t, db)
		if !sameItems(got, want) {
			t.Errorf("noted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if *written != 4 {
			t.Errorf("said %d times that something is to be sent, want 4", *written)
		}
		if err := s.Delete(t.Context(), "acme/s", 3); err != nil {
			t.Fatal(err)
		}
		if all, err := (queue{db}).counts(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("the notices of a deleted session stay: %v, %v", all, err)
		}
	})
}

// goal is the batches of a goal of three turns: its beginning, the end of the first turn, that of the second one, behind
// which it asks, and its end. Each turn uses 40 tokens of prompts.
func goal(session string) []store.Batch {
	at := time.Now().UTC().Truncate(time.Microsecond)
	seq := int64(0)
	next := func(turn string, kind record.Kind, data string) record.Record {
		seq++
		return record.Record{Seq: seq, TurnID: turn, Kind: kind, Time: at.Add(time.Duration(seq)), Data: []byte(data)}
	}
	row := func(kind store.RowKind, id, status, data string, seq int64) store.Row {
		return store.Row{Kind: kind, SessionID: session, ID: id, Seq: seq, CreatedAt: at, Status: status, Data: []byte(data)}
	}
	over := func(id, rest string, seq int64) store.Row {
		return row(store.RowTurn, id, "succeeded", `{"id":"`+id+`","usage":{"prompt":40,"total":40}`+rest+`}`, seq)
	}
	begin := store.Batch{
		SessionID: session, Records: []record.Record{
			next("", record.KindGoalStarted, `{"id":"g1","goal":"tidy","limits":{"input_tokens":100,"cost_usd":1}}`),
			next("t1", record.KindTurnStarted, `{"prompt":"tidy"}`),
		},
		Rows: []store.Row{
			row(store.RowGoal, "g1", "running", `{"id":"g1","goal":"tidy","status":1}`, 1), row(store.RowTurn, "t1", "open", `{"id":"t1"}`, 2),
		},
		LastTurn: "t1", LastStatus: "open", Create: &store.NewSession{ID: session, CreatedAt: at},
	}
	first := store.Batch{
		SessionID: session, After: 2, Records: []record.Record{
			next("t1", record.KindTurnEnded, `{"completed":true}`),
			next("", record.KindGoalCheckpointed, `{"id":"g1","turn":"t1","totals":{"turns":1,"input_tokens":40}}`),
			next("t2", record.KindTurnStarted, `{"prompt":"continue"}`),
		},
		Rows: []store.Row{
			row(store.RowGoal, "g1", "running", `{"id":"g1","goal":"tidy","status":1}`, 1), over("t1", "", 2), row(store.RowTurn, "t2", "open", `{"id":"t2"}`, 5),
		},
		LastTurn: "t2", LastStatus: "open",
	}
	asks := store.Batch{
		SessionID: session, After: 5, Records: []record.Record{
			next("t2", record.KindTurnEnded, `{"completed":false}`),
			next("", record.KindGoalCheckpointed, `{"id":"g1","turn":"t2","totals":{"turns":2,"input_tokens":80},"wait":2}`),
		},
		Rows: []store.Row{
			row(store.RowGoal, "g1", "running", `{"id":"g1","goal":"tidy","status":1,"totals":{"turns":2,"input_tokens":80},"wait":2,"until":"2026-11-28T02:00:37Z"}`, 1), over("t2", "", 5),
		},
		LastTurn: "t2", LastStatus: "succeeded",
	}
	ends := store.Batch{
		SessionID: session, After: 7, Records: []record.Record{
			next("", record.KindGoalEnded, `{"id":"g1","reason":7,"totals":{"turns":2,"input_tokens":80}}`),
		},
		Rows: []store.Row{row(store.RowGoal, "g1", "failed",
			`{"id":"g1","goal":"tidy","status":5,"reason":7,"final_text":"All tidy.","totals":{"turns":2,"input_tokens":80,"cost_usd":0.5},"took":1500000000}`, 1)},
		LastTurn: "t2", LastStatus: "succeeded",
	}
	return []store.Batch{begin, first, asks, ends}
}

// TestGoalNotices: the end of a goal, what it asks and its marks are noted with the facts, once; and hooks read how the
// goal is.
func TestGoalNotices(t *testing.T) {
	want := []string{
		"acme acme/s t2 goal.asks g1", "acme acme/s t2 budget.marked goal:input_tokens:80:80:100", "acme acme/s  goal.ended g1",
	}
	eachDatabase(t, func(t *testing.T, db database) {
		s, _ := told(db, hookOf(t, "h", "https://x.example", BudgetMarked, GoalEnded, GoalAsks))
		batches := goal("acme/s")
		for _, b := range batches {
			for range 2 {
				if err := s.Append(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := noted(t, db); !sameItems(got, want) {
			t.Errorf("noted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
	db := inMemory(t)
	bodies := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	defer receiver.Close()
	open := hookOf(t, "open", receiver.URL, GoalEnded)
	open.Content = true
	closed := hookOf(t, "closed", receiver.URL, GoalEnded, GoalAsks)
	s, _ := told(db, open, closed)
	batches := goal("acme/s")
	for i := range 3 {
		if errs := s.AppendMany(t.Context(), batches[i:i+1]); errs[0] != nil {
			t.Fatal(errs)
		}
	}
	o := &outcomes{}
	sender := senderOf(db, io.Discard, o, open, closed)
	sender.start()
	defer sender.Close()
	next := func() string {
		t.Helper()
		select {
		case body := <-bodies:
			return body
		case <-time.After(time.Minute):
			t.Fatal("a hook is not told")
			return ""
		}
	}
	is := func(body, event, rest string) {
		t.Helper()
		if !strings.HasPrefix(body, `{"type":"`+event+`"`) || !strings.HasSuffix(body, `"goal":{"id":"g1",`+rest+`}}}`) {
			t.Errorf("told %s", body)
		}
	}
	is(next(), "goal.asks", `"status":"running","wait":"ask","wait_until":"2026-11-28T02:00:37Z","turns":2,"input_tokens":80,"output_tokens":0,"cost_usd":0`)
	if err := s.Append(t.Context(), batches[3]); err != nil {
		t.Fatal(err)
	}
	sender.Poke()
	const ended = `"status":"failed","reason":"retry_policy_aborted","turns":2,"input_tokens":80,"output_tokens":0,"cost_usd":0.5,"duration_seconds":1.5`
	one, two := next(), next()
	if !strings.Contains(one, "final_text") {
		one, two = two, one
	}
	is(one, "goal.ended", ended+`,"goal":"tidy","final_text":"All tidy."`)
	is(two, "goal.ended", ended)
}

// TestManyAppends: AppendMany notes what Append does, and tenants that a hook is not told of have no notices.
func TestManyAppends(t *testing.T) {
	db := inMemory(t)
	h := hookOf(t, "h", "https://x.example", TurnEnded)
	h.Tenants = []string{"acme"}
	s, _ := told(db, h)
	a, b := turn("acme/a", true, record.Budget{}), turn("umbrella/b", true, record.Budget{})
	for i := range a {
		for _, err := range s.AppendMany(t.Context(), []store.Batch{a[i], b[i]}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := noted(t, db); !sameItems(got, []string{"acme acme/a t1 turn.ended "}) {
		t.Errorf("noted %q", got)
	}
}

func sameItems(a, b []string) bool {
	count := map[string]int{}
	for _, x := range a {
		count[x]++
	}
	for _, x := range b {
		count[x]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// receiver is what a hook reaches.
type receiver struct {
	mu      sync.Mutex
	got     []*http.Request
	bodies  [][]byte
	at      []time.Time
	respond func(n int) *http.Response // the n-th request, from 1
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got, r.bodies, r.at = append(r.got, req), append(r.bodies, body), append(r.at, time.Now())
	return r.respond(len(r.got)), nil
}

func reply(status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("as you like"))}
}

// outcomes counts what a sender reports.
type outcomes struct {
	mu sync.Mutex
	n  map[string]int
}

func (o *outcomes) tried(_, outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n == nil {
		o.n = map[string]int{}
	}
	o.n[outcome]++
}

func (o *outcomes) of(outcome string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.n[outcome]
}

// senderOf is a sender of a test's own that looks once a minute.
func senderOf(db database, log io.Writer, o *outcomes, hooks ...Hook) *Sender {
	s := newSender(Config{
		DB: db, Reader: db, Holder: "test", Alone: true, Hooks: func() []Hook { return hooks },
		Budgets: func() Budgets { return Budgets{} }, Tried: o.tried, Agent: "agentd/test",
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	s.look = time.Minute
	return s
}

// TestBackoff: a receiver that fails is asked less and less often, for three days; then the notice is a dead letter,
// which an operator sends again under its id.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		hook := hookOf(t, "h", "https://x.example/hook?key=very-secret", TurnEnded)
		appends, _ := told(db, hook)
		for _, b := range turn("s", true, record.Budget{}) {
			if err := appends.Append(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		failing := true
		r := &receiver{respond: func(int) *http.Response {
			if failing {
				return reply(http.StatusInternalServerError)
			}
			return reply(http.StatusNoContent)
		}}
		var log bytes.Buffer
		o := &outcomes{}
		s := senderOf(db, &log, o, hook)
		s.client.Transport = r
		s.start()
		time.Sleep(GiveUp + longestWait)
		synctest.Wait()
		letters, err := LettersIn(db).Dead(t.Context(), "", nil, 10)
		if err != nil || len(letters) != 1 {
			t.Fatalf("dead letters: %v, %v", letters, err)
		}
		l := letters[0]
		if l.Error != "it responded 500 Internal Server Error" || l.Attempts != int64(len(r.at)) || l.Session != "s" {
			t.Errorf("the letter: %+v, of %d requests", l, len(r.at))
		}
		if n := len(r.at); n < 20 || n > 60 || o.of("500") != n || o.of("dead") != 1 {
			t.Errorf("%d requests, outcomes %v", n, o.n)
		}
		for i := 1; i < len(r.at); i++ {
			if w := r.at[i].Sub(r.at[i-1]); w < firstWait/2 || w > longestWait+s.look {
				t.Errorf("waited %v before request %d", w, i+1)
			}
		}
		if first, last := r.at[1].Sub(r.at[0]), r.at[len(r.at)-1].Sub(r.at[len(r.at)-2]); last < 1000*first/2 {
			t.Errorf("waited %v at first and %v at last", first, last)
		}
		ids := map[string]bool{}
		for _, req := range r.got {
			ids[req.Header.Get("Webhook-Id")] = true
		}
		if len(ids) != 1 || !ids[l.ID] {
			t.Errorf("ids of one notice: %v", ids)
		}

		failing = false
		n := len(r.at)
		if is, err := LettersIn(db).Retry(t.Context(), l.ID); !is || err != nil {
			t.Fatalf("Retry: %v, %v", is, err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(r.at) != n+1 || r.got[n].Header.Get("Webhook-Id") != l.ID {
			t.Errorf("%d requests after it was sent again", len(r.at)-n)
		}
		if all, err := s.queue.counts(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("what was received stays: %v, %v", all, err)
		}
		s.Close()
		if text := log.String(); strings.Contains(text, "very-secret") || !strings.Contains(text, "dead letter") {
			t.Errorf("logged: %s", text)
		}
	})
}

// TestResponses: what each response does to a notice.
func TestResponses(t *testing.T) {
	for _, tt := range []struct {
		name     string
		response func() *http.Response
		dead     bool
		wait     [2]time.Duration // at least and at most, before the next request
		err      string
	}{
		{"410", func() *http.Response { return reply(http.StatusGone) }, true, [2]time.Duration{}, "it responded 410 Gone"},
		{"Retry-After", func() *http.Response { return reply(http.StatusTooManyRequests, "Retry-After", "1800") }, false,
			[2]time.Duration{30 * time.Minute, 31 * time.Minute}, ""},
		{"Retry-After too long", func() *http.Response { return reply(503, "Retry-After", "9999999") }, false,
			[2]time.Duration{longestWait, longestWait + time.Minute}, ""},
		{"404", func() *http.Response { return reply(http.StatusNotFound) }, false,
			[2]time.Duration{firstWait / 2, time.Minute}, ""},
		{"redirect", func() *http.Response { return reply(http.StatusFound, "Location", "https://x.example/other") }, false,
			[2]time.Duration{firstWait / 2, time.Minute}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := inMemory(t)
				hook := hookOf(t, "h", "https://x.example", TurnEnded)
				appends, _ := told(db, hook)
				for _, b := range turn("s", true, record.Budget{}) {
					if err := appends.Append(t.Context(), b); err != nil {
						t.Fatal(err)
					}
				}
				r := &receiver{respond: func(n int) *http.Response {
					if n == 1 {
						return tt.response()
					}
					return reply(http.StatusOK)
				}}
				s := senderOf(db, io.Discard, &outcomes{}, hook)
				s.client.Transport = r
				s.start()
				time.Sleep(7 * time.Hour)
				synctest.Wait()
				letters, err := LettersIn(db).Dead(t.Context(), "h", nil, 10)
				if err != nil || (len(letters) == 1) != tt.dead {
					t.Fatalf("dead letters: %v, %v", letters, err)
				}
				s.Close()
				if tt.dead {
					if letters[0].Error != tt.err || len(r.at) != 1 {
						t.Errorf("%+v after %d requests", letters[0], len(r.at))
					}
					return
				}
				if len(r.at) != 2 {
					t.Fatalf("%d requests, want 2", len(r.at))
				}
				if w := r.at[1].Sub(r.at[0]); w < tt.wait[0] || w > tt.wait[1] {
					t.Errorf("waited %v, want %v", w, tt.wait)
				}
			})
		})
	}
}

// TestReceivers: real receivers on loopback. One that hangs keeps no other waiting; one at an address that is not
// allowed gets nothing; redirects lead nowhere.
func TestReceivers(t *testing.T) {
	db := inMemory(t)
	type request struct {
		header http.Header
		body   []byte
	}
	received := make(chan request, 10)
	good := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- request{r.Header, body}
	}))
	defer good.Close()
	hanging := make(chan struct{}, 10)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else nobody notices that the client is gone
		hanging <- struct{}{}
		<-r.Context().Done()
	}))
	defer hangs.Close()
	reached := make(chan string, 10)
	secret := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path }))
	defer secret.Close()
	leads := httptest.NewServer(http.RedirectHandler(secret.URL+"/led", http.StatusTemporaryRedirect))
	defer leads.Close()

	private := hookOf(t, "private", secret.URL+"/private", TurnEnded)
	private.Allow = nil
	named := hookOf(t, "named", strings.Replace(secret.URL, "127.0.0.1", "localhost", 1)+"/named", TurnEnded)
	named.Allow = nil
	content := hookOf(t, "good", good.URL, TurnEnded)
	content.Content = true
	filtered := hookOf(t, "filtered", secret.URL+"/filtered", TurnEnded)
	filtered.Labels = map[string]string{"team": "dev"}
	hooks := []Hook{hookOf(t, "hangs", hangs.URL, TurnEnded), private, named, hookOf(t, "leads", leads.URL, TurnEnded),
		filtered, content}
	appends, _ := told(db, hooks...)
	for _, b := range turn("acme/s", true, record.Budget{}) {
		if err := appends.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	o := &outcomes{}
	s := senderOf(db, io.Discard, o, hooks...)
	s.start()
	defer s.Close()
	got := <-received
	want := `"data":{"tenant":"acme","session_id":"s","turn_id":"t1","labels":{"team":"ops"},"turn":{"status":"succeeded",` +
		`"usage":{"llm_calls":2,"prompt_tokens":0,"completion_tokens":0,"total_tokens":110,"cost_usd":0},` +
		`"output":"It is done."}}}`
	if !strings.HasPrefix(string(got.body), `{"type":"turn.ended","timestamp":"`) || !strings.HasSuffix(string(got.body), want) {
		t.Errorf("the body is %s", got.body)
	}
	if got.header.Get("Webhook-Id") == "" || got.header.Get("User-Agent") != "agentd/test" {
		t.Errorf("the header is %v", got.header)
	}
	<-hanging
	await(t, func() bool {
		return o.of("timeout") >= 1 && o.of("refused") >= 2 && o.of("307") >= 1 && o.of("ok") == 1
	}, func() string { return fmt.Sprint(o.n) })
	select {
	case path := <-reached:
		t.Errorf("the private server was reached: %s", path)
	default:
	}
	all, err := s.queue.counts(t.Context())
	if err != nil || all["filtered"].n[waiting] != 0 || all["private"].n[waiting] != 1 || all["good"].n[waiting] != 0 {
		t.Errorf("what waits: %v, %v", all, err)
	}
}

// await waits until something holds, as long as the test may take.
func await(t *testing.T, holds func() bool, is func() string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("it does not come: %s", is())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestTwoSenders: of two servers over one database each notice is sent by one, and what a server has taken that dies is
// sent by the other when its time is over.
func TestTwoSenders(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		hook := hookOf(t, "h", "https://x.example", TurnEnded)
		appends, _ := told(db, hook)
		const sessions = 20
		for i := range sessions {
			for _, b := range turn(fmt.Sprint("s", i), true, record.Budget{}) {
				if err := appends.Append(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
		}
		now := time.Now()
		dead, err := queue{db}.take(t.Context(), "h", 3, lease{"dead", now, now.Add(50 * time.Millisecond)})
		if err != nil || len(dead) != 3 {
			t.Fatalf("took %d, %v", len(dead), err)
		}
		r := &receiver{respond: func(int) *http.Response { return reply(http.StatusOK) }}
		var senders []*Sender
		for i := range 2 {
			s := senderOf(db, io.Discard, &outcomes{}, hook)
			s.cfg.Holder, s.cfg.Alone, s.look = fmt.Sprint("server", i), false, 10*time.Millisecond
			s.client.Transport = r
			s.start()
			senders = append(senders, s)
		}
		seen := func() map[string]int {
			r.mu.Lock()
			defer r.mu.Unlock()
			out := map[string]int{}
			for _, req := range r.got {
				out[req.Header.Get("Webhook-Id")]++
			}
			return out
		}
		await(t, func() bool { return len(seen()) == sessions }, func() string { return fmt.Sprint(seen()) })
		for _, s := range senders {
			s.Close()
		}
		for id, n := range seen() {
			if n != 1 {
				t.Errorf("%s was sent %d times", id, n)
			}
		}
		// What the dead one says at last changes nothing.
		if err := (queue{db}).end(t.Context(), &dead[0], "dead", time.Now(), outcome{due: time.Now()}); err != nil {
			t.Error(err)
		}
		if all, err := (queue{db}).counts(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("what is left: %v, %v", all, err)
		}
	})
}

// TestTenantMarks: what a tenant has spent is told once for each mark, budget and period, also by a sender that does not
// know what was told before.
func TestTenantMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		hook := hookOf(t, "h", "https://x.example", BudgetMarked)
		now := time.Now().UTC()
		b := turn("acme/s", true, record.Budget{})
		b[1].PaidOn = now.Unix() / 86400
		for i := range 2 {
			if err := db.Append(t.Context(), b[i]); err != nil {
				t.Fatal(err)
			}
		}
		r := &receiver{respond: func(int) *http.Response { return reply(http.StatusOK) }}
		for range 2 {
			s := senderOf(db, io.Discard, &outcomes{}, hook)
			s.cfg.Budgets = func() Budgets {
				return Budgets{
					Day:   map[string]record.Budget{"*": {Tokens: 50}},
					Month: map[string]record.Budget{"acme": {Tokens: 100}, "*": {Tokens: 1}},
				}
			}
			s.client.Transport = r
			s.start()
			time.Sleep(5 * time.Minute)
			s.Close()
		}
		var got []string
		for _, body := range r.bodies {
			_, text, _ := strings.Cut(string(body), `"data"`)
			got = append(got, `"data"`+text)
		}
		want := []string{
			`"data":{"tenant":"acme","budget":{"period":"day","part":"tokens","percent":80,"used":85,"limit":50}}}`,
			`"data":{"tenant":"acme","budget":{"period":"day","part":"tokens","percent":100,"used":85,"limit":50}}}`,
			`"data":{"tenant":"acme","budget":{"period":"month","part":"tokens","percent":80,"used":85,"limit":100}}}`,
		}
		if !sameItems(got, want) {
			t.Errorf("told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestBounds: of too many notices the oldest become dead letters, and of too many of these the oldest are removed.
func TestBounds(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		q := queue{db}
		var all []made
		begun := time.Now().Add(-time.Hour)
		for i := range 10 {
			all = append(all, made{"", store.Notice{
				ID: fmt.Sprint("n", i), Hook: "h", Event: "turn.ended", At: begun.Add(time.Duration(i) * time.Second),
			}})
		}
		if err := q.add(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		for range 3 { // later rounds find nothing to do
			if _, err := q.bound(t.Context(), "h", 4, 100, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		n, err := q.count(t.Context(), "h")
		if err != nil || n[waiting] != 4 || n[dead] != 4 {
			t.Errorf("%v, %v, want 4 that wait and 4 dead", n, err)
		}
		left, err := q.take(t.Context(), "h", 100, lease{"test", time.Now(), time.Now()})
		if err != nil || len(left) != 4 || left[0].ID != "n6" {
			t.Errorf("left %v, %v", left, err)
		}
		if again, err := (Letters{q}).RetryAll(t.Context(), "h"); err != nil || again != 4 {
			t.Errorf("sent %d again, %v", again, err)
		}
		if err := q.expire(t.Context(), time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n, err := q.count(t.Context(), "h"); err != nil || n != [3]int64{} {
			t.Errorf("old ones stay: %v, %v", n, err)
		}
	})
}

// TestSignature compares with the example that Standard Webhooks publishes.
func TestSignature(t *testing.T) {
	key, err := ParseKey(testKey)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	sign(h, []Key{key, "another"}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 5), []byte(`{"test": 2432232314}`))
	first, second, _ := strings.Cut(h.Get("webhook-signature"), " ")
	if first != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" || !strings.HasPrefix(second, "v1,") {
		t.Errorf("signature %q", h.Get("webhook-signature"))
	}
	if h.Get("webhook-timestamp") != "1614265330" {
		t.Errorf("timestamp %q", h.Get("webhook-timestamp"))
	}
	if _, err := ParseKey(NewSecret()); err != nil {
		t.Errorf("a new secret: %v", err)
	}
}

// TestPublic: which addresses a hook may reach without leave.
func TestPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"93.184.216.34": true, "8.8.8.8": true, "2606:4700::1": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"0.0.0.0": false, "100.64.0.1": false, "198.18.0.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"::1": false, "::": false, "fe80::1": false, "fc00::1": false, "ff02::1": false, "64:ff9b::7f00:1": false,
		"2002:7f00:1::": false, "::127.0.0.1": false, "2001:db8::1": false, "fec0::1": false, "192.0.0.8": false,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: public is %v", text, got)
		}
	}
	for _, text := range []string{"[::ffff:127.0.0.1]:1", "[::ffff:10.0.0.1]:1", "127.0.0.1:1", "[::1]:1"} {
		if _, err := dial(context.Background(), "tcp", text); err == nil || !strings.Contains(err.Error(), "not public") {
			t.Errorf("dial %s: %v", text, err)
		}
	}
}

// TestParse reads a file of hooks.
func TestParse(t *testing.T) {
	around := Around{
		Getenv: func(name string) string {
			return map[string]string{"SECRET": testKey, "PUSH": "p-1"}[name]
		},
		ReadKey: func(file string) (string, error) { return testKey, nil },
	}
	hooks, err := Parse("hooks.yaml", []byte(`webhooks:
  phone:
    url: https://push.example/agentd?key=${env:PUSH}
    secret: ${env:SECRET}
    old_secret_file: old.secret
    events: [interaction.requested, turn.ended]
    tenants: [acme, ""]
    labels: {team: ops}
    content: true
    timeout: 3s
  inner:
    url: http://10.1.2.3:8080/hook
    secret_file: inner.secret
    events: [budget.marked]
    allow: [10.1.2.3, fd00::/8]
`), around)
	if err != nil || len(hooks) != 2 {
		t.Fatalf("%v, %v", hooks, err)
	}
	p := hooks[1]
	if p.Name != "phone" || string(p.URL) != "https://push.example/agentd?key=p-1" || len(p.Keys) != 2 || !p.Content ||
		p.Timeout != 3*time.Second || !p.wants(TurnEnded, "") || p.wants(TurnEnded, "umbrella") ||
		p.wants(BudgetMarked, "acme") || p.fits(nil) || !p.fits(map[string]string{"team": "ops", "x": "y"}) {
		t.Errorf("phone: %+v", p)
	}
	if text := fmt.Sprintf("%v %+v %#v", hooks, hooks, hooks); strings.Contains(text, "p-1") || strings.Contains(text, "\x31\xf2") {
		t.Errorf("secrets are shown: %s", text)
	}

	for _, tt := range []struct{ hook, want string }{
		{`{url: https://x.example, secret: sk-secret, events: [turn.ended]}`, "want whsec_"},
		{`{url: https://x.example, events: [turn.ended]}`, "want secret or secret_file"},
		{`{url: https://x.example, secret: "${env:SECRET}", secret_file: f, events: [turn.ended]}`, "want one of them"},
		{`{url: http://x.example, secret: "${env:SECRET}", events: [turn.ended]}`, "want https"},
		{`{url: "ftp://x.example", secret: "${env:SECRET}", events: [turn.ended]}`, "want an https URL"},
		{`{url: "https://me:pw@x.example", secret: "${env:SECRET}", events: [turn.ended]}`, "without a user"},
		{`{url: https://x.example, secret: "${env:SECRET}"}`, "events is missing"},
		{`{url: https://x.example, secret: "${env:SECRET}", events: [turn.over]}`, "there is no event"},
		{`{url: https://x.example, secret: "${env:SECRET}", events: [turn.ended], allow: [home]}`, "want networks"},
		{`{url: https://x.example, secret: "${env:SECRET}", events: [turn.ended], timeout: 1h}`, "from 1s to 30s"},
		{`{url: https://x.example, secret: "${env:SECRET}", events: [turn.ended], tenant: acme}`, "did you mean tenants"},
		{`{secret: "${env:SECRET}", events: [turn.ended]}`, "url is missing"},
		{`{url: https://x.example, secret: "${env:NONE}", events: [turn.ended]}`, "NONE is not set"},
	} {
		_, err := Parse("f", []byte("webhooks: {h: "+tt.hook+"}"), around)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "sk-secret") ||
			strings.Contains(err.Error(), "me:pw") {
			t.Errorf("%s: %v, want %q", tt.hook, err, tt.want)
		}
	}
}
