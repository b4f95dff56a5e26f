package ttytest

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Terminal is a terminal: what the test types comes from its keyboard, and what the
// program and the echo write is on its screen. Its methods may be called from the
// test's goroutines.
type Terminal struct {
	// TTY is the program's side.
	TTY *os.File

	t    testing.TB
	keys *os.File // the person's side
	seen chan struct{}
	once sync.Once

	mu     sync.Mutex // protects the fields below
	screen strings.Builder
	gone   bool       // nothing more comes
	change *sync.Cond // the screen has changed
}

// Open opens a terminal, which ends with the test.
func Open(t testing.TB) *Terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := keys.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	failed := raw.Control(func(fd uintptr) { // Fd would make reads block for good
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &Terminal{TTY: tty, t: t, keys: keys, seen: make(chan struct{})}
	term.change = sync.NewCond(&term.mu)
	go term.watch()
	t.Cleanup(term.Close)
	return term
}

// watch reads the screen until the terminal is closed, or no program has it open.
func (term *Terminal) watch() {
	defer close(term.seen)
	b := make([]byte, 4096)
	for {
		n, err := term.keys.Read(b)
		term.mu.Lock()
		term.screen.Write(b[:n])
		term.gone = err != nil
		term.change.Broadcast()
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Start starts a program of which this is the terminal: Ctrl-C and Close reach it.
// TTY is the program's from then on.
func (term *Terminal) Start(cmd *exec.Cmd) {
	term.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.TTY, term.TTY, term.TTY
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		term.t.Fatal(err)
	}
	_ = term.TTY.Close() // the program's end is the screen's
}

// Press presses keys.
func (term *Terminal) Press(keys string) {
	term.t.Helper()
	if _, err := term.keys.WriteString(keys); err != nil {
		term.t.Error(err)
	}
}

// Type presses keys and waits for their echo: then the terminal has them.
func (term *Terminal) Type(keys string) {
	term.t.Helper()
	mark := term.Mark()
	term.Press(keys)
	term.Await(mark, strings.ReplaceAll(keys, "\n", "\r\n"))
}

// Mark is a place on the screen: what comes later is behind it.
func (term *Terminal) Mark() int { return len(term.Screen()) }

// Screen is what was written so far.
func (term *Terminal) Screen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

// Await waits for a text behind a mark.
func (term *Terminal) Await(mark int, text string) {
	term.t.Helper()
	term.mu.Lock()
	defer term.mu.Unlock()
	for !strings.Contains(term.screen.String()[mark:], text) {
		if term.gone {
			term.t.Errorf("%q did not come; on the screen is %q", text, term.screen.String()[mark:])
			return
		}
		term.change.Wait()
	}
}

// Close closes the terminal, as somebody does who closes its window.
func (term *Terminal) Close() {
	term.once.Do(func() {
		_ = term.TTY.Close()
		_ = term.keys.Close()
		<-term.seen
	})
}
