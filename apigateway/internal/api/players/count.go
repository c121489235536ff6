package players

import (
	"iter"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// CountOnce counts the players of all groups, each once. A player behind a proxy is on a server
// too, and one who joined through Geyser and Velocity is on three instances. So in each set of
// groups that share players, the larger count holds: the sum of the servers or that of one proxy
// group. Groups of different networks share no players.
func CountOnce(players map[fleet.GroupName]int, networks iter.Seq2[string, *players.Network], isProxy func(fleet.GroupName) bool) int {
	shared := joinNetworks(players, networks, isProxy)
	onServers, onProxies := map[fleet.GroupName]int{}, map[fleet.GroupName]int{}
	for g, n := range players {
		if set := shared.of(g); isProxy(g) {
			onProxies[set] = max(onProxies[set], n)
		} else {
			onServers[set] += n
		}
	}
	sum := 0
	for _, n := range onServers {
		sum += n
	}
	for set, n := range onProxies {
		sum += max(0, n-onServers[set])
	}
	return sum
}

// groupSets are disjoint sets of groups that share players, as a union-find forest: each group
// points to another of its set, except the root. The root of all groups without a network is "".
type groupSets map[fleet.GroupName]fleet.GroupName

// joinNetworks joins the groups of each network. All proxies serve a network that names none.
func joinNetworks(players map[fleet.GroupName]int, networks iter.Seq2[string, *players.Network], isProxy func(fleet.GroupName) bool) groupSets {
	out, named := groupSets{}, map[fleet.GroupName]bool{}
	for _, n := range networks {
		for _, other := range n.Named() {
			named[other.Group] = true
			out.join(other.Group, n.LobbyGroup)
		}
	}
	for g := range players {
		if !named[g] {
			out.join(g, "")
		}
	}
	for _, n := range networks {
		if len(n.ProxyGroups) > 0 {
			continue
		}
		for g := range players {
			if isProxy(g) {
				out.join(g, n.LobbyGroup)
			}
		}
	}
	return out
}

// of returns the root of a group's set.
func (s groupSets) of(g fleet.GroupName) fleet.GroupName {
	for {
		next, ok := s[g]
		if !ok {
			return g
		}
		g = next
	}
}

// join merges the sets of two groups.
func (s groupSets) join(a, b fleet.GroupName) {
	if a, b = s.of(a), s.of(b); a != b {
		s[a] = b
	}
}
