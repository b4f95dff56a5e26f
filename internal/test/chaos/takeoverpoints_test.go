package chaos

import (
	"context"
	"database/sql"
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var takeoverStrideFlag = flag.Int("chaos.takeoverstride", 25,
	"TestGoalTakeover kills the owner at each stride-th record of a goal; 1 is at all")

// trap has the append of a record wait, whatever session it is of, until the test lets it go on.
const trap = `
CREATE TABLE trap (seq bigint NOT NULL);
INSERT INTO trap VALUES (0);
CREATE FUNCTION trapped() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.seq = (SELECT seq FROM trap) THEN
		PERFORM pg_advisory_xact_lock(4711);
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER trapped BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION trapped();`

// TestGoalTakeover kills the owner of a session that works on a goal, one of three servers, while it appends a record of
// the goal: whoever takes over comes to what an undisturbed goal has come to, whether the append was written or not.
// By itself it kills at a few records, others in each run.
func TestGoalTakeover(t *testing.T) {
	t.Parallel()
	p := newProvider(t, false)
	f := newFleet(t, build(t), p.url, *ttlFlag)
	w := &world{
		t: t, url: "http://localhost:80", key: f.nodes[0].createKey(), lines: &lines{open: map[*line]bool{}},
		provider: p, shared: f.shared, route: f.route,
	}
	f.begin()
	db, err := sql.Open("pgx", f.url)
	if err == nil {
		_, err = db.ExecContext(t.Context(), trap)
	}
	if err != nil {
		t.Fatal(err)
	}
	points := &takeoverPoints{t: t, f: f, w: w, db: db}
	kills := 0
	for number, sh := range errands() {
		whole := points.run(sh, 0)
		for at := 1; at <= whole && !t.Failed(); at++ {
			if (at+number+int(*seedFlag%uint64(*takeoverStrideFlag)))%*takeoverStrideFlag == 0 {
				points.run(sh, at)
				kills++
			}
		}
	}
	f.end()
	points.judge()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("%d owners killed, %d facts checked", kills, points.facts)
	for _, text := range append(w.takeProblems(), append(p.takeProblems(), f.complaints()...)...) {
		t.Error(text)
	}
}

// takeoverPoints are goals whose owners are killed.
type takeoverPoints struct {
	t     *testing.T
	f     *fleet
	w     *world
	db    *sql.DB
	talks []*talk
	at    []int
	facts int
}

// run has a goal whose owner is killed at a record, 0 for none, and returns how many records it has.
func (p *takeoverPoints) run(sh shape, at int) (records int) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*pointLimit)
	defer cancel()
	held, err := p.db.Conn(ctx)
	if err == nil {
		_, err = held.ExecContext(ctx, `SELECT pg_advisory_lock(4711)`)
	}
	if err == nil {
		_, err = p.db.ExecContext(ctx, `UPDATE trap SET seq = $1`, at)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	talk := p.w.newTalk(sh, 1, filepath.Join(p.t.TempDir(), "journal"))
	over := make(chan struct{})
	go func() {
		defer close(over)
		talk.drive(ctx, func() bool { return false })
	}()
	if at > 0 {
		p.kill(ctx, at)
	}
	if _, err := held.ExecContext(ctx, `SELECT pg_advisory_unlock(4711)`); err != nil {
		p.t.Fatal(err)
	}
	if err := held.Close(); err != nil {
		p.t.Fatal(err)
	}
	<-over
	for _, n := range p.f.nodes[:replicas] {
		if err := n.ready(); err != nil {
			p.t.Fatal(err)
		}
	}
	talk.newWatcher("auditor", false).watch(ctx)
	p.talks, p.at = append(p.talks, talk), append(p.at, at)
	err = p.db.QueryRowContext(ctx, `SELECT last_seq FROM heads WHERE id = $1`, talk.id).Scan(&records)
	if err != nil || records == 0 {
		p.t.Fatalf("session %q: %d records, %v; %v", talk.id, records, err, p.w.takeProblems())
	}
	return records
}

// kill kills who appends the record, once it does; and all, where nobody owns the session yet.
func (p *takeoverPoints) kill(ctx context.Context, at int) {
	for waits := 0; waits == 0; rest(ctx, 5*time.Millisecond) {
		err := p.db.QueryRowContext(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted`).Scan(&waits)
		if err != nil {
			p.t.Errorf("killed at %d: the record is not reached: %v", at, err)
			return
		}
	}
	address := ""
	err := p.db.QueryRowContext(ctx, `SELECT address FROM replicas WHERE id =
		(SELECT owner FROM heads WHERE open_turn <> '' OR last_seq > 0 ORDER BY updated_at DESC LIMIT 1) AND $1 > 2`, at).Scan(&address)
	if err != nil && err != sql.ErrNoRows {
		p.t.Fatal(err)
	}
	for _, n := range p.f.nodes[:replicas] {
		if address == "" || strings.HasSuffix(address, n.others.Addr()) {
			n.kill()
			p.f.run(n) // another life, to which nothing of the dead one belongs
		}
	}
}

// judge holds all that has happened against the logs.
func (p *takeoverPoints) judge() {
	db := p.f.database()
	stories := map[string][]string{}
	s := &storm{t: p.t}
	for i, talk := range p.talks {
		records := s.records(db, talk.id)
		e := talk.evidence(records)
		v := e.check()
		p.facts += v.facts
		for _, text := range v.texts {
			p.t.Errorf("killed at %d: %s", p.at[i], text)
		}
		e.replayed(p.t)
		name, got := talk.shape.name, story(records, talk.shape.loose)
		if p.at[i] == 0 {
			stories[name] = got
		} else if diff := cmp.Diff(stories[name], got); diff != "" {
			p.t.Errorf("%s, killed at %d, is not the same (-undisturbed +killed):\n%s", name, p.at[i], diff)
		}
	}
	for _, wrong := range p.f.epochs(db) {
		p.t.Error(wrong)
	}
	if err := db.Close(); err != nil {
		p.t.Error(err)
	}
}
