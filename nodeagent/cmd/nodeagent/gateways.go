package main

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/lifecycle"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/program"
)

// gateways are the calls of the agent to gateways, beside those to etcd. The zero value is for an agent that uses etcd
// itself.
type gateways struct {
	renewal    enroll.Renewal
	relay      http.RoundTripper
	askSecrets func(context.Context, fleet.InstanceID, map[string]string) (map[string]string, error)
}

// dialTimeout bounds how long a call of an instance waits for a gateway that does not answer.
const dialTimeout = 2 * time.Second

// connectGateways connects to the gateways of the settings.
func (s *settings) connectGateways(e program.Env) gateways {
	if len(s.Gateways) == 0 {
		return gateways{}
	}
	gateway := pki.Identity{Service: pki.Gateway}
	c := enroll.NewClient(func() []string { return s.Gateways }, e.Peers.Transport(&http.Transport{}, gateway))
	return gateways{
		relay:      e.Peers.Transport(&http.Transport{DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}, gateway),
		renewal:    enroll.Renewal{Ask: c.Renew, Credentials: e.Peers.Credentials(), Now: e.Now, Log: e.Log},
		askSecrets: c.Secrets,
	}
}

// components keep the certificate valid.
func (g gateways) components() []lifecycle.Component {
	if g.renewal.Ask == nil {
		return nil
	}
	return []lifecycle.Component{{Name: "certificate", Run: g.renewal.Run}}
}
