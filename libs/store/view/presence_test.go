package view_test

import (
	"slices"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

func TestPresenceIndexes(t *testing.T) {
	c := storetest.New(t)
	v, _ := start(t, c)
	const ann, bob = players.PlayerID("00000000-0000-0000-0000-00000000000a"), players.PlayerID("00000000-0000-0000-0000-00000000000b")
	part := func(told ...players.Presence) players.PresencePart {
		return players.PresencePart{Part: 5, Players: told}
	}
	one, two := keys.Players("n1", 5), keys.Players("n2", 5)
	commit(t, c, store.Create(two, part(players.Presence{Player: ann, By: "proxy1", Proxy: true})))
	first := commit(t, c, store.Create(one, part(players.Presence{Player: ann, By: "lobby1"}, players.Presence{Player: bob, By: "lobby1"})))
	rev := commit(t, c, store.Replace(one, part(players.Presence{Player: ann, By: "lobby1", Said: 2}), first))
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
	if by := s.ToldBy("lobby1"); !slices.Equal(by, []players.PlayerID{ann}) {
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
