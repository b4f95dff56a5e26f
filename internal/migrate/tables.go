package migrate

import (
	"slices"
	"strings"
)

// table is what is copied of a table of SQLite to one of PostgreSQL. Columns have the same names in both.
type table struct {
	from, to string
	columns  []string
	key      []string // of the source, which is in the order of it in both
	// flags are columns that are 0 or 1 in SQLite and booleans in PostgreSQL.
	flags string
	// numbers is the column that the database counts up.
	numbers string
	// epoch adds the column epoch, which is 0 for all that SQLite had.
	epoch bool
	// texts are what reads columns of PostgreSQL as SQLite has them, as texts.
	texts map[string]string
}

// targets are the columns as the target is asked for them.
func (t *table) targets() []string {
	out := slices.Clone(t.columns)
	for i, column := range out {
		if text, ok := t.texts[column]; ok {
			out[i] = text
		}
	}
	return out
}

func words(text string) []string { return strings.Fields(text) }

// isFlag reports whether a column is a boolean in PostgreSQL.
func (t *table) isFlag(column string) bool { return slices.Contains(words(t.flags), column) }

// tables are all that SQLite has, but probe, in the order in which they are copied.
var tables = []table{
	{
		from: "sessions", to: "sessions", key: words("id"), flags: "archived drop_payloads",
		columns: words(`id created_at creator client_ref metadata agent archived version budget drop_payloads
			forked_from forked_at inherited`),
	}, {
		from: "sessions", to: "heads", key: words("id"), flags: "waits",
		columns: words(`id created_at last_seq open_turn updated_at purged attempts waits epoch usage
			last_turn last_status`),
	}, {
		from: "records", to: "records", key: words("session_id seq"), epoch: true,
		columns: words("session_id seq turn_id kind time data"),
	}, {
		from: "labels", to: "labels", key: words("session_id key"), columns: words("session_id key value created_at"),
	}, {
		from: "entries", to: "entries", key: words("session_id kind id"),
		columns: words("session_id kind id turn_id seq created_at status data"),
	}, {
		from: "shared", to: "shared", key: words("scope key"), columns: words("scope key value"),
	}, {
		from: "keys", to: "keys", key: words("scope name"), columns: words("scope name content session_id id"),
	}, {
		from: "spent", to: "spent", key: words("tenant day"), columns: words("tenant day tokens cost"),
	}, {
		from: "session_counts", to: "session_counts", key: words("tenant"), columns: words("tenant sessions"),
	}, {
		from: "api_keys", to: "api_keys", key: words("id"),
		columns: words(`id sum kind tenant principal role scope note maker via created_at expires_at revoked_at`),
	}, {
		from: "audit", to: "audit", key: words("seq"), numbers: "seq",
		columns: words("seq time tenant principal role via origin action session_id turn_id subject outcome"),
	}, {
		from: "erasures", to: "erasures", key: words("id"), numbers: "id",
		columns: words("id tenant name trail asked_at ended_at result"),
	}, {
		from: "data_keys", to: "data_keys", key: words("id"), numbers: "id",
		columns: words("id master wrapped proof used created_at"),
	}, {
		from: "sealings", to: "sealings", key: words("id"), numbers: "id",
		columns: words("id data_key asked_at ended_at result"),
	}, {
		from: "agents", to: "agents", key: words("tenant name"),
		columns: words("tenant name version created_at archived_at"),
	}, {
		from: "agent_versions", to: "agent_versions", key: words("tenant name version"),
		columns: words("tenant name version hash content maker created_at"),
	}, {
		from: "objects", to: "objects", key: words("tenant face kind id"),
		columns: words("tenant face kind id version data maker"),
	}, {
		from: "notices", to: "notices", key: words("id"),
		columns: words(`id hook event session_id tenant turn_id subject seq at state attempts due since holder error`),
	}, {
		from: "schedules", to: "schedules", key: words("tenant id"),
		columns: words(`tenant id maker session_id timing created_at next_at due last_at last_turn last_error runs`),
	}, {
		from: "gestalt_sessions", to: "gestalt_sessions", key: words("id"),
		columns: words("id subject key content request created_at updated_at turned_at"),
	}, {
		from: "gestalt_turns", to: "gestalt_turns", key: words("id"), flags: "queued",
		columns: words(`id session_id subject key content request trace tools phase message queued created_at ended_at
			position`),
	}, {
		from: "gestalt_grants", to: "gestalt_grants", key: words("turn_id"), columns: words("turn_id secret"),
	}, {
		from: "gestalt_events", to: "gestalt_events", key: words("turn_id seq"),
		columns: words("turn_id seq message data"),
	}, {
		from: "agent_eventlog", to: "agent_eventlog", key: words("seq"), numbers: "seq",
		columns: words(`seq app_name user_id session_id event_id branch author timestamp invocation_id metadata`),
		texts: map[string]string{
			"timestamp": `to_char(timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00:00'`,
			"metadata":  `metadata::text`,
		},
	},
}
