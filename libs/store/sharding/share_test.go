package sharding

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/orreryhq/orrery/libs/fleet"
)

func replicaNames(min, max int) *rapid.Generator[[]string] {
	return rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z][a-z0-9-]{0,8}`), min, max, rapid.ID)
}

func loads(owner [fleet.ShardCount]string) map[string]int {
	out := map[string]int{}
	for _, r := range owner {
		out[r]++
	}
	return out
}

func moved(a, b [fleet.ShardCount]string) (n int) {
	for s := range a {
		if a[s] != b[s] {
			n++
		}
	}
	return n
}

func TestShareIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := replicaNames(1, 80).Draw(t, "replicas")
		load := loads(Share(replicas))
		least := fleet.ShardCount / len(replicas)
		for _, r := range replicas {
			if n := load[r]; n != least && n != least+1 {
				t.Errorf("%s has %d shards, want %d or one more", r, n, least)
			}
			delete(load, r)
		}
		if len(load) > 0 {
			t.Errorf("shards belong to %v, who do not live", load)
		}
	})
}

func TestShareIgnoresReplicaOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := replicaNames(1, 12).Draw(t, "replicas")
		if Share(replicas) != Share(rapid.Permutation(replicas).Draw(t, "permutation")) {
			t.Error("two orders, two shares")
		}
	})
}

func TestShareIsStableMatching(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := replicaNames(2, 8).Draw(t, "replicas")
		owner := Share(replicas)
		weight := map[pair]uint64{}
		for _, p := range pairs(replicas) {
			weight[pair{p.shard, p.replica, 0}] = p.weight
		}
		of := func(s int) int { return slices.Index(replicas, owner[s]) }
		for s := range owner {
			for o := range owner {
				// It is not stable if another shard's replica fits s better than s's own replica, and
				// better than it fits that other shard.
				if better := weight[pair{s, of(o), 0}]; better > weight[pair{s, of(s), 0}] && better > weight[pair{o, of(o), 0}] {
					t.Fatalf("shard %d of %s belongs with %s rather than shard %d", s, owner[s], owner[o], o)
				}
			}
		}
	})
}

func TestShareMovesFewShards(t *testing.T) {
	const sets = 50
	for n := 1; n <= 8; n++ {
		total, must := 0, 0
		for set := range sets {
			all := make([]string, n+1)
			for i := range all {
				all[i] = fmt.Sprintf("host-%d-%d", set, i)
			}
			after := Share(all)
			total += moved(Share(all[:n]), after)
			must += loads(after)[all[n]]
		}
		t.Logf("%d and %d replicas: %.1f shards move, %.1f must", n, n+1, float64(total)/sets, float64(must)/sets)
		if n == 1 && total != must {
			t.Errorf("%d shards moved to a second replica in all, want %d", total, must)
		}
		if total*10 > must*17 {
			t.Errorf("between %d and %d replicas %d shards moved, %d must: want at most 1.7 times that", n, n+1, total, must)
		}
	}
}

func TestShareWithoutReplicas(t *testing.T) {
	if owner := Share(nil); owner != [fleet.ShardCount]string{} {
		t.Errorf("owners %v", owner)
	}
}

func TestShareIsSameAcrossBuilds(t *testing.T) {
	// Different builds run together during an upgrade and must agree.
	owner := Share([]string{"a", "b", "c"})
	got := ""
	for _, r := range owner {
		got += r
	}
	if want := "aaaabcccccbcbcccbccbccaababbacbbbbbabaaccbaabbacabcacbbaaacaaccb"; got != want {
		t.Errorf("the share is %q, was %q", got, want)
	}
}
