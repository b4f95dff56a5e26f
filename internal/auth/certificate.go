package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/apzuk3/agentd/session/principal"
)

// hasCertificate reports whether a client has shown a certificate that the TLS server has verified.
func hasCertificate(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && len(r.TLS.VerifiedChains[0]) > 0
}

// ofCertificate returns whom a certificate speaks for. It says so by a URI among its alternative names,
// agentd://TENANT/ROLE/ID; the tenant may be empty. A certificate of the same authority for another purpose has none.
func ofCertificate(cert *x509.Certificate) (principal.Principal, error) {
	var found *url.URL
	for _, u := range cert.URIs {
		if u.Scheme != "agentd" {
			continue
		}
		if found != nil {
			return principal.Principal{}, errors.New("the client certificate has several agentd:// names: give it one")
		}
		found = u
	}
	if found == nil {
		return principal.Principal{}, errors.New("the client certificate has no name of the form " +
			"agentd://TENANT/ROLE/ID among its URIs")
	}
	role, id, _ := strings.Cut(strings.TrimPrefix(found.Path, "/"), "/")
	p := principal.Principal{ID: id, Tenant: found.Host, Expires: cert.NotAfter}
	err := p.Role.UnmarshalText([]byte(role))
	if err == nil && id == "" {
		err = errors.New("it has no id")
	}
	if err != nil {
		return principal.Principal{}, fmt.Errorf(
			"the name %q of the client certificate is not agentd://TENANT/ROLE/ID: %w", found, err)
	}
	return p, nil
}
