package supervise

import (
	"path/filepath"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/presence"
)

// playersFile, in a run's directory, holds the players that it has told of.
const playersFile = "players"

// playersOf makes the file of an instance's players.
func playersOf(kit *Kit, id fleet.InstanceID) presence.File {
	return presence.NewFile(filepath.Join(kit.RunDir(id), playersFile))
}

// recallPlayers takes up what the run has told the agent before this one.
func (i *Instance) recallPlayers() {
	var players []fleet.Presence
	players, i.told = i.players.Load()
	for _, p := range players {
		if _, err := i.kit.Players.Join(p); err != nil {
			i.log.Warn("a player is not known any more", "player", p.Player, "error", err)
		}
	}
}

// tellPlayers takes who came and who left. Exhausted when there are too many. Under i.mu.
func (i *Instance) tellPlayers(b Beat) error {
	all := func() []fleet.Presence { return i.kit.Players.ToldBy(i.id) }
	var kept error
	switch {
	case b.Joined != nil:
		p := *b.Joined
		p.By, p.Since, p.At, p.Said = i.id, b.At, b.At, b.Sequence
		stands, err := i.kit.Players.Join(p)
		if err != nil {
			return err
		}
		kept = i.players.Joined(stands, all)
	case b.Left != "":
		i.kit.Players.Leave(i.id, b.Left)
		kept = i.players.Left(b.Left, all)
	default:
		return nil
	}
	if kept != nil && !i.playersUnkept {
		i.log.Warn("who plays is not kept: if the agent is replaced, the next one does not know it", "error", kept)
	}
	i.told, i.playersUnkept = true, kept != nil
	return nil
}

// forgetPlayers forgets who was told of by a run that is over. Under i.mu.
func (i *Instance) forgetPlayers() {
	if !i.told {
		return
	}
	i.told = false
	i.kit.Players.Drop(i.id)
	if err := i.players.Forget(); err != nil {
		i.log.Warn("the players of an earlier run are not forgotten", "error", err)
	}
}
