package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/trust"
)

const (
	certifiedRounds = 60
	// certifiedLimit is the limit of what certificates may add, in milliseconds.
	certifiedLimit = 2
)

// measureCertificates measures what certificates add to a launch and to a heal: a fleet whose services have
// them, and whose agent uses etcd through a gateway and an enforcer, against one without. Both run at the
// same time and work in turns.
func measureCertificates(ctx context.Context, b *bench) error {
	with := oneNode
	with.Certificates = true
	var sites []*running
	for _, o := range []site.Options{oneNode, with} {
		r, err := b.startSite(ctx, o)
		if err != nil {
			return err
		}
		defer r.close()
		sites = append(sites, r)
	}
	launch, heal := make([][]time.Duration, len(sites)), make([][]time.Duration, len(sites))
	for n := range certifiedRounds + warmup {
		for k, r := range sites {
			launched, healed, err := r.launchAndHeal(ctx, b, fleet.GroupName(fmt.Sprint("round", n)))
			if err != nil {
				return err
			}
			if n >= warmup {
				launch[k], heal[k] = append(launch[k], launched), append(heal[k], healed)
			}
		}
	}
	b.report("certified_launch_p50_ms", quantile(launch[1], 0.5), "ms", quantile(launch[0], 0.5))
	b.report("certified_launch_added_ms", quantile(launch[1], 0.5)-quantile(launch[0], 0.5), "ms", certifiedLimit)
	b.report("certified_heal_p50_ms", quantile(heal[1], 0.5), "ms", quantile(heal[0], 0.5))
	b.report("certified_heal_added_ms", quantile(heal[1], 0.5)-quantile(heal[0], 0.5), "ms", certifiedLimit)
	return sites[1].measureRenewals(ctx, b)
}

const (
	renewals       = 1000
	renewingNodes  = 50
	renewingAtOnce = 8
	// renewLimit is the limit of the share of a core, in percent.
	renewLimit = 5
)

// measureRenewals measures the processor time of a gateway for renewals of certificates, each with a new
// connection, and what share of a core 1,000 nodes take that renew once a minute.
func (r *running) measureRenewals(ctx context.Context, b *bench) error {
	url := r.ForNodes("apigateway-1")
	var all []enroll.Renewal
	for n := range renewingNodes {
		path, err := r.Certify(pki.Identity{Service: pki.Agent, Name: fmt.Sprint("renewing-", n)})
		if err != nil {
			return err
		}
		c, err := trust.OpenRenewed(path, time.Now, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		transport := trust.ByCertificate(c).Transport(&http.Transport{DisableKeepAlives: true}, pki.Identity{Service: pki.Gateway})
		all = append(all, enroll.Renewal{Ask: enroll.NewClient(func() []string { return []string{url} }, transport).Renew, Credentials: c})
	}
	gateway := r.Process("apigateway-1").PID()
	before, err := cpuOf(gateway)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(renewingAtOnce)
	for _, node := range all {
		g.Go(func() error {
			for range renewals / renewingNodes {
				if err := node.Renew(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	after, err := cpuOf(gateway)
	if err != nil {
		return err
	}
	each := (after - before).Seconds() * 1000 / renewals
	b.report("renewal_cpu_ms", each, "ms", -1)
	b.report("renewal_1000_nodes_pct", each/1000*1000/60*100, "%", renewLimit) // of a core, if each renews once a minute
	return nil
}

// launchAndHeal measures from the creation of a group to its ready server, and from the server's kill to the
// next ready one, as etcd shows them.
func (r *running) launchAndHeal(ctx context.Context, b *bench, group fleet.GroupName) (launch, heal time.Duration, err error) {
	began := time.Now()
	if err := r.declare(ctx, b, string(group), 1); err != nil {
		return 0, 0, err
	}
	var first fleet.InstanceID
	pid := 0
	_, err = r.until(ctx, "a ready server", func(s *view.Snapshot) bool {
		for _, i := range serving(s, group) {
			first, pid = i.Intent.ID, i.Status.PID
		}
		return pid > 0
	})
	if err != nil {
		return 0, 0, err
	}
	launch = time.Since(began)
	began = time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return 0, 0, fmt.Errorf("killing pid %d: %w", pid, err)
	}
	_, err = r.until(ctx, "the next ready server", func(s *view.Snapshot) bool {
		for _, i := range serving(s, group) {
			if i.Intent.ID != first || i.Status.PID != pid {
				return true
			}
		}
		return false
	})
	if err != nil {
		return 0, 0, err
	}
	heal = time.Since(began)
	return launch, heal, r.call(ctx, http.MethodDelete, "/api/v1/groups/"+string(group), nil)
}
