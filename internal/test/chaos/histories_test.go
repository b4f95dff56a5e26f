package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/apzuk3/agentd/client"
)

var historiesFlag = flag.Int("chaos.historyfaults", 0, "how many faults TestHistories makes; 0: it does not run")

const (
	// askers use one session at the same time, each by a way of its own; each starts so many turns.
	askers, starts = 3, 5
	// histories are sessions that are used at the same time.
	histories = 4
)

// asked is what a client asks of a session.
type asked struct {
	session int
	what    string // start, list or last
}

// heardOf is what a client was told: the turn that was started, all turns, or the last position.
type heardOf struct {
	turns string // ids, sorted
	last  int64
}

// sessionModel is a session as its clients know it: its turns, and a position that only rises.
var sessionModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) (out [][]porcupine.Operation) {
		parts := map[int][]porcupine.Operation{}
		for _, op := range all {
			n := op.Input.(asked).session
			parts[n] = append(parts[n], op)
		}
		for _, part := range parts {
			out = append(out, part)
		}
		return out
	},
	Init: func() any { return heardOf{} },
	Step: func(state, input, output any) (bool, any) {
		is, got := state.(heardOf), output.(heardOf)
		switch input.(asked).what {
		case "start":
			turns := strings.Fields(is.turns)
			if slices.Contains(turns, got.turns) {
				return false, is
			}
			is.turns = joined(append(turns, got.turns))
			return true, is
		case "list":
			return got.turns == is.turns, is
		default:
			ok := got.last >= is.last
			is.last = got.last
			return ok, is
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

func joined(ids []string) string {
	ids = slices.Sorted(slices.Values(ids))
	return strings.Join(ids, " ")
}

// TestHistories: what clients are told of a session by any replica, while replicas, database and links break, is what they
// could be told by one server that never does: a turn that was started is in each later list, once, and no position falls.
func TestHistories(t *testing.T) {
	t.Parallel()
	if *historiesFlag == 0 {
		t.Skip("make chaos-cluster runs it")
	}
	t.Logf("-chaos.seed %d -chaos.ttl %v", *seedFlag, *ttlFlag)
	p := newProvider(t, true)
	f := newFleet(t, build(t), p.url, *ttlFlag)
	key := f.nodes[0].createKey()
	f.begin()
	ctx, cancel := context.WithTimeout(t.Context(), roundLimit)
	defer cancel()
	most := min(*historiesFlag, 100) // a history that is long takes long to check
	var mu sync.Mutex                // protects ops
	var ops []porcupine.Operation
	var all sync.WaitGroup
	from := time.Now()
	for session := range histories {
		root := one("solo", 0)
		number := p.serve(script{seed: uint64(session), root: root})
		tree := root.agent(number)
		tree.GetLlm().ToolNames = nil
		for asker := range askers {
			all.Go(func() {
				l := &lines{open: map[*line]bool{}}
				c := client.New("http://localhost:80", client.WithHTTPClient(l.phone(f.route()).client()), client.WithAPIKey(key))
				defer c.CloseIdleConnections()
				s := c.SessionOrNew(fmt.Sprint("history-", session))
				did := func(what string, call func(context.Context) (heardOf, error)) bool {
					began := time.Since(from)
					once, cancel := context.WithTimeout(ctx, 20*time.Second)
					defer cancel()
					got, err := call(once)
					if err != nil {
						return false
					}
					mu.Lock()
					defer mu.Unlock()
					ops = append(ops, porcupine.Operation{
						ClientId: session*askers + asker, Input: asked{session, what}, Output: got,
						Call: int64(began), Return: int64(time.Since(from)),
					})
					return true
				}
				for n := range starts {
					turn, begun := (asker*starts+n+1)*tries, time.Since(from)
					var id string
					for id == "" && rest(ctx, 20*time.Millisecond) { // until it is known what has become of it
						once, cancel := context.WithTimeout(ctx, 20*time.Second)
						made, err := s.Start(once, "go on", client.WithAgent(tree), client.WithIdempotencyKey(fmt.Sprint(number, ".", turn)),
							client.WithOnBusy(client.OnBusyEnqueue), client.WithInitialState(map[string]int{"turn": turn}))
						cancel()
						if err == nil {
							id = made.ID
						}
					}
					mu.Lock()
					ops = append(ops, porcupine.Operation{
						ClientId: session*askers + asker, Input: asked{session, "start"}, Output: heardOf{turns: id},
						Call: int64(begun), Return: int64(time.Since(from)),
					})
					mu.Unlock()
					for range 4 + rand.IntN(4) {
						did("list", func(ctx context.Context) (heardOf, error) {
							var ids []string
							for turn, err := range s.Turns(ctx, client.TurnFilter{}) {
								if err != nil {
									return heardOf{}, err
								}
								ids = append(ids, turn.ID)
							}
							return heardOf{turns: joined(ids)}, nil
						})
						did("last", func(ctx context.Context) (heardOf, error) {
							info, err := s.Info(ctx)
							if err != nil {
								return heardOf{}, err
							}
							return heardOf{last: info.LastSeq}, nil
						})
						rest(ctx, time.Duration(rand.IntN(400))*time.Millisecond)
					}
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(*seedFlag, 0))
	for f.made.Load() < int64(most) && rest(ctx, time.Duration(rng.IntN(300))*time.Millisecond) {
		f.strike(ctx, rng)
	}
	f.heal(ctx)
	all.Wait()
	f.end()
	if ctx.Err() != nil {
		t.Fatal("the clients are not over in time")
	}
	kinds := map[string]int{}
	for _, op := range ops {
		kinds[op.Input.(asked).what]++
	}
	result, info := porcupine.CheckOperationsVerbose(sessionModel, ops, time.Minute)
	t.Logf("%d operations %v, %d faults: %v; %v", len(ops), kinds, f.made.Load(), result, f)
	if result != porcupine.Ok {
		file := t.TempDir() + "/history.html"
		if err := porcupine.VisualizePath(sessionModel, info, file); err == nil {
			t.Logf("see %s", file)
		}
		t.Errorf("the history is %s", result)
	}
	if kinds["list"] == 0 || kinds["last"] == 0 {
		t.Errorf("%v: want some of each kind", kinds)
	}
}

// TestHistoryModel: what no server may tell is found.
func TestHistoryModel(t *testing.T) {
	op := func(what string, call, end int64, out heardOf) porcupine.Operation {
		return porcupine.Operation{Input: asked{0, what}, Output: out, Call: call, Return: end}
	}
	start := op("start", 0, 10, heardOf{turns: "a"})
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"a list while the turn is started": {[]porcupine.Operation{start, op("list", 5, 8, heardOf{turns: "a"}), op("list", 4, 6, heardOf{})}, true},
		"a list that lacks a turn":         {[]porcupine.Operation{start, op("list", 11, 12, heardOf{})}, false},
		"a turn that was there is gone":    {[]porcupine.Operation{start, op("list", 1, 2, heardOf{turns: "a"}), op("list", 3, 4, heardOf{})}, false},
		"a turn that starts twice":         {[]porcupine.Operation{start, op("start", 20, 30, heardOf{turns: "a"})}, false},
		"a position that falls":            {[]porcupine.Operation{op("last", 0, 1, heardOf{last: 7}), op("last", 2, 3, heardOf{last: 6})}, false},
	} {
		if got := porcupine.CheckOperations(sessionModel, c.ops); got != c.ok {
			t.Errorf("%s: linearizable %v, want %v", name, got, c.ok)
		}
	}
}
