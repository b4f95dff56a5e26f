package attacks

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// silentReaders ask for what is large, each with a request of a few bytes, and read
// nothing of it.
func silentReaders(b *bed) {
	var turn *agentdv1.Turn
	for n := range 4 { // a request may bring 1 MiB
		state := map[string]any{}
		for i := range 950 {
			state[fmt.Sprintf("k%d-%d", n, i)] = strings.Repeat("x", 1000)
		}
		ex := execute(echo("large", ""), strings.Repeat("y", 900_000), state)
		if turn != nil {
			ex.SessionId = &turn.SessionId
		}
		var err error
		if turn, err = b.create(ex); err != nil {
			b.Fatal(err)
		}
		turn = b.until(turn, succeeded)
	}
	of := fmt.Sprintf(`{"sessionId":%q}`, turn.GetSessionId())
	envelope := func(s string) string { return "\x00\x00\x00" + string([]byte{byte(len(s) >> 8), byte(len(s))}) + s }
	for _, r := range []struct{ method, kind, body string }{
		{"WatchTurn", "application/connect+json", envelope(of)},
		{"WatchSession", "application/connect+json", envelope(of)},
		{"ListTurnEvents", "application/json", of},
		{"ListSessionEvents", "application/json", of},
		{"GetTurn", "application/json", of},
		{"ListTurns", "application/json", "{}"},
	} {
		var conns []net.Conn
		for range times(400) {
			c, err := net.Dial("tcp", b.addr)
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, c)
			_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
			if _, err := fmt.Fprintf(c, "POST /agentd.v1.SessionService/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nConnect-Protocol-Version: 1\r\nContent-Length: %d\r\n\r\n%s",
				r.method, r.kind, len(r.body), r.body); err != nil {
				b.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		for _, c := range conns {
			_ = c.Close()
		}
	}
	b.sayf("%d requests, for 3.8 MB of state and texts of 0.9 MB: those that find no room wait or are refused", 6*times(400))
}

// largeRequests come all at once; those for which there is no room are refused.
func largeRequests(b *bed) {
	ex := execute(echo("large", ""), strings.Repeat("y", 900_000), map[string]any{"k": strings.Repeat("x", 900_000)})
	var wg sync.WaitGroup
	var taken atomic.Int32
	for range times(400) {
		wg.Go(func() {
			_, err := b.create(ex)
			switch {
			case err == nil:
				taken.Add(1)
			case connect.CodeOf(err) != connect.CodeUnavailable:
				b.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if taken.Load() == 0 {
		b.Error("all were refused")
	}
	b.sayf("%d of %d are taken, the others are asked to come back", taken.Load(), times(400))
}
