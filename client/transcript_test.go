package client_test

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/client"
)

func chunk(agent, message, text string) client.EventData {
	return &client.OutputChunk{AgentPath: []string{"root", agent}, MessageID: message, Content: text, IsThought: strings.HasPrefix(text, "hm")}
}

func completed(agent, message string) client.EventData {
	return &client.MessageCompleted{AgentPath: []string{"root", agent}, MessageID: message}
}

// eventsOf yields events of the data, and then the error if there is one.
func eventsOf(fails error, list ...client.EventData) iter.Seq2[*client.Event, error] {
	return func(yield func(*client.Event, error) bool) {
		for _, data := range list {
			event := &client.Event{Data: data}
			event.OutputChunk, _ = data.(*client.OutputChunk)
			if !yield(event, nil) {
				return
			}
		}
		if fails != nil {
			yield(nil, fails)
		}
	}
}

// leaving is eventsOf that reports whether its loop was left.
func leaving(left *bool, list ...client.EventData) iter.Seq2[*client.Event, error] {
	return func(yield func(*client.Event, error) bool) {
		eventsOf(nil, list...)(func(event *client.Event, err error) bool {
			*left = !yield(event, err)
			return !*left
		})
	}
}

// brief is a message in a few characters.
func brief(m client.Message) string {
	text := m.AgentPath[len(m.AgentPath)-1] + m.ID + "=" + m.Thoughts + "|" + m.Text
	if m.Completed {
		text += "."
	}
	return text
}

func TestTranscript(t *testing.T) {
	retract := func(id string) client.EventData { return &client.MessageRetracted{MessageID: id} }
	for name, tc := range map[string]struct {
		list []client.EventData
		want []string
		text string
	}{
		"nothing": {nil, nil, ""},
		"messages of agents at the same time": {
			[]client.EventData{chunk("a", "1", "hm"), chunk("b", "2", "two"), chunk("a", "1", "one"), completed("a", "1"), chunk("a", "3", " three")},
			[]string{"a1=hm|one.", "b2=|two", "a3=| three"}, "one three\n\ntwo",
		},
		"one is retracted": {
			[]client.EventData{chunk("a", "1", "one"), chunk("b", "2", "two"), retract("1"), chunk("a", "1", "anew")},
			[]string{"a1=|anew", "b2=|two"}, "anew\n\ntwo",
		},
		"the unfinished are retracted": {
			[]client.EventData{chunk("a", "1", "one"), &client.ModelCallEnded{AgentPath: []string{"root", "a"}}, chunk("a", "2", "lost"), chunk("b", "3", "lost"), retract("")},
			[]string{"a1=|one"}, "one",
		},
		"what is complete is not said again": {
			[]client.EventData{chunk("a", "1", "one"), completed("a", "1"), retract(""), chunk("a", "1", " more")},
			[]string{"a1=|one more."}, "one more",
		},
		"what is finished may be said again": {
			[]client.EventData{chunk("a", "1", "one"), &client.StateUpdate{}, retract(""), chunk("a", "1", "anew")},
			[]string{"a1=|anew"}, "anew",
		},
		"text of no message stays":    {[]client.EventData{chunk("a", "", "one"), retract("")}, []string{"a=|one"}, "one"},
		"a message that is not known": {[]client.EventData{completed("c", "9"), retract("8")}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var all client.Transcript
			for event, err := range eventsOf(nil, tc.list...) {
				if err := errors.Join(err, all.Add(event)); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, m := range all.Messages() {
				got = append(got, brief(m))
			}
			if !slices.Equal(got, tc.want) || all.Text() != tc.text {
				t.Errorf("got %q, %q, want %q, %q", got, all.Text(), tc.want, tc.text)
			}
		})
	}
}

func TestTranscriptIsBounded(t *testing.T) {
	var all client.Transcript
	mib := strings.Repeat("x", 1<<20)
	add := func() error { return all.Add(&client.Event{Data: chunk("a", "1", mib)}) }
	for range 64 {
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(); !errors.Is(err, client.ErrLimitExceeded) || len(all.Text()) != 64<<20 {
		t.Errorf("%d bytes are held, and %v", len(all.Text()), err)
	}
}

// A message is yielded once, when it is complete, and at the end those that are not.
func TestMessagesOf(t *testing.T) {
	broken := errors.New("broken")
	list := []client.EventData{
		chunk("a", "1", "one"), chunk("b", "2", "lost"), completed("a", "1"), &client.MessageRetracted{MessageID: "2"},
		chunk("b", "2", "two"), chunk("a", "3", "half"), completed("b", "2"), completed("a", "9"),
	}
	var got []string
	for m, err := range client.MessagesOf(eventsOf(broken, list...)) {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, brief(*m))
	}
	if want := []string{"a1=|one.", "b2=|two.", "a3=|half", "broken"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	left := false
	for m, err := range client.MessagesOf(leaving(&left, list...)) {
		if err != nil || m.ID != "1" {
			t.Errorf("first came %v, %v", m, err)
		}
		break
	}
	if !left {
		t.Error("the loop of the events goes on")
	}
}

func TestTextOf(t *testing.T) {
	broken := errors.New("broken")
	list := []client.EventData{&client.TurnStarted{}, chunk("a", "1", "hm"), chunk("a", "1", "one "), chunk("a", "1", ""), chunk("b", "2", "two")}
	var got []string
	for text, err := range client.TextOf(eventsOf(broken, list...)) {
		if err != nil {
			text = err.Error()
		}
		got = append(got, text)
	}
	if want := []string{"one ", "two", "broken"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	left := false
	for text, err := range client.TextOf(leaving(&left, list...)) {
		if err != nil || text != "one " {
			t.Errorf("first came %q, %v", text, err)
		}
		break
	}
	if !left {
		t.Error("the loop of the events goes on")
	}
}
