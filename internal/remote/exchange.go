package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/internal/backoff"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/fault"
)

// Bounds of one answer. A backend that goes beyond them is not read further.
const (
	maxText   = 4 << 20 // bytes
	maxCalls  = 512
	maxUses   = 1000
	maxEvents = 100_000
	maxInput  = 1 << 20 // of a call, in bytes
	maxRaw    = 1 << 20 // of an event
	maxRaws   = 4 << 20 // of all events
)

// The waits between attempts: 500·2^min(n,7) ms, with n from 0 since the last boundary.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = firstWait << 7
)

// Answer is what a backend has done from an input to the next boundary.
type Answer struct {
	// Text are its blocks of text, joined by line breaks.
	Text string
	// Calls are those that it waits for, in the order asked.
	Calls []Call
	Uses  []Use
	// Usages are what the calls of models took of which the backend tells.
	Usages   []model.Usage
	Served   string
	Terminal Terminal
	Reason   string
	// Cursor is where the backend is now.
	Cursor string
	// Raw are the events as they came, one a line, if they were asked for. Truncated is true if there were more.
	Raw       []byte
	Truncated bool
}

// Options are what an exchange may have besides.
type Options struct {
	// Said, if not nil, receives the text as it comes, with the breaks between blocks. What it has received stays.
	Said func(text string)
	// Raw keeps the events as they came.
	Raw bool
	// Retrying, if not nil, is told that an attempt has failed and how long the wait for the next one is.
	Retrying func(err error, wait time.Duration)
}

// Exchange gives a backend an input, unless the backend has it already, and reads what follows up to the next boundary.
// It goes on until ctx ends, whose cause is the error then, or until the backend refuses for good: the error is an
// *Error then, and the answer, never nil, has what there was before.
func Exchange(ctx context.Context, d Driver, s Session, in Input, opts Options) (*Answer, error) {
	x := &exchange{s: s, in: in, opts: opts}
	x.reset()
	var err error
	switch d := d.(type) {
	case Pusher:
		err = x.repeat(ctx, func() error { return x.push(ctx, d) })
	case Puller:
		err = x.repeat(ctx, func() error { return x.pull(ctx, d) })
	default:
		err = fmt.Errorf("the driver %T neither pushes nor answers", d)
	}
	x.answer.Text = strings.Join(x.texts, "\n")
	x.answer.Calls, x.answer.Uses = x.waiting(), x.uses
	return x.answer, err
}

// Retry calls f until it succeeds, fails for good, or ctx ends. again is true from the second call on.
func Retry(ctx context.Context, f func(again bool) error) error {
	again := false
	return (&exchange{}).repeat(ctx, func() error {
		err := f(again)
		again = true
		return err
	})
}

// exchange is one call of Exchange.
type exchange struct {
	s    Session
	in   Input
	opts Options

	answer *Answer
	sent   bool // the backend has the input
	seen   map[string]bool
	heard  map[string]bool
	texts  []string
	bytes  int // of texts
	calls  []Call
	uses   []Use
	stop   *Stop
}

func (x *exchange) reset() {
	x.answer = &Answer{Cursor: x.s.Cursor}
	x.seen, x.heard = map[string]bool{}, map[string]bool{}
	x.texts, x.calls, x.uses, x.bytes = nil, nil, nil, 0
	x.stop = nil
}

// repeat makes attempts until one succeeds, or fails for good.
func (x *exchange) repeat(ctx context.Context, attempt func() error) error {
	for n := 0; ; n++ {
		err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if e, ok := errors.AsType[*Error](err); !ok || !e.Temporary {
			return err
		}
		wait := backoff.Bound(firstWait, lastWait, n)
		if x.opts.Retrying != nil {
			x.opts.Retrying(err, wait)
		}
		if backoff.Wait(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// errStop ends the reading of events at a boundary.
var errStop = errors.New("a boundary")

// push is one attempt with a backend that pushes.
func (x *exchange) push(ctx context.Context, d Pusher) error {
	stream, err := d.Connect(ctx, x.s)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := d.List(ctx, x.s, x.take); err != nil && !errors.Is(err, errStop) {
		return err
	}
	for {
		if x.stop == nil && !x.sent {
			if err := d.Send(ctx, x.s, x.in); err != nil {
				return err
			}
			x.sent = true
		}
		if x.stop != nil {
			over, err := x.deny(ctx, d)
			if over || err != nil {
				return err
			}
		}
		ev, err := stream.Next()
		if err != nil {
			return err
		}
		if err := x.take(ev); err != nil && !errors.Is(err, errStop) {
			return err
		}
	}
}

// deny tells a backend that asks about calls of its own that nobody approves them. over is false when the backend goes
// on by itself then.
func (x *exchange) deny(ctx context.Context, d Pusher) (over bool, err error) {
	asked := slices.DeleteFunc(slices.Clone(x.stop.Calls), func(id string) bool {
		return !slices.ContainsFunc(x.uses, func(u Use) bool { return u.ID == id })
	})
	asks := slices.DeleteFunc(slices.Clone(asked), func(id string) bool { return x.heard[id] })
	if len(asks) > 0 {
		if err := d.Send(ctx, x.s, Input{Denied: asks}); err != nil {
			return false, err
		}
		for _, id := range asks {
			x.heard[id] = true
		}
	}
	if len(asked) > 0 && len(x.waiting()) == 0 {
		x.stop = nil
		return false, nil
	}
	x.finish()
	return true, nil
}

// pull is one attempt with a backend that answers.
func (x *exchange) pull(ctx context.Context, d Puller) error {
	x.reset()
	x.sent = true
	if err := d.Poll(ctx, x.s, x.in, x.take); err != nil && !errors.Is(err, errStop) {
		return err
	}
	if x.stop == nil {
		return &Error{Code: unavailable, Message: "the answer ended before it said why it stopped", Temporary: true}
	}
	if x.opts.Said != nil && len(x.texts) > 0 {
		x.opts.Said(strings.Join(x.texts, "\n"))
	}
	x.finish()
	return nil
}

func (x *exchange) finish() {
	x.answer.Terminal, x.answer.Reason = x.stop.Terminal, x.stop.Reason
	if x.stop.Terminal == RequiresAction && len(x.waiting()) == 0 {
		x.answer.Terminal, x.answer.Reason = Terminated, "it waits for results, and has asked for none"
	}
}

// waiting are the calls that the backend waits for.
func (x *exchange) waiting() []Call {
	switch {
	case x.stop == nil || x.stop.Terminal != RequiresAction:
		return nil
	case x.stop.Calls == nil:
		return x.calls
	}
	var out []Call
	for _, id := range x.stop.Calls {
		if i := slices.IndexFunc(x.calls, func(c Call) bool { return c.ID == id }); i >= 0 {
			out = append(out, x.calls[i])
		}
	}
	return out
}

// take adds an event to the answer. It returns errStop at a boundary.
func (x *exchange) take(ev Event) error {
	if ev.ID != "" {
		if x.seen[ev.ID] {
			return nil
		}
		if x.seen[ev.ID] = true; len(x.seen) > maxEvents {
			return tooMuch("%d events", maxEvents)
		}
	}
	if ev.Cursor != "" {
		x.answer.Cursor = ev.Cursor
	}
	x.keepRaw(ev.Raw)
	x.hear(ev.Heard)
	if ev.Usage != nil && ev.Usage.Valid() {
		x.answer.Usages = append(x.answer.Usages, *ev.Usage)
	}
	if ev.Served != "" {
		x.answer.Served = ev.Served
	}
	for _, add := range []func(Event) error{x.addText, x.addCall, x.addUse} {
		if err := add(ev); err != nil {
			return err
		}
	}
	if ev.Stop != nil && x.sent { // one that comes before is that of the input before
		x.stop = ev.Stop
		return errStop
	}
	return nil
}

// hear notes what the backend has of the input.
func (x *exchange) hear(what string) {
	if what == "" {
		return
	}
	x.heard[what] = true
	if what == HeardMessage && x.in.Message != "" ||
		x.in.Message == "" && slices.ContainsFunc(x.in.Results, func(r Result) bool { return r.Call.ID == what }) {
		x.sent = true
	}
}

func (x *exchange) addText(ev Event) error {
	if ev.Text == "" {
		return nil
	}
	if x.bytes += len(ev.Text) + 1; x.bytes > maxText {
		return tooMuch("%d bytes of text", maxText)
	}
	x.texts = append(x.texts, strings.ToValidUTF8(ev.Text, "\uFFFD"))
	if x.opts.Said != nil && ev.ID != "" { // an answer that may come again is shown when it is whole
		text := x.texts[len(x.texts)-1]
		if len(x.texts) > 1 {
			text = "\n" + text
		}
		x.opts.Said(text)
	}
	return nil
}

func (x *exchange) addCall(ev Event) error {
	if ev.Call == nil {
		return nil
	}
	call := *ev.Call
	if len(call.Input) == 0 {
		call.Input = json.RawMessage("{}")
	}
	switch {
	case len(call.Input) > maxInput:
		return tooMuch("%d bytes of arguments of a call", maxInput)
	case len(x.calls) == maxCalls:
		return tooMuch("%d calls of tools", maxCalls)
	}
	x.calls = append(x.calls, call)
	return nil
}

// addUse adds a run of a backend's tool, or what has come of one that is there.
func (x *exchange) addUse(ev Event) error {
	if ev.Use == nil {
		return nil
	}
	if i := slices.IndexFunc(x.uses, func(u Use) bool { return u.ID == ev.Use.ID }); i >= 0 && ev.Use.ID != "" {
		x.uses[i].Output, x.uses[i].Error = ev.Use.Output, ev.Use.Error
		return nil
	}
	if len(x.uses) == maxUses {
		return tooMuch("%d runs of tools", maxUses)
	}
	x.uses = append(x.uses, *ev.Use)
	return nil
}

func (x *exchange) keepRaw(raw []byte) {
	if !x.opts.Raw || len(raw) == 0 {
		return
	}
	if len(raw) > maxRaw || len(x.answer.Raw)+len(raw) > maxRaws {
		x.answer.Truncated = true
		return
	}
	x.answer.Raw = append(append(x.answer.Raw, raw...), '\n')
}

func tooMuch(format string, args ...any) error {
	return &Error{Code: fault.LimitExceeded,
		Message: "an answer has more than " + fmt.Sprintf(format, args...) + ", which is how many are read"}
}
