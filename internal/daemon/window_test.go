package daemon_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// Streams whose messages are taken at their pace hold up no other request of their
// connection. The time is a bubble's.
func TestPacedStreamsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{})
		hc := d.HTTPClient()
		defer hc.CloseIdleConnections()
		defer flood(t, hc, d.URL)()
		defer flood(t, hc, d.URL)()
		synctest.Wait() // until all that the windows take is on its way
		c := agentdv1connect.NewSessionServiceClient(hc, d.URL)
		for _, n := range []int{20 << 10, 200 << 10} {
			begin := time.Now()
			turn := execute(llm("root", "echo"), strings.Repeat("x", n)).GetExecute()
			if _, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: turn})); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 0 {
				t.Errorf("a prompt of %d bytes took %v beside streams that are above their pace", n, took)
			}
		}
	})
}

// flood opens a stream and sends small heartbeats as fast as the server takes
// them, until the returned function is called.
func flood(t *testing.T, hc *http.Client, url string) (end func()) {
	t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+agentdv1connect.AgentdRunProcedure, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+proto")
	over := make(chan struct{})
	go func() {
		defer close(over)
		resp, err := hc.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}()
	begin, err := proto.Marshal(execute(llm("root", "scripted/demo", "wait"), "go", tool("wait", `{"type":"object"}`)))
	if err != nil {
		t.Fatal(err)
	}
	beat, err := proto.Marshal(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}})
	if err != nil {
		t.Fatal(err)
	}
	beat = bytes.Repeat(beat, 12) // the same member of the oneof many times
	go func() {
		for data := begin; ; data = beat {
			frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
			if _, err := w.Write(frame); err != nil {
				return
			}
		}
	}()
	return func() {
		_ = w.CloseWithError(io.ErrUnexpectedEOF)
		<-over
	}
}
