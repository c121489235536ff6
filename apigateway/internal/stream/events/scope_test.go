package events

import (
	"context"
	"sync"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestWhatAnInstanceIsNearToIsLookedUpWhenNetworksChange(t *testing.T) {
	etcd := storetest.New(t)
	v := view.New(etcd, nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = v.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	commit := func(w store.Write) {
		t.Helper()
		rev, err := etcd.Commit(t.Context(), store.Txn{Writes: []store.Write{w}})
		if err == nil {
			_, err = v.WaitRev(t.Context(), rev)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	commit(store.Create(keys.Intent("abc123"), fleet.Intent{ID: "abc123", Group: "lobby"}))
	s := instanceScope{snapshot: v.Snapshot, own: "abc123"}
	if !s.isNear("lobby") || !s.isNear("games") || s.isNear("") {
		t.Error("the groups that no network names are not on one")
	}
	s.peer = func(g fleet.GroupName) bool { return g == "known" } // not evaluated again
	for e, want := range map[*Event]bool{
		{Type: PlayerTransfer, Group: "far", From: "known"}:                                     true,
		{Type: PlayerTransfer, Group: "known", From: "far"}:                                     true,
		{Type: PlayerTransfer, Group: "far", From: "other"}:                                     false,
		{Type: PlayerConnected, Group: "lobby"}:                                                 false,
		{Type: "OWN:ROUND_OVER", Group: "lobby"}:                                                true,
		{Type: "OWN:ROUND_OVER", Group: "far"}:                                                  false,
		{Type: PlayerTransfer, Group: "far", Instances: []fleet.InstanceID{"xyz987", "abc123"}}: true,
	} {
		if s.sees(*e) != want {
			t.Errorf("an instance of lobby sees %+v: %v, want %v", e, !want, want)
		}
	}
	commit(store.Create(keys.Group("other"), fleet.Group{Name: "other"}))
	if !s.isNear("known") {
		t.Error("all networks were looked through again, although none has changed")
	}
	commit(store.Create(keys.Network("main"), players.Network{Name: "main", LobbyGroup: "lobby", MemberGroups: []fleet.GroupName{"games"}}))
	if s.isNear("known") || !s.isNear("games") || s.isNear("bank") {
		t.Error("another network was not looked at")
	}
}
