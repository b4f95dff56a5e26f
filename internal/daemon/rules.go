package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/apzuk3/agentd/adkbridge"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/scripted"
	"github.com/apzuk3/agentd/internal/protorules"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/record"
)

// TreeRules returns what a daemon with default limits has against a tree and its
// tools, before it runs: a function that returns the first reason, without its
// code, or nil. Models are judged by their names, no key is needed; whether a
// daemon has a script, or a provider that is not built in, is for that daemon to say.
// The function may be called from any goroutine and opens no connection. others are
// providers besides the built-in ones.
func TreeRules(others ...model.Provider) (func(*agentdv1.Agent, []*agentdv1.Tool) error, error) {
	reg, _, err := newRegistry(&Config{ExtraProviders: others})
	if err != nil {
		return nil, err
	}
	rules, err := protorules.Protocol()
	if err != nil {
		return nil, fmt.Errorf("daemon: %w", err)
	}
	runner := adkbridge.New(adkbridge.Config{Resolve: byName(reg, true)})
	return func(agent *agentdv1.Agent, tools []*agentdv1.Tool) error {
		if err := runner.Check(context.Background(), &record.Spec{Agent: agent, Tools: tools}, nil); err != nil {
			return err
		}
		// The protocol's own rules, in its own words, come last: where both know a
		// rule the engine says it better.
		for _, t := range tools {
			for _, broken := range rules.Broken(t, 1) {
				return fmt.Errorf("tool %q: %s", t.GetName(), broken)
			}
		}
		for _, broken := range rules.Broken(agent, 1) {
			return errors.New(broken.String())
		}
		return nil
	}, nil
}

// byName finds a model's provider; nothing but the model's name counts. others: there may be providers that the registry
// does not have.
func byName(reg *models.Registry, others bool) resolver {
	builtins := map[string][]string{}
	for _, st := range reg.Providers() {
		builtins[st.Provider] = st.Builtins
	}
	// What a script has is for a daemon to say, see TreeRules; it may be recorded
	// calls.
	builtins["scripted"] = scripted.TapeBuiltins()
	all := slices.Concat(slices.Collect(maps.Values(builtins))...)
	return func(name string, _ map[string]string) (adkbridge.Model, error) {
		provider, _, err := reg.Route(name)
		if others && errors.Is(err, models.ErrNoProvider) {
			return adkbridge.Model{Builtins: all}, nil
		}
		if err != nil {
			return adkbridge.Model{}, err
		}
		return adkbridge.Model{Provider: provider, Builtins: builtins[provider]}, nil
	}
}
