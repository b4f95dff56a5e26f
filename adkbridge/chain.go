package adkbridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// chain makes one model call: to the agent's model, and to its fallback models in order
// while the ones before fail for good and nothing of a response was shown. One
// goroutine uses it.
type chain struct {
	// last is the model that was called last.
	last *agentModel
	// rest are those that are left.
	rest []*node
	// failures are the models that failed, without the last one.
	failures failures
	// unrecorded is why the change to another model could not be recorded.
	unrecorded error
}

// newChain is a call to an agent with one model after the other.
func newChain(t *turn, models []*node) *chain {
	return &chain{last: &agentModel{t: t, n: models[0]}, rest: models[1:]}
}

// models are those that the call may yet be made to.
func (c *chain) models() []*node { return append([]*node{c.last.n}, c.rest...) }

// takeCutUsage takes over what the log has of the call on a branch: a crash has cut it off.
func (c *chain) takeCutUsage(branch string) {
	t, agent := c.last.t, roomKey{c.last.n.name, lineage.Room(branch)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if cut := t.cut[agent]; cut != nil {
		c.last.recorded = c.last.recorded.Add(cut.usage)
		delete(t.cut, agent)
	}
}

// generate calls one model after the other until one responds, or fails in a way that
// another model would not mend. Each change is recorded before the next model is
// called. call calls one model and reports whether anything of its response was shown;
// replaceable is false for the last model.
func (c *chain) generate(
	ctx context.Context, messageID string,
	call func(m *agentModel, replaceable bool) (resp *model.Response, shown bool, err error),
) (*model.Response, error) {
	for {
		resp, shown, err := call(c.last, len(c.rest) > 0)
		if err == nil || shown || len(c.rest) == 0 || ctx.Err() != nil || !mayFallBack(err) {
			return resp, err
		}
		if failed := c.fallBack(ctx, messageID, err); failed != nil {
			c.unrecorded = fmt.Errorf("%s: the change to another model could not be recorded: %w", c.last.n.at(),
				failed)
			return nil, errors.Join(c.unrecorded, err)
		}
		// A server that stops calls no other model.
		if err := c.last.t.run.Wait(ctx, true, context.Context.Err); err != nil {
			return nil, err
		}
	}
}

// mayFallBack reports whether the next model is called after this error. An error of
// the conversation itself, its content or its length, is not passed on. An invalid
// request is: other models may have the settings and the tools that this one refuses.
// Usage that could not be recorded would be lost behind the next response, so such a
// call is not passed on either.
func mayFallBack(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && !modelcall.Unreported(err) && slices.Contains([]model.Kind{
		model.KindUnavailable, model.KindRateLimited, model.KindTimeout, model.KindAuth, model.KindInvalid,
	}, e.Kind)
}

// fallBack takes the next model in place of the one that has failed.
func (c *chain) fallBack(ctx context.Context, messageID string, err error) error {
	was := c.last
	usage := was.usage(modelcall.Took(err))
	reported := fault.As(modelError(was.n, err))
	change := record.ModelFallback{
		MessageID: messageID,
		Path:      was.n.path,
		Model:     was.n.modelName,
		Next:      c.rest[0].modelName,
		Code:      reported.Code,
		Message:   reported.Message,
	}
	if usage.Calls > 0 {
		change.Usage = usage
	}
	if err := was.t.run.FellBack(ctx, change); err != nil {
		return err
	}
	c.failures = append(c.failures, failure{was.n.modelName, err})
	was.t.log.WarnContext(ctx, "a model has failed, another one is called",
		slog.String("session", was.t.run.SessionID()), slog.String("turn", was.t.run.TurnID()),
		slog.String("agent", was.n.at()),
		slog.String("next", c.rest[0].modelName), slog.Any("error", c.failures[len(c.failures)-1:]))
	c.last, c.rest = &agentModel{t: was.t, n: c.rest[0], recorded: was.recorded.Add(*usage)}, c.rest[1:]
	return nil
}

// callError is the error of a call that has failed with err: its code is that of the
// last model, and its message names each model that was called.
func (c *chain) callError(err error) error {
	if c.unrecorded != nil {
		return c.unrecorded
	}
	last := modelError(c.last.n, err)
	e, ok := errors.AsType[*fault.Error](last)
	if len(c.failures) == 0 || !ok {
		return last
	}
	return fault.Errorf(e.Code, "%s: no model gave a response: %w", c.last.n.at(),
		append(c.failures, failure{c.last.n.modelName, err}))
}

// failure is how a model has failed.
type failure struct {
	model string
	err   error
}

// failures are how one model after the other has failed; never empty.
type failures []failure

// Error names all failures.
func (f failures) Error() string {
	var out []string
	for _, one := range f {
		wait := ""
		if e, ok := errors.AsType[*model.Error](one.err); ok {
			wait = waitText(e)
		}
		out = append(out, fmt.Sprintf("model %q: %v%s", one.model, one.err, wait))
	}
	return strings.Join(out, ", then ")
}

// LogValue leaves out the providers' own words.
func (f failures) LogValue() slog.Value {
	var out []string
	for _, one := range f {
		text := one.err.Error()
		if e, ok := errors.AsType[*model.Error](one.err); ok {
			text = e.LogValue().String()
		}
		out = append(out, fmt.Sprintf("model %q: %s", one.model, text))
	}
	return slog.StringValue(strings.Join(out, ", then "))
}

// Unwrap returns the last one.
func (f failures) Unwrap() error { return f[len(f)-1].err }
