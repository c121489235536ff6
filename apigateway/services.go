package apigateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/wire"
)

// Services says how the gateway renews the certificates of services.
type Services struct {
	Authority       string        `config:"authority" usage:"file with the authority of the services' certificates and its key, in PEM: authority.pem of orrery pki init; this gateway then renews the certificates of services that call it at peers.listen, and its own; empty: it renews none"`
	CertificateLife time.Duration `config:"certificate-life" default:"24h" usage:"how long a renewed certificate of a service is valid; services renew theirs at two thirds of that, and after 16h at the latest; one that is off for longer needs orrery pki issue"`
}

// Check names the settings that cannot be used. certified says whether the gateway has certificates.
func (s *Services) Check(certified bool) (problems []error) {
	if s.CertificateLife < minCertificateLife {
		problems = append(problems, errs.Field("services.certificate-life", "must be at least 1m"))
	}
	if s.Authority != "" && !certified {
		problems = append(problems, errs.Field(servicesAuthorityField, "needs trust.file: services must know the gateway by its certificate"))
	}
	return problems
}

const servicesAuthorityField = "services.authority"

// renewable are the services whose certificates gateways renew. Agents are not among them: theirs are of another
// authority, which etcd does not trust.
var renewable = []string{pki.Gateway, pki.Scheduler, pki.Enforcer, pki.Templates}

// serviceAuthority reads the authority of the services' certificates. It is nil if the gateway renews none.
func (c *Config) serviceAuthority() (*pki.Authority, error) {
	if c.Services.Authority == "" {
		return nil, nil
	}
	c.Services.CertificateLife = cmp.Or(c.Services.CertificateLife, enroll.Life)
	if problems := c.Services.Check(c.Peers.Certified()); len(problems) > 0 {
		return nil, problems[0]
	}
	authority, err := c.readAuthority(servicesAuthorityField, c.Services.Authority)
	if err == nil && !authority.VouchesFor(pki.Identity{Service: pki.Gateway}) {
		err = errs.Field(servicesAuthorityField, "services.authority %s is the authority of nodes: name the other one, which orrery pki init writes as authority.pem", c.Services.Authority)
	}
	return authority, err
}

func (g *Gateway) issuer(authority *pki.Authority, life time.Duration) enroll.Issuer {
	return enroll.Issuer{Authority: authority, Life: life, Bundle: g.cfg.Peers.Bundle, Now: g.cfg.Now}
}

// maxRenewal bounds the body of a request for a certificate, in bytes.
const maxRenewal = 16 << 10

// renewing serves renewals of services, and everything else by next.
func (g *Gateway) renewing(next http.Handler) http.Handler {
	if g.serviceAuthority == nil {
		return next
	}
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.Handle("POST "+enroll.RenewPath, g.cfg.Peers.Guard(http.HandlerFunc(g.renew), renewable...))
	return mux
}

// renew issues another certificate for the caller.
func (g *Gateway) renew(w http.ResponseWriter, r *http.Request) {
	var in enroll.RenewRequest
	var out enroll.Certificate
	caller, _ := trust.CallerOf(r.Context()) // Guard has checked it
	err := wire.DecodeJSON(r.Body, maxRenewal, &in)
	if err == nil {
		out, err = g.issuer(g.serviceAuthority, g.cfg.Services.CertificateLife).Issue(caller, in.CSR)
	}
	if err != nil {
		wire.Encode(w, wire.Internal, "", err)
		return
	}
	g.cfg.Log.Info("the certificate of a service is renewed", "identity", caller.String(), "address", r.RemoteAddr)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // an error means that the client has gone
}

// renewOwn renews the gateway's own certificate until ctx ends. It asks no other gateway, which might not trust a new
// authority yet.
func (g *Gateway) renewOwn(ctx context.Context) {
	issuer := g.issuer(g.serviceAuthority, g.cfg.Services.CertificateLife)
	_ = enroll.Renewal{
		Ask: func(_ context.Context, csr []byte) (enroll.Certificate, error) {
			return issuer.Issue(g.cfg.Peers.Bundle().Identity(), csr)
		},
		Credentials: g.cfg.Peers.Credentials(), Now: g.cfg.Now, Log: g.cfg.Log,
	}.Run(ctx) // ends with ctx, in no other way
}
