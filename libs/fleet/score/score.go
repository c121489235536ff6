// Package score names the parts of a node's score and the profiles that weigh them.
package score

// Profile is a named set of weights for scoring nodes.
type Profile string

// The profiles.
const (
	ProfileBalanced Profile = "balanced" // much free memory and idle CPU, few instances, free ports
	ProfileSpread   Profile = "spread"   // few of the group's own instances first
	ProfilePack     Profile = "pack"     // the fullest node that still fits
	ProfileMemory   Profile = "memory"   // the most free memory in MiB, like Universe
)

// Part is one part of a node's score.
type Part string

// The parts of a score. Each is a value from 0 to 1 times its share of the sum of all weights, so
// a score is at most 1.
const (
	Memory    Part = "memory"    // free memory
	CPU       Part = "cpu"       // idle CPU
	Instances Part = "instances" // few instances
	Ports     Part = "ports"     // free ports in the range
	Spread    Part = "spread"    // few of the group's instances under the same value of its spread label
	Own       Part = "own"       // few of the group's own instances
	Packed    Part = "packed"    // little free memory
	Warm      Part = "warm"      // the plan's templates are in the node's cache
)

// Parts lists every part.
var Parts = [...]Part{Memory, CPU, Instances, Ports, Spread, Own, Packed, Warm}

// profiles are the weights of each profile. Those of balanced come from PrexorCloud.
var profiles = map[Profile]map[Part]float64{
	ProfileBalanced: {Memory: 0.35, CPU: 0.25, Instances: 0.15, Ports: 0.10, Spread: 0.15},
	ProfileSpread:   {Own: 0.50, Spread: 0.30, Memory: 0.10, CPU: 0.10},
	ProfilePack:     {Packed: 0.80, Spread: 0.10, Warm: 0.10},
	ProfileMemory:   {}, // the tie-break decides: the most free memory
}

// Weight returns the weight of a part. The zero value is ProfileBalanced.
func (p Profile) Weight(part Part) float64 {
	if p == "" {
		p = ProfileBalanced
	}
	return profiles[p][part]
}
