package events

import (
	"cmp"
	"slices"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store/view"
)

// playerEvents returns the events of players who joined, left or moved in a batch. They are live,
// because presence has no history. Each replica derives them from its view.
func playerEvents(b view.Batch) []Event {
	var out []Event
	for _, id := range concerned(b) {
		was, before := players.MergePresence(b.Before.PresencesOf(id), b.Before.Tells)
		is, after := players.MergePresence(b.After.PresencesOf(id), b.After.Tells)
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

// concerned returns the players who may be elsewhere after a batch: those with changed records, and
// those of instances that started or ended.
func concerned(b view.Batch) []players.PlayerID {
	var out []players.PlayerID
	for _, c := range b.Changes {
		switch {
		case c.Kind == view.KindPlayers:
			out = append(out, differing(record[players.PresencePart](c.Before), record[players.PresencePart](c.After))...)
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

// differing returns the players whose entries differ between two parts.
func differing(before, after *players.PresencePart) (out []players.PlayerID) {
	one := map[players.Presence]int{}
	for n, part := range []*players.PresencePart{before, after} {
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

func playerEvent(t Type, s *view.Snapshot, p players.Player) Event {
	name, group := placed(s, p)
	return Event{Type: t, Group: group, Instances: []fleet.InstanceID{p.Server, p.Proxy}, Fields: Fields{"uuid": p.ID, "name": p.Name, "instanceId": name, "group": group}}
}

// moved creates the event of a player who moved. It includes the group that the player left.
func moved(b view.Batch, was, is players.Player) Event {
	from, left := placed(b.Before, was)
	to, group := placed(b.After, is)
	return Event{Type: PlayerTransfer, Group: group, From: left, Instances: []fleet.InstanceID{is.Server, was.Server, cmp.Or(is.Proxy, was.Proxy)}, Fields: Fields{
		"uuid": is.ID, "name": is.Name, "fromInstanceId": from, "toInstanceId": to,
	}}
}

// placeOf returns the player's server, or the proxy if the player is on no server.
func placeOf(p players.Player) fleet.InstanceID { return cmp.Or(p.Server, p.Proxy) }

// placed returns the name of the instance a player is on, and its group.
func placed(s *view.Snapshot, p players.Player) (name string, group fleet.GroupName) {
	for _, id := range []fleet.InstanceID{p.Server, p.Proxy} {
		if i, ok := s.Instances.Get(id); ok {
			return i.Intent.Name, i.Intent.Group
		}
	}
	return "", p.Group
}
