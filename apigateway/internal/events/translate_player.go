package events

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// playerEvents tells of who came, went and moved in a batch. No history of it is kept, so they are live: each
// replica makes them of what it sees.
func playerEvents(b view.Batch) []Event {
	var out []Event
	for _, id := range concerned(b) {
		was, before := fleet.MergePresence(b.Before.PresencesOf(id), b.Before.Tells)
		is, after := fleet.MergePresence(b.After.PresencesOf(id), b.After.Tells)
		switch {
		case !before && after:
			out = append(out, playerEvent(PlayerConnected, b.After, is))
		case before && !after:
			out = append(out, playerEvent(PlayerDisconnected, b.Before, was))
		case before && placeOf(was) != placeOf(is):
			out = append(out, moved(b, was, is))
		}
	}
	return out
}

// concerned are the players who may be elsewhere after a batch: whose records changed, and
// those of instances that live no more, or again.
func concerned(b view.Batch) []fleet.PlayerID {
	var out []fleet.PlayerID
	for _, c := range b.Changes {
		switch {
		case c.Kind == view.KindPlayers:
			out = append(out, differing(record[fleet.PresencePart](c.Before), record[fleet.PresencePart](c.After))...)
		case ofInstance(c.Kind):
			id := fleet.InstanceID(c.Key[len(c.Key)-1])
			if b.Before.Tells(id) != b.After.Tells(id) {
				out = append(append(out, b.Before.ToldBy(id)...), b.After.ToldBy(id)...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// differing are the players of whom one of two parts tells otherwise than the other.
func differing(before, after *fleet.PresencePart) (out []fleet.PlayerID) {
	one := map[fleet.Presence]int{}
	for n, part := range []*fleet.PresencePart{before, after} {
		if part == nil {
			continue
		}
		for _, p := range part.Players {
			one[p] += 1 - 2*n
		}
	}
	for p, sides := range one {
		if sides != 0 {
			out = append(out, p.Player)
		}
	}
	return out
}

func playerEvent(t Type, s *view.Snapshot, p fleet.Player) Event {
	name, group := placed(s, p)
	return Event{Type: t, Group: group, Instances: []fleet.InstanceID{p.Server, p.Proxy}, Fields: Fields{"uuid": p.ID, "name": p.Name, "instanceId": name, "group": group}}
}

// moved tells of a player who is at another place than before, those whom that one left too.
func moved(b view.Batch, was, is fleet.Player) Event {
	from, left := placed(b.Before, was)
	to, group := placed(b.After, is)
	return Event{Type: PlayerTransfer, Group: group, From: left, Instances: []fleet.InstanceID{is.Server, was.Server, cmp.Or(is.Proxy, was.Proxy)}, Fields: Fields{
		"uuid": is.ID, "name": is.Name, "fromInstanceId": from, "toInstanceId": to,
	}}
}

// placeOf is the server a player is on, or the proxy of one who is on none.
func placeOf(p fleet.Player) fleet.InstanceID { return cmp.Or(p.Server, p.Proxy) }

// placed is the name of the place a player is at, and its group.
func placed(s *view.Snapshot, p fleet.Player) (name string, group fleet.GroupName) {
	for _, id := range []fleet.InstanceID{p.Server, p.Proxy} {
		if i, ok := s.Instances.Get(id); ok {
			return i.Intent.Name, i.Intent.Group
		}
	}
	return "", p.Group
}
