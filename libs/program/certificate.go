package program

import (
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store/discovery"
	"github.com/orreryhq/orrery/libs/telemetry"
)

// renewal returns components that let gateways renew the certificate of a service. It returns none for agents, and for
// gateways that renew their own.
func renewal(s Spec, e Env) []lifecycle.Component {
	if s.Offline || !e.Peers.Certified() || s.Authority != nil && *s.Authority != "" {
		return nil
	}
	gateways := discovery.Of(e.Client, pki.Gateway, func(s cluster.Session) string {
		if !s.Renews {
			return ""
		}
		return s.PeerURL
	})
	transport := e.Peers.Transport(&http.Transport{IdleConnTimeout: time.Minute}, pki.Identity{Service: pki.Gateway})
	r := enroll.Renewal{
		Ask: enroll.NewClient(gateways.URLs, transport).Renew, Offered: func() bool { return len(gateways.URLs()) > 0 },
		Credentials: e.Peers.Credentials(), Now: e.Now, Log: e.Log,
	}
	return []lifecycle.Component{{Name: "gateways", Run: gateways.Run}, {Name: "certificate", Run: r.Run}}
}

// watchExpiry registers the metrics of the own certificate. They have the same names in all programs.
func watchExpiry(e Env) error {
	if !e.Peers.Certified() {
		return nil
	}
	m := telemetry.NewMetrics(e.Registry, "trust")
	gauge := func(noun, help string, of func(*pki.Bundle) time.Time) {
		m.GaugeFunc(noun, "timestamp_seconds", help, func() float64 { return float64(of(e.Peers.Bundle()).Unix()) })
	}
	gauge("certificate_expiry", "When the certificate of trust.file expires, in seconds since 1970.", (*pki.Bundle).NotAfter)
	gauge("certificate_start", "When the certificate of trust.file became valid, in seconds since 1970.", (*pki.Bundle).NotBefore)
	return m.Err()
}
