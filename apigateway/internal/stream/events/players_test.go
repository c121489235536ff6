package events_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
)

// nextOfPlayers skips events that are not about players.
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
	const one, two, steve = fleet.InstanceID("abc123"), fleet.InstanceID("def456"), players.PlayerID("069a79f4-44e9-4726-a5be-fca90e38aaf5")
	for n, id := range []fleet.InstanceID{one, two} {
		r.commit(
			store.Create(keys.Intent(id), fleet.Intent{ID: id, Name: fleet.InstanceName("lobby", n+1), Group: "lobby", Generation: 1, Desired: fleet.DesiredRunning}),
			store.Create(keys.Placement("n1", id), fleet.Placement{Instance: id, Node: "n1", Generation: 1}),
			store.Create(keys.Status(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Online}),
		)
	}
	s := r.open("")
	var rev int64
	publish := func(told ...players.Presence) {
		t.Helper()
		for n := range told {
			told[n].Player, told[n].Name = steve, "Steve"
		}
		rev = r.commit(store.Replace(keys.Players("n1", 0), players.PresencePart{Players: told}, rev))
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
	publish(players.Presence{By: one, At: at})
	told(events.PlayerConnected, map[string]any{"instanceId": "lobby-1", "group": "lobby"})
	publish(players.Presence{By: one, At: at, Said: 2}) // no visible change
	publish(players.Presence{By: one, At: at, Said: 2}, players.Presence{By: two, At: at.Add(time.Second)})
	told(events.PlayerTransfer, map[string]any{"fromInstanceId": "lobby-1", "toInstanceId": "lobby-2"})
	publish(players.Presence{By: two, At: at.Add(time.Second)})
	gone, err := store.Get(t.Context(), r.client, keys.Status(two))
	if err != nil {
		t.Fatal(err)
	}
	gone.State = fleet.Offline
	r.commit(store.Replace(keys.Status(two), gone, gone.ModRev))
	told(events.PlayerDisconnected, map[string]any{"instanceId": "lobby-2", "group": "lobby"})
	publish()
	publish(players.Presence{By: one, At: at})
	told(events.PlayerConnected, map[string]any{"instanceId": "lobby-1"})
}

// move returns a summary of a player event.
func move(t *testing.T, f frame) string {
	t.Helper()
	return fmt.Sprint(f.field(t, "type"), " ", f.field(t, "instanceId"), " ", f.field(t, "fromInstanceId"), " -> ", f.field(t, "toInstanceId"))
}

func TestTheGroupThatAPlayerLeftIsToldToo(t *testing.T) {
	etcd := storetest.Start(t)
	r := newReplica(t, etcd)
	const proxy, lobby, games, steve = fleet.InstanceID("abc111"), fleet.InstanceID("abc222"), fleet.InstanceID("abc333"), players.PlayerID("069a79f4-44e9-4726-a5be-fca90e38aaf5")
	for id, group := range map[fleet.InstanceID]fleet.GroupName{proxy: "edge", lobby: "lobby", games: "games"} {
		r.commit(
			store.Create(keys.Intent(id), fleet.Intent{ID: id, Name: fleet.InstanceName(group, 1), Group: group, Generation: 1, Desired: fleet.DesiredRunning}),
			store.Create(keys.Placement("n1", id), fleet.Placement{Instance: id, Node: "n1", Generation: 1}),
			store.Create(keys.Status(id), fleet.Status{Instance: id, Generation: 1, State: fleet.Online}),
		)
	}
	ofLobby, ofGames, all := r.open("?group=lobby"), r.open("?group=games"), r.open("")
	var rev int64
	publish := func(told ...players.Presence) {
		t.Helper()
		for n := range told {
			told[n].Player, told[n].Name, told[n].At = steve, "Steve", at.Add(time.Duration(rev)*time.Second)
		}
		rev = r.commit(store.Replace(keys.Players("n1", 0), players.PresencePart{Players: told}, rev))
	}
	publish(players.Presence{By: proxy, Proxy: true})            // not on a server yet
	publish(players.Presence{By: proxy, Proxy: true, On: lobby}) // sent to one
	publish(players.Presence{By: proxy, Proxy: true, On: games})
	publish(players.Presence{By: proxy, Proxy: true}) // removed from it, but still on the proxy
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
