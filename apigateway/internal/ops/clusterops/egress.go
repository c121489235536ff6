package clusterops

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/egress"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	// lookupTime limits the lookup of one host, lookups how many run at once.
	lookupTime = 3 * time.Second
	lookups    = 32
	// upgrader is the author of changes that an upgrade makes.
	upgrader = "upgrade"
)

// Lookup finds the addresses of a host, as net.Resolver.LookupNetIP does.
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// EnterEgress adds hosts of template sources and the catalog outside the public network to the
// allow list of fetches, once in the life of a cluster: such fetches worked before the list
// existed. It also adds hosts whose lookup fails, but no metadata and link-local addresses. It logs
// what it did.
func (o *Cluster) EnterEgress(ctx context.Context, lookup Lookup) error {
	if _, err := store.Get(ctx, o.Store, keys.EgressUpgrade()); !errs.Is(err, errs.NotFound) {
		return errs.Wrap("operate.EnterEgress", err)
	}
	sources, _, err := store.List(ctx, o.Store, keys.TemplateSources())
	if err != nil {
		return errs.Wrap("operate.EnterEgress", err)
	}
	done := cluster.EgressUpgrade{At: o.Now()}
	done.Entered, done.Refused = sortHosts(ctx, fetched(sources, o.Snapshot()), lookup)
	var written bool
	_, err = o.Mutate(ctx, txn.Actor{User: upgrader}, func(s *view.Snapshot) (txn.Change, error) {
		written = false
		if _, err := store.Get(ctx, o.Store, keys.EgressUpgrade()); !errs.Is(err, errs.NotFound) {
			return txn.Change{}, err // another gateway has already done it
		}
		written = true
		mark := store.Create(keys.EgressUpgrade(), done)
		if len(done.Entered) == 0 {
			return txn.Change{Writes: []store.Write{mark}}, nil
		}
		active := s.Config()
		_, c := o.newConfig(s, active, withEgress(active.Patch, done.Entered), txn.Actor{User: upgrader},
			fmt.Sprintf("enter %d hosts that sources and the catalog are fetched from", len(done.Entered)))
		c.Writes = append(c.Writes, mark)
		return c, nil
	})
	if err == nil && written {
		o.report(done)
	}
	return errs.Wrap("operate.EnterEgress", err)
}

// report logs the result of EnterEgress for the operator.
func (o *Cluster) report(done cluster.EgressUpgrade) {
	if len(done.Entered) > 0 {
		o.Log.Warn("hosts of template sources and of the catalog are not in the public network and were entered into the allow list for fetches: remove those that are not needed",
			"setting", egress.Setting, "hosts", done.Entered)
	}
	if len(done.Refused) > 0 {
		o.Log.Warn("template sources or versions of the catalog lead to link-local or metadata addresses, which are refused from now on: delete them, or enter the host into the allow list",
			"setting", egress.Setting, "hosts", done.Refused)
	}
}

// fetched returns the hosts of sources and the catalog, sorted.
func fetched(sources []content.TemplateSource, s *view.Snapshot) []string {
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

// sortHosts returns the hosts that the allow list needs, and those that must not be on it. Hosts of
// the public network are in neither.
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
			found[n], _ = lookup(ctx, "ip", host) // an unknown host has no address
			return nil
		})
	}
	_ = g.Wait() // the functions return no error
	for n, host := range hosts {
		switch {
		case slices.ContainsFunc(found[n], egress.Metadata):
			refused = append(refused, host)
		case len(found[n]) == 0 || slices.ContainsFunc(found[n], func(a netip.Addr) bool { return egress.Kind(a) != "" }):
			if usual, err := cluster.EgressEntry(host); err == nil {
				entered = append(entered, usual)
			} else {
				refused = append(refused, host)
			}
		}
	}
	return entered, refused
}

// withEgress returns settings with hosts added to the allow list.
func withEgress(p cluster.ClusterSettings, hosts []string) cluster.ClusterSettings {
	var list []string
	if p.AllowedEgress != nil {
		list = *p.AllowedEgress
	}
	list = slices.Compact(slices.Sorted(slices.Values(slices.Concat(list, hosts))))
	if len(list) > cluster.MaxEgressEntries {
		list = list[:cluster.MaxEgressEntries]
	}
	p.AllowedEgress = &list
	return p
}
