package report

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
)

// readPlayers learns what of the node's players is in the store. All parts count as changed,
// also those that somebody removed.
func (r *Reporter) readPlayers(ctx context.Context) error {
	parts, _, err := store.List(ctx, r.cfg.Store, store.PlayersOn(r.cfg.Node))
	if err != nil {
		return errs.Wrap("report.readPlayers", err)
	}
	r.parts = [fleet.PresenceParts]int64{}
	for _, p := range parts {
		if p.Part >= 0 && p.Part < fleet.PresenceParts {
			r.parts[p.Part] = p.ModRev
		}
	}
	for n := range fleet.PresenceParts {
		r.cfg.Players.Again(n)
	}
	return nil
}

// addPlayers adds the parts of the players that changed to a transaction, as many as fit;
// the others come with the next one. settle takes what came of it.
func (r *Reporter) addPlayers(t *store.Txn) (settle func(rev int64, err error)) {
	var taken []int
	var there [fleet.PresenceParts]bool
	for t.Bytes() < store.FullBytes {
		n, players, ok := r.cfg.Players.Take()
		if !ok {
			break
		}
		taken, there[n] = append(taken, n), len(players) > 0
		key := store.PlayersKey(r.cfg.Node, n)
		switch {
		case there[n]:
			t.Writes = append(t.Writes, store.Replace(key, fleet.PresencePart{Part: n, Players: players}, r.parts[n]))
		case r.parts[n] != 0:
			t.Writes = append(t.Writes, store.Remove(key, r.parts[n]))
		}
	}
	return func(rev int64, err error) {
		for _, n := range taken {
			switch {
			case err != nil:
				r.cfg.Players.Again(n)
			case there[n]:
				r.parts[n] = rev
			default:
				r.parts[n] = 0
			}
		}
	}
}
