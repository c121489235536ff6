package place

import (
	"encoding/json"
	"math"
	"math/bits"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/score"
)

// unit is a score of 1. Scores are integers in millionths, so that the order of addition
// does not matter and equal scores compare equal.
const unit = 1_000_000

// The parts of a score: those with a weight, in the order of score.Parts, and three
// more.
const (
	partMemory = iota
	partCPU
	partInstances
	partPorts
	partSpread
	partOwn
	partPacked
	partWarm
	weighted      // the number of parts with a weight
	partPreferred = weighted
	partFailures  = weighted + 1
	partShare     = weighted + 2
	partCount     = weighted + 3
)

// partNames are the names that explanations use.
var partNames = [partCount]string{
	partMemory: string(score.Memory), partCPU: string(score.CPU), partInstances: string(score.Instances),
	partPorts: string(score.Ports), partSpread: string(score.Spread), partOwn: string(score.Own),
	partPacked: string(score.Packed), partWarm: string(score.Warm),
	partPreferred: "preferred", partFailures: "failures", partShare: "share",
}

// Score says how well a node suits, in parts that add up to the total. Each weighted part
// is its share of all weights times a value from 0 to 1, so these parts add up to at most
// 1. Preferences, failures and the preferred share come on top. Score is comparable.
type Score struct {
	parts [partCount]int32
	// counted has a bit for each part that was set.
	counted uint16
}

func (s *Score) set(part int, value int64) {
	s.parts[part] = int32(value)
	s.counted |= 1 << part
}

func (s *Score) total() (sum int64) {
	for _, p := range s.parts {
		sum += int64(p)
	}
	return sum
}

// Total returns the sum of the parts.
func (s Score) Total() float64 { return float64(s.total()) / unit }

// Parts returns the parts that were set by name, and "total", each rounded to a thousandth.
func (s Score) Parts() map[string]float64 {
	parts := make(map[string]float64, 1+bits.OnesCount16(s.counted))
	for i, name := range partNames {
		if s.counted&(1<<i) != 0 {
			parts[name] = rounded(int64(s.parts[i]))
		}
	}
	parts["total"] = rounded(s.total())
	return parts
}

// Text returns the same parts as the JSON that a placement stores, sorted by name.
func (s Score) Text() score.Breakdown {
	text, _ := json.Marshal(s.Parts()) // cannot fail: the parts are finite
	return score.Breakdown(text)
}

// rounded converts a score from millionths and rounds it to a thousandth.
func rounded(v int64) float64 { return math.Round(float64(v)/(unit/1000))/1000 + 0 }

// weights is the weight of each part in millionths. They add up to one unit, or to 0.
type weights [weighted]float64

func weightsOf(w fleet.Where) weights {
	var out weights
	sum := 0.0
	for i, part := range score.Parts {
		out[i] = w.Weight(part)
		sum += out[i]
	}
	for i := range out {
		if sum > 0 {
			out[i] *= unit / sum
		}
	}
	return out
}

// of returns a part's weight times a value from 0 to 1. It rounds down, so that the parts
// never exceed one unit together.
func (w *weights) of(part int, value float64) int64 { return int64(w[part] * value) }

// score returns a node's whole score.
func (q *question) score(n *Node) Score {
	var s Score
	q.changing(n, &s)
	q.lasting(n, &s)
	if q.weights[partSpread] > 0 {
		s.set(partSpread, q.spreadPart(n))
	}
	return s
}

// changing sets the parts that depend on what the node holds.
func (q *question) changing(n *Node, s *Score) {
	w := &q.weights
	if w[partMemory] > 0 {
		s.set(partMemory, w.of(partMemory, ratio(n.usable.MemoryMiB-n.used.MemoryMiB, n.usable.MemoryMiB)))
	}
	if w[partCPU] > 0 {
		s.set(partCPU, w.of(partCPU, min(1-clamp(n.CPULoad), ratio(n.usable.CPU-n.used.CPU, n.usable.CPU))))
	}
	if w[partInstances] > 0 {
		s.set(partInstances, w.of(partInstances, 1/float64(1+max(0, n.instances))))
	}
	if w[partPorts] > 0 {
		s.set(partPorts, w.of(partPorts, n.ports.freeRatio(q.Plan.Ports)))
	}
	if w[partOwn] > 0 {
		s.set(partOwn, w.of(partOwn, 1/float64(1+max(0, n.groups[q.Group].instances))))
	}
	if w[partPacked] > 0 {
		s.set(partPacked, w.of(partPacked, ratio(n.used.MemoryMiB, n.usable.MemoryMiB)))
	}
}

// lasting sets the parts that depend on the node's own facts.
func (q *question) lasting(n *Node, s *Score) {
	if q.weights[partWarm] > 0 {
		s.set(partWarm, q.weights.of(partWarm, n.warmRatio(q.layers)))
	}
	if len(q.prefer) > 0 {
		s.set(partPreferred, preferred(n, q.prefer))
	}
	if n.share > 0 && len(q.prefer) == 0 { // else the share could hide a preference
		s.set(partShare, n.share)
	}
	if n.fails(q.Group, q.revision) {
		s.set(partFailures, failurePenalty)
	}
}

// preferred sums the weights of the preferences that match a node's labels.
func preferred(n *Node, prefer []preference) (sum int64) {
	for i := range prefer {
		if prefer[i].label.Matches(n.Labels) {
			sum += prefer[i].weight
		}
	}
	return sum
}

func ratio(part, whole int) float64 {
	if whole <= 0 {
		return 0
	}
	return clamp(float64(part) / float64(whole))
}

// clamp limits v to 0..1; NaN becomes 0.
func clamp(v float64) float64 {
	if v > 0 {
		return min(1, v)
	}
	return 0
}
