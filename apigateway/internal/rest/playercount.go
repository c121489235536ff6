package rest

import (
	"iter"

	"github.com/orreryhq/orrery/libs/fleet"
)

// playersOnce counts the players of all groups, each player once. A player behind a proxy is on a
// server too, and one who came through Geyser and Velocity is on three instances. So of groups
// that share players the servers' sum counts, or the sum of a group of proxies where the
// servers report fewer. Groups of different networks share no players.
func playersOnce(players map[fleet.GroupName]int, networks iter.Seq2[string, *fleet.Network], isProxy func(fleet.GroupName) bool) int {
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

// groupSets are disjoint sets of groups that share players, as a forest: each group leads to another one of
// its set, but for the set's root. The root of the groups that are in no network is "".
type groupSets map[fleet.GroupName]fleet.GroupName

// joinNetworks joins the groups of each network. A network that names no proxies is served by all.
func joinNetworks(players map[fleet.GroupName]int, networks iter.Seq2[string, *fleet.Network], isProxy func(fleet.GroupName) bool) groupSets {
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

// of is the root of a group's set.
func (s groupSets) of(g fleet.GroupName) fleet.GroupName {
	for {
		next, ok := s[g]
		if !ok {
			return g
		}
		g = next
	}
}

// join makes one set of two groups' sets.
func (s groupSets) join(a, b fleet.GroupName) {
	if a, b = s.of(a), s.of(b); a != b {
		s[a] = b
	}
}
