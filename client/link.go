package client

import (
	"context"
	"io"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// link is one stream of a run. The run's driver alone receives, the link's
// sender alone sends.
type link struct {
	run      *run
	stream   messages
	ctx      context.Context         // the run's streamCtx, or less
	abort    context.CancelCauseFunc // resets the stream; the cause becomes the link's error
	attaches bool                    // its first message starts no turn
	named    bool                    // its first message names the turn to follow
	opened   time.Time
	body     atomic.Pointer[requestBody] // nil until the HTTP client has the request
	sent     chan struct{}               // closed when the sender has returned
	heard    chan struct{}               // closed when something came
	parted   chan struct{}               // closed when the sender has to close its side; see part
	parting  *time.Timer                 // aborts the stream a while later; nil: parted is open; owned by the driver
	left     bool                        // the sender has seen the end of the run; written before sent is closed
	received bool                        // the link has received a message; owned by the driver
	news     bool                        // something new came; owned by the driver
	refused  bool                        // the server did not want it; owned by the driver
	skip     int                         // bytes of text to skip; see ahead
	wished   *agentdv1.RunRequest        // the wish that was sent; owned by the sender
}

// open opens a stream and starts its sender.
func (r *run) open(first *agentdv1.RunRequest) *link {
	l := &link{
		run:      r,
		attaches: first != r.first || r.rc.attach,
		named:    first.GetAttach().GetTurnId() != "",
		opened:   time.Now(),
		sent:     make(chan struct{}),
		heard:    make(chan struct{}),
		parted:   make(chan struct{}),
		skip:     r.ahead.bytes,
	}
	ctx := context.WithValue(r.streamCtx, linkKey{}, l)
	l.ctx, l.abort = context.WithCancelCause(ctx)
	if r.client.cfg.http1 {
		l.stream = newTurnStream(l.ctx, r)
	} else {
		stream := r.client.stub.Run(l.ctx)
		maps.Copy(stream.RequestHeader(), r.rc.header)
		l.stream = stream
	}
	context.AfterFunc(l.ctx, l.teardown)
	go l.send(first)
	return l
}

// teardown resets the stream. A request whose context ends continues until its
// body ends too. An ordinary end of the body would be a half-close, by which a
// client announces that it sends no more results; a body that fails is a reset.
func (l *link) teardown() {
	if body := l.body.Load(); body != nil {
		_ = body.Close()
	}
	_ = l.stream.CloseRequest()
	_ = l.stream.CloseResponse()
}

// end ends a link from which nothing more is received and waits for its sender.
// It reports false when the HTTP client keeps that from ending.
func (l *link) end() bool {
	l.abort(ErrRunEnded)
	timer := time.NewTimer(l.run.client.cfg.grace + time.Second)
	defer timer.Stop()
	select {
	case <-l.sent:
		return true
	case <-timer.C:
		return false
	}
}

// unsent reports whether nothing of the first message can have left this process.
func (l *link) unsent() bool {
	body := l.body.Load()
	return body == nil || !body.read.Load()
}

// reply hands a message of the driver to the sender, unless the link has broken.
func (l *link) reply(msg *agentdv1.RunRequest) {
	select {
	case l.run.outbox <- msg:
	case <-l.run.halted:
	case <-l.sent:
	}
}

// linkKey is the key of the link in the context of its request.
type linkKey struct{}

// linkedClient gives a link the body of its request.
type linkedClient struct{ connect.HTTPClient }

func (c linkedClient) Do(req *http.Request) (*http.Response, error) {
	l, ok := req.Context().Value(linkKey{}).(*link)
	if !ok || req.Body == nil {
		return c.HTTPClient.Do(req)
	}
	body := &requestBody{ReadCloser: req.Body}
	l.body.Store(body)
	req = req.WithContext(req.Context()) // a copy: the request is not ours
	req.Body = body
	return c.HTTPClient.Do(req)
}

// requestBody is the body of a stream's request.
type requestBody struct {
	io.ReadCloser
	read atomic.Bool // somebody wanted it
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.ReadCloser.Read(p)
}
