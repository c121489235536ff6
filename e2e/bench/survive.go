package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	takeovers = 5
	losses    = 3
	// outage is the duration of etcd's outage.
	outage = 2 * time.Minute
	// crowd is the number of instances during the outage. One in twenty is killed.
	crowd = 40
)

// measureSurvive measures the fleet's recovery from faults: a hanging etcd member, the end
// of shard owners, the loss of nodes, and an outage of etcd.
func measureSurvive(ctx context.Context, b *bench) error {
	if err := measureHung(ctx, b); err != nil {
		return err
	}
	r, err := b.startSite(ctx, threeNodes)
	if err != nil {
		return err
	}
	defer r.close()
	ttl, margin := store.DefaultTTL.Seconds(), fleet.ExclusiveMargin(store.DefaultTTL).Seconds()
	for _, service := range []string{"scheduler", "enforcer"} {
		killed, err := r.takeovers(ctx, b, service, func(p process) { p.Kill() })
		if err != nil {
			return err
		}
		b.report(service+"_kill_to_placement_p50_s", quantile(killed, 0.5)/1000, "s", ttl)
		stopped, err := r.takeovers(ctx, b, service, func(p process) { go p.Stop() })
		if err != nil {
			return err
		}
		b.report(service+"_stop_to_placement_p50_ms", quantile(stopped, 0.5), "ms", -1)
	}
	if err := r.measurePause(ctx, b); err != nil {
		return err
	}
	if err := r.measureLoss(ctx, b, "node_loss_to_online_p50_s", nil, ttl+ttl/3+2); err != nil {
		return err
	}
	exclusive := map[string]any{"static": true, "onNodeLoss": fleet.NodeLossReplace}
	if err := r.measureLoss(ctx, b, "node_loss_exclusive_p50_s", exclusive, 2*ttl+margin+2); err != nil {
		return err
	}
	return r.measureOutage(ctx, b)
}

// process is the process whose shards are taken over.
type process interface {
	Kill()
	Stop() error
	Start() error
	Running() bool
}

// takeovers returns the times from the end of a group's owner to the first placement that
// needed its successor.
func (r *running) takeovers(ctx context.Context, b *bench, service string, end func(process)) ([]time.Duration, error) {
	var out []time.Duration
	for n := range takeovers {
		group := fleet.GroupName(fmt.Sprintf("%s%d-%d", service[:3], n, time.Now().UnixMilli()%1e6))
		if err := r.declare(ctx, b, string(group), 1); err != nil {
			return nil, err
		}
		if _, err := r.until(ctx, "the first instance", func(s *view.Snapshot) bool { return len(serving(s, group)) == 1 }); err != nil {
			return nil, err
		}
		p, err := r.owner(ctx, service, group)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		end(p)
		if err := r.call(ctx, http.MethodPatch, "/api/v1/groups/"+string(group), map[string]any{"minInstances": 2}); err != nil {
			return nil, err
		}
		if _, err := r.until(ctx, "the successor's placement", func(s *view.Snapshot) bool { return placed(s, group) == 2 }); err != nil {
			return nil, err
		}
		out = append(out, time.Since(began))
		if err := r.restart(ctx, p); err != nil {
			return nil, err
		}
		if err := r.call(ctx, http.MethodDelete, "/api/v1/groups/"+string(group), nil); err != nil {
			return nil, err
		}
		if _, err := r.until(ctx, service+" with two replicas again", func(s *view.Snapshot) bool { return len(s.ServiceSessions(service)) == 2 }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *running) restart(ctx context.Context, p process) error {
	for p.Running() {
		if !pause.For(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	return p.Start()
}

// measureLoss cuts the power of a node and waits until all its instances are online
// elsewhere. Their group has additional fields of the spec.
func (r *running) measureLoss(ctx context.Context, b *bench, row string, spec map[string]any, limit float64) error {
	const group, size = fleet.GroupName("loss"), 9
	if err := r.declareWith(ctx, b, string(group), size, spec); err != nil {
		return err
	}
	var took []time.Duration
	for n := range losses {
		if _, err := r.until(ctx, "a whole group", func(s *view.Snapshot) bool { return len(serving(s, group)) == size }); err != nil {
			return err
		}
		victim := r.Nodes()[n%len(r.Nodes())]
		began := time.Now()
		victim.PowerCut()
		elsewhere := func(s *view.Snapshot) bool {
			n := 0
			for _, i := range serving(s, group) {
				if string(i.Node()) != victim.ID {
					n++
				}
			}
			return n == size
		}
		if _, err := r.until(ctx, "replacements", elsewhere); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := victim.Start(); err != nil {
			return err
		}
		settled := func(s *view.Snapshot) bool {
			for i := range s.GroupInstances(group) {
				if i.Lost() {
					return false
				}
			}
			return s.NodeSessions.Len() == len(r.Nodes())
		}
		if _, err := r.until(ctx, "the node's return", settled); err != nil {
			return err
		}
	}
	b.report(row, quantile(took, 0.5)/1000, "s", limit)
	return r.call(ctx, http.MethodDelete, "/api/v1/groups/"+string(group), nil)
}

// measureOutage stops all of etcd for a while and kills some instances meanwhile. It counts
// the other ends and measures the time until everything is as declared.
func (r *running) measureOutage(ctx context.Context, b *bench) error {
	const group = fleet.GroupName("outage")
	if err := r.declare(ctx, b, string(group), crowd); err != nil {
		return err
	}
	before, err := r.until(ctx, "the crowd", func(s *view.Snapshot) bool { return len(serving(s, group)) == crowd })
	if err != nil {
		return err
	}
	all := serving(before, group)
	member := r.Members()[0]
	member.Kill()
	killed := map[fleet.InstanceID]bool{}
	for _, i := range all[:crowd/20] {
		if err := syscall.Kill(i.Status.PID, syscall.SIGKILL); err != nil {
			return fmt.Errorf("killing %s: %w", i.Intent.Name, err)
		}
		killed[i.Intent.ID] = true
	}
	if !pause.For(ctx, outage) {
		return ctx.Err()
	}
	unrelated := 0
	for _, i := range all {
		if !killed[i.Intent.ID] && syscall.Kill(i.Status.PID, 0) != nil {
			unrelated++
		}
	}
	if err := member.Start(); err != nil {
		return err
	}
	began := time.Now()
	whole := func(s *view.Snapshot) bool {
		now := serving(s, group)
		if s.NodeSessions.Len() != len(r.Nodes()) || len(now) != crowd {
			return false
		}
		for _, i := range now {
			if killed[i.Intent.ID] && i.Status.Restarts == 0 {
				return false
			}
		}
		return true
	}
	s, err := r.until(ctx, "a whole crowd", whole)
	if err != nil {
		return err
	}
	converged := time.Since(began)
	moved := 0
	for _, i := range all {
		if now, ok := s.Instances.Get(i.Intent.ID); !killed[i.Intent.ID] && (!ok || now.Status.PID != i.Status.PID) {
			moved++
		}
	}
	b.report("outage_unrelated_exits", float64(unrelated), "of "+strconv.Itoa(crowd-len(killed)), 0)
	b.report("outage_needless_restarts", float64(moved), "of "+strconv.Itoa(crowd-len(killed)), 0)
	b.report("outage_converged_s", converged.Seconds(), "s", 30)
	return nil
}
