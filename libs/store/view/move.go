package view

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
)

// Move returns the latest move of an instance and how far its copy is. Both are nil if there is none,
// or if the view does not follow moves.
func (s *Snapshot) Move(id fleet.InstanceID) (*move.Move, *move.Copy) {
	if s.moves.tree == nil {
		return nil, nil
	}
	m, ok := s.moves.Get(id)
	if !ok {
		return nil, nil
	}
	c, _ := s.copies.Get(id)
	return m, c.Of(m)
}

// Moves returns the latest moves of all instances. A view that does not follow moves panics.
func (s *Snapshot) Moves() Table[fleet.InstanceID, *move.Move] { return s.moves }

// Copies returns how far the copies of moves are. A view that does not follow moves panics.
func (s *Snapshot) Copies() Table[fleet.InstanceID, *move.Copy] { return s.copies }
