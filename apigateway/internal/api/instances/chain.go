package instances

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/nodeops"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/store/view"
)

// chainOf returns the steps that led an instance to its state. The first is always the request for
// the present generation; the others follow in the order of the revisions of their records.
func chainOf(s *view.Snapshot, i *fleet.Instance) []link {
	in := &i.Intent
	chain := []link{{
		Step: stepRequested, Reason: in.Reason, Message: messageOr(in.Message, in.Reason), By: in.By, At: when(in.GenerationAt),
		Revision: in.ModRev, GroupRevision: in.GroupRevision,
	}}
	if in.Generation == 1 {
		chain[0].Revision = in.CreateRev
	}
	if in.Replaces != "" {
		chain = append(chain, link{
			Step: stepReplaces, Reason: fleet.ReasonReplacement, Message: fmt.Sprintf("it replaces %s", in.Replaces),
			At: when(in.CreatedAt), Revision: in.CreateRev, Instance: in.Replaces,
		})
	}
	if p := i.Pending; p != nil && p.Generation == in.Generation {
		chain = append(chain, link{Step: stepWaits, Reason: p.Reason, Message: messageOr(p.Message, p.Reason), At: when(p.At), Revision: p.ModRev})
	}
	chain = append(chain, evictionsFor(s, in.ID)...)
	if p := i.Placement; p != nil {
		chain = append(chain, link{
			Step: stepPlaced, Reason: fleet.ReasonPlaced, Message: fmt.Sprintf("node %s was selected for generation %d", p.Node, p.Generation),
			At: when(p.PlacedAt), Revision: p.ModRev, Node: p.Node,
		})
	}
	if r := in.Retire; r != nil {
		chain = append(chain, link{Step: stepRetires, Reason: r.Reason, Message: messageOr(r.Message, r.Reason), By: r.By, At: when(r.At), Revision: in.ModRev, Node: i.Node()})
	}
	if n := in.Sleep; n != nil {
		chain = append(chain, link{Step: stepSleep, Reason: n.Reason, Message: messageOr(n.Message, n.Reason), By: n.By, At: when(n.At), Revision: in.ModRev, Node: i.Node()})
	}
	if s := in.Stop; s != nil {
		chain = append(chain, link{Step: stepStop, Reason: s.Reason, Message: messageOr(s.Message, s.Reason), By: s.By, At: when(s.At), Revision: in.ModRev})
	}
	if o := i.Order; o != nil {
		chain = append(chain, link{
			Step: stepOrdered, Reason: o.Reason, Message: messageOr(o.Message, o.Reason), By: o.By, At: when(o.At), Revision: o.ModRev, Node: o.Node,
		})
	}
	if s := i.Status; s != nil {
		chain = append(chain, link{
			Step: stepState, Reason: s.Reason, Message: messageOr(s.Message, s.Reason), At: when(s.ChangedAt), Revision: s.ModRev, Node: s.Node, Exit: s.Exit,
		})
	}
	if in.ReplacedBy != "" {
		chain = append(chain, link{
			Step: stepReplaced, Reason: fleet.ReasonReplacement, Message: fmt.Sprintf("%s replaces it", in.ReplacedBy), Revision: in.ModRev, Instance: in.ReplacedBy,
		})
	}
	slices.SortStableFunc(chain[1:], func(a, b link) int { return cmp.Compare(a.Revision, b.Revision) })
	return chain
}

// drainOf returns the step that says what the drain of its node does to an instance. It returns nil
// without a drain.
func drainOf(s *view.Snapshot, i *fleet.Instance, now time.Time) []link {
	d, _ := s.NodesDesired.Get(i.Node())
	if d.Draining() == nil {
		return nil
	}
	for _, step := range nodeops.DrainSteps(s, d.Node, *d.Drain, now) {
		if step.Instance.Intent.ID == i.Intent.ID {
			return []link{{
				Step: stepDrain, Reason: step.Reason, Message: step.Message + ": " + step.Outlook(), By: d.Drain.By, At: when(d.Drain.At), Revision: d.ModRev, Node: d.Node,
			}}
		}
	}
	return nil
}

// pausedFor returns the step that says that a crash loop pause holds back the replacement of an
// instance. It returns nil if the group is not paused or the instance is not to be replaced.
func pausedFor(s *view.Snapshot, i *fleet.Instance, now time.Time) (links []link) {
	g, ok := s.Groups.Get(i.Intent.Group)
	loop, crashed := s.CrashLoops.Get(i.Intent.Group)
	if !ok || !crashed || !i.EndedUnasked() || i.Intent.ReplacedBy != "" {
		return nil
	}
	ends := loop.EndsAt(g, compose.Ancestors(g, s.Groups.Get))
	if !now.Before(ends) {
		return nil
	}
	return []link{{Step: stepPaused, Reason: fleet.ReasonCrashLoop, Message: loop.Text(ends), At: when(loop.PausedAt), Revision: loop.ModRev, GroupRevision: loop.GroupRevision}}
}

// evictionsFor returns a step for each instance that is evicted for an instance.
func evictionsFor(s *view.Snapshot, id fleet.InstanceID) (links []link) {
	for _, e := range s.Evictions.All() {
		if e.For != id {
			continue
		}
		name := string(e.Instance)
		if other, ok := s.Instances.Get(e.Instance); ok {
			name = other.Intent.Name
		}
		links = append(links, link{
			Step: stepEvicts, Reason: e.Reason, Message: fmt.Sprintf("%s is evicted for it on %s: it starts when that instance has stopped", name, e.Node),
			At: when(e.At), Revision: e.ModRev, Node: e.Node, Instance: e.Instance,
		})
	}
	return links
}

func messageOr(message string, r fleet.Reason) string { return cmp.Or(message, r.Text()) }

// when returns nil for the zero time.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
