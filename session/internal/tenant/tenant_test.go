package tenant_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/session/internal/tenant"
)

// Whatever a caller sends as an id, its key is one of the caller's tenant, and says both.
func TestKeysOfOneTenantAreNoOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab/%2F .:@é")), 0, 8, -1)
		of, id := text.Draw(t, "tenant"), text.Draw(t, "id")
		key := tenant.Key(of, id)
		if tenant.Of(key) != of || tenant.ID(key) != id {
			t.Fatalf("%q of %q has the key %q, which says %q of %q", id, of, key, tenant.ID(key), tenant.Of(key))
		}
		other, same := text.Draw(t, "other tenant"), text.Draw(t, "other id")
		if (other != of || same != id) && tenant.Key(other, same) == key {
			t.Fatalf("%q of %q and %q of %q have the key %q", id, of, same, other, key)
		}
	})
}

// The ids that stores have from before there were tenants are their keys.
func TestKeysWithoutATenant(t *testing.T) {
	for _, id := range []string{"cwvxkpzeg4cqrs5ahvwhzykn2y", "my-chat", "a.b_c:d@e-f", "A1"} {
		if key := tenant.Key("", id); key != id {
			t.Errorf("%q has the key %q", id, key)
		}
	}
}
