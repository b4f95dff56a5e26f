package auth

import (
	"errors"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Why requests are refused, as Config.OnRefused receives it.
const (
	ReasonMissing     = "missing"     // there is no credential
	ReasonMalformed   = "malformed"   // there are two credentials
	ReasonUnknown     = "unknown"     // the server takes no credential of this kind
	ReasonKey         = "key"         // there is no such API key
	ReasonRevoked     = "revoked"     // the API key was revoked
	ReasonExpired     = "expired"     // the API key or the token has expired
	ReasonToken       = "token"       // the token of the issuer is refused
	ReasonCertificate = "certificate" // the client certificate names nobody
	ReasonProxy       = "proxy"       // the headers of the proxy name nobody
	ReasonCustom      = "custom"      // Config.Next has refused
	ReasonUnavailable = "unavailable" // what credentials are compared with cannot be read now
)

// reasonOf is why a request is refused that proves who it is in a way.
func reasonOf(err error, way string) string {
	_, late := errors.AsType[*oidc.TokenExpiredError](err)
	_, pass := errors.AsType[passing](err)
	switch {
	case pass:
		return ReasonUnavailable
	case late, errors.Is(err, errExpiredKey):
		return ReasonExpired
	case errors.Is(err, errRevoked):
		return ReasonRevoked
	}
	return way
}
