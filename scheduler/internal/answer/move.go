package answer

import (
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/scheduler/client"
	"github.com/orreryhq/orrery/scheduler/internal/facts"
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
	s.m.Cordon(i.DataNode())
	s.m.Without(i)
	plan := compose.Compose(*s.m.Snap.Whole(g), s.materials, s.random.Uint64())
	r := facts.Request(i, s.plan(&plan, plan.Digest()), s.m.Snap)
	r.Pinned, r.Waits = q.Node, nil
	s.ask(r, client.Outcome{Instance: i.Intent.ID, Name: i.Intent.Name, Group: g.Name, From: i.DataNode()})
	return nil
}
