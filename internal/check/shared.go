package check

import (
	"context"
	"encoding/json"
	"strings"
)

// shared checks the values that sessions share.
func (c *checker) shared(ctx context.Context) error {
	db, ok := c.db.(scopes)
	if !ok {
		return nil
	}
	for after := ""; ; {
		names, err := db.Scopes(ctx, after, page)
		if data(ctx, err) {
			c.report(Finding{Rule: ruleShared, Found: "the scopes of shared values cannot be read: " + plain(err)})
			return nil
		}
		if err != nil || len(names) == 0 {
			return err
		}
		for _, after = range names {
			if err := c.scope(ctx, after); err != nil {
				return err
			}
		}
	}
}

// scope checks the values of one scope.
func (c *checker) scope(ctx context.Context, name string) error {
	of, whose, _ := strings.Cut(name, ":")
	if name != "app" && (whose == "" || of != "app" && of != "user") {
		c.report(Finding{
			Rule: ruleShared, Found: "there is a scope " + text(name),
			Want: `"app", "app:" and a tenant, or "user:" and a principal`,
		})
	}
	values, err := c.db.Shared(ctx, name)
	if data(ctx, err) {
		found := "the values of scope " + text(name) + " cannot be read: " + plain(err)
		c.report(Finding{Rule: ruleShared, Found: found})
		return nil
	}
	for key, value := range values {
		if key == "" {
			found := "scope " + text(name) + " has a value without a key"
			c.report(Finding{Rule: ruleShared, Found: found, Want: "none"})
		}
		if !json.Valid(value) {
			found := "key " + text(key) + " of scope " + text(name) + " is no JSON"
			c.report(Finding{Rule: ruleShared, Found: found, Want: "JSON"})
		}
	}
	return err
}
