package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/client"
)

// hasty is a Prompter on an input that is closed: it denies at once, as a program
// does that takes an empty line for a no.
func hasty(t *testing.T) client.Prompter {
	t.Helper()
	return client.PrompterFunc(func(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
		t.Errorf("a watcher's person was asked %s", in.ID)
		return client.Deny("no input"), nil
	})
}

// Who resolves what a turn asks is said per run. A client that attaches resolves
// nothing by the options of its client, whatever those are; one that observes
// never does.
func TestWatchersResolveNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    func(*testing.T) []client.Option
		watch   []client.AttachOption
		observe bool
	}{
		"attached":  {watch: nil},
		"observing": {watch: []client.AttachOption{client.Observe()}, observe: true},
		"observing with a prompter among the defaults": {
			opts: func(t *testing.T) []client.Option {
				t.Helper()
				return []client.Option{client.WithPrompter(hasty(t)), client.WithConcurrency(1)}
			},
			watch: []client.AttachOption{client.Observe()}, observe: true,
		},
		"with nobody to ask": {watch: []client.AttachOption{client.WithPrompter(nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			s, clerk := newDaemon(t), newAsker()
			c, _ := s.client(t, client.WithPrompter(clerk))
			addPay(t, c)
			run := follow(c.Run(t.Context(), payer(), "pay"))
			id := run.until(t, isStarted).SessionID
			s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`}})
			q := await(t, clerk.asked, "question")
			opts := []client.Option{client.WithPrompter(hasty(t))}
			if tc.opts != nil {
				opts = append(opts, tc.opts(t)...)
			}
			other, w := s.client(t, opts...)
			watch := follow(other.Attach(t.Context(), id, tc.watch...))
			watch.until(t, isAsked)
			if first := w.last(); first.GetObserve() != tc.observe || len(first.GetToolNames()) > 0 {
				t.Errorf("the watcher attached with %v", first)
			}
			w.cut()
			w.mend()
			q.says <- said{Resolution: client.Approve()}
			watch.until(t, isResolved)
			if next := w.last(); next == nil || next.AfterSeq == nil || next.GetObserve() != tc.observe {
				t.Errorf("the watcher came back with %v", next)
			}
			if call := s.says(t, "done"); !slices.Equal(call.results, []string{`{"output":"paid 100"}`}) {
				t.Errorf("the model was told %v", call.results)
			}
			run.rest(t)
			watch.rest(t)
		})
	}
}

// An Attach cannot both watch only and resolve.
func TestObserveContradicted(t *testing.T) {
	c := dial(t, serve(t, func(context.Context, *peer) error {
		t.Error("something was sent")
		return nil
	}))
	for name, opts := range map[string][]client.AttachOption{
		"a prompter":        {client.Observe(), client.WithPrompter(hasty(t))},
		"a prompter before": {client.WithPrompter(hasty(t)), client.Observe()},
		"a cancel":          {client.WithOnLeave(client.OnLeaveCancel), client.Observe()},
	} {
		for _, err := range c.Attach(t.Context(), session, opts...) {
			if !errors.Is(err, client.ErrInvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// An input that has ended is no answer: the interaction stays open, and nothing
// has gone wrong. The same holds for what a prompter returns when nobody is asked
// any more.
func TestEndOfInputIsNoResult(t *testing.T) {
	s := newDaemon(t)
	asked := make(chan *client.Interaction, 1)
	c, _ := s.client(t, client.WithPrompter(client.PrompterFunc(func(_ context.Context, in *client.Interaction) (*client.Resolution, error) {
		asked <- in
		return nil, fmt.Errorf("reading the terminal: %w", io.EOF)
	})))
	late := newAsker()
	addPay(t, c)
	run := follow(c.Run(t.Context(), payer(), "pay"))
	id := run.until(t, isStarted).SessionID
	s.next(t).gets(t, reply{calls: []string{`pay {"amount":100}`}})
	in := await(t, asked, "question")
	other, _ := s.client(t)
	watch := follow(other.Attach(t.Context(), id, client.WithPrompter(late)))
	q := await(t, late.asked, "question")
	if q.ID != in.ID {
		t.Errorf("asked %v, then %v", in, q.Interaction)
	}
	q.says <- said{Resolution: client.Approve()}
	s.says(t, "done")
	for _, events := range [][]*client.Event{run.rest(t), watch.rest(t)} {
		if slices.ContainsFunc(events, func(e *client.Event) bool { return e.Error != nil }) {
			t.Error("an error was yielded")
		}
	}
}
