package daemon

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os/user"
	"path/filepath"
	"time"

	"github.com/apzuk3/agentd/internal/audit"
	"github.com/apzuk3/agentd/internal/auth"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/internal/ledger/sqlledger"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// auditKept is how long entries of the audit trail are kept by default.
const auditKept = 365 * 24 * time.Hour

// openTrail starts the audit trail, if there is a ledger.
func (d *Daemon) openTrail() {
	if d.ledger != nil {
		keep := cmp.Or(d.cfg.AuditRetention, auditKept)
		d.trail = audit.New(audit.Config{Ledger: d.ledger, Keep: max(keep, 0), Logger: d.log})
	}
}

// audit is what a server notes its acts with; nil without a ledger.
func (d *Daemon) audit() func(ledger.Entry) {
	if d.trail == nil {
		return nil
	}
	return d.trail.Add
}

func (d *Daemon) closeTrail() {
	if d.trail != nil {
		d.trail.Close()
	}
}

// APIKey is an API key without its secret.
type APIKey = ledger.APIKey

// AuditEntry is an entry of the audit trail.
type AuditEntry = ledger.Entry

// AuditQuery selects entries of the audit trail.
type AuditQuery = ledger.EntryQuery

// ErrNoKey means that there is no API key of an id.
var ErrNoKey = ledger.ErrNoKey

// Ledger is what a database on disk has beside its sessions: API keys and the audit trail. A daemon may run meanwhile.
// Close ends it. One goroutine at a time may use it.
type Ledger struct {
	alone  bool // no daemon has the database open
	store  besideStore
	ledger ledger.Ledger
}

// besideStore is a database as Ledger uses it.
type besideStore interface {
	sqlledger.DB
	Close() error
}

// OpenLedger opens the database of a folder, and makes it if there is none.
func OpenLedger(ctx context.Context, dataDir string, allowNetworkFiles bool) (*Ledger, error) {
	path := filepath.Join(dataDir, databaseFile)
	cfg := sqlite.Config{NetworkFiles: allowNetworkFiles}
	s, err := sqlite.Open(ctx, path, cfg)
	if errors.Is(err, sqlite.ErrLocked) { // a daemon has it
		cfg.Beside = true
		s, err = sqlite.Open(ctx, path, cfg)
	}
	if err != nil {
		return nil, err
	}
	return &Ledger{alone: !cfg.Beside, store: s, ledger: sqlledger.New(s)}, nil
}

// OpenStoreLedger opens the database of a Config.StoreURL.
func OpenStoreLedger(ctx context.Context, url session.Secret) (*Ledger, error) {
	alone := true
	s, err := postgres.Open(ctx, string(url), postgres.Config{Alone: true})
	if errors.Is(err, postgres.ErrInUse) { // a daemon has it
		alone = false
		s, err = postgres.Open(ctx, string(url), postgres.Config{})
	}
	if err != nil {
		return nil, err
	}
	return &Ledger{alone: alone, store: s, ledger: sqlledger.New(s)}, nil
}

// openLedger opens the database of a config.
func openLedger(ctx context.Context, cfg *Config) (*Ledger, error) {
	if cfg.StoreURL != "" {
		return OpenStoreLedger(ctx, cfg.StoreURL)
	}
	return OpenLedger(ctx, cfg.DataDir, cfg.AllowNetworkFiles)
}

// Principal is who asks.
type Principal = principal.Principal

// NewPrincipal returns a principal, whose names a server takes.
func NewPrincipal(id, tenant, role string) (principal.Principal, error) {
	p := principal.Principal{ID: id, Tenant: tenant}
	err := p.Role.UnmarshalText([]byte(role))
	if err == nil {
		err = p.Check()
	}
	return p, err
}

// CreateKey makes an API key for a principal, and returns what its holder sends, which nobody can find out later, and
// whether it is the first one.
func (l *Ledger) CreateKey(
	ctx context.Context, p principal.Principal, note string,
) (text string, key APIKey, first bool, err error) {
	has, err := l.ledger.HasKeys(ctx)
	if err != nil {
		return "", APIKey{}, false, err
	}
	text, key = auth.NewKey(ledger.Key, p)
	key.Note = note
	if err := l.ledger.CreateKey(ctx, key); err != nil {
		return "", APIKey{}, false, err
	}
	err = l.note(ctx, "keys.create", &key)
	return text, key, !has, err
}

// Keys returns the API keys of a tenant, or of all, in the order of their ids.
func (l *Ledger) Keys(ctx context.Context, tenant string, all bool) (keys []APIKey, err error) {
	const page = 500
	q := ledger.KeyQuery{Kind: ledger.Key, Tenant: tenant, AllTenants: all, Limit: page}
	for {
		more, err := l.ledger.Keys(ctx, q)
		keys = append(keys, more...)
		if err != nil || len(more) < page {
			return keys, err
		}
		q.After = more[len(more)-1].ID
	}
}

// RevokeKey ends an API key, and the tokens that were made with it. A daemon refuses it within two seconds, and ends
// its streams within half a minute.
func (l *Ledger) RevokeKey(ctx context.Context, id string) (APIKey, error) {
	key, err := l.ledger.RevokeKey(ctx, id, time.Now())
	if err != nil {
		return key, err
	}
	err = l.note(ctx, "keys.revoke", &key)
	return key, err
}

// note adds what a user of this machine has done to the audit trail.
func (l *Ledger) note(ctx context.Context, action string, key *APIKey) error {
	return l.ledger.AddEntries(ctx, []ledger.Entry{{
		Time: time.Now(), Tenant: key.Principal.Tenant, Principal: osUser(), Role: principal.Operator, From: "local",
		Action: action, Subject: key.ID, Outcome: "ok",
	}})
}

// osUser is the name of a user of this machine in the audit trail.
func osUser() string {
	u, err := user.Current()
	if err != nil {
		return "os:unknown"
	}
	return "os:" + u.Username
}

// Entries yields the entries of the audit trail, the oldest first. q.Limit is ignored.
func (l *Ledger) Entries(ctx context.Context, q AuditQuery) iter.Seq2[AuditEntry, error] {
	const page = 500
	q.Limit = page
	return func(yield func(AuditEntry, error) bool) {
		for {
			list, err := l.ledger.Entries(ctx, q)
			for i := range list {
				if !yield(list[i], nil) {
					return
				}
				q.After = list[i].Seq
			}
			if err != nil {
				yield(AuditEntry{}, err)
				return
			}
			if len(list) < page {
				return
			}
		}
	}
}

// Database is where the daemon keeps what is beside its sessions, for what others keep there; nil if its store has no
// place for it. It is of use until Shutdown.
func (d *Daemon) Database() sqlledger.DB {
	db, ok := d.store.(sqlledger.DB)
	if !ok {
		return nil
	}
	return db
}

// Close closes the database.
func (l *Ledger) Close() error { return l.store.Close() }
