package view_test

import (
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestPlayersAreFoundByThemselvesAndByWhoTellsOfThem(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	const ann, bob = fleet.PlayerID("00000000-0000-0000-0000-00000000000a"), fleet.PlayerID("00000000-0000-0000-0000-00000000000b")
	part := func(told ...fleet.Presence) fleet.PresencePart {
		return fleet.PresencePart{Part: 5, Players: told}
	}
	one, two := store.PlayersKey("n1", 5), store.PlayersKey("n2", 5)
	commit(t, c, store.Create(two, part(fleet.Presence{Player: ann, By: "proxy1", Proxy: true})))
	first := commit(t, c, store.Create(one, part(fleet.Presence{Player: ann, By: "lobby1"}, fleet.Presence{Player: bob, By: "lobby1"})))
	rev := commit(t, c, store.Replace(one, part(fleet.Presence{Player: ann, By: "lobby1", Said: 2}), first))
	s, err := v.WaitRev(bounded(t), rev)
	if err != nil {
		t.Fatal(err)
	}
	if of := s.PresencesOf(ann); len(of) != 2 || of[0].By != "lobby1" || of[0].Said != 2 || of[1].By != "proxy1" {
		t.Errorf("ann: %+v", of)
	}
	if of := s.PresencesOf(bob); of != nil {
		t.Errorf("bob left: %+v", of)
	}
	if by := s.ToldBy("lobby1"); !slices.Equal(by, []fleet.PlayerID{ann}) {
		t.Errorf("lobby1 tells of %v", by)
	}
	n := 0
	for range s.Presences() {
		n++
	}
	for at, p := range s.PlayersOn("n1") {
		if at != 5 || len(p.Players) != 1 {
			t.Errorf("part %d: %+v", at, p)
		}
	}
	s, err = v.WaitRev(bounded(t), commit(t, c, store.Remove(one, rev)))
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if of, by := s.PresencesOf(ann), s.ToldBy("lobby1"); len(of) != 1 || by != nil {
		t.Errorf("after its node's part went: %+v, %v", of, by)
	}
}
