package bus

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/apzuk3/agentd/internal/test/natsserver"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// patience bounds what a test waits for.
const patience = time.Minute

func dial(t *testing.T, cfg Config) *NATS {
	t.Helper()
	if cfg.Secret == "" {
		cfg.Secret = "a secret that servers of a test share"
	}
	b, err := Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// until waits for a state.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// heard subscribes to a subject.
func heard(t *testing.T, b *NATS, subject string) <-chan string {
	t.Helper()
	got := make(chan string, 1<<14)
	end, err := b.Subscribe(subject, func(subject string, data []byte) { got <- subject + " " + string(data) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	if b.Carries() {
		if err := b.conn.Flush(); err != nil { // the server knows of it
			t.Fatal(err)
		}
	}
	return got
}

// Hints arrive in order, at all servers with the secret, and at no other one.
func TestNATS(t *testing.T) {
	ns := natsserver.Start(t, nil)
	a, b := dial(t, Config{URLs: ns.URL()}), dial(t, Config{URLs: ns.URL()})
	other := dial(t, Config{URLs: ns.URL(), Secret: "another secret than that of the others"})
	for _, b := range []*NATS{a, b, other} {
		until(t, "connected", b.Carries)
	}
	one, all, foreign := heard(t, b, "tail.x"), heard(t, a, "tail.>"), heard(t, other, ">")
	const n = 2000
	for i := range n {
		a.Publish("tail.x", fmt.Append(nil, i))
	}
	for i := range n {
		for _, got := range []<-chan string{one, all} {
			if s, want := <-got, fmt.Sprint("tail.x ", i); s != want {
				t.Fatalf("got %q, want %q", s, want)
			}
		}
	}
	a.Publish("tail.x", make([]byte, MaxHint+1))
	if st := a.State(); st.Sent != n || st.Dropped != 1 || b.State().Received != n {
		t.Errorf("the states are %+v and %+v", st, b.State())
	}
	if n := len(foreign); n > 0 {
		t.Errorf("a server with another secret has heard %d hints", n)
	}
	// What others publish under the subject is not believed.
	nc, err := nats.Connect(ns.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, data := range [][]byte{nil, []byte("short"), make([]byte, 100)} {
		if err := nc.Publish(b.seal.prefix+"tail.x", data); err != nil {
			t.Fatal(err)
		}
	}
	// Nor a hint of another subject.
	if err := nc.Publish(b.seal.prefix+"tail.x", b.seal.close(b.seal.prefix+"tail.y", []byte("stolen"))); err != nil {
		t.Fatal(err)
	}
	until(t, "dropped", func() bool { return b.State().Dropped == 4 })
	if n := len(one); n > 0 {
		t.Errorf("%d hints of others were believed: %s", n, <-one)
	}
}

// A server that is away, at the start or later, costs hints and nothing else.
func TestNATSAway(t *testing.T) {
	ns := natsserver.Start(t, nil)
	ns.Kill()
	a, b := dial(t, Config{URLs: ns.URL()}), dial(t, Config{URLs: ns.URL()})
	got := heard(t, b, "x")
	for i := range 100 {
		a.Publish("x", fmt.Append(nil, "lost ", i))
	}
	if st := a.State(); st.Connected || st.Dropped != 100 || len(a.out) > 0 {
		t.Errorf("without a server: %+v, %d wait", st, len(a.out))
	}
	for life := range 3 {
		ns.Restart()
		until(t, "connected", func() bool { return a.Carries() && b.Carries() })
		if err := b.conn.Flush(); err != nil { // it has subscribed again
			t.Fatal(err)
		}
		a.Publish("x", fmt.Append(nil, life))
		if s, want := <-got, fmt.Sprint("x ", life); s != want {
			t.Fatalf("got %q, want %q", s, want)
		}
		ns.Kill()
		until(t, "not connected", func() bool { return !a.Carries() && !b.Carries() })
		a.Publish("x", []byte("lost"))
	}
	if st := a.State(); st.Reconnects < 2 || st.Sent != 3 {
		t.Errorf("the state is %+v", st)
	}
}

// Who is not served by NATS fast enough loses hints, not memory.
func TestNATSFullQueue(t *testing.T) {
	ns := natsserver.Start(t, nil)
	a := dial(t, Config{URLs: ns.URL()})
	until(t, "connected", a.Carries)
	a.mu.Lock() // the sender waits
	for range outHints + 10 {
		a.mu.Unlock()
		if !a.enqueue(hint{"x", nil}) {
			a.mu.Lock()
			break
		}
		a.mu.Lock()
	}
	if len(a.out) > outHints {
		t.Errorf("%d hints wait", len(a.out))
	}
	a.out, a.bytes = nil, outBytes
	a.mu.Unlock()
	if a.enqueue(hint{"x", []byte("y")}) {
		t.Error("more bytes wait than may")
	}
	a.mu.Lock()
	a.bytes = 0
	a.mu.Unlock()
}

// Credentials: a password in the URL, a file with a key, TLS.
func TestNATSCredentials(t *testing.T) {
	t.Run("password", func(t *testing.T) {
		ns := natsserver.Start(t, func(o *server.Options) { o.Username, o.Password = "ann", "pass" })
		good := dial(t, Config{URLs: strings.Replace(ns.URL(), "nats://", "nats://ann:pass@", 1)})
		until(t, "connected", good.Carries)
		bad := dial(t, Config{URLs: strings.Replace(ns.URL(), "nats://", "nats://ann:wrong@", 1)})
		until(t, "refused often", func() bool { return bad.conn.LastError() != nil })
		if bad.Carries() || bad.conn.IsClosed() {
			t.Errorf("with a wrong password: connected %v, closed %v", bad.Carries(), bad.conn.IsClosed())
		}
	})
	t.Run("file", func(t *testing.T) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		seed, err := pair.Seed()
		if err != nil {
			t.Fatal(err)
		}
		ns := natsserver.Start(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
		file := filepath.Join(t.TempDir(), "user.nk")
		if err := os.WriteFile(file, seed, 0o600); err != nil {
			t.Fatal(err)
		}
		until(t, "connected", dial(t, Config{URLs: ns.URL(), CredsFile: file}).Carries)
	})
	t.Run("TLS", func(t *testing.T) {
		cert, roots := certificate(t)
		ns := natsserver.Start(t, func(o *server.Options) {
			o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		})
		url := strings.Replace(ns.URL(), "nats://", "tls://", 1)
		until(t, "connected", dial(t, Config{URLs: url, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}).Carries)
		bad := dial(t, Config{URLs: url})
		until(t, "refused", func() bool { return bad.conn.LastError() != nil })
		if bad.Carries() {
			t.Error("a certificate that nobody knows is taken")
		}
	})
	if _, err := Dial(Config{URLs: "nats://127.0.0.1:1", CredsFile: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a file that there is not is taken")
	}
}

// certificate makes a certificate for 127.0.0.1 that proves itself.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nats"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

func listen(t testing.TB, url string) *Notify {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	b := Listen(Database{Exec: pool.Exec, Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) }})
	t.Cleanup(func() { b.Close(); pool.Close() })
	return b
}

// Wake arrives over PostgreSQL, also after it was restarted. Many are one.
func TestNotify(t *testing.T) {
	pg := pgserver.Start(t, pgserver.Options{})
	url := pg.URL(t)
	a, b := listen(t, url), listen(t, url)
	until(t, "connected", func() bool { return b.State().Connected })
	got := make(chan string, 1<<14)
	end, err := b.Subscribe(Wake, func(subject string, _ []byte) { got <- subject })
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 1000 {
		a.Publish(Wake, nil)
		a.Publish("tail.x", []byte("not carried"))
	}
	if s := <-got; s != Wake {
		t.Errorf("got %q", s)
	}
	if n, most := a.State().Sent, int64(time.Since(began)/notifyEvery)+1; n > most {
		t.Errorf("%d notifications in %v, want at most %d", n, time.Since(began), most)
	}
	pg.Kill()
	until(t, "not connected", func() bool { return !b.State().Connected })
	pg.Restart()
	until(t, "connected again", func() bool { return b.State().Connected })
	for len(got) > 0 {
		<-got
	}
	for n := b.State().Received; b.State().Received == n; time.Sleep(time.Millisecond) { // the pool of a connects again
		a.Publish(Wake, nil)
	}
	<-got
	end()
}

// BenchmarkWake measures how long a hint takes from one server to another.
func BenchmarkWake(b *testing.B) {
	type hints interface {
		Publish(subject string, data []byte)
		Subscribe(subject string, f func(subject string, data []byte)) (end func(), err error)
		State() State
	}
	ways := map[string]func(b *testing.B) (from, to hints){
		"NATS": func(b *testing.B) (from, to hints) {
			url := natsserver.Start(b, nil).URL()
			var out [2]*NATS
			for i := range out {
				bus, err := Dial(Config{URLs: url, Secret: "a secret that servers of a test share"})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(bus.Close)
				out[i] = bus
			}
			return out[0], out[1]
		},
		"NOTIFY": func(b *testing.B) (from, to hints) {
			url := pgserver.URL(b)
			return listen(b, url), listen(b, url)
		},
	}
	for name, way := range ways {
		b.Run(name, func(b *testing.B) {
			from, to := way(b)
			for !from.State().Connected || !to.State().Connected {
				time.Sleep(time.Millisecond)
			}
			got := make(chan struct{}, 1)
			end, err := to.Subscribe(Wake, func(string, []byte) { got <- struct{}{} })
			if err != nil {
				b.Fatal(err)
			}
			defer end()
			var took []time.Duration
			for range b.N {
				time.Sleep(notifyEvery + time.Millisecond)
				began := time.Now()
				from.Publish(Wake, nil)
				<-got
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}
