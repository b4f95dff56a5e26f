package attacks

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// sharedState is 0.9 MB under a key that all sessions share, by many at once.
func sharedState(b *bed) {
	for _, n := range []int{20, 40} {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				_, err := b.create(execute(echo("writer", ""), "go", map[string]any{fmt.Sprint("app:k", i): strings.Repeat("x", 900_000)}))
				if !refused(err) {
					b.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		b.sayf("%d of %d refused", n, n)
	}
}

// clients are those who write the keys that all sessions share.
const clients = 100

// writers are clients that write again and again what is allowed: one key each of
// what all sessions share, up to the bound together, and 0.9 MB of their own in a
// session that waits in memory.
func writers(b *bed) { write(b, 2500, times(900)*1000) }

// smallWriters are as many that write next to nothing, to compare with.
func smallWriters(b *bed) { write(b, 1, 1) }

func write(b *bed, shared, own int) {
	fill(b, shared, own, times(5))
	empty(b)
}

// full has the shared keys at their bound, and sessions in memory that wait.
func full(b *bed) { fill(b, 2500, times(900)*1000, 1) }

// atTheBound is what a stranger meets who comes after them.
func atTheBound(b *bed) {
	time.Sleep(quiet())
	empty(b)
}

// slowWriters write one key each a second, while the keys are at their bound.
func slowWriters(b *bed) { writeSlowly(b, 2500) }

// nearlyEmpty and slowSmallWriters are as many that write next to nothing, to compare with.
func nearlyEmpty(b *bed)      { fill(b, 1, 1, 1) }
func slowSmallWriters(b *bed) { writeSlowly(b, 1) }

func writeSlowly(b *bed, bytes int) {
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := range times(5) {
				time.Sleep(time.Duration(i) * time.Second / clients) // one after the other
				writeKey(b, i, n, bytes)
				time.Sleep(time.Duration(clients-i) * time.Second / clients)
			}
		})
	}
	wg.Wait()
	empty(b)
}

// fill has each client write its key so many times, and its own state.
func fill(b *bed, shared, own, rounds int) {
	agent, tools := worker()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := range rounds {
				writeKey(b, i, n, shared)
			}
			ex := execute(agent, "go", map[string]any{"own": strings.Repeat("x", own)})
			ex.Tools = tools
			turn, err := b.create(ex)
			if err != nil {
				b.Error(err)
				return
			}
			b.until(turn, waitsForClient)
		})
	}
	wg.Wait()
	b.sayf("%d writes complete", clients*(rounds+1))
}

// writeKey writes the key of a client, and one that all write.
func writeKey(b *bed, i, n, bytes int) {
	key := fmt.Sprintf("app:k%02d", i)
	ex := execute(echo("writer", ""), "go", map[string]any{key: strings.Repeat("x", bytes), "user:same": n})
	turn, err := b.create(ex)
	if err != nil {
		b.Error(err)
		return
	}
	b.until(turn, succeeded)
}

// empty has one more key refused, and removes all that clients have written.
func empty(b *bed) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	_, err := b.create(execute(echo("writer", ""), "go", map[string]any{"app:more": strings.Repeat("x", 262_000)}))
	if !refused(err) {
		b.Errorf("a key past the bound: %v", err)
	}
	list := must(b.sessions.ListSharedState(ctx, connect.NewRequest(&agentdv1.ListSharedStateRequest{PageSize: 1000}))).Msg
	var keys []string
	bytes := int64(0)
	for _, e := range list.GetEntries() {
		if strings.HasPrefix(e.GetKey(), "app:") {
			keys, bytes = append(keys, e.GetKey()), bytes+e.GetBytes()
		}
	}
	removed := must(b.sessions.RemoveSharedState(ctx, connect.NewRequest(&agentdv1.RemoveSharedStateRequest{Keys: keys}))).Msg.GetRemoved()
	if len(keys) != clients || len(removed) != clients || bytes > 256<<10 {
		b.Errorf("%d keys of %d bytes, %d removed", len(keys), bytes, len(removed))
	}
	b.sayf("one more key is refused, %d keys of %d bytes listed and removed", len(keys), bytes)
}
