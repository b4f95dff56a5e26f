package modelcall

import (
	"context"
	"errors"
	"time"

	"github.com/apzuk3/agentd/model"
)

// Outcomes of a try besides the kinds of model.Error.
const (
	// OutcomeOK is a response.
	OutcomeOK = "ok"
	// OutcomeCanceled is a try whose caller has left.
	OutcomeCanceled = "canceled"
	// OutcomeSuspended is a try that was not made, since the model keeps failing.
	OutcomeSuspended = "suspended"
	// OutcomeError is a fault of agentd.
	OutcomeError = "error"
)

// Tried is one try of a model call that is over.
type Tried struct {
	// Circuit is the model and who pays.
	Circuit Circuit
	// Try is its number, from 1.
	Try int
	// Outcome is one of the constants above, or a model.Kind.
	Outcome string
	// Took is how long the try took.
	Took time.Duration
	// Usage is what the provider reported, zero for nothing.
	Usage model.Usage
	// Known is true for a model of which the server knows something, see models.Knowledge.
	Known bool
	// Nanos is the price in billionths of a US dollar, if it is known (Priced).
	Nanos  int64
	Priced bool
}

// reporting calls report after each try. It is immutable.
type reporting struct {
	llm     model.LLM
	circuit Circuit
	report  func(context.Context, Tried)
}

// Generate implements LLM.
func (r *reporting) Generate(
	ctx context.Context, req *model.Request, emit func(model.Delta),
) (*model.Response, error) {
	began := time.Now()
	resp, err := r.llm.Generate(ctx, req, emit)
	r.report(ctx, Tried{
		Circuit: r.circuit, Try: max(From(ctx).Try, 1), Outcome: outcomeOf(ctx, err), Took: time.Since(began),
		Usage: outcome{resp, err}.usage(),
	})
	return resp, err
}

// outcomeOf names how a try ended.
func outcomeOf(ctx context.Context, err error) string {
	e, ok := errors.AsType[*model.Error](err)
	switch {
	case err == nil:
		return OutcomeOK
	case ctx.Err() != nil:
		return OutcomeCanceled
	case !ok:
		return OutcomeError
	case e.Suspended:
		return OutcomeSuspended
	}
	return string(e.Kind)
}
