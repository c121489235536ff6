package events_test

import (
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/events"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// nextOfPlayers skips what is of no player.
func (s *stream) nextOfPlayers() frame {
	s.t.Helper()
	for {
		f := s.next()
		switch f.field(s.t, "type") {
		case string(events.PlayerConnected), string(events.PlayerDisconnected), string(events.PlayerTransfer):
			return f
		}
	}
}

func TestPlayersWhoComeMoveAndGoAreToldLive(t *testing.T) {
	etcd := storetest.Start(t)
	r := newReplica(t, etcd)
	const one, two, steve = fleet.InstanceID("abc123"), fleet.InstanceID("def456"), fleet.PlayerID("069a79f4-44e9-4726-a5be-fca90e38aaf5")
	for n, id := range []fleet.InstanceID{one, two} {
		r.commit(
			store.Create(store.IntentKey(id), fleet.Intent{ID: id, Name: fleet.InstanceName("lobby", n+1), Group: "lobby", Generation: 1, Desired: fleet.DesiredRunning}),
			store.Create(store.PlacementKey("n1", id), fleet.Placement{Instance: id, Node: "n1", Generation: 1}),
			store.Create(store.StatusKey(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Online}),
		)
	}
	s := r.open("")
	var rev int64
	publish := func(told ...fleet.Presence) {
		t.Helper()
		for n := range told {
			told[n].Player, told[n].Name = steve, "Steve"
		}
		rev = r.commit(store.Replace(store.PlayersKey("n1", 0), fleet.PresencePart{Node: "n1", Players: told}, rev))
	}
	told := func(typ events.Type, fields map[string]any) {
		t.Helper()
		f := s.nextOfPlayers()
		if f.id != "" || f.field(t, "type") != string(typ) || f.field(t, "uuid") != string(steve) || f.field(t, "name") != "Steve" {
			t.Errorf("%s: came %+v", typ, f)
		}
		for name, want := range fields {
			if f.field(t, name) != want {
				t.Errorf("%s: %s is not %v in %+v", typ, name, want, f)
			}
		}
	}
	publish(fleet.Presence{By: one, At: at})
	told(events.PlayerConnected, map[string]any{"instanceId": "lobby-1", "group": "lobby"})
	publish(fleet.Presence{By: one, At: at, Said: 2}) // nothing that concerns anybody
	publish(fleet.Presence{By: one, At: at, Said: 2}, fleet.Presence{By: two, At: at.Add(time.Second)})
	told(events.PlayerTransfer, map[string]any{"fromInstanceId": "lobby-1", "toInstanceId": "lobby-2"})
	publish(fleet.Presence{By: two, At: at.Add(time.Second)})
	gone, err := store.Get(t.Context(), r.client, store.StatusKey(two))
	if err != nil {
		t.Fatal(err)
	}
	gone.State = fleet.Offline
	r.commit(store.Replace(store.StatusKey(two), gone, gone.ModRev))
	told(events.PlayerDisconnected, map[string]any{"instanceId": "lobby-2", "group": "lobby"})
	publish()
	publish(fleet.Presence{By: one, At: at})
	told(events.PlayerConnected, map[string]any{"instanceId": "lobby-1"})
}
