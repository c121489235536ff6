package players

import (
	"maps"
	"strings"
	"testing"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

func TestPlayersCountOnceInEachNetwork(t *testing.T) {
	type counts = map[fleet.GroupName]int
	java := &players.Network{LobbyGroup: "lobby", MemberGroups: []fleet.GroupName{"games"}, ProxyGroups: []fleet.GroupName{"proxy-java", "proxy-geyser"}}
	test := &players.Network{LobbyGroup: "test", ProxyGroups: []fleet.GroupName{"proxy-test"}}
	open := &players.Network{LobbyGroup: "open"}
	for _, tc := range []struct {
		name     string
		networks []*players.Network
		players  counts
		want     int
	}{
		{"one has proxies only, one servers only", []*players.Network{java, test}, counts{"lobby": 4, "games": 6, "proxy-test": 7}, 17},
		{"each has both", []*players.Network{java, test}, counts{"lobby": 4, "proxy-java": 5, "proxy-geyser": 2, "test": 3, "proxy-test": 3}, 8},
		{"groups without a network", []*players.Network{test}, counts{"a": 2, "proxy-a": 5, "test": 1, "proxy-test": 1}, 6},
		{"one that all proxies serve", []*players.Network{open, test}, counts{"open": 6, "test": 2, "proxy-test": 8}, 8},
		{"two that share a group", []*players.Network{java, {LobbyGroup: "games", ProxyGroups: []fleet.GroupName{"proxy-2"}}}, counts{"games": 9, "proxy-java": 4, "proxy-2": 5}, 9},
		{"nobody", []*players.Network{java, open}, nil, 0},
	} {
		all := map[string]*players.Network{}
		for _, n := range tc.networks {
			all[string(n.LobbyGroup)] = n
		}
		isProxy := func(g fleet.GroupName) bool { return strings.HasPrefix(string(g), "proxy-") }
		if got := CountOnce(tc.players, maps.All(all), isProxy); got != tc.want {
			t.Errorf("%s: %d players, want %d", tc.name, got, tc.want)
		}
	}
}
