package answer

import (
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Explain returns how placement judges an instance. It fails with NotFound when the
// instance does not exist, and with Conflict when it neither waits for a node nor holds
// one.
func Explain(m *facts.Moment, id fleet.InstanceID) (client.Explanation, error) {
	i, ok := m.Snap.Instances.Get(id)
	if !ok {
		return client.Explanation{}, errs.New(errs.NotFound, "there is no instance %s", id)
	}
	out := client.Explanation{Revision: m.Snap.Rev, Instance: id, Generation: i.Intent.Generation}
	digest, here := i.Intent.Plan, fleet.NodeID("")
	switch {
	case i.NeedsPlacement():
	case m.Without(i):
		digest, here = i.Placement.Plan, i.Placement.Node
	default:
		return client.Explanation{}, errs.New(errs.Conflict, "instance %s neither waits for a node nor holds one", i.Intent.Name)
	}
	stored, ok := m.Snap.Plans.Get(digest)
	if !ok {
		u := facts.PlanMissing()
		out.Unfit = &client.Unfit{Reason: u.Reason, Message: u.Message}
		return out, nil
	}
	e := m.Explain(i, &stored.Plan, client.MaxBest, here)
	out.Nodes, out.Lost = e.Nodes, e.Lost
	if unfit := e.Unfit; unfit != nil {
		out.Unfit = &client.Unfit{Reason: unfit.Reason, Message: unfit.Message}
	}
	for _, c := range e.Best {
		out.Best = append(out.Best, candidate(c))
	}
	if e.Here != nil {
		c := candidate(*e.Here)
		out.Here = &c
	}
	return out, nil
}

func candidate(c place.Candidate) client.Candidate {
	out := client.Candidate{Node: c.Node, Rank: c.Rank, Filter: c.Filter, Fix: c.Fix}
	if c.Rank > 0 {
		out.Score = c.Score.Parts()
	}
	return out
}
