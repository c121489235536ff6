package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/proxy"
	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	enforcerOutages = 5
	// enforcerOutage is longer than the session TTL, so the enforcer's session ends.
	enforcerOutage = store.DefaultTTL * 3 / 2
)

// measureEnforcerOutage stops etcd for longer than the session TTL while a group lacks
// an instance, and measures how long the only enforcer takes to create that instance
// once etcd answers again.
func measureEnforcerOutage(ctx context.Context, b *bench) error {
	r, err := b.startSite(ctx, oneNode)
	if err != nil {
		return err
	}
	defer r.close()
	const group = fleet.GroupName("lacking")
	if err := r.declare(ctx, b, string(group), 1); err != nil {
		return err
	}
	var took []time.Duration
	for n := range enforcerOutages {
		size := n + 1
		if _, err := r.until(ctx, "the instances", func(s *view.Snapshot) bool { return len(serving(s, group)) == size }); err != nil {
			return err
		}
		one, err := r.enforcerOutage(ctx, group, size+1)
		if err != nil {
			return fmt.Errorf("outage %d: %w", n+1, err)
		}
		took = append(took, one)
	}
	b.report("enforcer_after_outage_s", quantile(took, 0.5)/1000, "s", 2)
	return nil
}

// enforcerOutage raises a group's minimum just before an outage of etcd. It returns the
// time from etcd's first answer after the outage to the enforcer's new intent.
func (r *running) enforcerOutage(ctx context.Context, group fleet.GroupName, minimum int) (time.Duration, error) {
	member := r.Members()[0]
	link := r.Link(site.Pair{From: "enforcer-1", To: member.Name})
	// The enforcer must not see the new minimum before the outage, because a transaction
	// that waits for a connection can commit before the enforcer opens its next session.
	link.Set(proxy.Fault{Refuse: true})
	if err := r.call(ctx, http.MethodPatch, "/api/v1/groups/"+string(group), map[string]any{"minInstances": minimum}); err != nil {
		return 0, err
	}
	member.Kill()
	link.Set(proxy.Fault{})
	if !pause.For(ctx, enforcerOutage) {
		return 0, ctx.Err()
	}
	if err := member.Start(); err != nil {
		return 0, err
	}
	if err := r.healthy(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	// The view's own connection backs off; a new one sees the write at once.
	if err := r.follow(ctx); err != nil {
		return 0, err
	}
	created := func(s *view.Snapshot) bool {
		n := 0
		for range s.GroupInstances(group) {
			n++
		}
		return n == minimum
	}
	if _, err := r.until(ctx, "the enforcer's intent", created); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, r.login(ctx) // waits until the gateway serves again
}

// healthy waits until etcd answers a linearizable read.
func (r *running) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, boundless)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Endpoints()[0]+"/health", nil)
		if err != nil {
			return err
		}
		if resp, err := r.http.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !pause.For(ctx, 2*time.Millisecond) {
			return fmt.Errorf("waiting for etcd's health: %w", ctx.Err())
		}
	}
}
