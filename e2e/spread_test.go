package e2e_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orreryhq/orrery/e2e/cluster"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// awaitShares waits until the schedulers share the shards evenly.
func awaitShares(t *testing.T, c cluster.Local, schedulers int) {
	t.Helper()
	raw, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(c.Etcd(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	s := store.New(raw, store.Options{})
	await.That(t, fmt.Sprintf("an even share of %d schedulers", schedulers), func() string {
		shards, _, err := store.List(cluster.Bounded(t), s, keys.Shards("scheduler"))
		if err != nil {
			return err.Error()
		}
		load := map[string]int{}
		for _, shard := range shards {
			load[shard.Replica]++
		}
		few, many := fleet.ShardCount, 0
		for n := range maps.Values(load) {
			few, many = min(few, n), max(many, n)
		}
		return await.Unless(len(shards) == fleet.ShardCount && len(load) == schedulers && many-few <= 1, "%v", load)
	})
}

// All nodes are agents on one host and measure its CPU at different moments. The groups
// give the measured CPU no weight, because only then are the nodes equal.
func TestEqualNodesGetAsManyInstancesWhateverTheNumberOfSchedulers(t *testing.T) {
	for _, schedulers := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d schedulers", schedulers), func(t *testing.T) {
			t.Parallel()
			c := cluster.Start(t, cluster.Options{MemoryMiB: 4000, CPU: 400})
			admin := cluster.Login(t, c)
			nodes := []string{"node-1", "node-2", "node-3"}
			for _, id := range nodes[1:] {
				cluster.AddNode(t, c, admin, cluster.NodeOptions{ID: id, MemoryMiB: 4000, CPU: 400})
			}
			for n := range schedulers - 1 {
				cluster.AddScheduler(t, c, fmt.Sprintf("more-%d", n))
			}
			awaitShares(t, c, schedulers)
			for _, split := range []struct{ groups, each int }{{1, 6}, {2, 3}, {6, 1}} {
				name := func(g int) string { return fmt.Sprintf("g%dof%d", g, split.groups) }
				for g := range split.groups {
					createGroup(t, admin, catGroup(name(g), map[string]any{
						"memoryMb": 100, "minInstances": split.each, "placementWeights": map[string]any{"cpu": 0},
					}))
				}
				on := map[string]int{}
				for g := range split.groups {
					for _, i := range admin.AwaitRunning(name(g), split.each) {
						on[i.Node]++
					}
				}
				for _, id := range nodes {
					if on[id] != 2 {
						t.Errorf("%d groups of %d: instances by node %v, want 2 on each of %v", split.groups, split.each, on, nodes)
						break
					}
				}
				for g := range split.groups {
					admin.Do("DELETE", "/api/v1/groups/"+name(g), nil).OK(204)
				}
				await.That(t, "an empty cluster", func() string {
					left := slices.Concat(func() (all [][]cluster.Instance) {
						for g := range split.groups {
							all = append(all, admin.Instances(name(g)))
						}
						return all
					}()...)
					return await.Unless(len(left) == 0, "%+v", left)
				})
			}
		})
	}
}
