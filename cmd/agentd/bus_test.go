package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/natsserver"
	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// busWatch is an observer of a turn, and what it has received.
type busWatch struct {
	calls agentdv1connect.SessionServiceClient
	name  string
	facts []*agentdv1.RunResponse
	text  string // of the message that is not complete
	whole string // of those that are
	last  int64
	words chan int // receives how many words of the message there are; has room for all
}

// watch observes a turn to its end.
func (w *busWatch) watch(ctx context.Context, session string) error {
	in, err := w.calls.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: session, Observe: true}))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	for in.Receive() {
		m := in.Msg().GetEvent()
		if m.GetSeq() == 0 {
			if m.GetError() != nil {
				return fmt.Errorf("error %v", m.GetError())
			}
			continue
		}
		if m.GetSeq() <= w.last {
			return fmt.Errorf("position %d after %d", m.GetSeq(), w.last)
		}
		w.last = m.GetSeq()
		if c := m.GetOutputChunk(); c.GetMessageId() != "" {
			w.text += c.GetContent()
			w.words <- len(strings.Fields(w.text))
			continue
		}
		if m.GetMessageRetracted() != nil {
			w.text = ""
		}
		if m.GetMessageCompleted() != nil {
			w.whole, w.text = w.whole+w.text, ""
		}
		m.Replayed = false
		w.facts = append(w.facts, m)
		if m.GetEnd() != nil {
			return nil
		}
	}
	return fmt.Errorf("the stream has ended: %w", in.Err())
}

// until waits until the message has so many words.
func (w *busWatch) until(n int) {
	for got := range w.words {
		if got >= n {
			return
		}
	}
}

// Observers at three replicas receive the same while NATS is killed and comes back, and while the owner is killed.
func TestBus(t *testing.T) {
	t.Parallel()
	env, _ := killable(t)
	delete(env, "AGENTD_DATA")
	ns := natsserver.Start(t, nil)
	env["AGENTD_STORE"], env["AGENTD_BUS"] = pgserver.URL(t), ns.URL()
	said := strings.TrimSpace(strings.Repeat(long+" ", 5)) // 60 words
	script := `answers: [{text: "` + said + `", chunk_delay: 60ms}]`
	if err := os.WriteFile(filepath.Join(env["AGENTD_SCRIPTS"], "chat.yaml"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	at := func(s *served) agentdv1connect.SessionServiceClient {
		return agentdv1connect.NewSessionServiceClient(&http.Client{Transport: tr}, s.url)
	}
	owner, b, c := replica(t, env), replica(t, env), replica(t, env)
	made, err := at(owner).CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{
		Execute: &agentdv1.RunRequest_ExecuteRequest{Agent: agent("scripted/chat"), UserPrompt: "go"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	id := made.Msg.GetTurn().GetSessionId()
	var watching sync.WaitGroup
	var all []*busWatch
	for i, s := range []*served{b, c, b, c} {
		w := &busWatch{calls: at(s), name: fmt.Sprint("observer ", i), words: make(chan int, 1<<12)}
		all = append(all, w)
		watching.Go(func() {
			if err := w.watch(t.Context(), id); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
			close(w.words)
		})
	}
	all[0].until(8)
	all[1].until(8)
	if n := ns.Received(); n < 8 {
		t.Errorf("NATS has received %d messages: the observers are served by the owner", n)
	}
	ns.Kill()
	all[0].until(20)
	if resp, err := (&http.Client{Transport: tr}).Get(b.url + "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("without NATS a server is not ready: %+v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	ns.Restart()
	all[1].until(35)
	owner.signal(syscall.SIGKILL)
	owner.wait()
	watching.Wait()
	replayed := &busWatch{calls: at(b), name: "a replay", words: make(chan int, 1<<12)}
	if err := replayed.watch(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, w := range append(all, replayed) {
		if w.whole != said {
			t.Errorf("%s has %q", w.name, w.whole)
		}
		if len(w.facts) != len(replayed.facts) {
			t.Errorf("%s has %d facts, want %d", w.name, len(w.facts), len(replayed.facts))
			continue
		}
		for i, m := range w.facts {
			if !proto.Equal(m, replayed.facts[i]) {
				t.Errorf("%s has %v, want %v", w.name, m, replayed.facts[i])
			}
		}
	}
	if log := b.log.String(); !strings.Contains(log, "connected to the bus") || !strings.Contains(log, "the bus is gone") {
		t.Errorf("the log does not say how the bus is: %s", log)
	}
}
