package answer

import (
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// moveTo requests another node for a static instance whose data moves with it.
func (s *simulation) moveTo(q client.MoveQuestion) error {
	i, ok := s.m.Snap.Instances.Get(q.Instance)
	if !ok {
		return errs.New(errs.NotFound, "there is no instance %s", q.Instance)
	}
	g, err := s.group(i.Intent.Group)
	if err != nil {
		return err
	}
	s.moves(g, i, q.Node)
	return nil
}

// moves requests a node for an instance that moves with its data: any other if node is empty.
func (s *simulation) moves(g *fleet.Group, i *fleet.Instance, node fleet.NodeID) {
	s.m.Without(i)
	r := s.relocation(g, i, node)
	r.Leaves = i.DataNode()
	s.ask(r, client.Outcome{Instance: i.Intent.ID, Name: i.Intent.Name, Group: g.Name, From: i.DataNode()})
}

// relocation is the request for an instance that moves with its data.
func (s *simulation) relocation(g *fleet.Group, i *fleet.Instance, node fleet.NodeID) *place.Request {
	plan := compose.Compose(*s.m.Snap.Whole(g), s.materials, s.random.Uint64())
	r := facts.Request(i, s.plan(&plan, plan.Digest()), s.m.Snap)
	r.Pinned, r.Waits = node, nil
	return r
}

// moveStatic requests other nodes for all static instances whose data is on a node, running or not.
func (s *simulation) moveStatic(node fleet.NodeID) {
	for _, i := range s.sorted(node) {
		g, err := s.group(i.Intent.Group)
		if m, _ := s.m.Snap.Moves().Get(i.Intent.ID); err == nil && g.Spec.Static.Enabled && i.DataNode() == node && !m.Active() {
			s.moves(g, i, "")
		}
	}
}
