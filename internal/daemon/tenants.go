package daemon

import (
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/apzuk3/agentd/internal/tenantfile"
	"github.com/apzuk3/agentd/session/limits"
)

// withTenants lays what a file says of tenants over the limits of each tenant.
func withTenants(l limits.Limits, file string) (limits.Limits, error) {
	if file == "" {
		return l, nil
	}
	in, err := os.Open(file)
	if err != nil {
		return l, fmt.Errorf("daemon: tenants: %w", err)
	}
	defer func() { _ = in.Close() }()
	data, err := io.ReadAll(io.LimitReader(in, tenantfile.MaxBytes+1))
	if err != nil {
		return l, fmt.Errorf("daemon: tenants: %w", err)
	}
	tenants, err := tenantfile.Parse(file, data)
	if err != nil {
		return l, fmt.Errorf("daemon: tenants: %w", err)
	}
	day, month := map[string]Budget{}, map[string]Budget{}
	maps.Copy(day, l.TenantDay)
	maps.Copy(month, l.TenantMonth)
	for name, t := range tenants {
		day[name], month[name] = budgetOf(t.Day), budgetOf(t.Month)
	}
	l.TenantDay, l.TenantMonth = day, month
	return l, nil
}

func budgetOf(a tenantfile.Amount) Budget { return Budget{Tokens: a.Tokens, Cost: BudgetUSD(a.Cost)} }
