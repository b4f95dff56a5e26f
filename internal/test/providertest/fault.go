package providertest

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"time"
)

// Action is what goes wrong with an answer.
type Action string

// The actions. Each happens at the place that the fault names.
const (
	// Cut ends the answer as if it were complete.
	Cut Action = "cut"
	// Abort ends the connection without the end of the body, which the client
	// sees as an unexpected end.
	Abort Action = "abort"
	// Reset resets the connection.
	Reset Action = "reset"
	// Stall sends nothing more until Release is closed, the client leaves or the
	// server is closed. Once released, the answer goes on.
	Stall Action = "stall"
	// Insert sends Bytes, and the answer goes on.
	Insert Action = "insert"
	// Refuse answers Status, Header and Bytes instead of the recorded answer.
	Refuse Action = "refuse"
)

// Fault breaks the answer to one request. The zero value breaks nothing.
type Fault struct {
	Action Action
	// AfterEvents is how many events (separated by empty lines) are sent whole
	// before the action.
	AfterEvents int
	// AfterBytes, if positive, is how many bytes of the body are sent before the
	// action; AfterEvents does not count then.
	AfterBytes int
	// Delay passes before the headers and before each event.
	Delay time.Duration
	// Bytes are what Insert inserts and Refuse answers.
	Bytes []byte
	// Status and Header are what Refuse answers.
	Status int
	Header http.Header
	// Again makes the next request get the same exchange, as a client expects that
	// tries again.
	Again bool
	// Release, if not nil, ends a stall when it is closed.
	Release <-chan struct{}
	// Reached, if not nil, is closed when the action takes place.
	Reached chan<- struct{}
	// Gone, if not nil, is closed when the client left during a stall.
	Gone chan<- struct{}
}

// answerWriter sends one answer, with its fault.
type answerWriter struct {
	w       http.ResponseWriter
	r       *http.Request
	fault   Fault
	closing <-chan struct{}
	// sent counts the bytes of the body, acted is set after the action.
	sent  int
	acted bool
}

// errEnded tells that the answer is over before its end.
var errEnded = errors.New("the answer was ended by its fault")

// send writes an answer in pieces, each flushed.
func (a *answerWriter) send(status int, header http.Header, pieces [][]byte) error {
	if err := a.wait(a.fault.Delay); err != nil {
		return err
	}
	if a.fault.Action == Refuse {
		a.act()
		status, header, pieces = a.fault.Status, a.fault.Header, [][]byte{a.fault.Bytes}
	}
	maps.Copy(a.w.Header(), header)
	a.w.WriteHeader(status)
	for i, piece := range pieces {
		if i > 0 {
			if err := a.wait(a.fault.Delay); err != nil {
				return err
			}
		}
		if a.fault.AfterBytes == 0 && i == a.fault.AfterEvents {
			if err := a.strike(); err != nil {
				return err
			}
		}
		if err := a.piece(piece); err != nil {
			return err
		}
	}
	if !a.acted {
		return a.strike()
	}
	return nil
}

// piece sends one piece, with the fault inside if it counts bytes.
func (a *answerWriter) piece(piece []byte) error {
	if at := a.fault.AfterBytes - a.sent; a.fault.AfterBytes > 0 && !a.acted && at <= len(piece) {
		if err := a.write(piece[:at]); err != nil {
			return err
		}
		if err := a.strike(); err != nil {
			return err
		}
		piece = piece[at:]
	}
	return a.write(piece)
}

func (a *answerWriter) write(b []byte) error {
	n, err := a.w.Write(b)
	a.sent += n
	if err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

func (a *answerWriter) act() {
	a.acted = true
	if a.fault.Reached != nil {
		close(a.fault.Reached)
	}
}

// strike does what the fault says, once.
func (a *answerWriter) strike() error {
	if a.acted || a.fault.Action == "" || a.fault.Action == Refuse {
		return nil
	}
	// What was sent so far, if only the headers, arrives before the fault.
	if err := http.NewResponseController(a.w).Flush(); err != nil {
		return err
	}
	a.act()
	switch a.fault.Action {
	case Cut:
		return errEnded
	case Abort:
		panic(http.ErrAbortHandler)
	case Reset:
		a.reset()
		return errEnded
	case Stall:
		return a.stall()
	case Insert:
		return a.write(a.fault.Bytes)
	default:
		return nil
	}
}

func (a *answerWriter) stall() error {
	select {
	case <-a.fault.Release:
		return nil
	case <-a.closing:
		return errEnded
	case <-a.r.Context().Done():
		if a.fault.Gone != nil {
			close(a.fault.Gone)
		}
		return errEnded
	}
}

// reset drops the connection so that the peer gets a reset instead of an end.
func (a *answerWriter) reset() {
	conn, _, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2 resets the stream then.
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		// The close reports what is wrong with the connection.
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (a *answerWriter) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.closing:
		return errEnded
	case <-a.r.Context().Done():
		return errEnded
	}
}
