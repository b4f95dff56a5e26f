package daemon_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
)

// transport is one that speaks only what is asked for.
func transport(t *testing.T, tlsConfig *tls.Config, set func(*http.Protocols)) *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: tlsConfig}
	set(tr.Protocols)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// TLS and cleartext, HTTP/1.1 and HTTP/2, all on one port.
func TestOnePort(t *testing.T) {
	cert, key, pool := certificate(t)
	d := start(t, daemon.Config{TLSCertFile: cert, TLSKeyFile: key})
	trust := &tls.Config{RootCAs: pool}
	plain := d.URL()
	secure := "https" + strings.TrimPrefix(plain, "http")
	cases := map[string]struct {
		url   string
		hc    *http.Client
		major int
	}{
		"cleartext HTTP/1.1": {plain, transport(t, nil, func(p *http.Protocols) { p.SetHTTP1(true) }), 1},
		"cleartext HTTP/2":   {plain, transport(t, nil, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }), 2},
		"TLS HTTP/1.1":       {secure, transport(t, trust, func(p *http.Protocols) { p.SetHTTP1(true) }), 1},
		"TLS HTTP/2":         {secure, transport(t, trust.Clone(), func(p *http.Protocols) { p.SetHTTP2(true) }), 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			resp, err := tc.hc.Get(tc.url + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.ProtoMajor != tc.major || resp.StatusCode != http.StatusOK {
				t.Errorf("%s %d, want HTTP/%d and 200", resp.Proto, resp.StatusCode, tc.major)
			}
			if tc.major != 2 {
				return
			}
			for wire, opts := range map[string][]client.Option{"connect": nil, "grpc": {client.WithGRPC()}, "grpc-web": {client.WithGRPCWeb()}} {
				res, err := client.New(tc.url, append(opts, client.WithHTTPClient(tc.hc))...).Do(t.Context(), llm("root", "echo"), "hello")
				if err != nil || res.Text != "hello" {
					t.Errorf("%s: got %v, %v", wire, res, err)
				}
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		for _, first := range []string{"\x16\x03\x01 no handshake at all, just noise", "\x00\x01\x02\r\n\r\n"} {
			c, err := net.Dial("tcp", d.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, first); err != nil {
				t.Fatal(err)
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
			_ = c.Close()
		}
	})
}

// A connection that says nothing is closed; others do not wait for it.
func TestSilentConnection(t *testing.T) {
	cert, key, _ := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		l := testdaemon.NewListener()
		d, err := daemon.New(daemon.Config{Listener: l, TLSCertFile: cert, TLSKeyFile: key})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		silent, err := l.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		tr := l.Transport()
		resp, err := (&http.Client{Transport: tr}).Get(l.URL() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		begin := time.Now()
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the connection closed", err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("closed after %v, want 5s", took)
		}
		last, err := l.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		stop(t, d) // does not wait for it either
		_ = last.Close()
		_ = silent.Close()
		tr.CloseIdleConnections()
	})
}

// The connection above the limit waits until another one closes.
func TestMaxConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testdaemon.NewListener()
		d, err := daemon.New(daemon.Config{Listener: l, MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		first, err := l.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan net.Conn)
		go func() {
			c, err := l.DialContext(t.Context(), "", "")
			if err != nil {
				t.Error(err)
			}
			second <- c
		}()
		synctest.Wait()
		select {
		case <-second:
			t.Fatal("a second connection was accepted")
		default:
		}
		_ = first.Close()
		c := <-second
		_ = c.Close()
		stop(t, d)
	})
}
