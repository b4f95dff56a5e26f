package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// skipFactor times the largest message is what one message may take off the
// wire. Connect skips a message that is too large up to the 4 GiB it may claim.
const skipFactor = 4

// errSlowMessage ends a stream whose message is not worth skipping.
var errSlowMessage = errors.New("server: too many bytes for one message")

// expired is a deadline that has passed.
var expired = time.Unix(1, 0)

// transport gives a stream access to its HTTP exchange, which connect does not expose.
type transport struct {
	// ctx is the request's own. It ends when the client is gone; the client's deadline
	// does not end it.
	ctx  context.Context //nolint:containedctx // of one request
	body *meteredBody
	out  *pieceWriter

	mu sync.Mutex
	rc *http.ResponseController // nil once the handler has returned; protected by mu
}

type transportKey struct{}

// withTransport hands each request's transport to the handler.
func withTransport(maxMessageBytes int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 { // connect would refuse it too, without a word
			w.Header().Set("Connection", "close")
			http.Error(w,
				"Run streams in both directions, which needs HTTP/2 (without TLS: h2c with prior knowledge); "+
					"received "+r.Proto, http.StatusHTTPVersionNotSupported)
			return
		}
		t, r := newTransport(w, r, maxMessageBytes)
		defer t.close()
		next.ServeHTTP(t.out, r)
		t.out.release()
	})
}

// newTransport returns the transport of a request, and the request that has it.
func newTransport(w http.ResponseWriter, r *http.Request, maxMessageBytes int) (*transport, *http.Request) {
	t := &transport{
		ctx:  r.Context(),
		body: &meteredBody{ReadCloser: r.Body, perMessage: skipFactor * int64(maxMessageBytes)},
		out:  &pieceWriter{ResponseWriter: w},
		rc:   http.NewResponseController(w),
	}
	t.body.next()
	r = r.WithContext(context.WithValue(r.Context(), transportKey{}, t))
	r.Body = t.body
	return t, r
}

// close makes the deadlines of no effect: a ResponseController must not be used
// after its handler has returned, and timers may still fire.
func (t *transport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rc = nil
}

// abortRead makes the waiting read, and all later ones, fail.
func (t *transport) abortRead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rc != nil {
		_ = t.rc.SetReadDeadline(expired)
	}
}

// boundRead makes the waiting read, and all later ones, fail after d.
func (t *transport) boundRead(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rc != nil {
		_ = t.rc.SetReadDeadline(time.Now().Add(d))
	}
}

// abortWrite resets the stream: the waiting write, and all later ones, fail.
func (t *transport) abortWrite() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rc != nil {
		_ = t.rc.SetWriteDeadline(expired)
	}
}

// lastWrite bounds what net/http writes after the handler returns.
func (t *transport) lastWrite(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rc != nil {
		_ = t.rc.SetWriteDeadline(time.Now().Add(d))
	}
}

// meteredBody bounds the bytes that one message may take. The goroutine that receives owns it.
type meteredBody struct {
	io.ReadCloser
	perMessage int64
	left       int64
	head       []byte // the beginning of the message, headBytes at most
}

// next begins a message.
func (b *meteredBody) next() { b.left, b.head = b.perMessage, b.head[:0] }

func (b *meteredBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errSlowMessage
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.head = append(b.head, p[:min(n, headBytes-len(b.head))]...)
	return n, err
}
