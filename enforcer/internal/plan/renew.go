package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
)

// renew starts the next generation of waiting instances whose group, or a group it inherits
// from, has changed its requirements for nodes since. Other changes do not affect existing
// instances.
func (p *pass) renew() {
	same := map[string]bool{} // by digest of the plan
	for _, i := range slices.Concat(p.all, p.pool) {
		// A change of a parent does not change the group's revision.
		asked := i.Intent.GroupRevision >= p.group().Revision && p.spec().Parent == ""
		if p.busy[i.Intent.ID] || asked || !i.NeedsPlacement() || i.HoldsNode() {
			continue
		}
		digest := i.Intent.Plan
		if _, known := same[digest]; !known {
			made := p.in.Plan(digest)
			same[digest] = made == nil || asksTheSame(made, p.spec())
		}
		if !same[digest] {
			p.act(Action{Kind: Restart, Instance: i, Warm: i.Intent.Warm, Reason: i.Intent.Reason, Message: cmp.Or(i.Intent.Message, i.Intent.Reason.Text()), By: i.Intent.By})
		}
	}
}

// asksTheSame reports whether a plan and a spec have the same requirements for nodes.
func asksTheSame(made *fleet.Plan, s *fleet.GroupSpec) bool {
	wants := fleet.Plan{Runtime: s.Runtime, Confine: s.Confine, Container: s.Container, Env: s.Env}
	return compose.Asks(made).Equal(compose.Asks(&wants)) && made.Runtime == s.Runtime && made.Resources == s.Resources && made.Ports == s.Ports &&
		slices.Equal(made.AdditionalPorts, s.AdditionalPorts) && sameWhere(made.Where, s.Where)
}

func sameWhere(a, b fleet.Where) bool {
	if !slices.Equal(a.Nodes, b.Nodes) || !slices.Equal(a.Affinity, b.Affinity) || !slices.Equal(a.AntiAffinity, b.AntiAffinity) ||
		!slices.Equal(a.Prefer, b.Prefer) || !maps.Equal(a.Weights, b.Weights) {
		return false
	}
	return a.Spread == b.Spread && a.MaxSkew == b.MaxSkew && a.MaxPerNode == b.MaxPerNode && a.Alone == b.Alone && a.Profile == b.Profile
}
