package operate

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Cordon keeps new instances off a node; what runs there runs on. NotFound when
// there is no such node. Cordoning a cordoned node changes nothing.
func (o *Operations) Cordon(ctx context.Context, by Actor, node fleet.NodeID) (int64, error) {
	return o.setCordon(ctx, by, node, true)
}

// Uncordon lets a node take instances again. Errors as of Cordon.
func (o *Operations) Uncordon(ctx context.Context, by Actor, node fleet.NodeID) (int64, error) {
	return o.setCordon(ctx, by, node, false)
}

func (o *Operations) setCordon(ctx context.Context, by Actor, node fleet.NodeID, on bool) (int64, error) {
	return o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		if _, ok := s.Nodes.Get(node); !ok {
			return change{}, errs.New(errs.NotFound, "there is no node %s", clip(string(node)))
		}
		next := fleet.NodeDesired{Node: node}
		if have, ok := s.NodesDesired.Get(node); ok {
			next = *have
		}
		if next.Cordoned == on {
			return change{}, nil
		}
		rev := next.ModRev
		next.Cordoned, next.By, next.At = on, by.User, o.now()
		action := "node.uncordon"
		if on {
			action = "node.cordon"
		}
		return change{
			writes: []store.Write{store.Replace(store.NodeDesiredKey(node), next, rev)},
			audit:  entry{action: action, resource: "node", id: string(node)},
		}, nil
	})
}
