package cli

import (
	"fmt"
	"io"
	"sync"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	// spinAfter is how long nothing is written until the spinner is shown, spinEvery
	// how long each of its frames is.
	spinAfter = 500 * time.Millisecond
	spinEvery = 100 * time.Millisecond
)

var spinFrames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// Spinner is a Screen that also shows, while nothing else is written, what the turn
// waits for and for how long. It stands at the beginning of the terminal's last line,
// and is erased before anything is written by one of its Writers. It is not shown
// behind a line without an end, nor while a person is asked.
type Spinner struct {
	screen Screen
	out    io.Writer // the terminal
	dim    bool
	stop   chan struct{}
	done   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // protects the fields below, and is held to write to the terminal
	awaited awaited
	shown   bool // the spinner is on the terminal
	open    bool // the last line has no end
	held    bool // a person is asked
	written time.Time
	since   time.Time // the wait began: the last output, or another thing is waited for
	frame   int
}

// NewSpinner returns a spinner on a terminal for a turn of a tree, which may be nil.
// It is shown from now until Close.
func NewSpinner(out io.Writer, dim bool, tree *agentdv1.Agent) *Spinner {
	s := &Spinner{
		screen: Quiet{}, out: out, dim: dim, stop: make(chan struct{}), done: make(chan struct{}),
		awaited: newAwaited(tree), written: time.Now(), since: time.Now(),
	}
	go s.loop()
	return s
}

// On shows events on a screen, whose output goes through a Writer. It is called once,
// before the first event.
func (s *Spinner) On(screen Screen) *Spinner {
	s.screen = screen
	return s
}

// Writer returns a writer to a stream of the terminal: the spinner is erased first.
// It may be used by several goroutines.
func (s *Spinner) Writer(w io.Writer) io.Writer { return &spunWriter{s, w} }

// Close erases the spinner for good. It may be called more than once, by one
// goroutine.
func (s *Spinner) Close() {
	select {
	case <-s.done:
	default:
		close(s.stop)
		<-s.done
	}
}

// Event shows an event.
func (s *Spinner) Event(event *agentdv1.RunResponse) error {
	s.mu.Lock()
	before := s.awaited.what()
	s.awaited.event(event)
	if s.awaited.what() != before {
		s.since = time.Now()
	}
	s.mu.Unlock()
	return s.screen.Event(event)
}

// Hold erases the spinner while a person is asked.
func (s *Spinner) Hold(hold bool) error {
	s.mu.Lock()
	if s.held = hold; hold {
		s.erase()
	}
	s.open = s.open && hold // the answer's end is that of the prompt's line
	s.written, s.since = time.Now(), time.Now()
	s.mu.Unlock()
	return s.screen.Hold(hold)
}

// loop shows one frame after the other. It ends with Close.
func (s *Spinner) loop() {
	defer close(s.done)
	ticker := time.NewTicker(spinEvery)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.mu.Lock()
			s.show(now)
			s.mu.Unlock()
		case <-s.stop:
			s.mu.Lock()
			s.erase()
			s.mu.Unlock()
			return
		}
	}
}

// show writes a frame, if there is a place for it. A terminal that is too narrow
// shows the beginning: it must not take a second line, which would stay.
func (s *Spinner) show(now time.Time) {
	what := s.awaited.what()
	if what == "" {
		s.erase()
		return
	}
	if s.open || s.held || now.Sub(s.written) < spinAfter {
		return
	}
	waited := max(now.Sub(s.since), 0).Truncate(time.Second)
	text := fmt.Sprintf("%s waiting for %s, %s", spinFrames[s.frame], what, waited)
	s.frame = (s.frame + 1) % len(spinFrames)
	if s.dim {
		text = "\x1b[2m" + text + "\x1b[0m"
	}
	s.shown = true
	_, _ = io.WriteString(s.out, "\r\x1b[?7l"+text+"\x1b[K\x1b[?7h")
}

func (s *Spinner) erase() {
	if s.shown {
		s.shown = false
		_, _ = io.WriteString(s.out, "\r\x1b[K")
	}
}

// spunWriter writes to the terminal of a spinner.
type spunWriter struct {
	s *Spinner
	w io.Writer
}

func (w *spunWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.erase()
	if len(p) > 0 {
		w.s.open = p[len(p)-1] != '\n'
	}
	w.s.written, w.s.since = time.Now(), time.Now()
	return w.w.Write(p)
}
