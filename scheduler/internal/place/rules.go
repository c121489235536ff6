package place

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/label"
	"github.com/orreryhq/orrery/libs/fleet/policy"
	"github.com/orreryhq/orrery/libs/fleet/score"
)

// rules are a plan's rules about nodes, parsed once for all its requests.
type rules struct {
	// problem lists the first few parse errors; empty without errors.
	problem                string
	affinity, antiAffinity []label.LabelExpr
	prefer                 []preference
	weights                weights
	// layers are the digests of the plan's templates.
	layers []string
	// asks is what the group wants of the nodes' policies.
	asks policy.Ask
	// named are the additional ports, sorted by the end of their range.
	named []fleet.NamedPort
	// revision is the group's revision, for counting failures.
	revision int64
}

// maxProblems bounds how many parse errors problem lists.
const maxProblems = 5

// preference is a soft affinity; weight is in millionths, like a score.
type preference struct {
	label  label.LabelExpr
	weight int64
}

func readRules(p *fleet.Plan) rules {
	var r rules
	var problems []string
	expr := func(field, text string) label.LabelExpr {
		e, err := label.ParseLabelExpr(text)
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
	for _, part := range score.Parts {
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
	r.asks = compose.Asks(p)
	return r
}
