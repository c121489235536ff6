package controller

import (
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// moving returns an instance that is leaving a lost node, and a function that commits its
// records.
func moving(t *testing.T) (e *entry, commit func(store.Txn) (int64, error)) {
	t.Helper()
	c := storetest.New(t)
	commit = func(txn store.Txn) (int64, error) { return c.Commit(t.Context(), txn) }
	const id = fleet.InstanceID("i1")
	at, err := commit(store.Txn{Writes: []store.Write{
		store.Create(keys.Intent(id), fleet.Intent{ID: id}), store.Create(keys.Node(lost), fleet.Node{ID: lost}),
		store.Create(keys.Placement(lost, id), fleet.Placement{Instance: id}), store.Create(keys.Status(id), fleet.Status{Instance: id}),
		store.Create(keys.NodeSession("here"), fleet.NodeSession{Node: "here"}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	rev := record.Rev{ModRev: at}
	e = &entry{plan: &fleet.Plan{Static: true}, instance: &fleet.Instance{
		Intent:    fleet.Intent{Rev: rev, ID: id, Generation: 2, Leaves: rev.ModRev, LeavesNode: rev.ModRev},
		Placement: &fleet.Placement{Rev: rev, Instance: id, Node: lost, Generation: 1},
		Status:    &fleet.Status{Rev: rev, Instance: id, Node: lost, Generation: 1, State: fleet.Offline},
	}}
	e.choice.Node = "here"
	return e, commit
}

const lost = fleet.NodeID("lost")

// txn returns a transaction with only this entry's placement.
func (e *entry) txn() store.Txn {
	var out store.Part
	e.build(&out)
	return store.Txn{Guards: out.Guards, Writes: out.Writes}
}

// The lost node joins and leaves again after the decision and before the transaction
// arrives.
func TestAPlacementComparesThatTheLostNodeHasNotJoinedAgain(t *testing.T) {
	t.Parallel()
	e, commit := moving(t)
	joined, err := commit(store.Txn{Writes: []store.Write{store.Replace(keys.Node(lost), fleet.Node{ID: lost}, e.instance.Intent.LeavesNode)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := commit(e.txn()); !errs.Is(err, errs.Conflict) {
		t.Fatalf("it was placed elsewhere for an earlier loss: %v, want a conflict", err)
	}
	e.instance.Intent.LeavesNode = joined
	if _, err := commit(e.txn()); err != nil {
		t.Error(err)
	}
}

// An enforcer before this version wrote an intent without LeavesNode.
func TestAnIntentOfAnEarlierEnforcerLeavesTheNodeByItsStatusAlone(t *testing.T) {
	t.Parallel()
	for name, rewritten := range map[string]bool{"the loss lasts": false, "the status was written again": true} {
		t.Run(name, func(t *testing.T) {
			e, commit := moving(t)
			before := e.instance.Status.ModRev
			e.instance.Intent.LeavesNode = 0
			if !e.instance.MayLeave(before) || !e.instance.MayLeave(before+1) {
				t.Error("it may not leave the node")
			}
			writes := []store.Write{store.Replace(keys.Node(lost), fleet.Node{ID: lost}, before)}
			if rewritten {
				writes = append(writes, store.Replace(keys.Status("i1"), fleet.Status{Instance: "i1"}, before))
			}
			if _, err := commit(store.Txn{Writes: writes}); err != nil {
				t.Fatal(err)
			}
			if _, err := commit(e.txn()); errs.Is(err, errs.Conflict) != rewritten || err != nil && !rewritten {
				t.Errorf("the placement: %v", err)
			}
		})
	}
}
