package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/test/memowners"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// replica is a server of a group.
type replica struct {
	*fixture
	owns *memowners.Replica
	addr string
}

// group is several servers over one store, in memory.
type group struct {
	*memowners.Group
	t     *testing.T
	store store.Store
	lim   limits.Limits
	bus   *memBus // nil: none
	// reach, if not nil, reports whether a server reaches another one.
	reach func(from, to string) bool
	// replicas are the servers by their addresses, for what one does to goals of another.
	replicas map[string]*replica
}

func newGroup(t *testing.T, lim limits.Limits) *group {
	db := memory(t)
	return &group{Group: memowners.New(db), t: t, store: db, lim: lim}
}

// join starts a server whose turns are of run.
func (g *group) join(addr string, run func(context.Context, *session.Run) error) *replica {
	g.t.Helper()
	r := &replica{owns: g.Join(addr), addr: addr, fixture: &fixture{engine: &engine{}, t: g.t, store: g.store}}
	r.on(run)
	lim := g.lim
	if lim.StorePatience == 0 {
		lim.StorePatience = time.Second
	}
	cfg := session.Config{Store: r.owns, Owners: r.owns, Runner: r.engine, Limits: lim}
	if g.bus != nil {
		cfg.Bus = g.bus
	}
	if g.reach != nil {
		cfg.Reach = func(_ context.Context, to string) bool { return g.reach(addr, to) }
	}
	cfg.Below = g
	if g.replicas == nil {
		g.replicas = map[string]*replica{}
	}
	g.replicas[addr] = r
	var err error
	r.m, err = session.NewManager(cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := r.m.Recover(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(r.stop)
	return r
}

// stop shuts the server down at once. It may be called again.
func (r *replica) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.m.Shutdown(ctx); err != nil {
		r.t.Errorf("shutdown of %s: %v", r.addr, err)
	}
}

// elsewhere returns the address that an error names, "" for none.
func elsewhere(err error) string {
	if e, ok := errors.AsType[*session.Elsewhere](err); ok {
		return e.Address
	}
	return ""
}

// wantElsewhere checks that an error names the owner, and that clients are not shown it.
func wantElsewhere(t *testing.T, err error, addr string) {
	t.Helper()
	if elsewhere(err) != addr {
		t.Fatalf("error is %v, want one that names %s", err, addr)
	}
	if code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE || strings.Contains(err.Error(), "server at") {
		t.Fatalf("clients are shown %q of code %v", err, code(err))
	}
}

// wantOwner checks who owns a session.
func (g *group) wantOwner(key, addr string) {
	g.t.Helper()
	synctest.Wait()
	if is, _ := g.OwnerOf(key); is != addr {
		g.t.Fatalf("%q owns %s, want %q", is, key, addr)
	}
}

// log returns the records of a session.
func (g *group) log(key string) []record.Record {
	g.t.Helper()
	recs, err := g.store.Read(g.t.Context(), key, 0, 10_000)
	if err != nil {
		g.t.Fatal(err)
	}
	return recs
}

// kinds counts the records of a session.
func (g *group) kinds(key string) map[record.Kind]int {
	n := map[record.Kind]int{}
	for _, rec := range g.log(key) {
		n[rec.Kind]++
	}
	return n
}

// sayAskSay speaks, asks for a tool, and speaks; it goes on where its log ends.
func sayAskSay(ctx context.Context, r *session.Run) error {
	n, err := eventsOf(ctx, r)
	if err == nil && n < 1 {
		err = say(ctx, r, "m1-"+r.TurnID(), root, "one ", "moment")
	}
	if err == nil && n < 3 {
		_, err = call(ctx, r, "c-"+r.TurnID())
	}
	if err == nil && n < 3 {
		err = say(ctx, r, "m2-"+r.TurnID(), root, "do", "ne")
	}
	return err
}

func sayHello(ctx context.Context, r *session.Run) error {
	if n, err := eventsOf(ctx, r); err != nil || n > 0 {
		return err
	}
	return say(ctx, r, "m-"+r.TurnID(), root, "hello")
}

func toolNames() []string { return []string{"tool"} }

// answerCall gives the result of the call of sayAskSay.
func answerCall(t *testing.T, turn *session.Turn) {
	t.Helper()
	err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c-" + turn.ID(), Output: new(`"ok"`)})
	if err != nil {
		t.Fatal(err)
	}
}

// A session is owned while its turn runs or it is watched, and then let go. What is in memory counts as long as nobody
// else has owned the session.
func TestOwnedWhileUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{})
		a, b := g.join("a", sayAskSay), g.join("b", sayHello)
		turn := a.start(session.Request{})
		id := turn.SessionID()
		w := turn.Watch()
		await(t, w, isCall)
		g.wantOwner(id, "a")
		_, _, err := b.m.Attach(t.Context(), session.AttachRequest{SessionID: id})
		wantElsewhere(t, err, "a")
		_, err = b.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "more"})
		wantElsewhere(t, err, "a")
		wantElsewhere(t, b.m.DeleteSession(t.Context(), id), "a")
		if addr, err := b.m.OwnerOf(t.Context(), id); addr != "a" || err != nil {
			t.Fatalf("OwnerOf is %q, %v", addr, err)
		}
		answerCall(t, turn)
		follow(t, w)
		w.Close()
		<-turn.Done()
		g.wantOwner(id, "")

		a.on(sayHello)
		decoded := a.decoded.Load()
		second := a.start(session.Request{SessionID: id})
		<-second.Done()
		g.wantOwner(id, "")
		if n := a.decoded.Load() - decoded; n > 1 { // of eventsOf
			t.Errorf("%d events were decoded again of a session that only this server has owned", n)
		}
		_, before := g.OwnerOf(id)
		third := b.start(session.Request{SessionID: id})
		<-third.Done()
		if _, after := g.OwnerOf(id); after <= before {
			t.Errorf("the epoch is %d after %d", after, before)
		}
		fourth := a.start(session.Request{SessionID: id})
		<-fourth.Done()
		if n := g.kinds(id)[record.KindTurnEnded]; n != 4 {
			t.Errorf("%d turns have ended, want 4", n)
		}
		g.wantOwner(id, "")
	})
}

// A server that was taken for dead is fenced: its turn goes on elsewhere, and it leaves no trace of its own.
func TestTakeoverWhileTheOldOwnerWrites(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprintf("told %v", told), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, limits.Limits{})
				blocked := make(chan struct{})
				var zombie error
				a := g.join("a", func(ctx context.Context, r *session.Run) error {
					if err := say(ctx, r, "m1-"+r.TurnID(), root, "one ", "moment"); err != nil {
						return err
					}
					r.Delta(record.Delta{MessageID: "late", Path: root, Text: "never to be"})
					select {
					case <-blocked:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
					zombie = say(ctx, r, "late", root, "never to be")
					<-ctx.Done()
					return context.Cause(ctx)
				})
				b := g.join("b", sayAskSay)
				turn := a.start(session.Request{})
				id := turn.SessionID()
				w := turn.Watch()
				await(t, w, func(m *agentdv1.RunResponse) bool { return m.GetOutputChunk() != nil })
				a.owns.Die()
				time.Sleep(time.Second)
				g.wantOwner(id, "b")
				if told {
					a.m.Lost(id, "another")
				} else {
					close(blocked)
				}
				_, err := followErr(t, w)
				if !session.IsMoved(err) {
					t.Fatalf("the watcher of the old owner gets %v", err)
				}
				synctest.Wait()
				if !told && !session.IsMoved(zombie) {
					t.Errorf("the append of the old owner returns %v", zombie)
				}
				if n := a.m.Running(); n != 0 {
					t.Errorf("%d turns run at the old owner", n)
				}
				after := session.AttachRequest{SessionID: id, Tools: toolNames()}
				now, w, err := b.m.Attach(t.Context(), after)
				if err != nil {
					t.Fatal(err)
				}
				await(t, w, isCall)
				answerCall(t, now)
				follow(t, w)
				<-now.Done()
				said := texts(replay(t, b, id))["root"]
				if said != "one momentdone" {
					t.Errorf("the turn says %q", said)
				}
				kinds := g.kinds(id)
				if kinds[record.KindTurnEnded] != 1 || kinds[record.KindEvent] != 3 || kinds[record.KindToolResult] != 1 {
					t.Errorf("the log has %v", kinds)
				}
				g.wantOwner(id, "")
			})
		})
	}
}

// replay returns all messages of a session's last turn.
func replay(t *testing.T, r *replica, id string) []*agentdv1.RunResponse {
	t.Helper()
	msgs, _, err := r.m.Events(t.Context(), session.AttachRequest{SessionID: id}, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

// Two servers get the same request at the same time: one turn starts.
func TestKeyRace(t *testing.T) {
	for name, req := range map[string]session.Request{
		"new sessions": {Once: session.Once{Key: "k", Content: "c"}},
		"one session":  {SessionID: "chosen", Create: true, Once: session.Once{Key: "k", Content: "c"}},
		"no key":       {SessionID: "chosen", Create: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, limits.Limits{})
				servers := []*replica{g.join("a", sayAskSay), g.join("b", sayAskSay)}
				var both sync.WaitGroup
				both.Add(2)
				once := sync.Map{}
				req.Prompt, req.Agent = "hello", tree()
				req.Tools = []*agentdv1.Tool{{Name: "tool", Description: "a tool"}}
				turns, errs := make([]*session.Turn, 2), make([]error, 2)
				var done sync.WaitGroup
				for i, r := range servers {
					r.check = func(*record.Spec) error {
						if _, again := once.LoadOrStore(i, true); !again {
							both.Done()
							both.Wait()
						}
						return nil
					}
					done.Go(func() { turns[i], errs[i] = r.m.Start(t.Context(), req) })
				}
				done.Wait()
				won := slices.IndexFunc(turns, func(t *session.Turn) bool { return t != nil })
				if won < 0 || turns[1-won] != nil {
					t.Fatalf("turns are %v, errors %v", turns, errs)
				}
				lost := errs[1-won]
				before, repeated := errors.AsType[*session.Repeated](lost)
				switch {
				case repeated && (before.SessionID != turns[won].SessionID() || before.TurnID != turns[won].ID()):
					t.Errorf("the other one is told of %v, the turn is %s", before, turns[won].ID())
				case !repeated && elsewhere(lost) != servers[won].addr:
					t.Errorf("the other one is told %v", lost)
				case name != "no key" && !repeated && name == "new sessions":
					t.Errorf("the other one is told %v, want that it is a repeat", lost)
				}
				g.wantOwner(turns[won].SessionID(), servers[won].addr)
			})
		})
	}
}

// A turn that waits for a client is owned by nobody, and goes on where its client comes.
func TestSuspendedTurnIsNotOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{IdleTurn: time.Minute})
		a, b := g.join("a", sayAskSay), g.join("b", sayAskSay)
		turn := a.start(session.Request{})
		id := turn.SessionID()
		time.Sleep(2 * time.Minute)
		g.wantOwner(id, "")
		claims := a.owns.Claims() + b.owns.Claims()
		time.Sleep(time.Hour)
		if n := a.owns.Claims() + b.owns.Claims(); n != claims {
			t.Errorf("a turn that waits was claimed %d times in an hour", n-claims)
		}
		for _, r := range []*replica{a, b} {
			info, err := r.m.Turn(t.Context(), id, "")
			if err != nil || info.Status != index.WaitingForClient {
				t.Errorf("the turn is %v, %v at %s", info.Status, err, r.addr)
			}
		}
		now, w, err := b.m.Attach(t.Context(), session.AttachRequest{SessionID: id, Tools: toolNames()})
		if err != nil {
			t.Fatal(err)
		}
		answerCall(t, now)
		if said := texts(follow(t, w))["root"]; said != "one momentdone" {
			t.Errorf("it says %q", said)
		}
		g.wantOwner(id, "")
	})
}

// What a server knows of a session does not outlast a change that another one makes.
func TestChangesOfUnownedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{})
		a, b := g.join("a", sayHello), g.join("b", sayHello)
		turn := a.start(session.Request{})
		id := turn.SessionID()
		<-turn.Done()
		if _, err := b.m.UpdateSession(t.Context(), id, store.Change{Archived: new(true)}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "more"}); err == nil {
			t.Error("an archived session takes a turn")
		}
		if _, err := b.m.UpdateSession(t.Context(), id, store.Change{Archived: new(false)}); err != nil {
			t.Fatal(err)
		}
		w, err := b.m.WatchSession(t.Context(), id, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.wantOwner(id, "b") // who watches is told what happens
		_, err = a.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "more"})
		wantElsewhere(t, err, "b")
		_, err = a.m.UpdateSession(t.Context(), id, store.Change{ClientRef: new("mine")})
		wantElsewhere(t, err, "b")
		w.Close()
		g.wantOwner(id, "")
		if err := a.m.DeleteSession(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := b.m.Session(t.Context(), id); code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
			t.Errorf("a deleted session is %v", err)
		}
	})
}

// A server that stops leaves its turns to the others at once; those that a dead one has left are shared.
func TestTurnsOfServersThatAreGone(t *testing.T) {
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprintf("dead %v", dead), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, limits.Limits{})
				a := g.join("a", func(ctx context.Context, r *session.Run) error {
					return r.Wait(ctx, false, func(ctx context.Context) error {
						<-ctx.Done()
						return context.Cause(ctx)
					})
				})
				b, c := g.join("b", sayHello), g.join("c", sayHello)
				var turns []*session.Turn
				for range 20 {
					turns = append(turns, a.start(session.Request{}))
				}
				synctest.Wait()
				if dead {
					a.owns.Die()
					a.m.LostAll()
				} else {
					a.stop()
				}
				time.Sleep(10 * time.Second)
				for _, turn := range turns {
					if info, err := b.m.Turn(t.Context(), turn.SessionID(), ""); err != nil || info.End == nil {
						t.Fatalf("a turn is %v, %v", info.Status, err)
					}
					if n := g.kinds(turn.SessionID()); n[record.KindTurnEnded] != 1 || n[record.KindEvent] != 1 {
						t.Errorf("a log has %v", n)
					}
				}
				if owned := g.Owned(); len(owned) > 0 {
					t.Errorf("owned are %v", owned)
				}
				if b.owns.Claims() < 5 || c.owns.Claims() < 5 {
					t.Errorf("one has taken %d, the other %d", b.owns.Claims(), c.owns.Claims())
				}
			})
		})
	}
}

// A server has no more turns than it may, and takes the others when there is room.
func TestDueTurnsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{})
		a := g.join("a", func(ctx context.Context, _ *session.Run) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		var turns []*session.Turn
		for range 6 {
			turns = append(turns, a.start(session.Request{}))
		}
		g.lim.MaxTurns = 2
		b := g.join("b", func(ctx context.Context, r *session.Run) error {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return sayHello(ctx, r)
		})
		a.stop()
		time.Sleep(30 * time.Second)
		if n := b.m.Running(); n != 2 {
			t.Errorf("%d turns run, want 2", n)
		}
		time.Sleep(4 * time.Minute)
		for _, turn := range turns {
			if n := g.kinds(turn.SessionID())[record.KindTurnEnded]; n != 1 {
				t.Errorf("a turn has ended %d times", n)
			}
		}
	})
}

// A session that could not be let go is let go later.
func TestLetGoLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, limits.Limits{})
		a := g.join("a", sayAskSay)
		turn := a.start(session.Request{})
		id, w := turn.SessionID(), turn.Watch()
		await(t, w, isCall)
		a.owns.Cut(errors.New("the database is away"))
		answerCall(t, turn)
		follow(t, w)
		w.Close()
		<-turn.Done()
		time.Sleep(10 * time.Second)
		g.wantOwner(id, "a")
		a.owns.Cut(nil)
		time.Sleep(time.Second)
		g.wantOwner(id, "")
	})
}
