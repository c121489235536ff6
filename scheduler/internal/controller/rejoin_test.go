package controller

import (
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// The lost node joins, and leaves again, after the scheduler has looked and before its
// transaction arrives.
func TestAPlacementComparesThatTheLostNodeHasNotJoinedAgain(t *testing.T) {
	c := storetest.New(t)
	commit := func(txn store.Txn) int64 {
		t.Helper()
		rev, err := c.Commit(t.Context(), txn)
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	const id, lost = fleet.InstanceID("i1"), fleet.NodeID("lost")
	rev := fleet.Rev{ModRev: commit(store.Txn{Writes: []store.Write{
		store.Create(store.IntentKey(id), fleet.Intent{ID: id}), store.Create(store.NodeKey(lost), fleet.Node{ID: lost}),
		store.Create(store.PlacementKey(lost, id), fleet.Placement{Instance: id}), store.Create(store.StatusKey(id), fleet.Status{Instance: id}),
		store.Create(store.NodeSessionKey("here"), fleet.NodeSession{Node: "here"}),
	}})}
	e := &entry{plan: &fleet.Plan{Static: true}, instance: &fleet.Instance{
		Intent:    fleet.Intent{Rev: rev, ID: id, Generation: 2, Leaves: rev.ModRev, LeavesNode: rev.ModRev},
		Placement: &fleet.Placement{Rev: rev, Instance: id, Node: lost, Generation: 1},
		Status:    &fleet.Status{Rev: rev, Instance: id, Node: lost, Generation: 1, State: fleet.Offline},
	}}
	e.choice.Node = "here"
	build := func() store.Txn {
		var out store.Part
		e.build(&out)
		return store.Txn{Guards: out.Guards, Writes: out.Writes}
	}
	joined := commit(store.Txn{Writes: []store.Write{store.Replace(store.NodeKey(lost), fleet.Node{ID: lost}, rev.ModRev)}})
	if _, err := c.Commit(t.Context(), build()); !errs.Is(err, errs.Conflict) {
		t.Fatalf("it was placed elsewhere for an earlier loss: %v, want a conflict", err)
	}
	e.instance.Intent.LeavesNode = joined
	commit(build())
}
