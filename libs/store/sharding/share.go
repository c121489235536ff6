package sharding

import (
	"cmp"
	"hash/fnv"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Share returns the owner of each shard for the given live replicas, or "" for all without replicas.
// Names must be unique; their order does not matter.
//
// It is rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit
// rates", 1998) with bounded loads (after Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing
// with bounded loads", 2018, with the tightest possible bound): the pairs of shard and replica are
// visited by descending weight, and each shard goes to the first replica that has room. Loads
// differ by at most one. The assignment is stable: no shard has a higher weight with another
// replica than all shards of that replica.
func Share(replicas []string) (owner [fleet.ShardCount]string) {
	if len(replicas) == 0 {
		return owner
	}
	least, extra := fleet.ShardCount/len(replicas), fleet.ShardCount%len(replicas)
	load := make([]int, len(replicas))
	for _, p := range pairs(replicas) {
		full := load[p.replica] > least || load[p.replica] == least && extra == 0
		if owner[p.shard] != "" || full {
			continue
		}
		if load[p.replica] == least {
			extra--
		}
		load[p.replica]++
		owner[p.shard] = replicas[p.replica]
	}
	return owner
}

// pair is the weight of one replica (an index) for one shard.
type pair struct {
	shard, replica int
	weight         uint64
}

// pairs returns all pairs, heaviest first.
func pairs(replicas []string) []pair {
	out := make([]pair, 0, fleet.ShardCount*len(replicas))
	for i, name := range replicas {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		seed := h.Sum64()
		for n := range fleet.ShardCount {
			out = append(out, pair{n, i, mix(seed + uint64(n+1)*golden)})
		}
	}
	slices.SortFunc(out, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.shard, b.shard), cmp.Compare(replicas[a.replica], replicas[b.replica]))
	})
	return out
}

// golden is the step of SplitMix64: two to the 64th over the golden ratio.
const golden = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable
// pseudorandom number generators", 2014): each bit of x moves about half of the result's.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
