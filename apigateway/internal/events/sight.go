package events

import (
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

// SightOf is what an instance may see of all events: what becomes of instances, groups and
// networks; and of players, and of what other instances say, only what concerns its own
// group, a group of a network it belongs to, or players who came through itself.
func SightOf(snapshot func() *view.Snapshot, own fleet.InstanceID) Sight {
	s := sight{snapshot: snapshot, own: own}
	return Sight{Hears: func(t Type) bool { return forAll(t) || ofPlayers(t) || !Ours(t) }, Sees: s.sees}
}

type sight struct {
	snapshot func() *view.Snapshot
	own      fleet.InstanceID
	// near are the groups whose players it sees, as of a version of the networks.
	near     map[fleet.GroupName]bool
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
		return e.Proxy == s.own || s.isNear(e.Group) || s.isNear(e.From)
	}
	return !Ours(e.Type) && s.isNear(e.Group)
}

// isNear reports whether a group is the instance's own, or of a network of that.
func (s *sight) isNear(g fleet.GroupName) bool {
	snap := s.snapshot()
	if version := snap.Version(view.KindNetwork); s.near == nil || version != s.networks {
		s.networks, s.near = version, nearTo(snap, s.own)
	}
	return g != "" && s.near[g]
}

// nearTo are the groups of an instance and of the networks that name its group.
func nearTo(snap *view.Snapshot, own fleet.InstanceID) map[fleet.GroupName]bool {
	i, ok := snap.Instances.Get(own)
	if !ok {
		return nil
	}
	near := map[fleet.GroupName]bool{i.Intent.Group: true}
	for _, n := range snap.Networks.All() {
		if n.Names(i.Intent.Group) {
			for _, named := range n.Named() {
				near[named.Group] = true
			}
		}
	}
	return near
}
