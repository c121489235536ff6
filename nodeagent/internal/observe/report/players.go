package report

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// readPlayers reads the revisions of the stored parts of the node's players. All parts count as
// changed, including those that were removed.
func (r *Reporter) readPlayers(ctx context.Context) error {
	parts, _, err := store.List(ctx, r.cfg.Store, keys.PlayersOn(r.cfg.Node))
	if err != nil {
		return errs.Wrap("report.readPlayers", err)
	}
	r.parts = [players.PresenceParts]int64{}
	for _, p := range parts {
		if p.Part >= 0 && p.Part < players.PresenceParts {
			r.parts[p.Part] = p.ModRev
		}
	}
	for n := range players.PresenceParts {
		r.cfg.Players.MarkChanged(n)
	}
	return nil
}

// addPlayers adds the changed parts of the players to a transaction, as many as fit. The caller
// calls settle with the outcome.
func (r *Reporter) addPlayers(t *store.Txn) (settle func(rev int64, err error)) {
	var taken []int
	var there [players.PresenceParts]bool
	for t.Bytes() < store.FullBytes {
		n, online, ok := r.cfg.Players.TakeChanged()
		if !ok {
			break
		}
		taken, there[n] = append(taken, n), len(online) > 0
		key := keys.Players(r.cfg.Node, n)
		switch {
		case there[n]:
			t.Writes = append(t.Writes, store.Replace(key, players.PresencePart{Part: n, Players: online}, r.parts[n]))
		case r.parts[n] != 0:
			t.Writes = append(t.Writes, store.Remove(key, r.parts[n]))
		}
	}
	return func(rev int64, err error) {
		for _, n := range taken {
			switch {
			case err != nil:
				r.cfg.Players.MarkChanged(n)
			case there[n]:
				r.parts[n] = rev
			default:
				r.parts[n] = 0
			}
		}
	}
}
