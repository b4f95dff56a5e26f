package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// exportPage is how many sessions, records or entries one read asks for.
const exportPage = 200

// agentPage is exportPage for agents, each of which may be as large as a message.
const agentPage = 16

type sessionInfo = store.Info

// exportLine is a line of an export. Kind says which fields it has.
type exportLine struct {
	// Kind is session, record, shared, api_key, agent, object or audit.
	Kind string `json:"kind"`

	Session   string            `json:"session,omitempty"`
	Creator   string            `json:"creator,omitempty"`
	ClientRef string            `json:"client_ref,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Metadata  json.RawMessage   `json:"metadata,omitempty"`

	Seq        int64           `json:"seq,omitempty"`
	Turn       string          `json:"turn,omitempty"`
	RecordKind record.Kind     `json:"record_kind,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`

	Scope string          `json:"scope,omitempty"`
	Key   string          `json:"key,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`

	Principal string `json:"principal,omitempty"`
	Role      string `json:"role,omitempty"`
	From      string `json:"from,omitempty"`
	Action    string `json:"action,omitempty"`
	Subject   string `json:"subject,omitempty"`
	Outcome   string `json:"outcome,omitempty"`
	Note      string `json:"note,omitempty"`

	Name    string `json:"name,omitempty"`
	Version int64  `json:"version,omitempty"`
	Face    string `json:"face,omitempty"`

	Time *time.Time `json:"time,omitempty"`
}

// Exported counts the lines of an export by their kinds.
type Exported map[string]int

// Export writes what the database of a config has of a tenant, or of a user if that is not "", as one JSON object a
// line: sessions with all their records, shared state, API keys without secrets, agents, objects of faces, and the
// audit trail. A daemon may run; what it writes meanwhile is not in the export.
func Export(ctx context.Context, cfg Config, tenant, user string, to io.Writer) (Exported, error) {
	out, counts := json.NewEncoder(to), Exported{}
	write := func(line exportLine) error {
		counts[line.Kind]++
		return out.Encode(line)
	}
	p := principal.Principal{ID: user, Tenant: tenant}
	err := eachSession(ctx, cfg, p, func(ctx context.Context, db *source, info *sessionInfo) error {
		return exportSession(ctx, db, info, write)
	}, func(ctx context.Context, db *source) error {
		return errors.Join(exportShared(ctx, db, p, write), exportLedger(ctx, db.beside, p, write))
	})
	return counts, err
}

// eachSession calls each with the sessions of a tenant, or of a user of it, in one snapshot of a database, and then
// rest.
func eachSession(
	ctx context.Context, cfg Config, p principal.Principal, each func(context.Context, *source, *sessionInfo) error,
	rest ...func(context.Context, *source) error,
) (err error) {
	db, err := openSource(ctx, &cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Snapshot(ctx, func(ctx context.Context) error {
		q := store.InfoQuery{Tenant: &p.Tenant, Limit: exportPage}
		for {
			page, err := db.Sessions(ctx, q)
			if err != nil {
				return err
			}
			for i := range page {
				if p.ID != "" && page[i].Creator != p.Key() {
					continue
				}
				if err := each(ctx, db, &page[i]); err != nil {
					return err
				}
			}
			if len(page) < exportPage {
				break
			}
			q.After = &page[len(page)-1]
		}
		for _, f := range rest {
			if err := f(ctx, db); err != nil {
				return err
			}
		}
		return nil
	})
}

func exportSession(ctx context.Context, db *source, info *sessionInfo, write func(exportLine) error) error {
	err := write(exportLine{
		Kind: "session", Session: info.ID, Creator: info.Creator, ClientRef: info.ClientRef, Labels: info.Labels,
		Metadata: json.RawMessage(info.Metadata), Time: &info.CreatedAt,
	})
	for after := int64(0); err == nil; {
		var page []record.Record
		if page, err = db.Read(ctx, info.ID, after, exportPage); len(page) == 0 {
			break
		}
		for i := 0; err == nil && i < len(page); i++ {
			r := &page[i]
			err = write(exportLine{
				Kind: "record", Session: info.ID, Seq: r.Seq, Turn: r.TurnID, RecordKind: r.Kind, Data: r.Data,
				Time: &r.Time,
			})
			after = r.Seq
		}
	}
	return err
}

func exportShared(ctx context.Context, db *source, p principal.Principal, write func(exportLine) error) error {
	for after := ""; ; {
		scopes, err := db.Scopes(ctx, after, exportPage)
		if err != nil {
			return err
		}
		for _, scope := range scopes {
			after = scope
			if !(store.SharedValue{Scope: scope}).IsOf(p) {
				continue
			}
			values, err := db.Shared(ctx, scope)
			if err != nil {
				return err
			}
			for key, value := range values {
				if err := write(exportLine{Kind: "shared", Scope: scope, Key: key, Value: value}); err != nil {
					return err
				}
			}
		}
		if len(scopes) < exportPage {
			return nil
		}
	}
}

// exportAgents writes the agents of a tenant in all their versions, or those that a user has made.
func exportAgents(ctx context.Context, l ledger.Ledger, p principal.Principal, write func(exportLine) error) error {
	for q := (ledger.AgentQuery{Tenant: p.Tenant, Archived: true, Limit: agentPage}); ; {
		names, err := l.Agents(ctx, q)
		if err != nil {
			return err
		}
		for i := range names {
			if err := exportVersions(ctx, l, p, names[i].Name, write); err != nil {
				return err
			}
		}
		if len(names) < agentPage {
			return nil
		}
		q.After = &names[len(names)-1]
	}
}

// exportObjects writes what faces keep of a tenant, or what a user has made of it.
func exportObjects(ctx context.Context, l ledger.Ledger, p principal.Principal, write func(exportLine) error) error {
	for after := (ledger.Object{Tenant: p.Tenant}); ; {
		page, err := l.ObjectsOf(ctx, p.ID, after, exportPage)
		if err != nil {
			return err
		}
		for i := range page {
			after = page[i]
			text, err := json.Marshal(string(after.Data)) // which may be anything
			if err != nil {
				return err
			}
			if err := write(exportLine{
				Kind: "object", Face: after.Face, Subject: after.Kind, Name: after.ID, Version: after.Version,
				Principal: after.Maker, Value: text,
			}); err != nil {
				return err
			}
		}
		if len(page) < exportPage {
			return nil
		}
	}
}

func exportVersions(
	ctx context.Context, l ledger.Ledger, p principal.Principal, name string, write func(exportLine) error,
) error {
	for q := (ledger.AgentQuery{Tenant: p.Tenant, Name: name, Limit: agentPage}); ; {
		versions, err := l.Agents(ctx, q)
		if err != nil {
			return err
		}
		for i := range versions {
			a := &versions[i]
			if p.ID != "" && a.Maker != p.ID {
				continue
			}
			if err := write(exportLine{
				Kind: "agent", Name: a.Name, Version: a.Version, Principal: a.Maker, Data: a.Content, Time: &a.Created,
			}); err != nil {
				return err
			}
		}
		if len(versions) < agentPage {
			return nil
		}
		q.After = &versions[len(versions)-1]
	}
}

func exportLedger(ctx context.Context, l ledger.Ledger, p principal.Principal, write func(exportLine) error) error {
	if err := errors.Join(exportAgents(ctx, l, p, write), exportObjects(ctx, l, p, write)); err != nil {
		return err
	}
	for q := (ledger.KeyQuery{Tenant: p.Tenant, Limit: exportPage}); ; {
		page, err := l.Keys(ctx, q)
		if err != nil {
			return err
		}
		for i := range page {
			k := &page[i]
			q.After = k.ID
			if p.ID != "" && k.Principal.ID != p.ID {
				continue
			}
			if err := write(exportLine{
				Kind: "api_key", Subject: k.ID, Principal: k.Principal.ID, Note: k.Note, Time: &k.Created,
			}); err != nil {
				return err
			}
		}
		if len(page) < exportPage {
			break
		}
	}
	for q := (ledger.EntryQuery{Tenant: p.Tenant, Principal: p.ID, Limit: exportPage}); ; {
		page, err := l.Entries(ctx, q)
		if err != nil {
			return err
		}
		for i := range page {
			e := &page[i]
			q.After = e.Seq
			line := exportLine{
				Kind: "audit", Seq: e.Seq, Principal: e.Principal, Role: e.Role.String(), From: e.From,
				Action: e.Action, Session: e.Session, Turn: e.Turn, Subject: e.Subject,
				Outcome: e.Outcome, Time: &e.Time,
			}
			if err := write(line); err != nil {
				return err
			}
		}
		if len(page) < exportPage {
			return nil
		}
	}
}
