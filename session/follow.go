package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/backlog"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// An observer of a session that another server owns is served here, from the log and from what the owner says on the
// bus: hints of what it shows, in a chain in which each names the one before, and images of what is not in the log. A
// follower reads records as far as hints go. Where the chain has a gap, or another epoch begins, it holds everything
// back, also what is in the log, until it has an image: observers receive exactly what they would at the owner. A
// session without an owner has nothing beside its log. If no image comes, the observers are told that the session has
// moved, and whoever serves them asks the owner itself.
//
// Where this server does not reach the owner either, it follows the session in the log alone: it looks at the head,
// asks the owner through the store up to where the log lacks nothing, and shows that. An image ends this. So it does
// when the owner is reached, or nobody else owns the session: then the observers are told that the session has moved.

const (
	followTick = 100 * time.Millisecond // between two looks at the clock
	followIdle = 500 * time.Millisecond // between two looks at a session without an owner, or without a bus
	followRest = 2 * time.Second        // and with a bus, which says when it gets one
	followLook = time.Second            // between two looks at a session whose owner is heard
	followFor  = time.Second            // how long an image is waited for
	followTry  = 2 * time.Second        // between two tries to reach the owner while the log alone is followed
	wantEvery  = 5 * time.Second        // between two requests for hints
	wantFor    = 15 * time.Second       // how long an owner gives hints after a request
	followRead = 10 * time.Second       // bounds one read of the log

	// What waits for a follower is bounded: beyond, hints are lost.
	followHints, followBytes = 4096, 4 << 20
)

// errUnheard is why a session is not followed: its owner is not heard.
var errUnheard = errors.New("session: the owner of the session is not heard on the bus")

const (
	subjectTail = "tail." // what a session shows
	subjectWant = "want." // who wants to hear that
)

// follows are the sessions that are followed.
type follows struct {
	running sync.WaitGroup // the goroutines of followers

	mu     sync.Mutex // protects the fields below
	of     map[string]*follower
	closed bool // none begins any more
}

// follower follows a session for the observers of this server. It has one goroutine, which ends with the last observer,
// when the owner is not heard, or with Shutdown.
type follower struct {
	m     *Manager
	key   string
	end   context.CancelFunc
	in    *backlog.Backlog[hint]
	again chan struct{} // holds one signal: the session has moved

	users int // protected by follows.mu

	mu      sync.Mutex // protects the fields below
	s       *live.Session
	applied int64
	err     error         // why it has ended
	changed chan struct{} // closed when one of these has changed

	// The fields below are owned by the goroutine.
	synced  bool // the chain of hints has no gap, and ends at last
	epoch   int64
	last    int64
	album   album
	since   time.Time // when it began to wait for an image of an owner; zero if it does not
	asked   time.Time // when hints were asked for
	looked  time.Time // when the head of the log was read
	atLook  int64     // the last record then, of a session with an owner
	carried bool      // the bus did when it was last looked at
	alone   bool      // the log alone is followed
	tried   time.Time // when a try to reach the owner was begun
	trying  bool      // it is under way
	reached chan bool // receives what came of it; holds one
}

// carries reports whether owners are heard on the bus.
func (m *Manager) carries() bool { return m.bus != nil && m.bus.Carries() }

// follow returns a session that another server owns, as far as it was written when follow was called. done ends that.
// It returns errUnheard if the owner is not heard, and may be reached.
func (m *Manager) follow(ctx context.Context, key string) (s *live.Session, done func(), err error) {
	if !m.carries() && m.reachesOwner(ctx, key) {
		return nil, nil, errUnheard
	}
	f := m.followerOf(key)
	if f == nil {
		return nil, nil, errUnheard
	}
	done = sync.OnceFunc(func() { m.unfollow(f) })
	var last int64
	err = m.store.Try(ctx, retry.BeRead, func(ctx context.Context) (err error) {
		last, _, _, err = m.owners.Standing(ctx, key)
		return err
	})
	if err == nil {
		s, err = f.await(ctx, last)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return s, done, nil
}

// followFor is follow for a caller who may find the session.
func (m *Manager) followFor(ctx context.Context, key string) (*live.Session, func(), error) {
	s, done, err := m.follow(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	if err := notFound(s, principal.Of(ctx)); err != nil {
		done()
		return nil, nil, err
	}
	return s, done, nil
}

// followerOf returns the follower of a session with one more user, nil in a server that stops.
func (m *Manager) followerOf(key string) *follower {
	m.follows.mu.Lock()
	defer m.follows.mu.Unlock()
	if m.follows.closed {
		return nil
	}
	f := m.follows.of[key]
	if f == nil {
		ctx, end := context.WithCancel(context.Background())
		f = &follower{
			m: m, key: key, end: end, again: make(chan struct{}, 1), changed: make(chan struct{}),
			in: backlog.New[hint](make(chan struct{}, 1), nil), reached: make(chan bool, 1),
		}
		if m.follows.of == nil {
			m.follows.of = map[string]*follower{}
		}
		m.follows.of[key] = f
		m.follows.running.Go(func() { f.run(ctx) })
	}
	f.users++
	return f
}

// unfollow ends a use of a follower.
func (m *Manager) unfollow(f *follower) {
	m.follows.mu.Lock()
	defer m.follows.mu.Unlock()
	if f.users--; f.users > 0 {
		return
	}
	f.end()
	if m.follows.of[f.key] == f {
		delete(m.follows.of, f.key)
	}
}

// endFollows ends all followers: their observers are told that the sessions have moved.
func (m *Manager) endFollows() {
	lock.Do(&m.follows.mu, func() {
		m.follows.closed = true
		for _, f := range m.follows.of {
			f.end()
		}
	})
	m.follows.running.Wait()
}

// await waits until the session has applied a record.
func (f *follower) await(ctx context.Context, seq int64) (*live.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := lock.Await(ctx, &f.mu, func() <-chan struct{} {
		if f.err != nil || f.s != nil && f.applied >= seq {
			return nil
		}
		return f.changed
	})
	if err == nil {
		err = f.err
	}
	return f.s, err
}

// note tells those who wait what has changed.
func (f *follower) note(s *live.Session, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.s, f.err = s, err
	if s != nil {
		f.applied = s.Applied()
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// run follows the session until ctx ends.
func (f *follower) run(ctx context.Context) {
	why := f.listen(ctx)
	lock.Do(&f.m.follows.mu, func() {
		if f.m.follows.of[f.key] == f {
			delete(f.m.follows.of, f.key)
		}
	})
	s := f.s
	f.note(nil, why)
	if s == nil {
		return
	}
	said, is := errors.AsType[*fault.Error](why)
	if !is {
		said = halt.ErrMoved
	}
	s.EndObservers(said)
	s.LeaveMemory()
	f.m.rouseReaders(f.key)
}

// listen follows the session until ctx ends, or the returned error.
func (f *follower) listen(ctx context.Context) error {
	if f.m.bus == nil {
		return f.loop(ctx)
	}
	tail, err := f.m.bus.Subscribe(subjectTail+token(f.key), f.hear)
	if err != nil {
		return errUnheard
	}
	defer tail()
	moved, err := f.m.bus.Subscribe(subjectMoved+token(f.key), f.move)
	if err != nil {
		return errUnheard
	}
	defer moved()
	f.in.CaughtUp()
	f.carried = true
	return f.loop(ctx)
}

// hear takes a hint from the bus.
func (f *follower) hear(_ string, data []byte) {
	h := hint{size: len(data)}
	if json.Unmarshal(data, &h) == nil {
		f.in.Push(h, h.size, followHints, followBytes)
	}
}

// move is called when the session has a new owner.
func (f *follower) move(string, []byte) {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// loop follows the session until ctx ends, or the returned error.
func (f *follower) loop(ctx context.Context) error {
	tick := time.NewTicker(followTick)
	defer tick.Stop()
	defer f.attempted()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.ask()
	err := f.look(ctx)
	for err == nil {
		select {
		case <-ctx.Done():
			return errUnheard
		case <-f.in.Ready():
			err = f.take(ctx)
		case <-f.again:
			f.desync()
			err = f.look(ctx)
		case reached := <-f.reached:
			f.trying = false
			if reached {
				return errUnheard
			}
			f.alone = !f.synced
			err = f.look(ctx)
		case <-tick.C:
			err = f.tick(ctx)
		}
	}
	return err
}

// tick does what is due by the clock.
func (f *follower) tick(ctx context.Context) error {
	now, carries := time.Now(), f.m.carries()
	wait := followLook
	switch {
	case f.synced:
	case f.alone:
		wait = followIdle
	case !f.since.IsZero():
		wait = 0
	case carries:
		wait = followRest
	default:
		wait = followIdle
	}
	if carries != f.carried {
		f.carried, wait = carries, 0
		f.synced = false
	}
	if f.synced && now.Sub(f.asked) >= wantEvery {
		f.ask()
	}
	if f.alone || f.isUnheard() {
		f.try(ctx)
	}
	if now.Sub(f.looked) < wait {
		return nil
	}
	return f.look(ctx)
}

// look compares what was followed with the head of the log. What cannot be read is looked at again.
func (f *follower) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, followRead)
	defer cancel()
	f.looked = time.Now()
	last, owned, purged, err := f.m.owners.Standing(ctx, f.key)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return refusal.NoSession(f.key)
	case err != nil:
		f.failed(ctx, err)
		return nil
	case purged:
		return refusal.Purged(f.key)
	case !owned && f.m.bus == nil:
		return errUnheard
	case !owned:
		f.synced, f.alone, f.since = false, false, time.Time{}
		return f.reach(ctx, last)
	case f.alone:
		return f.lookAlone(ctx, last)
	case f.synced && f.s.Applied() >= f.atLook:
		f.atLook = last
		return nil
	case f.synced: // hints were lost, and none came after them
		f.desync()
	case f.since.IsZero():
		f.since = time.Now()
		f.ask()
	case f.isUnheard() && f.m.reach == nil:
		return errUnheard
	default:
		f.ask()
	}
	return nil
}

// reach applies the records up to one, of a session that has nothing beside its log. Only an error that cannot pass is
// returned.
func (f *follower) reach(ctx context.Context, last int64) error {
	if f.s == nil {
		s, err := f.open(ctx, last)
		return f.reachedTo(ctx, s, err)
	}
	return f.reachedTo(ctx, f.s, f.s.FollowLog(ctx, last))
}

func (f *follower) open(ctx context.Context, last int64) (*live.Session, error) {
	return live.Follow(ctx, f.m.env(), f.key, last)
}

// reachedTo notes how far the session was applied, or why not.
func (f *follower) reachedTo(ctx context.Context, s *live.Session, err error) error {
	if refusal.IsGone(err) {
		return err
	}
	if errors.Is(err, store.ErrNoSession) {
		return refusal.NoSession(f.key)
	}
	if err != nil {
		f.failed(ctx, err)
	}
	if s != nil {
		f.note(s, nil)
	}
	return nil
}

// failed holds everything back: something could not be read.
func (f *follower) failed(ctx context.Context, err error) {
	f.synced, f.since = false, time.Time{}
	f.m.log.LogAttrs(ctx, slog.LevelDebug, "a session of another server cannot be followed now",
		slog.String("session", f.key), slog.String("error", err.Error()))
}

// desync holds everything back until there is an image.
func (f *follower) desync() {
	f.synced = false
	f.since = time.Now()
	f.ask()
}

// ask asks for hints, and for an image unless the chain has no gap.
func (f *follower) ask() {
	f.asked = time.Now()
	if f.m.bus == nil {
		return
	}
	data, err := json.Marshal(want{Key: f.key, Image: !f.synced})
	if err == nil {
		f.m.bus.Publish(subjectWant+token(f.key), data)
	}
}

// take takes the hints that have arrived.
func (f *follower) take(ctx context.Context) error {
	hints, lags, _ := f.in.Take()
	if lags {
		f.in.CaughtUp()
		f.desync()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, followRead)
	defer cancel()
	for i := range hints {
		if err := f.takeOne(ctx, &hints[i]); err != nil {
			return err
		}
	}
	if f.s != nil {
		f.note(f.s, nil)
	}
	return nil
}

func (f *follower) takeOne(ctx context.Context, h *hint) error {
	switch {
	case h.Epoch < f.epoch: // of an owner that was replaced
		return nil
	case h.Piece != nil:
		img := f.album.add(h.Piece)
		if img == nil || f.synced && img.Epoch == f.epoch {
			return nil
		}
		return f.takeImage(ctx, img)
	case !f.synced:
		return nil
	case h.Epoch > f.epoch:
		f.desync()
		return nil
	case h.Unserved != nil && h.Prev == f.last:
		f.s.FollowUnserved(h.Unserved.CallID, h.Unserved.Expires)
		return nil
	case h.Pos <= f.last: // an image has had it
		return nil
	case h.Prev != f.last:
		f.desync()
		return nil
	}
	if err := f.s.FollowTo(ctx, position.Record(h.Pos)); err != nil {
		return f.reachedTo(ctx, f.s, err)
	}
	if h.Delta != nil {
		f.s.FollowDelta(h.Pos, h.Delta.delta())
	}
	f.last = h.Pos
	return nil
}

// takeImage begins a chain.
func (f *follower) takeImage(ctx context.Context, img *live.Image) error {
	s := f.s
	var err error
	if s == nil {
		s, err = f.open(ctx, img.Applied)
	}
	if err == nil && img.Applied < s.Applied() { // of an owner that was replaced
		return nil
	}
	if err == nil {
		err = s.FollowImage(ctx, *img)
	}
	if err == nil {
		f.synced, f.alone, f.since = true, false, time.Time{}
		f.epoch, f.last, f.atLook = img.Epoch, img.Pos, 0
	}
	return f.reachedTo(ctx, s, err)
}

// serveHints has the owner of sessions say what they show to servers that ask for it. end ends that.
func (m *Manager) serveHints() (end func()) {
	if m.owners == nil || m.bus == nil {
		return func() {}
	}
	end, err := m.bus.Subscribe(subjectWant+">", func(_ string, data []byte) {
		var w want
		if json.Unmarshal(data, &w) != nil {
			return
		}
		if s := m.sessionInMemory(w.Key); s != nil {
			m.show(s, w.Image)
		}
	})
	if err != nil {
		return func() {}
	}
	return end
}

// show has a session say what it shows for a while, and how it is now if image is true.
func (m *Manager) show(s *live.Session, image bool) {
	subject := subjectTail + token(s.Key())
	say := func(h hint) {
		if data, err := json.Marshal(h); err == nil {
			m.bus.Publish(subject, data)
		}
	}
	var draw func(live.Image)
	if image {
		draw = func(img live.Image) {
			pieces, err := piecesOf(img, rand.Uint64())
			if err != nil {
				m.log.Debug("a session is too large to be followed", slog.String("session", s.Key()),
					slog.String("error", err.Error()))
			}
			for _, h := range pieces {
				say(h)
			}
		}
	}
	s.ShowFor(wantFor, func(h live.Hint) { say(hintOf(h)) }, draw)
}
