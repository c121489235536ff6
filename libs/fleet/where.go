package fleet

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/score"
	"github.com/orreryhq/orrery/libs/fleet/validate"
)

// Where selects the nodes that may run the group, and how to score them. The zero value allows any
// node and uses the balanced profile.
type Where struct {
	// Nodes are the allowed node IDs. Empty, or containing "*", means any node.
	Nodes []NodeID `json:"nodes,omitempty"`
	// Affinity are label expressions that a node must all satisfy, AntiAffinity those it must not
	// satisfy; see ParseLabelExpr.
	Affinity     []string `json:"affinity,omitempty"`
	AntiAffinity []string `json:"antiAffinity,omitempty"`
	// Prefer are label expressions that raise or lower a node's score.
	Prefer []Preference `json:"prefer,omitempty"`
	// Spread is a label key. Instances are distributed over its values. This is a preference
	// unless MaxSkew is set: it limits the difference in the number of instances between any two
	// values whose nodes could run one. 0 means no limit.
	Spread  string `json:"spread,omitempty"`
	MaxSkew int    `json:"maxSkew,omitempty"`
	// MaxPerNode limits the group's instances on one node. 0 means no limit.
	MaxPerNode int `json:"maxPerNode,omitempty"`
	// Alone keeps other groups off the nodes of this group's instances, and vice versa.
	Alone bool `json:"alone,omitempty"`
	// Profile selects how nodes are scored. Empty means the balanced profile.
	Profile score.Profile `json:"profile,omitempty"`
	// Weights override single weights of the profile.
	Weights map[score.Part]float64 `json:"weights,omitempty"`
}

// Preference is a soft affinity.
type Preference struct {
	// Label is a label expression, see ParseLabelExpr.
	Label string `json:"label"`
	// Weight ranges from -100 (avoid such nodes) to 100 (prefer them).
	Weight int `json:"weight"`
}

// Weight returns the weight of a part of the score: the group's own, or else the profile's.
func (w Where) Weight(p score.Part) float64 {
	if v, ok := w.Weights[p]; ok {
		return v
	}
	return w.Profile.Weight(p)
}

// Allows reports whether Nodes contains the node or allows any.
func (w Where) Allows(node NodeID) bool {
	return len(w.Nodes) == 0 || slices.Contains(w.Nodes, "*") || slices.Contains(w.Nodes, node)
}

// Limits of node preferences.
const (
	maxWeight     = 100 // of a preference, positive or negative
	maxPartWeight = 10  // of a part of the score
)

func (w Where) validate() []error {
	var p validate.Problems
	p.Check(len(w.Nodes) <= validate.MaxEntries, "nodes", "must have at most %d entries", validate.MaxEntries)
	for i, n := range w.Nodes {
		p.Check(n == "*" || n.Validate() == nil, fmt.Sprintf("nodes[%d]", i), "%q is not a node ID", validate.Clip(string(n)))
	}
	checkLabels(&p, "nodeAffinity", w.Affinity)
	checkLabels(&p, "nodeAntiAffinity", w.AntiAffinity)
	p.Check(len(w.Prefer) <= validate.MaxEntries, "nodePreferences", "must have at most %d entries", validate.MaxEntries)
	for i, pref := range w.Prefer {
		field := fmt.Sprintf("nodePreferences[%d]", i)
		checkLabel(&p, field+".label", pref.Label)
		p.Check(pref.Weight >= -maxWeight && pref.Weight <= maxWeight, field+".weight", "must be between %d and %d, is %d", -maxWeight, maxWeight, pref.Weight)
	}
	p.Check(len(w.Spread) <= validate.MaxValueBytes && label.LabelWord(w.Spread), "spreadConstraint", "%q is not a label key: use letters, digits and _ . / : @ -", validate.Clip(w.Spread))
	p.Check(w.MaxSkew >= 0 && w.MaxSkew <= validate.MaxInstances, "spreadMaxSkew", "must be between 0 (no limit) and %d, is %d", validate.MaxInstances, w.MaxSkew)
	p.Check(w.MaxSkew == 0 || w.Spread != "", "spreadMaxSkew", "needs spreadConstraint, the label to spread by")
	p.Check(w.MaxPerNode >= 0 && w.MaxPerNode <= validate.MaxInstances, "maxPerNode", "must be between 0 (no limit) and %d, is %d", validate.MaxInstances, w.MaxPerNode)
	p.Check(validate.OneOf(w.Profile, "", score.ProfileBalanced, score.ProfileSpread, score.ProfilePack, score.ProfileMemory), "placementProfile", "must be balanced, spread, pack or memory, not %q", validate.Clip(string(w.Profile)))
	for _, part := range slices.Sorted(maps.Keys(w.Weights)) {
		v := w.Weights[part]
		p.Check(slices.Contains(score.Parts[:], part), "placementWeights."+validate.Clip(string(part)), "is not a part of the score: use %s", listed(score.Parts[:]))
		p.Check(v >= 0 && v <= maxPartWeight && !math.IsNaN(v), "placementWeights."+validate.Clip(string(part)), "must be between 0 and %d, is %v", maxPartWeight, v)
	}
	return p.List
}

func checkLabels(p *validate.Problems, field string, exprs []string) {
	p.Check(len(exprs) <= validate.MaxEntries, field, "must have at most %d entries", validate.MaxEntries)
	for i, e := range exprs {
		checkLabel(p, fmt.Sprintf("%s[%d]", field, i), e)
	}
}

func checkLabel(p *validate.Problems, field, expr string) {
	p.Check(len(expr) <= validate.MaxValueBytes, field, "must be at most %d bytes", validate.MaxValueBytes)
	if _, err := label.ParseLabelExpr(expr); err != nil {
		p.List = append(p.List, errs.Field(field, "%s", errs.MessageOf(err)))
	}
}
