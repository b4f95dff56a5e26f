package adkbridge

import (
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
)

// provided is what a model's provider has run, in the session's terms; nil for
// nothing.
func provided(p *model.Provided) *session.Provided {
	if p.Empty() {
		return nil
	}
	out := &session.Provided{}
	for _, u := range p.Uses {
		out.Uses = append(out.Uses, session.ProviderUse(u))
	}
	for _, c := range p.Citations {
		out.Citations = append(out.Citations, session.Citation(c))
	}
	return out
}
