package place

import "math"

// The weights of the score's parts; they add up to 1.
const (
	weightMemory    = 0.35
	weightCPU       = 0.25
	weightInstances = 0.15
	weightPorts     = 0.10
	weightSpread    = 0.15
)

// Score is how well a node suits, in parts that add up to Total; each part is
// its weight times a share between 0 and 1.
type Score struct {
	Memory, CPU, Instances, Ports, Spread, Total float64
}

// Parts are the score's parts by name, rounded to a thousandth.
func (s Score) Parts() map[string]float64 {
	round := func(v float64) float64 { return math.Round(v*1000) / 1000 }
	return map[string]float64{
		"memory": round(s.Memory), "cpu": round(s.CPU), "instances": round(s.Instances),
		"ports": round(s.Ports), "spread": round(s.Spread), "total": round(s.Total),
	}
}

// scoreOf weighs free memory, idle CPU, few instances, free ports, and an even
// spread over the values of the group's spread label.
func scoreOf(n *Node, r *Request, sp spread) Score {
	s := Score{
		Memory:    weightMemory * ratio(n.Free().MemoryMiB, n.Capacity.MemoryMiB),
		CPU:       weightCPU * min(1-clamp(n.CPULoad), ratio(n.Free().CPU, n.Capacity.CPU)),
		Instances: weightInstances / float64(1+n.instances),
		Ports:     weightPorts * n.ports.freeRatio(r.Plan.Ports),
		Spread:    weightSpread * sp.share(n),
	}
	s.Total = s.Memory + s.CPU + s.Instances + s.Ports + s.Spread
	return s
}

func ratio(part, whole int) float64 {
	if whole <= 0 {
		return 0
	}
	return clamp(float64(part) / float64(whole))
}

func clamp(v float64) float64 { return max(0, min(1, v)) }

// spread counts a group's instances per value of its spread label. The zero
// value is that of a group without the constraint.
type spread struct {
	key     string
	buckets map[string]int
	fullest int
}

func newSpread(r *Request, nodes []*Node) spread {
	s := spread{key: r.Plan.Where.Spread}
	if s.key == "" {
		return s
	}
	s.buckets = map[string]int{}
	for _, n := range nodes {
		if v, ok := n.Labels[s.key]; ok {
			s.buckets[v] += n.groups[r.Group]
			s.fullest = max(s.fullest, s.buckets[v])
		}
	}
	return s
}

// share is 1 less the group's instances in the node's bucket over those in the
// fullest bucket; 1 where there is no constraint or no label.
func (s spread) share(n *Node) float64 {
	if s.fullest == 0 {
		return 1
	}
	value, ok := n.Labels[s.key]
	if !ok {
		return 1
	}
	return 1 - float64(s.buckets[value])/float64(s.fullest)
}
