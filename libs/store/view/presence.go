package view

import (
	"iter"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// applyPlayers replaces a part of a node's players, also in the indexes.
func (s *Snapshot) applyPlayers(c *Change, raw store.Change) error {
	if err := set(s.PlayerParts, c.Key[0]+"/"+c.Key[1], c, raw); err != nil {
		return err
	}
	was, is := told(c.Before), told(c.After)
	for k, p := range was {
		if _, still := is[k]; !still {
			s.byPlayer.tree.Delete(k)
			s.byTeller.tree.Delete(pairOf(p.By, p.Player))
		}
	}
	for k, p := range is { // also what is as before: its record would keep all of the old part
		s.byPlayer.tree.Set(k, p)
		s.byTeller.tree.Set(pairOf(p.By, p.Player), struct{}{})
	}
	return nil
}

// told are the players of one side of a change, by player and teller.
func told(side any) map[pair]*fleet.Presence {
	part, ok := side.(*fleet.PresencePart)
	if !ok || part == nil {
		return nil
	}
	out := make(map[pair]*fleet.Presence, len(part.Players))
	for n := range part.Players {
		p := &part.Players[n]
		out[pairOf(p.Player, p.By)] = p
	}
	return out
}

// Presences are all that is told of players, in order of the player: one player's stand together.
func (s *Snapshot) Presences() iter.Seq[*fleet.Presence] {
	return func(yield func(*fleet.Presence) bool) {
		for _, p := range s.byPlayer.All() {
			if !yield(p) {
				return
			}
		}
	}
}

// PresencesOf is what is told of one player.
func (s *Snapshot) PresencesOf(id fleet.PlayerID) []fleet.Presence {
	prefix := string(pairOf(id, ""))
	var out []fleet.Presence
	for k, p := range s.byPlayer.from(pair(prefix)) {
		if !strings.HasPrefix(string(k), prefix) {
			break
		}
		out = append(out, *p)
	}
	return out
}

// ToldBy are the players that an instance tells of, in order.
func (s *Snapshot) ToldBy(id fleet.InstanceID) []fleet.PlayerID {
	prefix := string(pairOf(id, ""))
	var out []fleet.PlayerID
	for k := range s.byTeller.from(pair(prefix)) {
		player, ok := strings.CutPrefix(string(k), prefix)
		if !ok {
			break
		}
		out = append(out, fleet.PlayerID(player))
	}
	return out
}

// PlayersOn are the parts of a node's players.
func (s *Snapshot) PlayersOn(n fleet.NodeID) iter.Seq2[int, *fleet.PresencePart] {
	return parts(s.PlayerParts, n)
}

// Tells reports whether what an instance tells of players counts: it lives, as far as is known.
func (s *Snapshot) Tells(id fleet.InstanceID) bool {
	i, ok := s.Instances.Get(id)
	return ok && i.State().Running()
}
