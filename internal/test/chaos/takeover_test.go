package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
)

var takeoverFlag = flag.Bool("chaos.takeover", false, "TestTakeover measures")

// takeoverLimit is how long a takeover may take before the test gives up.
const takeoverLimit = time.Minute

// TestTakeover measures how long a turn stands still whose owner is killed, stopped, or cut off from the database: from
// then until another replica makes the next model call. A replica that wakes up makes no more of them.
func TestTakeover(t *testing.T) {
	t.Parallel()
	if !*takeoverFlag {
		t.Skip("make takeover runs it")
	}
	binary := build(t)
	for _, ttl := range []time.Duration{15 * time.Second, 3 * time.Second} {
		p := newProvider(t, true)
		f := newFleet(t, binary, p.url, ttl)
		key := f.nodes[0].createKey()
		f.begin()
		for _, how := range []string{"killed", "stopped", "cut off"} {
			took := f.takeover(p, key, how)
			fmt.Printf("takeover ttl=%v owner %s: %.1f s\n", ttl, how, took.Seconds())
		}
		f.end()
	}
}

// takeover breaks the owner of a turn and returns how long the turn stood still.
func (f *fleet) takeover(p *provider, key, how string) time.Duration {
	ctx, cancel := context.WithTimeout(f.t.Context(), 3*takeoverLimit)
	defer cancel()
	root := &plan{name: "root", kind: looped, most: 1000, kids: []*plan{one("writer", 0)}}
	number := p.serve(script{seed: 1, root: root})
	tree := root.agent(number)
	tree.GetLoop().GetAgents()[0].GetLlm().ToolNames = nil
	phone := (&lines{open: map[*line]bool{}}).phone(func() string { return f.nodes[rand.IntN(replicas)].clients.Addr() })
	c := client.New("http://localhost:80", client.WithHTTPClient(phone.client()), client.WithAPIKey(key))
	defer c.CloseIdleConnections()
	running, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for _, err := range c.Run(running, tree, "go on", client.WithInitialState(map[string]int{"turn": tries})) {
			if err != nil && running.Err() == nil {
				f.t.Error(err)
			}
		}
	}()
	defer func() { stop(); <-over }()
	// calls are the model calls of the turn, in the order of time.
	calls := func() (all []made) {
		for _, as := range p.of(number) {
			for _, a := range as {
				all = append(all, a.made)
			}
		}
		slices.SortFunc(all, func(a, b made) int { return a.at.Compare(b.at) })
		return all
	}
	for len(calls()) < 10 && !f.t.Failed() && rest(ctx, 10*time.Millisecond) {
	}
	begun := calls()
	if len(begun) == 0 {
		f.t.Fatal("the turn does not begin")
	}
	owner := begun[len(begun)-1].epoch
	n := f.nodes[slices.IndexFunc(f.nodes, func(n *node) bool { return n.state == nodeUp && n.epoch == owner })]
	from := time.Now()
	switch how {
	case "killed":
		n.kill()
		n.state = nodeDown
	case "stopped":
		f.signal(n, syscall.SIGSTOP)
	default:
		n.database.Hold()
	}
	next := func(m made) bool { return m.epoch != owner }
	for !slices.ContainsFunc(calls(), next) && rest(ctx, 10*time.Millisecond) {
	}
	all := calls()
	i := slices.IndexFunc(all, next)
	if i < 0 {
		f.t.Fatalf("nobody takes over from an owner that is %s", how)
	}
	switch how {
	case "killed":
		f.run(n)
	case "stopped":
		f.signal(n, syscall.SIGCONT)
	default:
		n.database.Heal()
	}
	if err := n.ready(); err != nil {
		f.t.Fatal(err)
	}
	awake := time.Now()
	for len(calls()) < len(all)+50 && rest(ctx, 10*time.Millisecond) {
	}
	for _, m := range calls() {
		if m.epoch == owner && m.at.After(awake) {
			f.t.Errorf("an owner that was %s makes a model call %v after it was ready again", how, m.at.Sub(awake))
		}
	}
	return all[i].at.Sub(from)
}

func (f *fleet) signal(n *node, s syscall.Signal) {
	f.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		f.t.Fatal(err)
	}
}
