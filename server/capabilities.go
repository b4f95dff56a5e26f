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

// About is what a server tells of itself.
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
}

// Model is a model that is known by name.
type Model struct {
	// Name is what LlmAgent.model takes.
	Name string
	// Provider is one of About.Providers.
	Provider string
	// Price is nil where none is known.
	Price *Price
}

// Price is in US dollars per million tokens.
type Price struct {
	// Input and Cached are of the request, Output of the answer.
	Input, Cached, Output float64
}

func (s *sessionService) GetCapabilities(context.Context, *connect.Request[agentdv1.GetCapabilitiesRequest]) (*connect.Response[agentdv1.GetCapabilitiesResponse], error) {
	about := s.cfg.About()
	out := &agentdv1.GetCapabilitiesResponse{
		Version:         about.Version,
		BuiltinTools:    about.BuiltinTools,
		MaxPromptBytes:  int64(min(cmp.Or(about.MaxPromptBytes, protocolPromptBytes), protocolPromptBytes)),
		MaxMessageBytes: int64(s.cfg.MaxMessageBytes),
		Retention:       durationpb.New(about.Retention),
	}
	for _, p := range about.Providers {
		out.Providers = append(out.Providers, &agentdv1.GetCapabilitiesResponse_Provider{Name: p.Name, HasKey: p.HasKey, KeyHeader: p.KeyHeader})
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) ListModels(context.Context, *connect.Request[agentdv1.ListModelsRequest]) (*connect.Response[agentdv1.ListModelsResponse], error) {
	about := s.cfg.About()
	out := &agentdv1.ListModelsResponse{PricesDate: about.PricesDate}
	for _, m := range about.Models {
		model := &agentdv1.Model{
			Name: m.Name, Provider: m.Provider,
			Available: slices.ContainsFunc(about.Providers, func(p Provider) bool { return p.Name == m.Provider && p.HasKey }),
		}
		if m.Price != nil {
			model.Price = &agentdv1.Model_Price{Input: m.Price.Input, Cached: m.Price.Cached, Output: m.Price.Output}
		}
		out.Models = append(out.Models, model)
	}
	slices.SortFunc(out.GetModels(), func(a, b *agentdv1.Model) int {
		return cmp.Or(cmp.Compare(a.GetProvider(), b.GetProvider()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return connect.NewResponse(out), nil
}
