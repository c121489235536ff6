package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/enforcer"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store/view"
)

// trio is three etcd members in separate processes with etcd's default timing.
type trio struct {
	members   []*site.Process
	endpoints []string
}

func (b *bench) startTrio(ctx context.Context) (*trio, error) {
	dir := filepath.Join(b.dir, "trio")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	programs, err := site.Build(ctx, filepath.Join(b.dir, "bin"), false, "./e2e/cmd/etcd")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	var all []string
	for n := range 3 {
		all = append(all, fmt.Sprintf("etcd-%d=http://%s", n, ports[n]))
	}
	t := &trio{}
	for n := range 3 {
		name := fmt.Sprint("etcd-", n)
		path := filepath.Join(dir, name)
		p := site.NewProcess(name, programs["etcd"], path+".log", "-name", name, "-data", path, "-ready", path+".ready",
			"-peer", ports[n], "-client", ports[3+n], "-members", strings.Join(all, ","), "-tick", "100ms")
		if err := p.Start(); err != nil {
			t.close()
			return nil, err
		}
		t.members, t.endpoints = append(t.members, p), append(t.endpoints, "http://"+ports[3+n])
	}
	return t, nil
}

func (t *trio) close() {
	for _, p := range t.members {
		p.Resume()
		p.Kill()
	}
}

// freePorts returns addresses that were just free.
func freePorts(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// leader returns the leading member.
func (t *trio) leader(ctx context.Context) (*site.Process, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: t.endpoints, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for {
		for n, endpoint := range t.endpoints {
			asked, cancel := context.WithTimeout(ctx, time.Second)
			status, err := c.Status(asked, endpoint)
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				return t.members[n], nil
			}
		}
		if !pause.For(ctx, 100*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// measurePausedLeader repeatedly pauses the leader for longer than the sessions' TTL. When
// the leader resumes, it may end sessions that were renewed meanwhile. The owners of such
// sessions open no new ones. None of their exclusive instances may move before the owner's
// deadline.
func measurePausedLeader(ctx context.Context, b *bench) error {
	t, err := b.startTrio(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	if _, err := t.leader(ctx); err != nil {
		return err
	}
	// All sessions may end at once, which must not delay replacements here.
	f, err := newLossFleet(ctx, t.endpoints, enforcer.Config{MassLossPercent: 100})
	if err != nil {
		return err
	}
	defer f.close()
	var sum pausedLeader
	for n := range pauseRuns {
		if err := sum.run(ctx, f, t, n); err != nil {
			return fmt.Errorf("run %d: %w", n+1, err)
		}
	}
	b.report("leader_paused_ended_early", float64(sum.early), fmt.Sprint("of ", pauseRuns*pauseLeases), -1)
	b.report("leader_paused_ended_earliest_s", sum.earliest.Seconds(), "s", -1)
	b.report("leader_paused_overlaps", float64(sum.overlaps), fmt.Sprintf("of %d moves in %d runs", sum.moved, pauseRuns), 0)
	return nil
}

// pausedLeader is the result of the runs.
type pausedLeader struct {
	early, moved, overlaps int
	// earliest is the longest time by which a session ended before its owner's deadline.
	earliest time.Duration
}

func (p *pausedLeader) run(ctx context.Context, f *lossFleet, t *trio, n int) error {
	group := fleet.Group{Name: fleet.GroupName(fmt.Sprint("leader-", n)), Spec: fleet.DefaultSpec()}
	group.Spec.Static.Enabled, group.Spec.OnNodeLoss = true, fleet.NodeLossReplace
	nodes, err := f.populate(ctx, group, pauseLeases, pauseTTL, time.Second)
	if err != nil {
		return err
	}
	defer func() {
		for _, n := range nodes {
			n.session.Close(ctx)
		}
	}()
	leader, err := t.leader(ctx)
	if err != nil {
		return err
	}
	leader.Pause()
	if !pause.For(ctx, pauseFor) {
		return ctx.Err()
	}
	leader.Resume()
	gone := map[fleet.NodeID]bool{}
	settled := time.Now().Add(pauseTTL / 2) // the leader ends sessions within a second
	for rev := f.view.Snapshot().Rev; time.Now().Before(settled); rev = f.view.Snapshot().Rev {
		p.see(f.view.Snapshot(), nodes, gone)
		waiting, cancel := context.WithDeadline(ctx, settled)
		_, _ = f.view.WaitRev(waiting, rev+1)
		cancel()
	}
	moved := func(s *view.Snapshot) bool {
		for _, n := range nodes {
			if i, ok := s.Instances.Get(n.instance); gone[n.id] && (!ok || i.Intent.Generation == 1) {
				return false
			}
		}
		return true
	}
	if err := f.until(ctx, "the moves", moved); err != nil {
		return err
	}
	s := f.view.Snapshot()
	for _, n := range nodes {
		i, ok := s.Instances.Get(n.instance)
		if !ok || i.Intent.Generation == 1 {
			continue
		}
		p.moved++
		if i.Intent.GenerationAt.Before(n.session.Deadline()) {
			p.overlaps++
		}
	}
	return nil
}

// see records the sessions that have just ended, and how early.
func (p *pausedLeader) see(s *view.Snapshot, nodes []lossNode, gone map[fleet.NodeID]bool) {
	for _, n := range nodes {
		if _, lives := s.NodeSessions.Get(n.id); lives || gone[n.id] {
			continue
		}
		gone[n.id] = true
		if left := time.Until(n.session.Deadline()); left > 0 {
			p.early++
			p.earliest = max(p.earliest, left)
		}
	}
}
