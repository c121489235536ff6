package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// placeSeeders is the number of concurrent transactions that write the fleet.
const placeSeeders = 8

// fleetSize describes a fleet without placements.
type fleetSize struct {
	nodes, instances int
	// groups share the instances evenly.
	groups []fleet.GroupName
}

func placeNode(n int) fleet.NodeID { return fleet.NodeID(fmt.Sprintf("node-%05d", n)) }

// placeID returns a different ID for each n below 36^6.
func placeID(n int) fleet.InstanceID {
	return fleet.NewInstanceID(uint64(n) * 1_234_567_891 % 2_176_782_336)
}

// room returns each node's capacity: one and a half times its share of the instances.
func (s fleetSize) room() int { return (s.instances*3/2)/s.nodes + 2 }

// seed writes nodes with sessions, groups, plans and intents.
func (s fleetSize) seed(ctx context.Context, c *store.Client) error {
	now := time.Now().UTC()
	var writes []store.Write
	room := s.room()
	for n := range s.nodes {
		id := placeNode(n)
		writes = append(writes,
			store.Create(keys.Node(id), fleet.Node{
				ID: id, DataUUID: "d-" + string(id), Address: "10.0.0.1", AgentURL: "http://10.0.0.1:7777", Version: "bench",
				Labels:   map[string]string{"zone": fmt.Sprintf("z%d", n%8), "disk": "ssd"},
				Capacity: fleet.Resources{MemoryMiB: room * 512, CPU: room * 50, DiskMiB: room * 1000},
				Runtimes: []fleet.NodeRuntime{{Name: fleet.RuntimeProcess, Offered: true}}, JoinedAt: now,
			}),
			store.Create(keys.NodeSession(id), fleet.NodeSession{Node: id, DataUUID: "d-" + string(id), StartedAt: now}))
	}
	for g, name := range s.groups {
		first := g * s.instances / len(s.groups)
		share := (g+1)*s.instances/len(s.groups) - first
		group := fleet.Group{Name: name, Revision: 1, CreatedAt: now, UpdatedAt: now, Spec: fleet.DefaultSpec()}
		group.Spec.Command, group.Spec.Scaling.Min, group.Spec.Scaling.Max = "exec ./server -port %PORT%", share, share
		group.Spec.Resources = fleet.Resources{MemoryMiB: 512, CPU: 50}
		group.Spec.Ports = fleet.PortRange{Start: 30_000, End: 30_000 + max(100, 2*room)}
		plan := compose.Compose(group, compose.Materials{}, 0)
		digest := plan.Digest()
		writes = append(writes, store.Create(keys.Group(name), group), store.Create(keys.Plan(digest), fleet.StoredPlan{Plan: plan, TouchedAt: now}))
		for n := range share {
			in := fleet.Intent{
				ID: placeID(first + n), Group: name, Ordinal: n + 1, Name: fleet.InstanceName(name, n+1), GroupRevision: 1, Plan: digest,
				Desired: fleet.DesiredRunning, Generation: 1, GenerationAt: now, CreatedAt: now, Origin: fleet.OriginMinimum, Reason: fleet.ReasonBelowMinimum,
			}
			writes = append(writes, store.Create(keys.Intent(in.ID), in))
		}
	}
	return commitAll(ctx, c, writes)
}

// commitAll commits many writes in concurrent transactions.
func commitAll(ctx context.Context, c *store.Client, writes []store.Write) error {
	parts := make(chan []store.Write)
	failed := make(chan error, placeSeeders)
	var writing sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range placeSeeders {
		writing.Go(func() {
			for part := range parts {
				if _, err := c.Commit(ctx, store.Txn{Writes: part}); err != nil {
					failed <- err
					cancel()
					return
				}
			}
		})
	}
feed:
	for part := range slices.Chunk(writes, c.MaxOps()) {
		select {
		case parts <- part:
		case <-ctx.Done():
			break feed
		}
	}
	close(parts)
	writing.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return ctx.Err()
	}
}
