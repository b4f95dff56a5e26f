package server

import (
	"net/http"
	"sync"
)

// pieceBytes is how much of a message a client has to read within the write
// timeout: one frame of HTTP/2.
const pieceBytes = 16 << 10

// pieceWriter reports each piece of the reply that the client has room for, and makes one piece of messages that follow
// each other at once. The handler goroutine owns it, and calls release at its end.
type pieceWriter struct {
	http.ResponseWriter
	err error // of the last write that failed
	// progress is called after each piece of what takes more than one, if it is not
	// nil. It gives the rest of the message the whole write timeout again.
	progress func()
	// more is set while another message, or the end, follows at once, which goes out
	// together with this one: each write costs a change of goroutines, a frame and a
	// system call here, and a wake-up there.
	more bool
	// held is what waits for what follows, at most a piece; nil while nothing does.
	held *[]byte
}

// heldPieces has the buffers of pieceWriter.held.
var heldPieces = sync.Pool{New: func() any { b := make([]byte, 0, pieceBytes); return &b }}

func (w *pieceWriter) Write(p []byte) (int, error) {
	if w.more && w.held == nil {
		w.held, _ = heldPieces.Get().(*[]byte)
	}
	if w.held == nil {
		return w.pass(p)
	}
	for written := 0; ; {
		n := min(len(p)-written, pieceBytes-len(*w.held))
		*w.held = append(*w.held, p[written:written+n]...)
		if written += n; written == len(p) {
			return written, nil
		}
		if err := w.passHeld(); err != nil {
			return written, err
		}
		if w.progress != nil {
			w.progress()
		}
	}
}

// pass writes p in pieces.
func (w *pieceWriter) pass(p []byte) (written int, err error) {
	for {
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+pieceBytes)])
		written += n
		if len(p) > pieceBytes && err == nil && w.progress != nil {
			w.progress() // also after the last piece: a flush follows
		}
		if err != nil {
			w.err = err
			return written, err
		}
		if written == len(p) {
			return written, nil
		}
	}
}

// passHeld writes what is held, which is at most one piece.
func (w *pieceWriter) passHeld() error {
	_, err := w.pass(*w.held)
	*w.held = (*w.held)[:0]
	return err
}

// release writes what is held and gives its buffer back.
func (w *pieceWriter) release() {
	if w.held == nil {
		return
	}
	_ = w.passHeld() // kept in err
	heldPieces.Put(w.held)
	w.held = nil
}

// Flush is what connect looks for, and calls after each message.
func (w *pieceWriter) Flush() {
	if w.more {
		return
	}
	w.release()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is what http.ResponseController looks for.
func (w *pieceWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
