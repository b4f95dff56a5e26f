package client

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Limits of the default transport. Together they notice a server that vanished
// without a word after half a minute at the latest.
const (
	dialTimeout   = 10 * time.Second
	pingAfter     = 15 * time.Second
	pingTimeout   = 15 * time.Second
	idleTimeout   = 90 * time.Second
	maxHeaderSize = 64 << 10
)

// newTransport returns the default transport: HTTP/2 only, with and without
// TLS, because a bidirectional stream needs it; with http1 what WithHTTP1 says.
func newTransport(tlsConfig *tls.Config, http1 bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(!http1)
	protocols.SetHTTP1(http1)
	proxy := proxyForTLS
	if http1 {
		proxy = http.ProxyFromEnvironment
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  proxy,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    dialTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderSize,
		Protocols:              protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter,
			PingTimeout:     pingTimeout,
		},
	}
}

// proxyForTLS uses the environment's proxy for https alone: a proxy cannot
// forward HTTP/2 without TLS.
func proxyForTLS(req *http.Request) (*url.URL, error) {
	if req.URL.Scheme != "https" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(req)
}
