package events

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Scope limits which events a stream may contain.
type Scope struct {
	// Type is false for types that the client never sees. Nil allows all. Its result never changes.
	Type func(Type) bool
	// Event reports whether the client may see an event now. Nil allows all.
	Event func(Event) bool
}

// InstanceScope returns the Scope of an instance: state changes of instances, groups and networks; events of
// players on the instance, connected through it or on its networks; and custom events of instances
// of its own group and networks.
func InstanceScope(snapshot func() *view.Snapshot, own fleet.InstanceID) Scope {
	s := instanceScope{snapshot: snapshot, own: own}
	return Scope{Type: func(t Type) bool { return forAll(t) || ofPlayers(t) || !Ours(t) }, Event: s.sees}
}

type instanceScope struct {
	snapshot func() *view.Snapshot
	own      fleet.InstanceID
	// group is the instance's own group. peer reports whether another group is on its networks, for one
	// version of the networks.
	group    fleet.GroupName
	peer     func(fleet.GroupName) bool
	networks int64
}

// forAll reports whether all instances may see a type.
func forAll(t Type) bool {
	switch t {
	case InstanceStateChanged, InstanceRemoved,
		GroupCreated, GroupUpdated, GroupDeleted, GroupMaintenanceChanged, MaintenanceUpdated, GroupAggregatesUpdated, OverlayActivated, OverlayDeactivated,
		NetworkCreated, NetworkUpdated, NetworkDeleted, ResyncRequired:
		return true
	}
	return false
}

func ofPlayers(t Type) bool {
	return t == PlayerConnected || t == PlayerDisconnected || t == PlayerTransfer
}

func (s *instanceScope) sees(e Event) bool {
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
func (s *instanceScope) isNear(g fleet.GroupName) bool {
	snap := s.snapshot()
	if version := snap.Version(view.KindNetwork); s.peer == nil || version != s.networks {
		if i, ok := snap.Instances.Get(s.own); ok {
			s.group = i.Intent.Group
		}
		s.networks, s.peer = version, snap.NetworkPeers(s.group)
	}
	return s.peer(g)
}
