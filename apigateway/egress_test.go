package apigateway

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestAddressesOfEarlierSourcesEnterTheAllowListOnceAndAreReported(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	c := etcd.Client(t)
	var earlier []store.Write
	for name, url := range map[string]string{
		"literal": "http://10.1.2.3:3000/r.git", "named": "https://Git.internal/r.git", "public": "https://github.example/r.git",
		"shell": "ssh://git@forge.internal:2222/r.git", "lost": "https://lost.internal/r.git", "disk": "file:///srv/r.git", "metadata": "http://169.254.169.254/r.git",
	} {
		earlier = append(earlier, store.Create(keys.TemplateSource(name), content.TemplateSource{Name: name, Kind: content.SourceGit, URL: url}))
	}
	earlier = append(earlier, store.Create(keys.CatalogPlatform("PAPER"), content.CatalogPlatform{Platform: "PAPER", Versions: []content.CatalogVersion{
		{Version: "1", URL: "http://[fd00::5]/paper.jar"}, {Version: "2", URL: "https://cdn.example/paper.jar"},
	}}))
	if _, err := c.Commit(t.Context(), store.Txn{Writes: earlier}); err != nil {
		t.Fatal(err)
	}
	var said await.Text
	known := map[string]string{"git.internal": "192.168.4.5", "forge.internal": "100.64.0.9", "github.example": "140.82.112.3", "cdn.example": "1.1.1.1"}
	prepared := func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&said, nil))
		c.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if a, ok := known[host]; ok {
				return []netip.Addr{netip.MustParseAddr(a)}, nil
			}
			return nil, errs.New(errs.NotFound, "no such host")
		}
	}
	s := newSiteOn(t, etcd, prepared)
	log := said.String()
	s = s.as(s.login("admin", adminPassword))
	entered := []string{"10.1.2.3/32", "fd00::5/128", "forge.internal", "git.internal", "lost.internal"}
	s.do("GET", "/api/v1/cluster/config", nil).want(200).is("activeVersion", 1).is("patch.network.allowedEgress", entered).is("effective.network.allowedEgress", entered)
	s.do("GET", "/api/v1/cluster/config/versions/1", nil).want(200).is("mutator", "upgrade").is("reason", "enter 5 hosts that sources and the catalog are fetched from")
	s.do("GET", "/api/v1/audit", nil).want(200).naming("config.update").naming("upgrade")
	for _, host := range append(entered, "169.254.169.254", "network.allowedEgress") {
		if !strings.Contains(log, host) {
			t.Errorf("the log does not report %s: %s", host, log)
		}
	}

	// The upgrade runs once: neither a rollback nor a new source repeats it.
	s.commit(store.Create(keys.TemplateSource("later"), content.TemplateSource{Name: "later", Kind: content.SourceGit, URL: "http://10.9.9.9/r.git"}))
	s.stop()
	next := newSiteOn(t, etcd, prepared)
	next = next.as(next.login("admin", adminPassword))
	next.do("POST", "/api/v1/cluster/config/rollback", `{"targetVersion":0}`).want(200)
	third := newSiteOn(t, etcd, prepared).as(next.token)
	third.do("GET", "/api/v1/cluster/config", nil).want(200).is("activeVersion", 0).is("effective.network.allowedEgress", []string{})
}

func TestTheAllowListTakesHostsAndNetworks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/cluster/config", `{"parentVersion":0,"patch":{"network":{"allowedEgress":["Git.Internal","10.1.2.3/8","fd00::7"]}}}`).want(201)
	s.do("GET", "/api/v1/cluster/config", nil).want(200).is("effective.network.allowedEgress", []string{"10.0.0.0/8", "fd00::7/128", "git.internal"})
	for _, entry := range []string{"http://git.internal", "git.internal:22", "*.internal", "", "10.0.0.0/33"} {
		s.do("POST", "/api/v1/cluster/config", `{"parentVersion":1,"patch":{"network":{"allowedEgress":["`+entry+`"]}}}`).want(422).naming("patch.network.allowedEgress[0]")
	}
}
