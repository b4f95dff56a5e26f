// Package tenant joins a tenant and the id of a session to the key under which a store has the session.
//
// The same id in two tenants is two sessions with two keys. Whoever asks for a session names an id; the tenant
// is that of the principal. So no request can name a session of another tenant. Keys and ids are the same for
// the tenant "", which sessions had before there were others.
//
// It knows neither sessions nor who asks.
package tenant

import (
	"net/url"
	"strings"
)

// Key returns the key of a session. Two ids, or two tenants, never have the same one.
func Key(tenant, id string) string {
	id = url.PathEscape(id) // which leaves the ids that there are as they are
	if tenant == "" {
		return id
	}
	return Prefix(tenant) + "/" + id
}

// ID returns the id of a session that a key names.
func ID(key string) string {
	_, id := split(key)
	return id
}

// Of returns the tenant of a session that a key names.
func Of(key string) string {
	tenant, _ := split(key)
	return tenant
}

// Prefix returns what is before the slash in the keys of a tenant.
func Prefix(tenant string) string { return url.PathEscape(tenant) }

// split undoes Key. A text that Key has not written is the id of a session without a tenant.
func split(key string) (tenant, id string) {
	tenant, id, both := strings.Cut(key, "/")
	if !both {
		tenant, id = "", key
	}
	t, badTenant := url.PathUnescape(tenant)
	name, badID := url.PathUnescape(id)
	if badTenant != nil || badID != nil {
		return "", key
	}
	return t, name
}
