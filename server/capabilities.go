package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// protocolPromptBytes is what ExecuteRequest.user_prompt may have at most,
// whatever a server allows.
const protocolPromptBytes = 1 << 20

// About describes a server to its clients.
type About struct {
	// Version is what the server calls itself.
	Version string
	// Providers are what can serve models, by name.
	Providers []Provider
	// BuiltinTools are the names that the server itself knows.
	BuiltinTools []string
	// MaxPromptBytes bounds a prompt; 0 is the protocol's own bound.
	MaxPromptBytes int
	// Retention is how long a turn waits for a client or a person.
	Retention time.Duration
	// Models are those that are known by name, in any order.
	Models []Model
	// PricesDate is the day of the prices, YYYY-MM-DD.
	PricesDate string
}

// Provider serves models.
type Provider struct {
	// Name is the one in provider/model.
	Name string
	// HasKey is true when the server has a key for it or it needs none.
	HasKey bool
	// KeyHeader is the request header that carries a caller's own key; "" for none.
	KeyHeader string
	// BuiltinTools are those that it runs.
	BuiltinTools []string
}

// Model is a model that is known by name.
type Model struct {
	// Name is what LlmAgent.model takes.
	Name string
	// Provider is one of About.Providers.
	Provider string
	// Price is nil where none is known.
	Price *agentdv1.ModelPrice
	// Capabilities is nil where none are known.
	Capabilities *agentdv1.ModelCapabilities
	// Source names where price and capabilities were read. Retires is the first day on
	// which the provider no longer serves the model, YYYY-MM-DD. Both may be empty.
	Source, Retires string
}

func (s *sessionService) GetCapabilities(
	context.Context, *connect.Request[agentdv1.GetCapabilitiesRequest],
) (*connect.Response[agentdv1.GetCapabilitiesResponse], error) {
	about := s.cfg.About()
	out := &agentdv1.GetCapabilitiesResponse{
		Version:         about.Version,
		BuiltinTools:    about.BuiltinTools,
		MaxPromptBytes:  int64(min(cmp.Or(about.MaxPromptBytes, protocolPromptBytes), protocolPromptBytes)),
		MaxMessageBytes: int64(s.cfg.MaxMessageBytes),
		Retention:       durationpb.New(about.Retention),
		Features:        features,
	}
	for _, p := range about.Providers {
		out.Providers = append(out.Providers, &agentdv1.Provider{
			Name: p.Name, HasKey: p.HasKey, KeyHeader: p.KeyHeader, BuiltinTools: p.BuiltinTools,
		})
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) ListModels(
	context.Context, *connect.Request[agentdv1.ListModelsRequest],
) (*connect.Response[agentdv1.ListModelsResponse], error) {
	about := s.cfg.About()
	out := &agentdv1.ListModelsResponse{PricesDate: about.PricesDate}
	providers := map[string]Provider{}
	for _, p := range about.Providers {
		providers[p.Name] = p
	}
	for _, m := range about.Models {
		p := providers[m.Provider]
		out.Models = append(out.Models, &agentdv1.Model{
			Name: m.Name, Provider: m.Provider, Available: p.HasKey,
			Price: m.Price, Capabilities: m.Capabilities, BuiltinTools: p.BuiltinTools,
			Source: m.Source, Retires: m.Retires,
		})
	}
	slices.SortFunc(out.GetModels(), func(a, b *agentdv1.Model) int {
		return cmp.Or(cmp.Compare(a.GetProvider(), b.GetProvider()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return connect.NewResponse(out), nil
}
