package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// longTextBytes is one message.
const longTextBytes = 512 << 10

// readTakes is what a reader takes for a byte: 1 s for 16 KiB, so longTextBytes take 32 s,
// more than three times the write timeout.
const readTakes = time.Second / (16 << 10)

// longTurnTakes is long enough for CreateTurn to return first: otherwise the text is in
// its response too, which is read as slowly.
const longTurnTakes = time.Second

// uncompressed makes the text take its length on the wire.
var uncompressed = connect.WithAcceptCompression("gzip", nil, nil)

// longTurn is a turn that says longTextBytes after longTurnTakes and is over.
func longTurn(ctx context.Context, run *session.Run) error {
	time.Sleep(longTurnTakes)
	return emit(ctx, run, &record.Event{MessageID: "m1", Path: root, Text: strings.Repeat("x", longTextBytes)})
}

// slowReader is a transport whose bodies are read slowly, and not at all once so many
// bytes have been read.
type slowReader struct {
	*http.Transport
	stallAt int
	read    chan struct{} // the rest of a body that has stalled waits for it
}

func (s slowReader) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = &slowBody{ReadCloser: resp.Body, of: s}
	}
	return resp, err
}

type slowBody struct {
	io.ReadCloser
	of   slowReader
	read int
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.read > b.of.stallAt {
		<-b.of.read
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), 16<<10)])
	b.read += n
	time.Sleep(time.Duration(n) * readTakes)
	return n, err
}

// slowCalls are calls whose responses hold a long text. They return its length.
var slowCalls = map[string]func(t *testing.T, hc *http.Client, url string) (int, error){
	"Run": func(t *testing.T, hc *http.Client, url string) (int, error) {
		t.Helper()
		s := agentdv1connect.NewAgentdClient(hc, url, uncompressed).Run(t.Context())
		defer func() { _, _ = s.CloseRequest(), s.CloseResponse() }()
		if err := s.Send(execute()); err != nil {
			return 0, err
		}
		text := 0
		for {
			msg, err := s.Receive()
			if err != nil || msg.GetEnd() != nil {
				return text, err
			}
			text += len(msg.GetOutputChunk().GetContent())
		}
	},
	"WatchTurn": func(t *testing.T, hc *http.Client, url string) (int, error) {
		t.Helper()
		c := agentdv1connect.NewSessionServiceClient(hc, url, uncompressed)
		s, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: longSession(t, c)}))
		if err != nil {
			return 0, err
		}
		defer func() { _ = s.Close() }()
		text := 0
		for s.Receive() {
			text += len(s.Msg().GetEvent().GetOutputChunk().GetContent())
		}
		return text, s.Err()
	},
	"WatchSession": func(t *testing.T, hc *http.Client, url string) (int, error) {
		t.Helper()
		c := agentdv1connect.NewSessionServiceClient(hc, url, uncompressed)
		s, err := c.WatchSession(t.Context(), connect.NewRequest(&agentdv1.WatchSessionRequest{SessionId: longSession(t, c)}))
		if err != nil {
			return 0, err
		}
		defer func() { _ = s.Close() }()
		text := 0
		for s.Receive() && s.Msg().GetEvent().GetEnd() == nil {
			text += len(s.Msg().GetEvent().GetOutputChunk().GetContent())
		}
		return text, s.Err()
	},
	"GetTurn": func(t *testing.T, hc *http.Client, url string) (int, error) {
		t.Helper()
		c := agentdv1connect.NewSessionServiceClient(hc, url, uncompressed)
		id := longSession(t, c)
		time.Sleep(longTurnTakes)
		synctest.Wait() // the turn is over
		got, err := c.GetTurn(t.Context(), connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id}))
		if err != nil {
			return 0, err
		}
		return len(got.Msg.GetTurn().GetOutputText()), nil
	},
}

func longSession(t *testing.T, c agentdv1connect.SessionServiceClient) string {
	t.Helper()
	created, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: execute().GetExecute()}))
	if err != nil {
		t.Fatal(err)
	}
	return created.Msg.GetTurn().GetSessionId()
}

// slowly makes each of the calls over each version of HTTP with a client that reads
// slowly up to stallAt bytes, and then not at all until test has read its response.
func slowly(t *testing.T, stallAt int, test func(t *testing.T, f *fixture, text int, err error, took time.Duration)) {
	for name, call := range slowCalls {
		for proto, set := range map[string]func(*http.Protocols){
			"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
			"HTTP/2":   func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
		} {
			if name == "Run" && proto == "HTTP/1.1" {
				continue // there is none
			}
			t.Run(name+" "+proto, func(t *testing.T) {
				onPipes(t, engine{run: longTurn}, server.Config{}, func(t *testing.T, f *fixture) {
					tr := &http.Transport{
						DialContext: f.pipes.DialContext, Protocols: new(http.Protocols),
						HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
					}
					defer tr.CloseIdleConnections()
					set(tr.Protocols)
					s := slowReader{Transport: tr, stallAt: stallAt, read: make(chan struct{})}
					stalled := time.AfterFunc(time.Minute, func() { close(s.read) })
					defer stalled.Stop()
					begin := time.Now()
					text, err := call(t, &http.Client{Transport: s}, f.url)
					test(t, f, text, err, time.Since(begin))
				})
			})
		}
	}
}

// A client that takes longer than the write timeout for a message, but reads on, gets
// all of it.
func TestSlowReaderGetsAll(t *testing.T) {
	slowly(t, 1<<30, func(t *testing.T, _ *fixture, text int, err error, took time.Duration) {
		if err != nil && !errorIsEOF(err) || text != longTextBytes {
			t.Errorf("got %d bytes of %d after %v, and %v", text, longTextBytes, took, err)
		}
		if took < 20*time.Second {
			t.Errorf("took %v: the test reads too fast to show anything", took)
		}
	})
}

// A client that has read a part of a message, and then reads nothing, is cut off.
func TestStalledReaderIsCutOff(t *testing.T) {
	slowly(t, longTextBytes/2, func(t *testing.T, f *fixture, text int, err error, took time.Duration) {
		if err == nil || errorIsEOF(err) {
			t.Errorf("got %d bytes after %v, and %v: want a broken stream", text, took, err)
		}
		if n := f.srv.Streams(); n > 0 {
			t.Errorf("%d streams are open", n)
		}
	})
}
