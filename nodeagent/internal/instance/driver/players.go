package driver

import (
	"path/filepath"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/observe/presence"
)

// playersFile, in a run's directory, holds the players that the run has reported.
const playersFile = "players"

// playersOf returns the file of an instance's players.
func playersOf(deps *Deps, id fleet.InstanceID) presence.File {
	return presence.NewFile(filepath.Join(deps.RunDir(id), playersFile))
}

// loadPlayers loads the players that the run reported to an earlier agent.
func (i *Instance) loadPlayers() {
	var players []players.Presence
	players, i.tracksPlayers = i.players.Load()
	for _, p := range players {
		if _, err := i.deps.Players.Join(p); err != nil {
			i.log.Warn("cannot restore a player", "player", p.Player, "error", err)
		}
	}
}

// updatePlayers applies a player's join or leave. Exhausted if there are too many. i.mu is held.
func (i *Instance) updatePlayers(b client.Heartbeat) error {
	all := func() []players.Presence { return i.deps.Players.PlayersOf(i.id) }
	var kept error
	switch {
	case b.Joined != nil:
		p := *b.Joined
		p.By, p.Since, p.At, p.Said = i.id, b.At, b.At, b.Sequence
		stands, err := i.deps.Players.Join(p)
		if err != nil {
			return err
		}
		kept = i.players.Joined(stands, all)
	case b.Left != "":
		i.deps.Players.Leave(i.id, b.Left)
		kept = i.players.Left(b.Left, all)
	default:
		return nil
	}
	if kept != nil && !i.playersUnsaved {
		i.log.Warn("cannot store the players: the next agent would not know them", "error", kept)
	}
	i.tracksPlayers, i.playersUnsaved = true, kept != nil
	return nil
}

// forgetPlayers removes the players of a run that is over. i.mu is held.
func (i *Instance) forgetPlayers() {
	if !i.tracksPlayers {
		return
	}
	i.tracksPlayers = false
	i.deps.Players.Drop(i.id)
	if err := i.players.Forget(); err != nil {
		i.log.Warn("cannot remove the players of an earlier run", "error", err)
	}
}
