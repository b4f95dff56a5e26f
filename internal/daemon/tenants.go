package daemon

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/apzuk3/agentd/internal/configfile"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/internal/tenantfile"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/limits"
)

// everyTenant is, in the place of a name, each tenant that is not named.
const everyTenant = "*"

// readTenants reads what the config's file says of tenants, who may have keys of these providers.
func readTenants(cfg *Config, all []model.Provider) (map[string]tenantfile.Tenant, error) {
	if cfg.Tenants == "" {
		return nil, nil
	}
	data, err := readFile(cfg.Tenants, tenantfile.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("daemon: tenants: %w", err)
	}
	around := tenantfile.Around{
		Getenv: cfg.getenv, ReadKey: configfile.ReadKey, ReadPrices: readPrices, Providers: map[string]bool{},
	}
	for _, p := range all {
		if about := p.Describe(); !about.Keyless && about.KeysOf == "" {
			_, may := addressOf[about.Name]
			around.Providers[about.Name] = may && !isOneOf(cfg.ExtraProviders, about.Name)
		}
	}
	tenants, err := tenantfile.Parse(cfg.Tenants, data, around)
	if err != nil {
		return nil, fmt.Errorf("daemon: tenants: %w", err)
	}
	return tenants, nil
}

// isOneOf reports whether a provider has that name.
func isOneOf(providers []model.Provider, name string) bool {
	return slices.ContainsFunc(providers, func(p model.Provider) bool { return p.Describe().Name == name })
}

// readFile reads a file, of one that is larger than most a byte more.
func readFile(name string, most int64) ([]byte, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	return io.ReadAll(io.LimitReader(in, most+1))
}

// readPrices reads a table of prices.
func readPrices(file string) (*catalog.Table, error) {
	data, err := readFile(file, catalog.MaxBytes)
	if err != nil {
		return nil, err
	}
	return catalog.Parse(file, data)
}

// withTenants lays the budgets of tenants over the limits of each tenant.
func withTenants(l limits.Limits, tenants map[string]tenantfile.Tenant) limits.Limits {
	day, month := map[string]Budget{}, map[string]Budget{}
	maps.Copy(day, l.TenantDay)
	maps.Copy(month, l.TenantMonth)
	for name, t := range tenants {
		if t.Day != nil {
			day[name] = budgetOf(*t.Day)
		}
		if t.Month != nil {
			month[name] = budgetOf(*t.Month)
		}
	}
	l.TenantDay, l.TenantMonth = day, month
	return l
}

func budgetOf(a tenantfile.Amount) Budget { return Budget{Tokens: a.Tokens, Cost: BudgetUSD(a.Cost)} }

// keysOf are the keys of a tenant.
func keysOf(t tenantfile.Tenant) []string {
	var out []string
	for _, p := range t.Providers {
		if p.Key != "" {
			out = append(out, string(p.Key))
		}
	}
	return out
}

// addressOf is the environment variable with the address of a provider.
var addressOf = map[string]string{
	"anthropic": "ANTHROPIC_BASE_URL", "gemini": "GOOGLE_GEMINI_BASE_URL", "openai": "OPENAI_BASE_URL",
}

// termsOf returns the terms on which a tenant is served. replaced are providers that the config has in place of ours.
func termsOf(t tenantfile.Tenant, replaced []model.Provider) models.Terms {
	out := models.Terms{Keys: map[string]string{}, OwnKeys: t.OwnKeys, Allowed: t.Models, Prices: t.Prices}
	addresses := map[string]string{}
	for name, p := range t.Providers {
		if p.Key != "" {
			out.Keys[name] = string(p.Key)
		}
		if p.BaseURL != "" {
			addresses[addressOf[name]] = p.BaseURL
		}
	}
	if len(addresses) == 0 {
		return out
	}
	for _, p := range remoteProviders(func(name string) string { return addresses[name] }) {
		about := p.Describe()
		family := cmp.Or(about.KeysOf, about.Name)
		if addresses[addressOf[family]] != "" && !isOneOf(replaced, about.Name) {
			out.Providers = append(out.Providers, p)
		}
	}
	return out
}

// served are models as they are served to a tenant, or to those without one.
type served struct {
	registry *models.Registry
	resolve  resolver
}

// serveTenants returns the models of the tenants. resolver makes the resolver of a registry, with further secrets.
func serveTenants(
	own served, tenants map[string]tenantfile.Tenant, replaced []model.Provider,
	resolver func(reg *models.Registry, secrets []string) resolver,
) (map[string]served, error) {
	out := make(map[string]served, len(tenants))
	for name, t := range tenants {
		if len(t.Providers) == 0 && !t.OwnKeys && t.Models == nil && t.Prices == nil {
			out[name] = own
			continue
		}
		reg, err := own.registry.On(termsOf(t, replaced))
		if err != nil {
			return nil, fmt.Errorf("daemon: tenants: %s: tenant %q: %w", t.PricesAt, name, err)
		}
		out[name] = served{reg, resolver(reg, keysOf(t))}
	}
	return out, nil
}

// modelsOf returns the models of a tenant, "" for none.
func (l *live) modelsOf(tenant string) served {
	if tenant == "" {
		return l.served
	}
	if s, ok := l.tenants[tenant]; ok {
		return s
	}
	if s, ok := l.tenants[everyTenant]; ok {
		return s
	}
	return l.served
}
