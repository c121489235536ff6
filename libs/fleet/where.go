package fleet

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// Where says which nodes may run the group, and which of them suit it best. The
// zero value allows any node and prefers by the balanced profile.
type Where struct {
	// Nodes are the allowed node ids. Empty, or containing "*", means any node.
	Nodes []NodeID `json:"nodes,omitempty"`
	// Affinity are label expressions that a node must satisfy, AntiAffinity ones of
	// which it must satisfy none; see ParseLabelExpr.
	Affinity     []string `json:"affinity,omitempty"`
	AntiAffinity []string `json:"antiAffinity,omitempty"`
	// Prefer are label expressions that make a node more or less welcome.
	Prefer []Preference `json:"prefer,omitempty"`
	// Spread is a label key over whose values instances are distributed. Soft, unless
	// MaxSkew bounds how many more instances one value may have than another of which a
	// node could hold one if it were empty; 0 does not.
	Spread  string `json:"spread,omitempty"`
	MaxSkew int    `json:"maxSkew,omitempty"`
	// MaxPerNode bounds the group's instances on one node. 0 does not.
	MaxPerNode int `json:"maxPerNode,omitempty"`
	// Alone keeps other groups off the nodes of this one's instances, and the other way round.
	Alone bool `json:"alone,omitempty"`
	// Profile is how nodes are scored. Empty means ProfileBalanced.
	Profile Profile `json:"profile,omitempty"`
	// Weights replace single weights of the profile.
	Weights map[ScorePart]float64 `json:"weights,omitempty"`
}

// Preference is a soft affinity.
type Preference struct {
	// Label is a label expression, see ParseLabelExpr.
	Label string `json:"label"`
	// Weight is from -100, never unless nothing else fits, to 100, whenever it fits.
	Weight int `json:"weight"`
}

// Profile is a named set of weights for scoring nodes.
type Profile string

// The profiles.
const (
	ProfileBalanced Profile = "balanced" // much free memory and idle CPU, few instances, free ports
	ProfileSpread   Profile = "spread"   // few of the group's own instances first
	ProfilePack     Profile = "pack"     // the fullest node that still fits
	ProfileMemory   Profile = "memory"   // the most free memory in MiB, as Universe chooses
)

// ScorePart is one part of a node's score.
type ScorePart string

// The parts of a score. Each is a value between 0 and 1 times its weight's share of all
// weights, so that together they are 1 at most, whatever the weights.
const (
	ScoreMemory    ScorePart = "memory"    // free memory
	ScoreCPU       ScorePart = "cpu"       // idle CPU
	ScoreInstances ScorePart = "instances" // few instances
	ScorePorts     ScorePart = "ports"     // free ports in the range
	ScoreSpread    ScorePart = "spread"    // few of the group's instances under the same value of its spread label
	ScoreOwn       ScorePart = "own"       // few of the group's own instances
	ScorePacked    ScorePart = "packed"    // little free memory
	ScoreWarm      ScorePart = "warm"      // the plan's templates are in the node's cache
)

// ScoreParts lists every part.
var ScoreParts = [...]ScorePart{ScoreMemory, ScoreCPU, ScoreInstances, ScorePorts, ScoreSpread, ScoreOwn, ScorePacked, ScoreWarm}

// profiles are the weights of each profile; those of balanced are PrexorCloud's.
var profiles = map[Profile]map[ScorePart]float64{
	ProfileBalanced: {ScoreMemory: 0.35, ScoreCPU: 0.25, ScoreInstances: 0.15, ScorePorts: 0.10, ScoreSpread: 0.15},
	ProfileSpread:   {ScoreOwn: 0.50, ScoreSpread: 0.30, ScoreMemory: 0.10, ScoreCPU: 0.10},
	ProfilePack:     {ScorePacked: 0.80, ScoreSpread: 0.10, ScoreWarm: 0.10},
	ProfileMemory:   {}, // the tie-break decides: the most free memory
}

// Weight is what a part of the score counts: the group's own, else the profile's.
func (w Where) Weight(p ScorePart) float64 {
	if v, ok := w.Weights[p]; ok {
		return v
	}
	profile := w.Profile
	if profile == "" {
		profile = ProfileBalanced
	}
	return profiles[profile][p]
}

// Allows reports whether the node list admits the node.
func (w Where) Allows(node NodeID) bool {
	return len(w.Nodes) == 0 || slices.Contains(w.Nodes, "*") || slices.Contains(w.Nodes, node)
}

// Bounds of what may be said about nodes.
const (
	maxWeight     = 100 // of a preference, either way
	maxPartWeight = 10  // of a part of the score
)

func (w Where) validate() []error {
	var p problems
	p.check(len(w.Nodes) <= maxEntries, "nodes", "must have at most %d entries", maxEntries)
	for i, n := range w.Nodes {
		p.check(n == "*" || n.Validate() == nil, fmt.Sprintf("nodes[%d]", i), "%q is not a node id", clip(string(n)))
	}
	p.labels("nodeAffinity", w.Affinity)
	p.labels("nodeAntiAffinity", w.AntiAffinity)
	p.check(len(w.Prefer) <= maxEntries, "nodePreferences", "must have at most %d entries", maxEntries)
	for i, pref := range w.Prefer {
		field := fmt.Sprintf("nodePreferences[%d]", i)
		p.label(field+".label", pref.Label)
		p.check(pref.Weight >= -maxWeight && pref.Weight <= maxWeight, field+".weight", "must be between %d and %d, is %d", -maxWeight, maxWeight, pref.Weight)
	}
	p.check(len(w.Spread) <= maxValueBytes && labelWord(w.Spread), "spreadConstraint", "%q is not a label's key: use letters, digits and _ . / : @ -", clip(w.Spread))
	p.check(w.MaxSkew >= 0 && w.MaxSkew <= maxInstances, "spreadMaxSkew", "must be between 0 (no bound) and %d, is %d", maxInstances, w.MaxSkew)
	p.check(w.MaxSkew == 0 || w.Spread != "", "spreadMaxSkew", "needs a spreadConstraint: the label over whose values instances are spread")
	p.check(w.MaxPerNode >= 0 && w.MaxPerNode <= maxInstances, "maxPerNode", "must be between 0 (no bound) and %d, is %d", maxInstances, w.MaxPerNode)
	p.check(oneOf(w.Profile, "", ProfileBalanced, ProfileSpread, ProfilePack, ProfileMemory), "placementProfile", "must be balanced, spread, pack or memory; %q is not", clip(string(w.Profile)))
	for _, part := range slices.Sorted(maps.Keys(w.Weights)) {
		v := w.Weights[part]
		p.check(slices.Contains(ScoreParts[:], part), "placementWeights."+clip(string(part)), "is not a part of the score: use %s", partList())
		p.check(v >= 0 && v <= maxPartWeight && !math.IsNaN(v), "placementWeights."+clip(string(part)), "must be between 0 and %d, is %v", maxPartWeight, v)
	}
	return p.list
}

// partList names the parts of a score.
func partList() string {
	var names []string
	for _, p := range ScoreParts {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}

func (p *problems) labels(field string, exprs []string) {
	p.check(len(exprs) <= maxEntries, field, "must have at most %d entries", maxEntries)
	for i, e := range exprs {
		p.label(fmt.Sprintf("%s[%d]", field, i), e)
	}
}

func (p *problems) label(field, expr string) {
	p.check(len(expr) <= maxValueBytes, field, "must be at most %d bytes", maxValueBytes)
	if _, err := ParseLabelExpr(expr); err != nil {
		p.list = append(p.list, errs.Field(field, "%s", errs.MessageOf(err)))
	}
}
