package heap

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// TestPercentFor: a small heap may grow by Room, a large one by itself.
func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{
		0:            maxPercent,
		1 << 20:      maxPercent,
		8 << 20:      800,
		10 << 20:     600,
		Room / 2:     200,
		Room * 2 / 3: 150,
		Room:         100,
		8 << 30:      100,
	} {
		if got := percentFor(live); got != want {
			t.Errorf("a heap of %d bytes may grow by %d %%, want %d", live, got, want)
		}
	}
}

// inProcess is set in the process of TestPace, whose garbage collector is its own.
const inProcess = "HEAP_TEST_PROCESS"

// TestPace: the percentage follows the heap, up and down, memory comes back at rest, and GOGC stands.
func TestPace(t *testing.T) {
	if os.Getenv(inProcess) != "" {
		pace(t)
		return
	}
	for _, gogc := range []string{"", "130"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPace$", "-test.v")
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "GOGC=") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, inProcess+"=1")
		if gogc != "" {
			cmd.Env = append(cmd.Env, "GOGC="+gogc)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GOGC=%s: %v\n%s", gogc, err, out)
		}
	}
}

// percent is the percentage that counts.
func percent() int {
	was := debug.SetGCPercent(100)
	debug.SetGCPercent(was)
	return was
}

func pace(t *testing.T) {
	stop := Pace()
	defer stop()
	if os.Getenv("GOGC") != "" {
		if got := percent(); got != 130 {
			t.Errorf("with GOGC the percentage is %d, want 130", got)
		}
		return
	}
	eventually(t, "a small heap may grow by Room", func() bool { return percent() >= 800 })
	held := make([][]byte, 32)
	for i := range held {
		held[i] = make([]byte, Room/16)
	}
	runtime.GC()
	eventually(t, "a large heap may double", func() bool { return percent() == 100 })
	runtime.KeepAlive(held)
	runtime.GC()
	eventually(t, "the heap is small again", func() bool { return percent() >= 800 })
	for range 3 * restUnused / len(page{}) {
		garbage = new(page)
	}
	if read().unused < restUnused {
		t.Errorf("there is next to no garbage: %+v", read())
	}
	eventually(t, "what is unused goes back at rest", func() bool { return read().unused < restUnused })
}

type page [4096]byte

var garbage *page

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s: not within 30 s: %d %%, %+v", what, percent(), read())
}
