package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
)

// newRegistry returns the models that the config describes, and their providers.
func newRegistry(cfg *Config) (reg *models.Registry, all []model.Provider, err error) {
	if all, err = providers(cfg); err != nil {
		return nil, nil, err
	}
	if reg, err = models.NewRegistry(all...); err != nil {
		return nil, nil, fmt.Errorf("daemon: %w", err)
	}
	if cfg.script == nil {
		reg, err = withPrices(reg, cfg.Prices)
	}
	return reg, all, err
}

// capabilities are what the daemon says of itself; builtins are the tools of its engine.
func capabilities(cfg *Config, reg *models.Registry, builtins []string) *agentdv1.GetCapabilitiesResponse {
	turns := cfg.Turns.WithDefaults()
	out := &agentdv1.GetCapabilitiesResponse{
		Version:        cfg.Version,
		BuiltinTools:   builtins,
		MaxPromptBytes: int64(turns.MaxPromptBytes),
		Retention:      durationpb.New(turns.Retention),
	}
	if text := turns.Instruction; text != "" {
		sum := sha256.Sum256([]byte(text))
		out.InstructionBytes, out.InstructionSha256 = int64(len(text)), hex.EncodeToString(sum[:])
	}
	for _, st := range reg.Providers() {
		out.Providers = append(out.Providers, &agentdv1.Provider{
			Name: st.Provider, HasKey: st.HasKey || !st.NeedsKey, KeyHeader: st.KeyHeader, BuiltinTools: st.Builtins,
		})
	}
	return out
}

// listModels are the models that are known by name. Scripts may come and go while the
// daemon runs.
func listModels(reg *models.Registry) *agentdv1.ListModelsResponse {
	out := &agentdv1.ListModelsResponse{PricesDate: reg.PricesDate()}
	for _, st := range reg.Providers() {
		for _, name := range st.Models {
			known := reg.Knows(st.Provider, strings.TrimPrefix(name, st.Provider+"/"))
			out.Models = append(out.Models, &agentdv1.Model{
				Name: name, Provider: st.Provider, Available: st.HasKey || !st.NeedsKey, BuiltinTools: st.Builtins,
				Price: listPrice(known.Entry), Capabilities: modelCapabilities(known.Capabilities),
				Source: known.Source, Retires: known.Retires,
			})
		}
	}
	return out
}

// logModels says which providers the server has a key for, how many tenants have keys of their own, and what to do
// when there is none.
func logModels(log *slog.Logger, now *live) {
	tenants := 0
	for _, s := range now.tenants {
		if s.registry.HasTenantKeys() {
			tenants++
		}
	}
	var with, without, variables, headers, endpoints []string
	for _, st := range now.registry.Providers() {
		if at := shown(st.Endpoint); at != "" {
			endpoints = append(endpoints, st.Provider+"="+at)
		}
		if !st.NeedsKey {
			continue
		}
		variables, headers = append(variables, st.KeyVariables...), append(headers, st.KeyHeader)
		if st.HasKey {
			with = append(with, st.Provider)
		} else {
			without = append(without, st.Provider)
		}
	}
	log.Debug("endpoints of providers", slog.Any("endpoints", endpoints))
	if len(with) > 0 || tenants > 0 {
		log.Info("models", slog.Any("server_keys", with), slog.Any("callers_keys_only", without),
			slog.Int("tenants_with_keys", tenants))
		return
	}
	log.Warn("no provider key: only the models echo and scripted/… (try scripted/demo) work without one",
		slog.String("set", oneOf(variables)), slog.String("or_have_callers_send", oneOf(headers)))
}

// shown is an address without what it says of a user, and without a query, which may
// hold a key.
func shown(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// oneOf lists names, each once: "a, b or c".
func oneOf(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
