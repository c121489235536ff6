package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/orreryhq/orrery/e2e/cluster/site"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

const (
	// hungNodes is how many nodes have a session while an etcd member hangs.
	hungNodes = 16
	// hungFor is how long it hangs.
	hungFor = 5 * store.DefaultTTL / 2
	// etcdTick is etcd's default heartbeat interval.
	etcdTick = 100 * time.Millisecond
)

// measureHung pauses one of three etcd members, with all connections open, and counts the
// nodes that reach the deadline at which exclusive instances stop.
func measureHung(ctx context.Context, b *bench) error {
	programs, err := site.Build(ctx, filepath.Join(b.dir, "bin"), false, "./e2e/cmd/etcd")
	if err != nil {
		return err
	}
	etcd, err := site.StartEtcd(ctx, site.Options{Dir: filepath.Join(b.dir, "hung"), Programs: programs, Members: 3, Tick: etcdTick})
	if err != nil {
		return err
	}
	defer etcd.Close()
	sessions, end, err := openSessions(ctx, etcd.Endpoints(), hungNodes)
	defer end()
	if err != nil {
		return err
	}
	leader, err := leaderOf(ctx, etcd.Endpoints())
	if err != nil {
		return err
	}
	for _, c := range []struct {
		id     string
		member int
	}{{"hung_follower", (leader + 1) % 3}, {"hung_leader", leader}} {
		member := etcd.Members()[c.member]
		member.Pause()
		reached := stopDeadlines(ctx, sessions)
		member.Resume()
		b.report(c.id+"_nodes_at_deadline", float64(reached), fmt.Sprintf("of %d", hungNodes), 0)
	}
	return ctx.Err()
}

// openSessions opens the sessions of n nodes, each with its own client.
func openSessions(ctx context.Context, endpoints []string, n int) (sessions []*store.Session, end func(), err error) {
	var clients []*store.Client
	end = func() {
		for _, s := range sessions {
			s.Abandon()
		}
		for _, c := range clients {
			_ = c.Close()
		}
	}
	for i := range n {
		c, err := store.Dial(endpoints, store.Options{})
		if err != nil {
			return sessions, end, err
		}
		clients = append(clients, c)
		node := restNode(i)
		s, err := store.OpenSession(ctx, c, keys.NodeSession(node), fleet.NodeSession{Node: node}, 0, false)
		if err != nil {
			return sessions, end, err
		}
		sessions = append(sessions, s)
	}
	return sessions, end, nil
}

// stopDeadlines counts the sessions that reach their stop deadline while a member hangs.
func stopDeadlines(ctx context.Context, sessions []*store.Session) int {
	ctx, cancel := context.WithTimeout(ctx, hungFor)
	defer cancel()
	var reached atomic.Int64
	var watching sync.WaitGroup
	for _, s := range sessions {
		watching.Go(func() {
			if reachesDeadline(ctx, s) {
				reached.Add(1)
			}
		})
	}
	watching.Wait()
	return int(reached.Load())
}

func reachesDeadline(ctx context.Context, s *store.Session) bool {
	for {
		renewed, until := s.Renewed(), s.Deadline()
		stopAt := until.Add(-fleet.ExclusiveMargin(until.Sub(s.Confirmed())))
		timer := time.NewTimer(time.Until(stopAt))
		select {
		case <-renewed:
			timer.Stop()
		case <-timer.C:
			return true
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// leaderOf returns the index of the leader's endpoint.
func leaderOf(ctx context.Context, endpoints []string) (int, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for {
		for i, e := range endpoints {
			s, err := c.Status(ctx, e)
			if err == nil && s.Leader == s.Header.MemberId {
				return i, nil
			}
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}
