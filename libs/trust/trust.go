// Package trust authenticates the calls between services: with certificates over mutual TLS, or
// with the cluster secret over plain HTTP.
//
//	          with certificates                          with the cluster secret
//	caller    presents its certificate, and requires     sends the secret as a bearer token
//	          the identity that the record of the
//	          address names
//	callee    requires a certificate, and decides        compares the secret; each caller may
//	          by the caller's identity                   do everything
//
// The identity in a record binds an address to its service: a changed address in etcd cannot lead a
// call to another service.
package trust

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/wire"
)

// Peers is how a service and the services that it talks to authenticate each other. It is safe for
// concurrent use.
type Peers struct {
	secret string
	// credentials is nil without certificates.
	credentials *Credentials
	now         func() time.Time
	log         *slog.Logger
	// refusals bounds the warnings about refused callers.
	refusals rate.Sometimes
	verified verified
	// refuse may refuse a caller with a valid certificate; see RefuseIf.
	refuse func(pki.Identity) error
}

// BySecret authenticates by the cluster secret. An empty secret refuses every caller.
func BySecret(secret string) *Peers { return &Peers{secret: secret} }

// ByCertificate authenticates by certificates.
func ByCertificate(c *Credentials) *Peers {
	return &Peers{credentials: c, now: c.now, log: c.log, refusals: rate.Sometimes{First: 10, Interval: 10 * time.Second}}
}

// Certified reports whether calls are authenticated by certificates.
func (p *Peers) Certified() bool { return p.credentials != nil }

// CheckOwn returns Invalid for the field trust.file if the own certificate is of another service. Callers of
// a service would refuse it.
func (p *Peers) CheckOwn(self pki.Identity) error {
	if !p.Certified() {
		return nil
	}
	if own := p.credentials.Bundle().Identity(); !self.Includes(own) {
		return errs.Field("trust.file", "trust.file has the certificate of %s: issue one for this service, with orrery pki issue %s", own.Path(), self.Path())
	}
	return nil
}

// Token is the bearer token of calls to others; empty with certificates.
func (p *Peers) Token() string { return p.secret }

const (
	secureScheme = "https://"
	// handshakeTimeout bounds a handshake with a service that accepts connections and does not answer.
	handshakeTimeout = 10 * time.Second
)

// URLOf returns the URL of an own listener; see wire.HostOf.
func (p *Peers) URLOf(listener net.Addr) string {
	if p.Certified() {
		return secureScheme + wire.HostOf(listener)
	}
	return "http://" + wire.HostOf(listener)
}

// CheckURL returns Invalid for the field if others could not call an own URL. An empty URL is valid.
func (p *Peers) CheckURL(field, url string) error {
	if !p.Certified() || url == "" || strings.HasPrefix(url, secureScheme) {
		return nil
	}
	return errs.Field(field, "must begin with https://, because trust.file encrypts the calls between services")
}

// Listener returns a listener that accepts callers with a certificate of an own authority. Without
// certificates it returns l.
func (p *Peers) Listener(l net.Listener) net.Listener {
	if !p.Certified() {
		return l
	}
	c := p.serverTLS()
	c.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := p.credentials.Bundle().Verify(s.PeerCertificates, pki.Call, p.now())
		if err != nil {
			p.refusals.Do(func() { p.log.Warn("refused a caller because of its certificate", "error", err) })
		}
		return err
	}
	return tls.NewListener(l, c)
}

// JoinListener is a Listener for HTTP/2 that also accepts callers without a certificate, and with one that
// has expired: they have to get one. Guard refuses them. It requires certificates.
func (p *Peers) JoinListener(l net.Listener) net.Listener {
	c := p.serverTLS()
	c.NextProtos = []string{"h2", "http/1.1"}
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return p.credentials.Bundle().WithAuthorities(), nil // a caller that joins knows the authority by its fingerprint only
	}
	return tls.NewListener(l, c)
}

func (p *Peers) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, // VerifyConnection or Guard require it, and say why
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return p.credentials.Bundle().Certificate(), nil
		},
	}
}

// Bundle returns the current bundle; nil without certificates.
func (p *Peers) Bundle() *pki.Bundle {
	if !p.Certified() {
		return nil
	}
	return p.credentials.Bundle()
}

// Credentials returns the own credentials; nil without certificates.
func (p *Peers) Credentials() *Credentials { return p.credentials }

// callerKey is the key of the caller's identity in a request's context.
type callerKey struct{}

// Guard refuses callers that are not authenticated, and those whose certificate is not of one of the
// services. CallerOf returns the identity of the others.
func (p *Peers) Guard(next http.Handler, services ...string) http.Handler {
	if !p.Certified() {
		return wire.Guard(p.secret, next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			wire.Encode(w, wire.Internal, "", errs.New(errs.Unauthenticated, "this call needs a certificate"))
			return
		}
		caller, err := p.verified.caller(p.credentials.Bundle(), r.TLS.PeerCertificates, p.now())
		if err == nil && !slices.Contains(services, caller.Service) {
			err = errs.New(errs.Denied, "%s may not make this call: it is for %s", caller.Path(), strings.Join(services, ", "))
		}
		if err == nil && p.refuse != nil {
			err = p.refuse(caller)
		}
		if errs.Is(err, errs.Unauthenticated) {
			w.Header().Set("Connection", "close") // the caller may have a newer certificate for another connection
		}
		if err != nil {
			wire.Encode(w, wire.Internal, "", err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

// RefuseIf makes Guard ask whether to refuse a caller, such as one that is revoked. Call it before serving.
func (p *Peers) RefuseIf(refuse func(pki.Identity) error) { p.refuse = refuse }

// Renewable returns who makes a call with a certificate that may have expired, at most grace ago. The error
// is Unauthenticated if it is not of an own authority.
func (p *Peers) Renewable(r *http.Request, grace time.Duration) (pki.Identity, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return pki.Identity{}, errs.New(errs.Unauthenticated, "this call needs a certificate")
	}
	now, end := p.now(), r.TLS.PeerCertificates[0].NotAfter
	if now.After(end) && now.Sub(end) < grace {
		now = end
	}
	return p.credentials.Bundle().Verify(r.TLS.PeerCertificates, pki.Call, now)
}

// CallerOf returns who makes a call that Guard has passed on. ok is false if the caller proved only that
// it has the cluster secret, and may therefore do everything.
func CallerOf(ctx context.Context) (caller pki.Identity, ok bool) {
	caller, ok = ctx.Value(callerKey{}).(pki.Identity)
	return caller, ok
}

// Allow returns Denied unless the caller is one of the identities, or has only the cluster secret.
func Allow(ctx context.Context, allowed ...pki.Identity) error {
	caller, ok := CallerOf(ctx)
	if !ok || slices.ContainsFunc(allowed, func(a pki.Identity) bool { return a.Includes(caller) }) {
		return nil
	}
	return errs.New(errs.Denied, "%s may not make this call: it is for %s", caller.Path(), paths(allowed, ", "))
}

func paths(all []pki.Identity, separator string) string {
	var out []string
	for _, i := range all {
		out = append(out, i.Path())
	}
	return strings.Join(out, separator)
}

// Transport returns a transport for calls to one service, with the settings of base. With certificates a
// call fails with Unauthenticated, before the request is sent, if another service answers.
func (p *Peers) Transport(base *http.Transport, to pki.Identity) http.RoundTripper {
	if !p.Certified() {
		return base
	}
	t := base.Clone()
	t.TLSClientConfig = p.ClientTLS(to)
	if t.TLSHandshakeTimeout == 0 { // net/http does not end a handshake with the request's context
		t.TLSHandshakeTimeout = handshakeTimeout
	}
	return &secured{credentials: p.credentials, transport: t}
}

// ClientTLS returns the settings for connections to one of some services. A handshake fails with
// Unauthenticated if another one answers. Without certificates they are the defaults.
func (p *Peers) ClientTLS(to ...pki.Identity) *tls.Config {
	if !p.Certified() {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // VerifyConnection checks the identity instead of the host's name
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return p.credentials.Bundle().Certificate(), nil
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			got, err := p.credentials.Bundle().Verify(s.PeerCertificates, pki.Serve, p.now())
			if err == nil && !slices.ContainsFunc(to, func(t pki.Identity) bool { return t.Includes(got) }) {
				err = errs.New(errs.Unauthenticated, "%s answers there, not %s: correct the address in its settings", got.Path(), paths(to, " or "))
			}
			return err
		},
	}
}
