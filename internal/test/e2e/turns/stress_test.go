package turns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/harness"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// atOnce is how many turns of a stress run side by side.
const atOnce = 16

// stressSeed runs the same turns again; when messages arrive is up to the machine.
var stressSeed = flag.Uint64("stress-seed", uint64(time.Now().UnixNano()), "decides what the clients of TestStress do")

// stressTurns is less than half of what make chaos runs, which CI does.
var stressTurns = flag.Int("stress-turns", 400, "how many turns TestStress runs, a fifth of them on a file")

// TestStress runs hundreds of turns that call sixteen tools at once, whose
// clients answer in no order, say what they must not, and cancel, end, leave and
// hang up at random moments: no data race, no goroutine left, exactly one result
// for each call, and every session goes on.
func TestStress(t *testing.T) {
	seed := *stressSeed
	for _, tc := range []struct {
		name  string
		file  bool
		turns int
	}{{"memory", false, *stressTurns - *stressTurns/5}, {"file", true, *stressTurns / 5}} {
		t.Run(tc.name, func(t *testing.T) {
			if testing.Short() || harness.InScenario() {
				tc.turns /= 4
			}
			t.Logf("-stress-seed %d", seed)
			path := sqlite.Memory
			if tc.file {
				path = filepath.Join(t.TempDir(), "agentd.db")
			}
			disk, err := harness.OpenStore(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			store := &harness.RecordedStore{Store: disk, Keep: !tc.file}
			d := harness.StartDaemon(t, agentdtest.Config{
				LeakCheck: true,
				Addr:      "127.0.0.1:0",
				Providers: []model.Provider{stressModel(t, seed)},
				Logger:    slog.New(harness.Alarm{T: t}),
				Grace:     10 * time.Second,
			}, testdaemon.WithStore(store))
			turns := stress(t, d, seed, tc.turns)
			sessions := store.Started(t)
			proceed(t, d, sessions)
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d.HTTPClient().CloseIdleConnections()
			if tc.file { // as the next daemon would find it
				if disk, err = harness.OpenStore(t.Context(), path); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, disk, sessions, turns)
			if err := disk.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stress runs the turns, two to a session, and returns them by their prompts.
func stress(t *testing.T, d *agentdtest.Daemon, seed uint64, turns int) map[string]*stressTurn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// The heartbeats of the eager one come in between all the time; when the
	// machine is slow it takes the daemon for gone.
	eager := d.Client(client.WithHeartbeatInterval(20*time.Millisecond), client.WithGrace(10*time.Second))
	patient := d.Client(client.WithGrace(10 * time.Second))
	both := map[string]bool{}
	for _, part := range []string{"TestStress/executes", "TestStress/half-closes"} {
		both[part] = parts.OverBoth(t, part)
	}
	byPrompt := map[string]*stressTurn{}
	var mu sync.Mutex // protects byPrompt
	var workers sync.WaitGroup
	numbers := make(chan int)
	for range atOnce {
		workers.Go(func() {
			for n := range numbers {
				before := stressTree{}
				id := ""
				for i := range 2 {
					s := newStressTurn(seed, n+i)
					s.only(both)
					if id != "" && s.repeat {
						s.tree = before
					}
					s.session, s.repeat = id, s.repeat && id != ""
					c := patient
					if s.number%3 == 0 {
						c = eager
					}
					s.run(ctx, t, d, c)
					mu.Lock()
					byPrompt[s.prompt()] = s
					mu.Unlock()
					before, id = s.tree, s.session
				}
			}
		})
	}
	for n := 0; n < turns; n += 2 {
		numbers <- n
	}
	close(numbers)
	workers.Wait()
	return byPrompt
}

// newStressTurn decides what will happen in a turn, a function of the seed and
// its number.
func newStressTurn(seed uint64, number int) *stressTurn {
	rng := rand.New(rand.NewPCG(seed, uint64(number)))
	trees := stressTrees()
	s := &stressTurn{
		number: number, tree: trees[rng.IntN(len(trees))], repeat: rng.IntN(2) == 0,
		mood: finishes, moment: rng.IntN(45), rng: rng,
		first: map[string]sent{}, handlers: map[string]int{},
	}
	if rng.IntN(5) > 1 {
		s.mood = 1 + mood(rng.IntN(int(moods)-1))
	}
	if rng.IntN(2) == 0 {
		s.delay = time.Duration(1+rng.IntN(15_000)) * time.Microsecond
	}
	return s
}

// only leaves out what the service that is used cannot do.
func (s *stressTurn) only(can map[string]bool) {
	if part := "TestStress/" + s.mood.String(); s.mood == executes && !can[part] || s.mood == halfCloses && !can[part] {
		s.mood = finishes
	}
}

// run carries the turn by one of the clients, again while its session is busy
// with the turn before.
func (s *stressTurn) run(ctx context.Context, t *testing.T, d *agentdtest.Daemon, c *client.Client) {
	raw := s.mood == executes || s.mood == halfCloses || s.mood == hangsUp || s.mood != breaks && s.rng.IntN(2) == 0
	wire := [][]connect.ClientOption{nil, {connect.WithProtoJSON()}, {connect.WithGRPC()}}[s.rng.IntN(3)]
	for {
		s.busy = false
		if raw {
			s.runRaw(ctx, d.HTTPClient(), d.URL, wire...)
		} else {
			s.runClient(ctx, c)
		}
		if !s.busy || harness.Wait(ctx, time.Millisecond) != nil {
			break
		}
	}
	for _, f := range s.faults {
		t.Errorf("%s (raw %v, %v after %d or %v, session %s): %s", s.prompt(), raw, s.mood, s.moment, s.delay, s.session, f)
	}
	if ctx.Err() != nil {
		t.Errorf("%s (raw %v, %v) did not end in time", s.prompt(), raw, s.mood)
	}
}

// proceed runs one more turn in each session, with its last tree.
func proceed(t *testing.T, d *agentdtest.Daemon, sessions []string) {
	t.Helper()
	c := d.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ids := make(chan string)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for id := range ids {
				for {
					res, err := c.Do(ctx, nil, "and now?", client.WithSessionID(id),
						client.WithInitialState(map[string]string{"turn": "0", "mode": "talk"}))
					if errors.Is(err, client.ErrSessionBusy) && harness.Wait(ctx, time.Millisecond) == nil {
						continue
					}
					if err != nil || !res.Completed || !strings.Contains(res.Text, "has heard enough in turn 0") {
						t.Errorf("session %s does not go on: %v, %+v", id, err, res)
					}
					break
				}
			}
		})
	}
	for _, id := range sessions {
		ids <- id
	}
	close(ids)
	workers.Wait()
}

// compare holds the logs against what the clients did and saw.
func compare(t *testing.T, store store.Store, sessions []string, turns map[string]*stressTurn) {
	t.Helper()
	outcomes := map[record.Outcome]int{}
	completed, logged, lost := 0, 0, 0
	for _, id := range sessions {
		for _, l := range harness.ReadLog(t.Context(), t, store, id) {
			s := turns[l.Started.Prompt]
			if s == nil {
				if l.Started.Prompt != "and now?" {
					t.Errorf("session %s: nobody has started turn %q", id, l.Started.Prompt)
				}
				continue
			}
			delete(turns, l.Started.Prompt)
			logged++
			if l.Ended.Completed {
				completed++
			}
			if s.lost {
				lost++
			}
			for _, res := range l.Results {
				outcomes[res.Outcome]++
			}
			s.compare(t, l)
		}
	}
	for _, s := range turns {
		if s.started || s.mood != drops && s.mood != hangsUp && s.mood != breaks && !s.lost {
			t.Errorf("%s (%v) is in no log", s.prompt(), s.mood)
		}
	}
	t.Logf("%d turns, %d of them completed, %d given up by missed heartbeats, %d never begun; calls: %v", logged, completed, lost, len(turns), outcomes)
	if completed == 0 || outcomes[record.Returned] == 0 || outcomes[record.Cancelled] == 0 && !harness.InScenario() {
		t.Error("nothing was tested")
	}
}

// compare holds one turn's log against what its client did and saw.
func (s *stressTurn) compare(t *testing.T, l *harness.LoggedTurn) {
	t.Helper()
	fault := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s (%v after %d or %v, session %s): "+format, append([]any{s.prompt(), s.mood, s.moment, s.delay, l.Session}, args...)...)
	}
	if s.end != nil && s.end.GetCompleted() != l.Ended.Completed {
		fault("the client was told completed %v, the log says %+v", s.end.GetCompleted(), l.Ended)
	}
	if l.Ended.Code != 0 {
		fault("the turn has failed: %+v", l.Ended)
	}
	for _, a := range l.Answers {
		if n := len(a.Calls); n != 0 && n != callsOfAnswer {
			fault("an answer of %s has %d calls", a.Author, n)
		}
		ask, tell := stressTexts(a.Author, strconv.Itoa(s.number))
		if a.Text != ask && a.Text != tell {
			fault("%s has said %q", a.Author, a.Text)
		}
		for _, id := range a.Calls {
			s.compareCall(fault, l, id)
		}
	}
	if want := 2 * len(s.tree.paths); l.Ended.Completed && len(l.Answers) != want {
		fault("%d answers, want %d", len(l.Answers), want)
	}
}

// compareCall holds what the log says about a call against what the client said
// first about it.
func (s *stressTurn) compareCall(fault func(string, ...any), l *harness.LoggedTurn, id string) {
	res, ok := l.Results[id]
	if !ok {
		if l.Ended.Completed {
			fault("call %s was never settled", id)
		}
		return
	}
	left := s.mood == halfCloses || s.mood == drops || s.mood == hangsUp || s.mood == breaks || s.lost
	said, known := s.first[id]
	switch {
	case res.Outcome == record.Returned && known && !said.cancel && said.output != nil:
		if res.Output == nil || *res.Output != *said.output {
			fault("call %s: stored %+v, the client said %s", id, res, *said.output)
		}
	case res.Outcome == record.Returned && known && !said.cancel:
		if res.Output != nil || said.err != "" && res.Error != said.err {
			fault("call %s: stored %+v, the client said error %q", id, res, said.err)
		}
	case res.Outcome == record.Cancelled && (known && said.cancel || s.handlers[id] > 0 || !known && s.cancelsCalls()):
	case res.Outcome == record.Abandoned && left:
	case res.Outcome == record.Returned && s.handlers[id] > 0: // a handler that was cancelled answers with that
	default:
		fault("call %s: stored %+v, the client said %+v (known %v)", id, res, said, known)
	}
	got := l.Responses[id]
	if got.Seq < l.ResultAt[id] {
		fault("call %s: the model was told %v in record %d, the result is record %d: %+v", id, got.Body, got.Seq, l.ResultAt[id], res)
	}
	if res.Output != nil {
		var want map[string]any
		dec := json.NewDecoder(bytes.NewReader([]byte(*res.Output)))
		if err := dec.Decode(&want); err != nil || !reflect.DeepEqual(want, got.Body) {
			fault("call %s: the model was told %v, the result is %s", id, got.Body, *res.Output)
		}
	} else if text, _ := got.Body["error"].(string); !strings.Contains(text, res.Error) {
		fault("call %s: the model was told %v, the result is %q", id, got.Body, res.Error)
	}
}
