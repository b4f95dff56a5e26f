// Package tenantfile is a part of agentd, not an API: it reads the file in which an operator says what tenants may do.
//
//	tenants:
//	  acme:
//	    day_budget: {tokens: 5000000, cost: 20}
//	    month_budget: {cost: 300}
//
// It knows neither sessions nor models. It opens no file.
package tenantfile

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/apzuk3/agentd/internal/yamlfile"
)

// MaxBytes is the size of the largest file.
const MaxBytes = 4 << 20

var limits = yamlfile.Limits{Bytes: MaxBytes, Tokens: 500_000, Depth: 8, Values: 200_000, Holds: "tenants"}

// Tenant is what a file says of a tenant.
type Tenant struct {
	// Day and Month are what it may spend on model calls in a day and in a month of UTC.
	Day   Amount `yaml:"day_budget"`
	Month Amount `yaml:"month_budget"`
}

// Amount is what model calls may take; a zero part has no bound.
type Amount struct {
	Tokens int64 `yaml:"tokens"`
	// Cost is in US dollars.
	Cost float64 `yaml:"cost"`
}

// Parse returns the tenants of a file by their names. The error names what is wrong, each with its line if it is about
// the form of the file.
func Parse(name string, data []byte) (map[string]Tenant, error) {
	var file struct {
		Tenants map[string]Tenant `yaml:"tenants"`
	}
	if err := yamlfile.Decode(data, limits, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, tenant := range slices.Sorted(maps.Keys(file.Tenants)) {
		t := file.Tenants[tenant]
		for key, a := range map[string]Amount{"day_budget": t.Day, "month_budget": t.Month} {
			if a.Tokens < 0 || !(a.Cost >= 0 && a.Cost < 1e12) {
				errs = append(errs, fmt.Errorf("%s: %s of tenant %q is %v: want tokens and a cost of at least 0",
					name, key, tenant, a))
			}
		}
	}
	return file.Tenants, errors.Join(errs...)
}
