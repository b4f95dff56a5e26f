package rules

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Own copies what the caller may change after it has stopped waiting.
func Own(b *store.Batch) {
	b.Records, b.Shared, b.Rows = slices.Clone(b.Records), slices.Clone(b.Shared), slices.Clone(b.Rows)
	b.Rewrites, b.Notices = slices.Clone(b.Rewrites), slices.Clone(b.Notices)
	b.Events = slices.Clone(b.Events)
	b.Create, b.Key = OwnNew(b.Create), OwnKey(b.Key)
}

// OwnNew copies a session to create; n may be nil.
func OwnNew(n *store.NewSession) *store.NewSession {
	if n == nil {
		return nil
	}
	own := *n
	own.Labels = maps.Clone(n.Labels)
	return &own
}

// OwnKey copies a key; k may be nil.
func OwnKey(k *store.Key) *store.Key {
	if k == nil {
		return nil
	}
	return new(*k)
}

// UsageText returns the form in which usage is stored.
func UsageText(u record.Usage) (string, error) {
	data, err := json.Marshal(u)
	if err != nil {
		return "", Malformedf("usage: %v", err)
	}
	return string(data), nil
}

// OwnChange copies what the caller of Update may change after it has stopped waiting.
func OwnChange(c *store.Change) {
	c.Labels = maps.Clone(c.Labels)
	if c.ClientRef != nil {
		c.ClientRef = new(*c.ClientRef)
	}
	if c.Metadata != nil {
		c.Metadata = new(*c.Metadata)
	}
	if c.Archived != nil {
		c.Archived = new(*c.Archived)
	}
	if c.Budget != nil {
		c.Budget = new(*c.Budget)
	}
}

// EventBounds are what the ids of the events in the log of a session are not lower than, and lower than.
func EventBounds(sessionID string) (from, to string) {
	b := store.Batch{SessionID: sessionID}
	return b.EventPrefix(), sessionID + "$" // the byte behind the hash
}
