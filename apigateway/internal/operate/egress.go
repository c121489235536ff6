package operate

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// lookupTime bounds how long the name of one host is looked up, lookups how many are at a time.
	lookupTime = 3 * time.Second
	lookups    = 32
	// upgrader is who changes settings because an upgrade demands it.
	upgrader = "upgrade"
)

// Lookup finds the addresses of a host, as net.Resolver.LookupNetIP does.
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// EnterEgress enters the hosts of the sources and of the catalog that are not in the public
// network into the allow list, once in the life of a cluster: fetches from them worked before
// there was a list. A host that cannot be looked up is entered too. Metadata and link-local
// addresses are not. It logs what it did.
func (o *Operations) EnterEgress(ctx context.Context, lookup Lookup) error {
	if _, err := store.Get(ctx, o.cfg.Store, store.EgressUpgradeKey()); !errs.Is(err, errs.NotFound) {
		return errs.Wrap("operate.EnterEgress", err)
	}
	sources, _, err := store.List(ctx, o.cfg.Store, store.TemplateSources())
	if err != nil {
		return errs.Wrap("operate.EnterEgress", err)
	}
	done := fleet.EgressUpgrade{At: o.now()}
	done.Entered, done.Refused = sortHosts(ctx, fetched(sources, o.Snapshot()), lookup)
	var written bool
	_, err = o.mutate(ctx, Actor{User: upgrader}, func(s *view.Snapshot) (change, error) {
		written = false
		if _, err := store.Get(ctx, o.cfg.Store, store.EgressUpgradeKey()); !errs.Is(err, errs.NotFound) {
			return change{}, err // another gateway was faster
		}
		written = true
		mark := store.Create(store.EgressUpgradeKey(), done)
		if len(done.Entered) == 0 {
			return change{writes: []store.Write{mark}}, nil
		}
		active := s.Config()
		_, c := o.newConfig(s, active, withEgress(active.Patch, done.Entered), Actor{User: upgrader},
			fmt.Sprintf("enter %d hosts that sources and the catalog are fetched from", len(done.Entered)))
		c.writes = append(c.writes, mark)
		return c, nil
	})
	if err == nil && written {
		o.report(done)
	}
	return errs.Wrap("operate.EnterEgress", err)
}

// report tells the operator what came of an upgrade.
func (o *Operations) report(done fleet.EgressUpgrade) {
	if len(done.Entered) > 0 {
		o.cfg.Log.Warn("hosts of template sources and of the catalog are not in the public network and were entered into the allow list for fetches: remove those that nobody needs",
			"setting", egress.Setting, "hosts", done.Entered)
	}
	if len(done.Refused) > 0 {
		o.cfg.Log.Warn("template sources or versions of the catalog lead to link-local or metadata addresses, which are refused from now on: delete them, or enter the host into the allow list",
			"setting", egress.Setting, "hosts", done.Refused)
	}
}

// fetched are the hosts that sources and the catalog are fetched from, sorted.
func fetched(sources []fleet.TemplateSource, s *view.Snapshot) []string {
	var out []string
	add := func(text string) {
		if u, err := url.Parse(text); err == nil && u.Scheme != "file" && u.Hostname() != "" {
			out = append(out, strings.ToLower(u.Hostname()))
		}
	}
	for _, source := range sources {
		add(source.URL)
	}
	for _, p := range s.Catalog.All() {
		for _, v := range p.Versions {
			add(v.URL)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sortHosts tells the hosts that the allow list has to name from those that it must not; hosts of
// the public network are neither.
func sortHosts(ctx context.Context, hosts []string, lookup Lookup) (entered, refused []string) {
	found := make([][]netip.Addr, len(hosts))
	var g errgroup.Group
	g.SetLimit(lookups)
	for n, host := range hosts {
		g.Go(func() error {
			if a, err := netip.ParseAddr(host); err == nil {
				found[n] = []netip.Addr{a}
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, lookupTime)
			defer cancel()
			found[n], _ = lookup(ctx, "ip", host) // a host that is not found has no address
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	for n, host := range hosts {
		switch {
		case slices.ContainsFunc(found[n], egress.Metadata):
			refused = append(refused, host)
		case len(found[n]) == 0 || slices.ContainsFunc(found[n], func(a netip.Addr) bool { return egress.Kind(a) != "" }):
			if usual, err := fleet.EgressEntry(host); err == nil {
				entered = append(entered, usual)
			} else {
				refused = append(refused, host)
			}
		}
	}
	return entered, refused
}

// withEgress are settings whose allow list also has some hosts.
func withEgress(p fleet.ClusterSettings, hosts []string) fleet.ClusterSettings {
	var list []string
	if p.AllowedEgress != nil {
		list = *p.AllowedEgress
	}
	list = slices.Compact(slices.Sorted(slices.Values(slices.Concat(list, hosts))))
	if len(list) > fleet.MaxEgressEntries {
		list = list[:fleet.MaxEgressEntries]
	}
	p.AllowedEgress = &list
	return p
}
