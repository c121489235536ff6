package place

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// rules are what a plan says about nodes, read once for all its requests.
type rules struct {
	// problem is what cannot be read, a sentence for each of the first; empty when all can.
	problem                string
	affinity, antiAffinity []fleet.LabelExpr
	prefer                 []preference
	weights                weights
	// layers are the digests of the plan's templates.
	layers []string
	// named are the additional ports, those whose range ends first before the others.
	named []fleet.NamedPort
	// revision is the group's, for failures.
	revision int64
}

// maxProblems bounds how many of what cannot be read are named.
const maxProblems = 5

// preference is a soft affinity; weight is in units of the score.
type preference struct {
	label  fleet.LabelExpr
	weight int64
}

func readRules(p *fleet.Plan) rules {
	var r rules
	var problems []string
	expr := func(field, text string) fleet.LabelExpr {
		e, err := fleet.ParseLabelExpr(text)
		if err != nil {
			problems = append(problems, field+": "+errs.MessageOf(err))
		}
		return e
	}
	for i, text := range p.Where.Affinity {
		r.affinity = append(r.affinity, expr(fmt.Sprintf("nodeAffinity[%d]", i), text))
	}
	for i, text := range p.Where.AntiAffinity {
		r.antiAffinity = append(r.antiAffinity, expr(fmt.Sprintf("nodeAntiAffinity[%d]", i), text))
	}
	for i, pref := range p.Where.Prefer {
		weight := max(-100, min(100, pref.Weight))
		r.prefer = append(r.prefer, preference{expr(fmt.Sprintf("nodePreferences[%d].label", i), pref.Label), int64(weight) * unit / 100})
	}
	for _, part := range fleet.ScoreParts {
		if w := p.Where.Weight(part); w < 0 || math.IsNaN(w) || math.IsInf(w, 0) {
			problems = append(problems, fmt.Sprintf("placementWeights: %s must be a number from 0 on, is %v", part, w))
		}
	}
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	r.problem = strings.Join(problems, "; ")
	r.weights = weightsOf(p.Where)
	for _, l := range p.Layers {
		if l.Digest != "" {
			r.layers = append(r.layers, l.Digest)
		}
	}
	r.named = slices.Clone(p.AdditionalPorts)
	slices.SortStableFunc(r.named, func(a, b fleet.NamedPort) int { return cmp.Compare(a.Range.End, b.Range.End) })
	r.revision = p.GroupRevision
	return r
}
