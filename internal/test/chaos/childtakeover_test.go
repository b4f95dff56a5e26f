package chaos

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/fakeprovider"
)

// countedTrap has the append of the n-th record wait that is written from now on, until the test lets it go on.
const countedTrap = `
CREATE TABLE trap (n bigint NOT NULL);
INSERT INTO trap VALUES (0);
CREATE SEQUENCE trap_count;
CREATE FUNCTION trapped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('trap_count') = (SELECT n FROM trap) THEN
		PERFORM pg_advisory_xact_lock(4711);
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER trapped BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION trapped();`

// TestChildTakeover kills the owner of a goal with three background children, one of three servers, while a record of
// any of them is appended: those that take over come to what an undisturbed goal and its children have come to. By
// itself it kills at a few records, others in each run; see TestKillChildren.
func TestChildTakeover(t *testing.T) {
	t.Parallel()
	p := &familyPoint{}
	_, provider := fakeprovider.Start(t, p.answer)
	f := newFleet(t, build(t), provider, *ttlFlag)
	key := f.nodes[0].createKey()
	f.begin()
	db, err := sql.Open("pgx", f.url)
	if err == nil {
		_, err = db.ExecContext(t.Context(), countedTrap)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &familyTakeover{t: t, f: f, db: db, key: key, point: p}
	s.run(0)
	kills, whole := 0, 0
	if err := db.QueryRowContext(t.Context(), `SELECT last_value FROM trap_count`).Scan(&whole); err != nil {
		t.Fatal(err)
	}
	for at := 1; at <= whole && !t.Failed(); at++ {
		if (at+int(*seedFlag%uint64(*takeoverStrideFlag)))%*takeoverStrideFlag == 0 {
			s.run(at)
			kills++
		}
	}
	f.end()
	s.judge()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("%d owners killed at the %d records of a goal and its children", kills, whole)
	for _, text := range f.complaints() {
		t.Error(text)
	}
}

// familyTakeover are goals with children whose owners are killed.
type familyTakeover struct {
	t     *testing.T
	f     *fleet
	db    *sql.DB
	key   string
	point *familyPoint
	ids   []string // of the sessions of the goals
	at    []int
	calls []int64 // of models, with each goal
}

// run has a goal whose owner is killed at a record, 0 for none.
func (s *familyTakeover) run(at int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*pointLimit)
	defer cancel()
	held, err := s.db.Conn(ctx)
	if err == nil {
		_, err = held.ExecContext(ctx, `SELECT pg_advisory_lock(4711)`)
	}
	if err == nil {
		_, err = s.db.ExecContext(ctx, `ALTER SEQUENCE trap_count RESTART; UPDATE trap SET n = `+strconv.Itoa(at))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	before := s.point.calls.Load()
	clnt := client.New("http://"+s.f.nodes[len(s.ids)%replicas].clients.Addr(), client.WithAPIKey(s.key),
		client.WithReconnect(client.ReconnectPolicy{Base: 4 * time.Millisecond, Cap: 150 * time.Millisecond, Dial: true}))
	defer clnt.CloseIdleConnections()
	ended := make(chan *client.GoalResult, 1)
	go func() {
		g, err := clnt.StartGoal(ctx, client.GoalSpec{
			Agent: client.LLM("root", "gpt-chaos", client.Instruction("child root"), client.BackgroundAgents(client.Background{})),
			Goal:  "find it", MaxInputTokens: 10_000, MaxOutputTokens: 10_000,
		})
		var result *client.GoalResult
		if err == nil {
			result, err = g.Wait(ctx)
		}
		if err != nil {
			s.t.Errorf("killed at %d: %v", at, err)
		}
		ended <- result
	}()
	if at > 0 {
		s.kill(ctx, at)
	}
	if _, err := held.ExecContext(ctx, `SELECT pg_advisory_unlock(4711)`); err != nil {
		s.t.Fatal(err)
	}
	if err := held.Close(); err != nil {
		s.t.Fatal(err)
	}
	result := <-ended
	for _, n := range s.f.nodes[:replicas] {
		if err := n.ready(); err != nil {
			s.t.Fatal(err)
		}
	}
	if result != nil {
		s.ids, s.at = append(s.ids, result.SessionID), append(s.at, at)
		s.calls = append(s.calls, s.point.calls.Load()-before)
	}
}

// kill kills who owns the goal, once the record is about to be appended; and all, where nobody does yet.
func (s *familyTakeover) kill(ctx context.Context, at int) {
	for waits := 0; waits == 0; rest(ctx, 5*time.Millisecond) {
		err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted`).Scan(&waits)
		if err != nil {
			s.t.Errorf("killed at %d: the record is not reached: %v", at, err)
			return
		}
	}
	address := ""
	err := s.db.QueryRowContext(ctx, `SELECT address FROM replicas WHERE id =
		(SELECT owner FROM heads WHERE id NOT LIKE '%:sub:%' AND last_seq > 0 AND open_turn <> '' ORDER BY updated_at DESC LIMIT 1)`).Scan(&address)
	if err != nil && err != sql.ErrNoRows {
		s.t.Fatal(err)
	}
	for _, n := range s.f.nodes[:replicas] {
		if address == "" || strings.HasSuffix(address, n.others.Addr()) {
			n.kill()
			s.f.run(n) // another life, to which nothing of the dead one belongs
		}
	}
}

// judge holds what has come of each goal against the one that was not disturbed.
func (s *familyTakeover) judge() {
	db := s.f.database()
	var undisturbed map[string][]string
	for i, root := range s.ids {
		stories := map[string][]string{}
		for _, below := range families {
			records, err := db.Read(s.t.Context(), root+below, 0, 10_000)
			if err != nil {
				s.t.Fatal(err)
			}
			stories[below] = storyOfChildren(s.t, records)
			(&familyPoint{at: strconv.Itoa(s.at[i])}).checkCuts(s.t, records)
		}
		if i == 0 {
			undisturbed = stories
			continue
		}
		if diff := cmp.Diff(undisturbed, stories); diff != "" {
			s.t.Errorf("killed at %d, it is not the same (-undisturbed +killed):\n%s", s.at[i], diff)
		}
		if s.calls[i] > s.calls[0]+4 { // those that were under way are made again
			s.t.Errorf("killed at %d: %d model calls, %d without", s.at[i], s.calls[i], s.calls[0])
		}
	}
	for _, wrong := range s.f.epochs(db) {
		s.t.Error(wrong)
	}
	if err := db.Close(); err != nil {
		s.t.Error(err)
	}
}
