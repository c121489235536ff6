package view

import (
	"cmp"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// NetworkPeers returns a function that reports whether a group shares a network with g. The groups
// that belong to no network share one with each other.
func (s *Snapshot) NetworkPeers(g fleet.GroupName) func(fleet.GroupName) bool {
	peers, named := map[fleet.GroupName]bool{}, map[fleet.GroupName]bool{}
	for _, n := range s.Networks.All() {
		shared := n.Names(g)
		for _, other := range n.Named() {
			named[other.Group] = true
			if shared {
				peers[other.Group] = true
			}
		}
	}
	if named[g] {
		return func(other fleet.GroupName) bool { return peers[other] }
	}
	return func(other fleet.GroupName) bool { return g != "" && other != "" && !named[other] }
}

// RoutesPlayers reports whether a group's instances are proxies.
func (s *Snapshot) RoutesPlayers(g fleet.GroupName) bool {
	group, ok := s.Groups.Get(g)
	if !ok {
		return false
	}
	software := s.Whole(group).Spec.Software
	if p, ok := s.Catalog.Get(software.Platform); ok {
		for _, v := range p.Versions {
			if v.Version == cmp.Or(software.PlatformVersion, p.Recommended) {
				return v.Category == content.CategoryProxy
			}
		}
	}
	return fleet.RoutesPlayers(software.Platform)
}
