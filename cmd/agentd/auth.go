package main

import (
	"errors"

	"github.com/apzuk3/agentd/internal/daemon"
)

// authFlags say how callers of serve prove who they are.
type authFlags struct {
	Insecure bool   `help:"${serve_insecure}"`
	ClientCA string `name:"client-ca" placeholder:"FILE" help:"${serve_client_ca}"`

	OIDCIssuer      string `name:"oidc-issuer" placeholder:"URL" help:"${serve_oidc_issuer}"`
	OIDCAudience    string `name:"oidc-audience" placeholder:"TEXT" help:"${serve_oidc_audience}"`
	OIDCIDClaim     string `name:"oidc-id-claim" default:"sub" help:"${serve_oidc_id_claim}"`
	OIDCTenantClaim string `name:"oidc-tenant-claim" placeholder:"NAME" help:"${serve_oidc_tenant_claim}"`
	OIDCRoleClaim   string `name:"oidc-role-claim" placeholder:"NAME" help:"${serve_oidc_role_claim}"`

	TrustedProxies    []string `placeholder:"NETWORK" help:"${serve_trusted_proxies}"`
	ProxyUserHeader   string   `default:"X-Forwarded-User" help:"${serve_proxy_user_header}"`
	ProxyTenantHeader string   `placeholder:"NAME" help:"${serve_proxy_tenant_header}"`
	ProxyRoleHeader   string   `placeholder:"NAME" help:"${serve_proxy_role_header}"`
}

// check refuses flags that do not go together.
func (f *authFlags) check(tls bool) error {
	var errs []error
	if f.ClientCA != "" && !tls {
		errs = append(errs, errors.New("--client-ca needs --tls-cert and --tls-key: certificates come with TLS alone"))
	}
	if (f.OIDCIssuer == "") != (f.OIDCAudience == "") {
		errs = append(errs, errors.New("--oidc-issuer and --oidc-audience go together: only one is set"))
	}
	return errors.Join(errs...)
}

// authenticate configures a daemon.
func (f *authFlags) authenticate(cfg *daemon.Config) error {
	// Not as serve validates its flags: keys of a file are tried one by one.
	if err := f.check(cfg.TLSCertFile != ""); err != nil {
		return usage("%w", err)
	}
	cfg.Insecure, cfg.Auth.ClientCAFile = f.Insecure, f.ClientCA
	if f.OIDCIssuer != "" {
		cfg.Auth.Issuer = &daemon.Issuer{
			URL: f.OIDCIssuer, Audience: f.OIDCAudience,
			ID: f.OIDCIDClaim, Tenant: f.OIDCTenantClaim, Role: f.OIDCRoleClaim,
		}
	}
	if len(f.TrustedProxies) == 0 {
		return nil
	}
	from, err := daemon.Networks(f.TrustedProxies)
	if err != nil {
		return usage("--trusted-proxies: %w", err)
	}
	cfg.Auth.Proxy = &daemon.Proxy{
		From: from, User: f.ProxyUserHeader, Tenant: f.ProxyTenantHeader, Role: f.ProxyRoleHeader,
	}
	return nil
}
