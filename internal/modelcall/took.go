package modelcall

import (
	"errors"
	"slices"

	"github.com/apzuk3/agentd/model"
)

// Took returns what the tries of a failed call took, in their order, as far as providers reported
// it.
func Took(err error) []model.Usage {
	if e, ok := errors.AsType[*model.Error](err); ok {
		out := slices.Clone(e.Failed)
		if e.Usage != nil {
			out = append(out, *e.Usage)
		}
		return out
	}
	// The error of a context, to which model.Usage.Spent has added the usage.
	if aborted, ok := errors.AsType[interface {
		error
		Took() model.Usage
	}](err); ok {
		return []model.Usage{aborted.Took()}
	}
	return nil
}
