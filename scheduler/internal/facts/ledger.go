package facts

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/scheduler/internal/budget"
	"github.com/orreryhq/orrery/scheduler/internal/place"
)

// Ledger builds the ledger of a snapshot.
func Ledger(snap *view.Snapshot) *budget.Ledger {
	l := budget.NewLedger()
	for name, g := range snap.Groups.All() {
		l.SetGroup(name, budget.TermsOf(&g.Spec))
	}
	for _, q := range snap.Quotas.All() {
		l.SetQuota(q)
	}
	for id, n := range snap.Nodes.All() {
		node := Node(snap, id, n)
		l.SetNode(id, Budget(&node))
	}
	for _, all := range []view.Table[fleet.InstanceID, *fleet.Instance]{snap.Instances, snap.Orphans} {
		for _, i := range all.All() {
			if h, ok := Hold(i); ok {
				l.Charge(h.Node, h.Group, h.Resources)
			}
		}
	}
	return l
}

// Refuse returns why a ledger refuses a request, or nil when it allows it.
func Refuse(l *budget.Ledger, r *place.Request) *place.Unfit {
	if h := r.Own; h != nil {
		l.Release(h.Node, h.Group, h.Resources)
		defer l.Charge(h.Node, h.Group, h.Resources)
	}
	if _, no := l.Ask(r.Group, r.Plan.Resources); no != nil {
		return &place.Unfit{Reason: no.Reason, Message: no.Message}
	}
	return nil
}

// Budget converts a node for the ledger.
func Budget(n *place.Node) budget.Node {
	capacity, _ := n.Room.Of(n.Capacity) // impossible amounts count as 0
	return budget.Node{Usable: n.Live && !n.Cordoned, Capacity: capacity, MaxInstances: n.Room.MaxInstances}
}
