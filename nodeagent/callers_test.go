package nodeagent_test

import (
	"net/http"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent"
)

func TestAnAgentServesGatewaysAndToAgentsOnlyMoves(t *testing.T) {
	t.Parallel()
	s, authority := newSite(t), trusttest.New(t)
	self := pki.Identity{Service: pki.Agent, Name: string(node)}
	s.start(func(c *nodeagent.Config) { c.Peers = authority.Peers(self) })
	record, err := store.Get(t.Context(), s.store, keys.Node(node))
	if err != nil {
		t.Fatal(err)
	}
	gateway, other := pki.Identity{Service: pki.Gateway}, pki.Identity{Service: pki.Agent, Name: "node-2"}
	for _, c := range []struct {
		caller pki.Identity
		path   string
		kind   errs.Kind // zero: it is answered
	}{
		{gateway, "/v1/cache", 0},
		{gateway, "/v1/moves/aaaaaa/list?move=m", errs.Denied},
		{other, "/v1/cache", errs.Denied},
		{other, "/v1/instances/aaaaaa/log", errs.Denied},
		{other, "/v1/moves/aaaaaa/list?move=m", errs.Conflict}, // there is no such move
		{pki.Identity{Service: pki.Scheduler}, "/v1/cache", errs.Denied},
		{pki.Identity{Service: pki.Templates}, "/v1/moves/aaaaaa/list?move=m", errs.Denied},
	} {
		client := &http.Client{Transport: authority.Peers(c.caller).Transport(&http.Transport{DisableKeepAlives: true}, self)}
		err := wire.Call(t.Context(), client, wire.Request{Method: http.MethodGet, URL: record.AgentURL + c.path}, nil)
		if c.kind == 0 && err != nil || c.kind != 0 && errs.KindOf(err) != c.kind {
			t.Errorf("%s by %s: %v", c.path, c.caller.Path(), err)
		}
	}
}

func TestAnAgentWithACertificateNeedsAnEncryptedURL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cfg := s.config()
	cfg.Peers = trusttest.New(t).Peers(pki.Identity{Service: pki.Agent, Name: string(node)})
	cfg.AdvertiseURL = "http://10.0.0.5:7070"
	if _, err := nodeagent.New(cfg); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "advertise-url" {
		t.Errorf("%v, want Invalid for advertise-url", err)
	}
}

func TestAnAgentRefusesACertificateOfAnotherNode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cfg := s.config()
	cfg.Peers = trusttest.New(t).Peers(pki.Identity{Service: pki.Agent, Name: "node-2"})
	if _, err := nodeagent.New(cfg); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != "trust.file" {
		t.Errorf("%v, want Invalid for trust.file", err)
	}
}
