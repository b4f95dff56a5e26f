package cli_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/cli"
)

func callEnded(path []string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: &agentdv1.ModelCallEnded{AgentPath: path}}}
}

func result(call string) *agentdv1.RunResponse {
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: &agentdv1.ToolCallAnswered{ToolCallId: call}}}
}

var begun = &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{Execute: &agentdv1.RunResponse_ExecuteResponse{}}}

func llm(name, model string) *agentdv1.Agent {
	return &agentdv1.Agent{Name: name, AgentType: &agentdv1.Agent_Llm{Llm: &agentdv1.LlmAgent{Model: model}}}
}

// tape is what was written to a terminal. Several goroutines may use it.
type tape struct {
	mu sync.Mutex
	b  strings.Builder // protected by mu
}

func (o *tape) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *tape) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// rendered is what a terminal shows of a text that moves its cursor within the last
// line alone.
func rendered(t *testing.T, written string) string {
	t.Helper()
	var lines []string
	line, at := []rune(nil), 0
	written = strings.NewReplacer("\x1b[?7l", "", "\x1b[?7h", "", "\x1b[2m", "", "\x1b[0m", "").Replace(written)
	for rest := written; rest != ""; {
		if after, ok := strings.CutPrefix(rest, "\x1b[K"); ok {
			line, rest = line[:at], after
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		switch r {
		case '\n':
			lines, line, at = append(lines, string(line)), nil, 0
		case '\r':
			at = 0
		case '\x1b':
			t.Fatalf("another sequence at %q", rest)
		default:
			line = append(line[:at], append([]rune{r}, line[min(at+1, len(line)):]...)...)
			at++
		}
	}
	return strings.Join(append(lines, string(line)), "\n")
}

// The spinner tells what is waited for while nothing is written, leaves nothing
// behind, and is not there where a line is open or a person is asked.
func TestSpinner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out tape
		s := cli.NewSpinner(&out, true, llm("a", "gpt-5"))
		defer s.Close()
		w := s.Writer(&out)
		s.On(&cli.Text{Out: w})
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := rendered(t, out.String()); got != want {
				t.Fatalf("after %v the terminal shows %q, want %q", d, got, want)
			}
		}
		show := func(events ...*agentdv1.RunResponse) {
			t.Helper()
			for _, e := range events {
				if err := s.Event(e); err != nil {
					t.Fatal(err)
				}
			}
		}
		after(450*time.Millisecond, "")
		after(1100*time.Millisecond, frame(10)+" waiting for the daemon, 1s")
		show(begun)
		after(62100*time.Millisecond, frame(631)+" waiting for gpt-5, 1m2s")
		show(says([]string{"a"}, "hm", "thought")) // is not shown
		after(time.Second, frame(641)+" waiting for gpt-5, 1m3s")
		show(says([]string{"a"}, "I look."))
		after(time.Minute, "a: I look.") // a line is open
		show(callEnded([]string{"a"}), calls("1", "look", "{}"), calls("2", "pay\x1b[2J", "{}"))
		lines := "a: I look.\n→ look {}\n→ pay[2J {}\n"
		after(450*time.Millisecond, lines)
		after(time.Second, lines+frame(651)+" waiting for look, pay[2J, 1s")
		show(result("1"))
		after(3*time.Second, lines+frame(681)+" waiting for pay[2J, 3s")
		_, _ = io.WriteString(w, "agentd: a note\n")
		lines += "agentd: a note\n"
		after(450*time.Millisecond, lines)
		if err := s.Hold(true); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, "Approve? ")
		after(time.Minute, lines+"Approve? ")
		_, _ = io.WriteString(&out, "y\n") // the terminal's echo
		if err := s.Hold(false); err != nil {
			t.Fatal(err)
		}
		lines += "Approve? y\n"
		after(1050*time.Millisecond, lines+frame(687)+" waiting for pay[2J, 1s")
		show(result("2"), ends(true))
		after(time.Minute, lines)
		s.Close()
		after(0, lines)
	})
}

// frame is the picture of the n-th frame.
func frame(n int) string { return string([]rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[n%10]) }

// Whatever is written while the spinner is there, at its end the terminal shows what
// it would show without it.
func TestSpinnerLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out tape
		var plain strings.Builder
		s := cli.NewSpinner(&out, false, nil)
		one, two := s.Writer(&out), s.Writer(&out)
		for n := range 200 {
			text := fmt.Sprintf("%d%s", n, []string{"", "\n", " and\nmore", "\n\n"}[n%4])
			w := one
			if n%3 == 0 {
				w = two
			}
			_, _ = io.WriteString(w, text)
			_, _ = plain.WriteString(text)
			time.Sleep(time.Duration(n%7) * 300 * time.Millisecond)
		}
		_, _ = io.WriteString(one, "\n")
		time.Sleep(time.Minute)
		s.Close()
		if n := strings.Count(out.String(), "waiting for the daemon"); n < 100 {
			t.Errorf("the spinner was shown %d times", n)
		}
		if got, want := rendered(t, out.String()), plain.String()+"\n"; got != want {
			t.Errorf("shown is %q, want %q", got, want)
		}
	})
}

// What is waited for is named as far as it is known.
func TestSpinnerNames(t *testing.T) {
	path := []string{"root", "b"}
	tree := &agentdv1.Agent{Name: "root", AgentType: &agentdv1.Agent_Sequential{Sequential: &agentdv1.SequentialAgent{Agents: []*agentdv1.Agent{llm("a", "gpt-5"), llm("b", "claude-x")}}}}
	ask := requested(&agentdv1.Interaction{Id: "i"})
	for want, events := range map[string][]*agentdv1.RunResponse{
		"the daemon":                  nil,
		"the model":                   {begun},
		"claude-x":                    {says(path, "hm", "thought")},
		"look":                        {calls("1", "look", "{}"), calls("1", "look", "{}")},
		"one, two and 2 more":         {calls("1", "one", "{}"), calls("2", "two", "{}"), calls("3", "three", "{}"), calls("4", "four", "{}")},
		"gpt-5":                       {calls("1", "look", "{}"), result("1")},
		"the session's running turn":  {{Response: &agentdv1.RunResponse_TurnQueued{TurnQueued: &agentdv1.TurnQueued{}}}},
		"a person":                    {ask},
		"gemini-y":                    {{Response: &agentdv1.RunResponse_ModelCallFellBack{ModelCallFellBack: &agentdv1.ModelCallFellBack{NextModel: "gemini-y"}}}},
		strings.Repeat("m", 39) + "…": {{Response: &agentdv1.RunResponse_ModelCallFellBack{ModelCallFellBack: &agentdv1.ModelCallFellBack{NextModel: strings.Repeat("m", 99)}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out tape
			s := cli.NewSpinner(&out, false, tree)
			for _, e := range events {
				if err := s.Event(e); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(550 * time.Millisecond)
			synctest.Wait()
			if got := rendered(t, out.String()); !strings.HasSuffix(got, " waiting for "+want+", 0s") {
				t.Errorf("shown is %q, want %q", got, want)
			}
			s.Close()
			if got := rendered(t, out.String()); got != "" {
				t.Errorf("%q is left", got)
			}
		})
	}
}

// A terminal that takes no output is the screen's to report.
func TestSpinnerFails(t *testing.T) {
	broken := errors.New("broken")
	s := cli.NewSpinner(io.Discard, false, nil)
	defer s.Close()
	s.On(&cli.Text{Out: s.Writer(writerFunc(func([]byte) (int, error) { return 0, broken }))})
	if err := s.Event(calls("1", "look", "{}")); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
