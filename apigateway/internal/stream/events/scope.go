package events

import (
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
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

// GroupScope returns the Scope of a user who sees some groups only: the events of those groups. may reports
// whether the user has a permission, or for "" the one to see events, in a group that exists. The last
// events of a deleted group are shown to who saw the group.
func GroupScope(snapshot func() *view.Snapshot, may func(*view.Snapshot, fleet.GroupName, account.Permission) bool) Scope {
	g := groupScope{snapshot: snapshot, may: may, saw: map[fleet.GroupName]bool{}}
	s := snapshot()
	for name := range s.Groups.All() {
		g.saw[name] = may(s, name, "")
	}
	return Scope{Event: g.sees}
}

type groupScope struct {
	snapshot func() *view.Snapshot
	may      func(*view.Snapshot, fleet.GroupName, account.Permission) bool
	// saw has whether the user saw a group when it was last looked at.
	saw map[fleet.GroupName]bool
}

func (g groupScope) sees(e Event) bool {
	return g.seesGroup(e.Group, e.Needs) && (e.From == "" || g.seesGroup(e.From, e.Needs))
}

func (g groupScope) seesGroup(name fleet.GroupName, needs account.Permission) bool {
	s := g.snapshot()
	if _, ok := s.Groups.Get(name); !ok {
		return g.saw[name] && needs == ""
	}
	g.saw[name] = g.may(s, name, "")
	return g.saw[name] && (needs == "" || g.may(s, name, needs))
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
