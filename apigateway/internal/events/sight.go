package events

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Sight is what somebody may see of all events, for one stream.
type Sight struct {
	// Hears is false for a type of which nothing is ever seen; nil is true for all. It never
	// changes its mind.
	Hears func(Type) bool
	// Sees is whether an event may be seen now; nil is true for all.
	Sees func(Event) bool
}

// SightOf is the part of all events that an instance sees: state changes of instances, groups
// and networks; events of players on itself, connected through itself or on its networks; and
// events of instances of its own group and of its networks.
func SightOf(snapshot func() *view.Snapshot, own fleet.InstanceID) Sight {
	s := sight{snapshot: snapshot, own: own}
	return Sight{Hears: func(t Type) bool { return forAll(t) || ofPlayers(t) || !Ours(t) }, Sees: s.sees}
}

type sight struct {
	snapshot func() *view.Snapshot
	own      fleet.InstanceID
	// group is the instance's own, peer whether another is on its networks, as of a version of
	// the networks.
	group    fleet.GroupName
	peer     func(fleet.GroupName) bool
	networks int64
}

// forAll reports whether every instance is told of a type.
func forAll(t Type) bool {
	switch t {
	case InstanceStateChanged, InstanceRemoved,
		GroupCreated, GroupUpdated, GroupDeleted, GroupMaintenanceChanged, GroupAggregatesUpdated,
		NetworkCreated, NetworkUpdated, NetworkDeleted, ResyncRequired:
		return true
	}
	return false
}

func ofPlayers(t Type) bool {
	return t == PlayerConnected || t == PlayerDisconnected || t == PlayerTransfer
}

func (s *sight) sees(e Event) bool {
	switch {
	case forAll(e.Type):
		return true
	case ofPlayers(e.Type):
		return slices.Contains(e.Instances, s.own) || s.isNear(e.Group) || s.isNear(e.From)
	case Ours(e.Type):
		return false
	}
	near := s.isNear(e.Group) // also reads the instance's own group
	return near || e.Group != "" && e.Group == s.group
}

// isNear reports whether a group is on a network of the instance.
func (s *sight) isNear(g fleet.GroupName) bool {
	snap := s.snapshot()
	if version := snap.Version(view.KindNetwork); s.peer == nil || version != s.networks {
		if i, ok := snap.Instances.Get(s.own); ok {
			s.group = i.Intent.Group
		}
		s.networks, s.peer = version, snap.NetworkPeers(s.group)
	}
	return s.peer(g)
}
