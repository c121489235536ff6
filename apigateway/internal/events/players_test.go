package events_test

import (
	"fmt"
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
		rev = r.commit(store.Replace(store.PlayersKey("n1", 0), fleet.PresencePart{Players: told}, rev))
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

// move is what TestTheGroupThatAPlayerLeftIsToldToo sees of a player's event.
func move(t *testing.T, f frame) string {
	t.Helper()
	return fmt.Sprint(f.field(t, "type"), " ", f.field(t, "instanceId"), " ", f.field(t, "fromInstanceId"), " -> ", f.field(t, "toInstanceId"))
}

func TestTheGroupThatAPlayerLeftIsToldToo(t *testing.T) {
	etcd := storetest.Start(t)
	r := newReplica(t, etcd)
	const proxy, lobby, games, steve = fleet.InstanceID("abc111"), fleet.InstanceID("abc222"), fleet.InstanceID("abc333"), fleet.PlayerID("069a79f4-44e9-4726-a5be-fca90e38aaf5")
	for id, group := range map[fleet.InstanceID]fleet.GroupName{proxy: "edge", lobby: "lobby", games: "games"} {
		r.commit(
			store.Create(store.IntentKey(id), fleet.Intent{ID: id, Name: fleet.InstanceName(group, 1), Group: group, Generation: 1, Desired: fleet.DesiredRunning}),
			store.Create(store.PlacementKey("n1", id), fleet.Placement{Instance: id, Node: "n1", Generation: 1}),
			store.Create(store.StatusKey(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Online}),
		)
	}
	ofLobby, ofGames, all := r.open("?group=lobby"), r.open("?group=games"), r.open("")
	var rev int64
	publish := func(told ...fleet.Presence) {
		t.Helper()
		for n := range told {
			told[n].Player, told[n].Name, told[n].At = steve, "Steve", at.Add(time.Duration(rev)*time.Second)
		}
		rev = r.commit(store.Replace(store.PlayersKey("n1", 0), fleet.PresencePart{Players: told}, rev))
	}
	publish(fleet.Presence{By: proxy, Proxy: true})            // on no server yet
	publish(fleet.Presence{By: proxy, Proxy: true, On: lobby}) // led to one
	publish(fleet.Presence{By: proxy, Proxy: true, On: games})
	publish(fleet.Presence{By: proxy, Proxy: true}) // thrown out of it, and still there
	publish()
	want := []string{
		"PLAYER_CONNECTED edge-1 <nil> -> <nil>", "PLAYER_TRANSFER <nil> edge-1 -> lobby-1", "PLAYER_TRANSFER <nil> lobby-1 -> games-1",
		"PLAYER_TRANSFER <nil> games-1 -> edge-1", "PLAYER_DISCONNECTED edge-1 <nil> -> <nil>",
	}
	for _, s := range []struct {
		stream *stream
		want   []string
	}{{all, want}, {ofLobby, want[1:3]}, {ofGames, want[2:4]}} {
		for _, want := range s.want {
			if got := move(t, s.stream.nextOfPlayers()); got != want {
				t.Errorf("came %s, want %s", got, want)
			}
		}
	}
}
