package view

import (
	"iter"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// applyPlayers replaces a part of a node's players, including the indexes.
func (s *Snapshot) applyPlayers(c *Change) {
	set(s.PlayerParts, c.Key[0]+"/"+c.Key[1], c)
	was, is := presencesIn(c.Before), presencesIn(c.After)
	for k, p := range was {
		if shown, _ := s.byPlayer.Get(k); is[k] == nil && shown == p { // not of another node's part
			s.byPlayer.tree.Delete(k)
			s.byTeller.tree.Delete(pairOf(p.By, p.Player))
		}
	}
	for k, p := range is { // replace unchanged ones too: their records would keep the whole old part in memory
		s.byPlayer.tree.Set(k, p)
		s.byTeller.tree.Set(pairOf(p.By, p.Player), struct{}{})
	}
}

// presencesIn returns the players of one side of a change, by player and reporting instance.
func presencesIn(side any) map[pair]*players.Presence {
	part, ok := side.(*players.PresencePart)
	if !ok || part == nil {
		return nil
	}
	out := make(map[pair]*players.Presence, len(part.Players))
	for n := range part.Players {
		p := &part.Players[n]
		out[pairOf(p.Player, p.By)] = p
	}
	return out
}

// Presences yields all reports about players, grouped by player.
func (s *Snapshot) Presences() iter.Seq[*players.Presence] {
	return func(yield func(*players.Presence) bool) {
		for _, p := range s.byPlayer.All() {
			if !yield(p) {
				return
			}
		}
	}
}

// PresencesOf returns the reports about one player.
func (s *Snapshot) PresencesOf(id players.PlayerID) []players.Presence {
	var out []players.Presence
	for _, p := range under(s.byPlayer, pairOf(id, "")) {
		out = append(out, *p)
	}
	return out
}

// ToldBy returns the players that an instance reports, sorted.
func (s *Snapshot) ToldBy(id fleet.InstanceID) []players.PlayerID {
	var out []players.PlayerID
	for player := range under(s.byTeller, pairOf(id, "")) {
		out = append(out, players.PlayerID(player))
	}
	return out
}

// PlayersOn yields the parts of a node's players.
func (s *Snapshot) PlayersOn(n fleet.NodeID) iter.Seq2[int, *players.PresencePart] {
	return parts(s.PlayerParts, n)
}

// Tells reports whether an instance's reports about players count: it is alive, as far as known.
func (s *Snapshot) Tells(id fleet.InstanceID) bool {
	i, ok := s.Instances.Get(id)
	return ok && i.State().Running()
}
