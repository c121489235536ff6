package apigateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/certificate"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/errs"
)

// Transport says how the API is served: over TLS, behind a proxy that serves TLS, or without it.
type Transport struct {
	TLS certificate.Config `config:"tls"`
	// BehindProxy are the CIDR networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted.
	BehindProxy []string `config:"behind-proxy" usage:"addresses or networks of the proxies that serve TLS in front of this gateway; only their X-Forwarded-For and X-Forwarded-Proto are believed; empty: none"`
	// InsecureHTTP permits to serve the API without TLS beyond this host.
	InsecureHTTP bool `config:"insecure-http" usage:"serve the API without TLS to other hosts, where everybody on the way can read passwords and tokens"`
}

// Validate names the settings that cannot be used.
func (t *Transport) Validate() []error {
	problems := t.TLS.Check()
	if _, err := t.proxies(); err != nil {
		problems = append(problems, err)
	}
	return problems
}

const proxyField = "behind-proxy"

func (t *Transport) proxies() ([]netip.Prefix, error) {
	out, err := settings.Prefixes(proxyField, t.BehindProxy)
	if err == nil && slices.ContainsFunc(out, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		return nil, errs.Field(proxyField, "would believe the X-Forwarded-For of every client: list only the proxies")
	}
	return out, err
}

// Check returns Invalid if the API may not be served on an address: other hosts could reach it without
// TLS, and no setting permits that.
func (t *Transport) Check(at net.Addr) error {
	if t.TLS.On() || len(t.BehindProxy) > 0 || t.InsecureHTTP || !beyondHost(at) {
		return nil
	}
	return errs.Field("listen", "%s can be reached from other hosts, and without TLS everybody on the way can read passwords and tokens: "+
		"set tls.cert and tls.key, or tls.acme.hosts; or behind-proxy, if a proxy serves TLS in front; or insecure-http, if all hosts on the way are yours; or listen on 127.0.0.1", at)
}

// insecure reports whether other hosts reach the API without TLS, only because InsecureHTTP permits it.
func (t *Transport) insecure(at net.Addr) bool {
	return !t.TLS.On() && len(t.BehindProxy) == 0 && beyondHost(at)
}

// beyondHost reports whether other hosts can reach a listener.
func beyondHost(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// URL returns the URL of a listener. Over TLS its host is one that the certificate is for: that of the
// listener if possible. It returns Invalid if the certificate cannot be used.
func (t *Transport) URL(at net.Addr) (string, error) {
	if !t.TLS.On() {
		return "http://" + at.String(), nil
	}
	hosts, err := t.TLS.Hosts()
	if err != nil {
		return "", err
	}
	tcp, ok := at.(*net.TCPAddr)
	if !ok || len(hosts) == 0 || slices.Contains(hosts, tcp.IP.String()) {
		return "https://" + at.String(), nil
	}
	return "https://" + net.JoinHostPort(hosts[0], strconv.Itoa(tcp.Port)), nil
}

// hsts adds the header that tells browsers to use only TLS.
func hsts(next http.Handler, age time.Duration) http.Handler {
	value := fmt.Sprintf("max-age=%d", int64(age.Seconds()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", value)
		next.ServeHTTP(w, r)
	})
}
