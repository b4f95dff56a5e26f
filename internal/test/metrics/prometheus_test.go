package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// prometheus is a Prometheus that scrapes a daemon.
type prometheus struct {
	t    *testing.T
	url  string
	http *http.Client
}

// TestPrometheus has Prometheus, which AGENTD_PROMETHEUS names the folder of, check the example of a configuration and
// the alerts, scrape a daemon, and run each query of the dashboard and each alert.
func TestPrometheus(t *testing.T) {
	bin := os.Getenv("AGENTD_PROMETHEUS")
	if bin == "" {
		t.Skip("AGENTD_PROMETHEUS is not set: scripts/prometheus runs this test")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"check", "config", "prometheus.yaml"}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "promtool"), args...)
		cmd.Dir = "../../../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("SUCCESS")) {
			t.Errorf("promtool %v: %v: %s", args, err, out)
		}
	}
	b := start(t)
	b.traffic()
	p := startPrometheus(t, bin, b)
	p.await(`count_over_time(up{job="agentd"}[1m]) >= 3`) // rates need two scrapes
	instance := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	for _, q := range dashboard(t) {
		if n := p.query(instance.Replace(q)); n == 0 {
			t.Errorf("nothing comes of %s", q)
		}
	}
	for _, q := range alerts(t) {
		p.query(q) // of most, nothing is to come
	}
	p.checkRules(len(alerts(t)))
	if n := p.query(`up{job="agentd"} == 1`); n != 1 {
		t.Errorf("%d daemons are up", n)
	}
}

// startPrometheus starts a Prometheus on loopback, with the configuration of deploy/prometheus, but for the address of
// the daemon and the time between scrapes.
func startPrometheus(t *testing.T, bin string, b *busy) *prometheus {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile("../../../deploy/prometheus/prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("127.0.0.1:9090\"]", b.d.AdminAddr().String()+"\"]", ": 15s", ": 1s").Replace(string(text))
	rules, err := os.ReadFile("../../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"prometheus.yaml": []byte(config), "alerts.yaml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String() // Prometheus does not say which port it got
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr, "--log.level=warn")
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	if err := cmd.Start(); err != nil {
		kill()
		t.Fatal(err)
	}
	p := &prometheus{t: t, url: "http://" + addr, http: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		p.http.CloseIdleConnections()
		kill()
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("Prometheus says: %s", log)
		}
	})
	return p
}

// get reads a reply of its API.
func (p *prometheus) get(path string, into any) error {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(into)
}

// reply is what a query returns.
type reply struct {
	Status, Error string
	Data          struct{ Result []json.RawMessage }
}

// query runs a query, and returns how many series come of it.
func (p *prometheus) query(q string) int {
	p.t.Helper()
	var r reply
	if err := p.get("/api/v1/query?query="+url.QueryEscape(q), &r); err != nil || r.Status != "success" {
		p.t.Errorf("%s: %v, %s %s", q, err, r.Status, r.Error)
	}
	return len(r.Data.Result)
}

// await waits for something to come of a query.
func (p *prometheus) await(q string) {
	p.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		var r reply
		if p.get("/api/v1/query?query="+url.QueryEscape(q), &r) == nil && len(r.Data.Result) > 0 {
			return
		}
	}
	p.t.Fatalf("nothing comes of %s", q)
}

// checkRules checks that so many alerts are loaded, and that each was evaluated.
func (p *prometheus) checkRules(want int) {
	p.t.Helper()
	var r struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := p.get("/api/v1/rules", &r); err != nil {
		p.t.Fatal(err)
	}
	n := 0
	for _, g := range r.Data.Groups {
		for _, rule := range g.Rules {
			if n++; rule.Health != "ok" {
				p.t.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.LastError)
			}
		}
	}
	if n != want {
		p.t.Errorf("%d alerts, want %d", n, want)
	}
}
