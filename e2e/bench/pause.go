package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	pausedTTLs = 3
	// backlog is the number of instances that are being started when the owner is paused.
	backlog = 100
)

// measurePause pauses the owner of a group during its work, for three times the TTL. After
// it resumes, it must write nothing, because another replica has its shard: its
// transactions must be refused and counted.
func (r *running) measurePause(ctx context.Context, b *bench) error {
	const group = fleet.GroupName("pause")
	if err := r.declare(ctx, b, string(group), 1); err != nil {
		return err
	}
	if _, err := r.until(ctx, "the first instance", func(s *view.Snapshot) bool { return len(serving(s, group)) == 1 }); err != nil {
		return err
	}
	owner, err := r.owner(ctx, "scheduler", group)
	if err != nil {
		return err
	}
	shard := keys.Shard("scheduler", fleet.ShardOf(group))
	before, err := store.Get(ctx, r.client, shard)
	if err != nil {
		return err
	}
	if err := r.call(ctx, http.MethodPatch, "/api/v1/groups/"+string(group), map[string]any{"minInstances": backlog}); err != nil {
		return err
	}
	begun := func(s *view.Snapshot) bool { return placed(s, group) > 1 }
	if _, err := r.until(ctx, "its work to begin", begun); err != nil {
		return err
	}
	owner.Pause()
	stopped := time.Now()
	whole := func(s *view.Snapshot) bool { return placed(s, group) == backlog }
	if _, err := r.until(ctx, "the successor's work", whole); err != nil {
		return err
	}
	after, err := store.Get(ctx, r.client, shard)
	if err != nil {
		return err
	}
	// There is work for any replica that believes it owns the group when the pause ends.
	if !pause.For(ctx, time.Until(stopped.Add(pausedTTLs*store.DefaultTTL))) {
		return ctx.Err()
	}
	if err := r.call(ctx, http.MethodPatch, "/api/v1/groups/"+string(group), map[string]any{"minInstances": 2 * backlog}); err != nil {
		return err
	}
	owner.Resume()
	if _, err := r.until(ctx, "two replicas again", func(s *view.Snapshot) bool { return len(s.ServiceSessions("scheduler")) == 2 }); err != nil {
		return err
	}
	s, err := r.until(ctx, "the rest", func(s *view.Snapshot) bool { return placed(s, group) == 2*backlog })
	if err != nil {
		return err
	}
	stale := 0
	for i := range s.GroupInstances(group) {
		if p := i.Placement; p != nil && p.Epoch <= before.CreateRev && p.ModRev > after.CreateRev {
			stale++
		}
	}
	refused, err := metric(ctx, owner, "orrery_scheduler_fenced_total")
	if err != nil {
		return err
	}
	b.report("paused_owner_stale_writes", float64(stale), "of "+strconv.Itoa(2*backlog), 0)
	b.report("paused_owner_refused", refused, "transactions", -1)
	return r.call(ctx, http.MethodDelete, "/api/v1/groups/"+string(group), nil)
}

func placed(s *view.Snapshot, group fleet.GroupName) (n int) {
	for i := range s.GroupInstances(group) {
		if i.Placement != nil {
			n++
		}
	}
	return n
}

// metric returns the value of a metric without labels from a process.
func metric(ctx context.Context, p *site.Process, name string) (float64, error) {
	text, err := p.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	line := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(text)
	if line == nil {
		return 0, fmt.Errorf("%s exports no %s", p.Name, name)
	}
	return strconv.ParseFloat(string(line[1]), 64)
}
