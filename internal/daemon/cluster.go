package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/bus"
	"github.com/apzuk3/agentd/internal/cluster"
	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store/postgres"
)

// Cluster says how daemons find each other that share the database of Config.StoreURL. The zero value: this daemon is
// alone, and no other one may use the database.
type Cluster struct {
	// Advertise is the URL at which the others reach this daemon, http or https; "" is alone.
	Advertise string
	// Name is what operators call this replica. Default the host and port of Advertise.
	Name string
	// Secret is shared by all replicas, at least 32 characters: who shows it is believed about who a caller is. Where
	// others can listen, Advertise is https.
	Secret session.Secret
	// CAFile has the certificates, PEM, that the others' are proved by; "" uses those of the system. Where this daemon
	// has a certificate of its own (Config.TLSCertFile), it shows that to the others.
	CAFile string
	// BusURL names servers of NATS that carry hints between the replicas, as bus.Config.URLs; "" is none, and
	// PostgreSQL carries those that there are few of. BusCredsFile proves this daemon to them, BusCAFile has the
	// certificates, PEM, that theirs are proved by; "" uses those of the system. No call needs them: without them what
	// waits for another replica is slower.
	BusURL                  session.Secret
	BusCredsFile, BusCAFile string
	// Beat, TTL and LockTTL are those of package cluster; 0 is the default of each.
	Beat, TTL, LockTTL time.Duration
	// Featureless has the daemon tell the others that it is of the first release that had replicas, for tests of
	// versions that run side by side.
	Featureless bool
}

// What a replica lists in cluster.Config.Features, beyond the first release that had replicas.
const (
	// featureSlices: it reserves what tenants may spend within slices.
	featureSlices = "budget-slices"
	// featureSealing: it says with which data key it seals, and follows others to newer ones.
	featureSealing = "sealing"
	// featureShares: it counts turns, streams and requests of tenants with the others.
	featureShares = "tenant-shares"
	// featureGoals: it reads the records of goals, and goes on with them.
	featureGoals = "goals"
	// featureChildren: it reads the records of children, and looks after them.
	featureChildren = "children"
)

// features are those that a replica lists.
func (c *Cluster) features() []string {
	if c.Featureless {
		return nil
	}
	return []string{featureSlices, featureSealing, featureShares, featureGoals, featureChildren, cluster.FeatureAsks}
}

// maySeal refuses to encrypt beside replicas that would neither open what this one seals nor follow it to a newer data
// key.
func (d *Daemon) maySeal() error {
	if d.replica == nil || d.cfg.Encryption.IsZero() {
		return nil
	}
	for _, r := range d.replica.member.Lacking(featureSealing) {
		return fmt.Errorf("daemon: replica %s of version %s does not know encryption among replicas: "+
			"stop those of that version before this one encrypts", r.Name, r.Version)
	}
	return nil
}

// goalsWaitFor returns why no goal may begin: a replica could not read the log of its session; "" if one may.
func (d *Daemon) goalsWaitFor() string {
	if d.replica == nil {
		return ""
	}
	for _, r := range d.replica.member.Lacking(featureGoals) {
		return fmt.Sprintf("replica %s of version %s does not know goals: "+
			"try again when all replicas are of a version that does", r.Name, r.Version)
	}
	return ""
}

// childrenWaitFor is goalsWaitFor for the children of agents.
func (d *Daemon) childrenWaitFor() string {
	for _, r := range d.replica.member.Lacking(featureChildren) {
		return fmt.Sprintf("replica %s of version %s does not know background agents: try again later",
			r.Name, r.Version)
	}
	return ""
}

// below reaches goals that other replicas own, once there is a server.
type below struct{ d *Daemon }

func (b below) ControlGoal(ctx context.Context, address, id string, action agentdv1.GoalAction) error {
	return b.d.server.ControlGoal(ctx, address, id, action)
}

func (b below) Inject(ctx context.Context, address, id, text, key string) error {
	return b.d.server.Inject(ctx, address, id, text, key)
}

// warnOfSlices says that older replicas count for themselves what they reserve.
func (d *Daemon) warnOfSlices() {
	if lack := d.replica.member.Lacking(featureSlices); len(lack) > 0 {
		d.log.Warn("until all replicas know slices of budgets, those of tenants may be exceeded by what these reserve",
			slog.Int("replicas", len(lack)), slog.String("one_of_them", lack[0].Name),
			slog.String("version", lack[0].Version))
	}
	if lack := d.replica.member.Lacking(featureShares); len(lack) > 0 {
		d.log.Warn("until all replicas know shares of tenants, these count turns, streams and requests for themselves",
			slog.Int("replicas", len(lack)), slog.String("one_of_them", lack[0].Name),
			slog.String("version", lack[0].Version))
	}
}

// Beside is what a daemon of a test has as one of several of its process, in place of Cluster.
type Beside struct {
	Owners session.Owners
	// Front: the daemon owns no session, see session.Config.
	Front bool
	// Client calls the others; nil: this one calls none. Secret is theirs too.
	Client  connect.HTTPClient
	Address string
	Secret  session.Secret
}

// apply sets what the server of the daemon needs.
func (b *Beside) apply(to *server.Config) {
	if b.Owners != nil {
		to.ReplicaClient, to.ReplicaSecret, to.ReplicaAddress = b.Client, string(b.Secret), b.Address
	}
}

// leastSecret is how many characters the secret of replicas has at least.
const leastSecret = 32

// IsZero reports whether the daemon is alone.
func (c *Cluster) IsZero() bool { return c.Advertise == "" }

// validateCluster refuses what cannot work.
func (c *Config) validateCluster() error {
	if c.Cluster.IsZero() {
		if c.Cluster != (Cluster{}) {
			return errors.New("daemon: Cluster has settings and no Advertise")
		}
		return nil
	}
	at, err := url.Parse(c.Cluster.Advertise)
	switch {
	case c.StoreURL == "":
		return errors.New("daemon: Cluster.Advertise needs a StoreURL: replicas share a database of PostgreSQL")
	case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || strings.Trim(at.Path, "/") != "":
		return fmt.Errorf("daemon: Cluster.Advertise is %q, want http://HOST:PORT or https://HOST:PORT",
			c.Cluster.Advertise)
	case c.Cluster.BusURL == "" && (c.Cluster.BusCredsFile != "" || c.Cluster.BusCAFile != ""):
		return errors.New("daemon: Cluster.BusCredsFile and BusCAFile need a BusURL")
	case len(c.Cluster.Secret) < leastSecret:
		return fmt.Errorf("daemon: Cluster.Secret has %d characters, want at least %d",
			len(c.Cluster.Secret), leastSecret)
	}
	return nil
}

// replica is what a daemon has as one of several; nil for one that is alone.
type replica struct {
	member  *cluster.Member
	address string
	client  *http.Client
	reach   reach // by client
	bus     replicaBus
	leave   sync.Once

	turns, streams *share.Places
	requests       *share.Pace
	endKeeping     func() // of turns and streams
}

// replicaBus carries hints between the replicas.
type replicaBus interface {
	Publish(subject string, data []byte)
	Subscribe(subject string, f func(subject string, data []byte)) (end func(), err error)
	Carries() bool
	State() bus.State
	Close()
}

// join makes the daemon one of several. The manager is not there yet: it owns nothing that the member could speak of.
func (d *Daemon) join(ctx context.Context, db *postgres.Store) error {
	c := &d.cfg.Cluster
	at, err := url.Parse(c.Advertise)
	if err != nil {
		return fmt.Errorf("daemon: Cluster.Advertise: %w", err)
	}
	client, err := d.replicaClient()
	if err != nil {
		return err
	}
	name := c.Name
	if name == "" {
		name = at.Host
	}
	address := at.Scheme + "://" + at.Host
	hints, err := d.openBus(db, name)
	if err != nil {
		return err
	}
	m, err := cluster.Join(ctx, cluster.Config{
		DB: db.Pool(), Connect: db.Connect, Name: name, Address: address,
		Version: d.cfg.Version, Features: c.features(),
		Beat: c.Beat, TTL: c.TTL, LockTTL: c.LockTTL, Logger: d.log,
		OnGone: func() {
			if r := d.sealer.Load(); r != nil {
				r.Lost()
			}
		},
		OnLost: func() {
			if m := d.managed.Load(); m != nil {
				m.LostAll()
			}
			if p := d.streams.Load(); p != nil {
				p.LostAll()
			}
		},
		Held: func() map[string]int64 {
			if m := d.managed.Load(); m != nil {
				return m.Held()
			}
			return nil
		},
		OnTaken: func(claims map[string]int64) { d.managed.Load().LostAt(claims) },
	})
	if err != nil {
		hints.Close()
		return err
	}
	d.replica = &replica{
		member: m, address: address, client: client, reach: reach{client: client}, bus: hints,
		turns: share.NewPlaces(share.Turns, m), streams: share.NewPlaces(share.Streams, m), requests: share.NewPace(m),
	}
	d.replica.keepPlaces(d.log)
	d.streams.Store(d.replica.streams)
	d.owner.Store(m)
	d.log.Info("one of several", slog.Int64("replica", m.ID()), slog.String("name", name),
		slog.String("address", at.Host))
	d.warnOfSlices()
	return nil
}

// keepPlaces has places of tenants given back that this daemon does not need, until endKeeping, which waits for it.
func (r *replica) keepPlaces(log *slog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	var kept sync.WaitGroup
	kept.Go(func() {
		share.Keep(ctx, r.member, func(err error) {
			log.Debug("what tenants do not need is not given back yet", slog.String("error", err.Error()))
		}, r.turns, r.streams)
	})
	r.endKeeping = func() {
		cancel()
		kept.Wait()
	}
}

// openBus connects to what carries hints, in the background.
func (d *Daemon) openBus(db *postgres.Store, name string) (replicaBus, error) {
	c := &d.cfg.Cluster
	if c.BusURL == "" {
		return bus.Listen(bus.Database{Exec: db.Pool().Exec, Connect: db.Connect, Logger: d.log}), nil
	}
	config, err := d.peerTLS("Cluster.BusCAFile", c.BusCAFile)
	if err != nil {
		return nil, err
	}
	return bus.Dial(bus.Config{
		URLs: string(c.BusURL), CredsFile: c.BusCredsFile, TLS: config, Secret: string(c.Secret),
		Name: "agentd " + name, Logger: d.log,
	})
}

// busState is how the bus is; is is false for a daemon that is alone.
func (d *Daemon) busState() (state bus.State, is bool) {
	if d.replica == nil {
		return state, false
	}
	return d.replica.bus.State(), true
}

// replicaID is that of the owner of what this daemon creates, 0 for one that is alone.
func (d *Daemon) replicaID() int64 {
	if m := d.owner.Load(); m != nil {
		return m.ID()
	}
	return 0
}

// owners is what decides who owns a session, nil for a daemon that is alone.
func (d *Daemon) owners() session.Owners {
	if d.replica == nil {
		return d.cfg.Beside.Owners
	}
	return d.replica.member
}

// slices divide the budgets of tenants among replicas, nil for a daemon that is alone.
func (d *Daemon) slices() share.Budgets {
	if d.replica == nil {
		return nil
	}
	return d.replica.member
}

// isFirst reports whether this daemon does what one of all replicas does: it is alone, or has lived the longest.
func (d *Daemon) isFirst() bool { return d.replica == nil || d.replica.member.IsFirst() }

// replicaClient calls the other replicas.
func (d *Daemon) replicaClient() (*http.Client, error) {
	config, err := d.peerTLS("Cluster.CAFile", d.cfg.Cluster.CAFile)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		DialContext:     (&net.Dialer{Timeout: replicaPing}).DialContext,
		TLSClientConfig: config, Protocols: protocols, ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: replicaPing, PingTimeout: replicaPing, WriteByteTimeout: replicaPing,
		},
		IdleConnTimeout: time.Minute,
	}}, nil
}

// peerTLS is how the daemon speaks TLS to servers whose certificates are proved by those of a file, or of the system.
// It shows its own certificate, if it has one.
func (d *Daemon) peerTLS(field, file string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("daemon: %s: %w", field, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("daemon: %s: %s has no certificate", field, file)
		}
	}
	if d.tls != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return d.live.Load().cert, nil
		}
	}
	return config, nil
}

// replicaPing is how long a connection to another replica may say nothing before it is asked, and then until it is
// given up.
const replicaPing = 2 * time.Second

// ready reports whether turns can be started and recorded here.
func (d *Daemon) ready(ctx context.Context) error {
	if d.replica != nil && d.replica.member.InDoubt() {
		return cluster.ErrInDoubt
	}
	return d.manager.Ready(ctx)
}

// drainReplica says to the others that this one takes no more sessions.
func (d *Daemon) drainReplica() {
	if d.replica == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), replicaPing)
	defer cancel()
	if err := d.replica.member.Drain(ctx); err != nil {
		d.log.Warn("the other replicas do not know that this one stops", slog.String("error", err.Error()))
	}
}

// goAway has clients open new streams elsewhere, and closes connections that are not used any more. The caller calls
// done, which ends that, after it has closed the server.
func (d *Daemon) goAway(ctx context.Context) (done func()) {
	if d.replica == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var gone sync.WaitGroup
	gone.Go(func() { _ = d.http.Shutdown(ctx) }) // it waits for the streams
	return func() {
		cancel()
		gone.Wait()
	}
}

// forwardedLook is how often a shutdown looks whether streams are left.
const forwardedLook = 20 * time.Millisecond

// arrivalWait is how long a shutdown waits for the first requests of connections. Some clients open connections that
// they do not use.
const arrivalWait = time.Second

// awaitForwarded waits for streams whose sessions other replicas have by now, until ctx ends: their clients know
// nothing of other servers. So it does for streams that are about to be opened.
func (d *Daemon) awaitForwarded(ctx context.Context) {
	if d.replica == nil {
		return
	}
	look := time.NewTicker(forwardedLook)
	defer look.Stop()
	for begun := time.Now(); ; {
		// In this order: a connection becomes a stream, not the other way.
		if arrive := d.arrivals.count() > 0 && time.Since(begun) < arrivalWait; !arrive && d.server.Streams() == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// leave takes the daemon off the list of replicas.
func (d *Daemon) leave() {
	if d.replica == nil {
		return
	}
	d.replica.leave.Do(func() {
		d.replica.endKeeping()
		if err := d.replica.member.Leave(context.Background()); err != nil {
			d.log.Warn("the other replicas have to find this one dead", slog.String("error", err.Error()))
		}
		d.replica.client.CloseIdleConnections()
		d.replica.bus.Close()
	})
}
