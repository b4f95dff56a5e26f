package client_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// A quiet turn is followed through any number of lost connections, with heartbeats
// and without: each stream that the server took and that lasted is progress.
func TestQuietTurnIsNotGivenUp(t *testing.T) {
	const streams = 20
	for _, interval := range []time.Duration{0, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newTurnLog(t, func(l *turnLog) { l.say("m", "one") })
			l.hook = func(_ context.Context, stream int, s *peer) (bool, error) {
				if stream == 1 {
					if err := l.sendTwo(s); err != nil {
						return true, err
					}
				}
				if stream == streams {
					l.finish(true, "")
					return false, nil
				}
				if stream > 1 {
					beat := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{}}}
					if m, err := s.stream.Receive(); err != nil || m.GetHeartbeat() == nil {
						return true, errors.New("want a heartbeat first")
					}
					if err := s.send(beat); err != nil {
						return true, err
					}
				}
				time.Sleep(20 * time.Second) // fake time: less than it takes to be counted as dead
				return true, errors.New("the stream breaks")
			}
			c := newMemNetOf(t, l).client(client.WithHeartbeatInterval(interval))
			result, err := c.Do(t.Context(), llm(), "hi")
			if err != nil || !result.Completed || result.Text != "one" {
				t.Errorf("heartbeats every %s: %+v, %v", interval, result, err)
			}
		})
	}
}

// Times mean one thing each: none is no bound, one that has passed has passed, and
// one that is very long does not turn into none.
func TestTimesAmongTheOptions(t *testing.T) {
	c := dial(t, serve(t, func(_ context.Context, s *peer) error {
		return steps(s.started, func() error { return s.end(true, "") })
	}), client.WithGrace(24*time.Hour), client.WithHeartbeatInterval(math.MaxInt64))
	for d, want := range map[time.Duration]error{
		0:             nil,
		math.MaxInt64: nil,
		-1:            client.ErrTimeout,
		math.MinInt64: client.ErrTimeout,
	} {
		result, err := c.Do(t.Context(), llm(), "hi", client.WithTimeout(d))
		if !errors.Is(err, want) || result.Completed != (want == nil) {
			t.Errorf("%d: %+v, %v", d, result, err)
		}
	}
}
