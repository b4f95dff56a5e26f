package recordings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/test/providertest"
)

// recordingsAtOnce is how many recordings are held at a time.
const recordingsAtOnce = 4

// TestRecordings holds every recorded conversation that needs nothing but
// prompts and tool results, with the real client and the real daemon: what the
// client sees is what was recorded, and each model request carries everything
// that was said before it.
func TestRecordings(t *testing.T) {
	alone := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, alone) })
	slots := make(chan struct{}, recordingsAtOnce)
	needs := recordingNeeds(t)
	ran := 0
	for _, rec := range providertest.All(t) {
		conv, err := providertest.Expect(rec)
		if err != nil {
			t.Errorf("%s: %v", rec.Name, err)
			continue
		}
		listed, inIndex := needs[rec.Name]
		delete(needs, rec.Name)
		if why := conv.Needs(); why != "" {
			if inIndex && listed == "" {
				t.Errorf("%s does not run, although it needs nothing but prompts: %s", rec.Name, why)
			}
			t.Logf("%s does not run: %s", rec.Name, why)
			continue
		}
		ran++
		t.Logf("%s runs", rec.Name)
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			holdRecording(t, rec, conv)
		})
	}
	t.Logf("%d recordings run", ran)
	for name := range needs {
		t.Errorf("the index names %s, and there is no such recording", name)
	}
}

// recordingNeeds reads from the index of the real recordings why some of them
// need more than prompts, "" for those that do not.
func recordingNeeds(t *testing.T) map[string]string {
	t.Helper()
	needs := map[string]string{}
	dir := providertest.Dir()
	if dir == "" {
		return needs
	}
	index, err := os.ReadFile(filepath.Join(dir, "INDEX.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimRight(string(index), "\n"), "\n") {
		columns := strings.Split(strings.TrimSuffix(line, "\r"), "\t")
		switch {
		case len(columns) != 5:
			t.Fatalf("INDEX.tsv, line %d: %d columns, want 5", i+1, len(columns))
		case i > 0:
			needs[strings.TrimSuffix(columns[0], ".json")] = strings.TrimSpace(columns[4])
		}
	}
	return needs
}

// holdRecording holds the conversations of a recording one after the other.
func holdRecording(t *testing.T, rec *providertest.Recording, conv *providertest.Conversation) {
	t.Helper()
	srv := providertest.NewServer(t, rec, nil)
	d := recordedDaemon(t, srv.URL, agentdtest.Config{})
	for i := range conv.Sessions {
		k := newTalk(t, d, srv, conv.Wire, &conv.Sessions[i])
		for _, turn := range k.said.Turns {
			k.turn(turn.Prompt, turn.Steps)
		}
		if i == len(conv.Sessions)-1 {
			k.exhausted()
		}
	}
	if left := srv.Left(); left != 0 {
		t.Errorf("%d recorded model calls were not made", left)
	}
}

// turn runs a recorded turn and compares it with the recording.
func (k *talk) turn(prompt string, steps []providertest.Step) {
	k.t.Helper()
	first := len(k.srv.Received())
	out := k.run(prompt, steps)
	last := steps[len(steps)-1]
	code, fails := stepCode(last)
	switch {
	case !fails && out.err != nil:
		k.t.Errorf("the turn failed: %v", out.err)
	case !fails && out.completed == last.Open():
		k.t.Errorf("completed: %t, calls left open: %t", out.completed, last.Open())
	case fails && (out.err == nil || !strings.Contains(out.err.Message, last.Message)):
		k.t.Errorf("error %v, want %v: %s", out.err, code, last.Message)
	case fails && out.err.Code != code:
		k.t.Errorf("error %v, want code %v", out.err, code)
	}
	if fails {
		k.failed = last.Usage
		steps = steps[:len(steps)-1]
	}
	k.expect(out, prompt, steps, first)
	k.failed = providertest.Usage{}
}

// exhausted runs a turn for which the recording has no answer. It fails, and
// what the model was asked shows that the session could have gone on.
func (k *talk) exhausted() {
	k.t.Helper()
	const prompt = "One more thing."
	first := len(k.srv.Received())
	out := k.run(prompt, nil)
	if out.err == nil || out.err.Code != client.ErrModelUnavailable || !strings.Contains(out.err.Message, "all have been answered") {
		k.t.Errorf("a turn beyond the recording: error %v, completed: %t", out.err, out.completed)
	}
	k.expect(out, prompt, nil, first)
}

// stepCode is the code with which a step has to fail, and false if it has not.
func stepCode(s providertest.Step) (client.Code, bool) {
	switch {
	case s.Finish == "PROHIBITED_CONTENT":
		return client.ErrContentBlocked, true
	case s.Status == 429:
		return client.ErrRateLimited, true
	case s.Status == 401 || s.Status == 403:
		return client.ErrAuthFailed, true
	case s.Status == 400:
		return client.ErrInvalidRequest, true
	default:
		return client.ErrModelUnavailable, s.Status >= 400
	}
}
