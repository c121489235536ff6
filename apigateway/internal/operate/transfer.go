package operate

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// makeRoom is how many transfers whose time is over one more removes, when there are too many.
const makeRoom = 50

// Transfer notes that a player is to go to the instance a name or id means, and returns
// that. NotFound when there is no such instance, Conflict when it does not run,
// Exhausted when too many transfers are pending.
func (o *Operations) Transfer(ctx context.Context, by Actor, player fleet.PlayerID, ref string) (*fleet.Instance, error) {
	return o.transfer(ctx, by, player, func(s *view.Snapshot) (*fleet.Instance, error) {
		i, err := find(s, ref)
		if err != nil {
			return nil, err
		}
		if i.State() != fleet.Online {
			return nil, errs.New(errs.Conflict, "instance %s %s: players can be sent to one that runs and is ready", i.Intent.Name, i.State().Text())
		}
		return i, nil
	})
}

// TransferToGroup is Transfer to the instance of a group that has the fewest players, of
// those that run and have room, and rather another than the one the player is on. Conflict
// when there is none.
func (o *Operations) TransferToGroup(ctx context.Context, by Actor, player fleet.Player, group fleet.GroupName) (*fleet.Instance, error) {
	return o.transfer(ctx, by, player.ID, func(s *view.Snapshot) (*fleet.Instance, error) {
		if _, err := o.group(s, group); err != nil {
			return nil, err
		}
		coming := map[fleet.InstanceID]int{}
		for id, t := range s.Transfers.All() {
			if id != player.ID && !t.Over(o.now()) {
				coming[t.Target]++
			}
		}
		var best *fleet.Instance
		var least int
		for i := range s.GroupInstances(group) {
			if i.State() != fleet.Online {
				continue
			}
			there, most := playersOn(s, i)
			there += coming[i.Intent.ID]
			if most > 0 && there >= most && i.Intent.ID != player.Server {
				continue
			}
			if best == nil || best.Intent.ID == player.Server || i.Intent.ID != player.Server && there < least {
				best, least = i, there
			}
		}
		if best == nil {
			return nil, errs.New(errs.Conflict, "no instance of the group %s runs and has room for one more player", group)
		}
		return best, nil
	})
}

// playersOn is how many players an instance has, as was last reported, and how many it
// takes; 0 when nobody knows.
func playersOn(s *view.Snapshot, i *fleet.Instance) (there, most int) {
	if p, ok := s.Plans.Get(i.Intent.Plan); ok {
		most = p.Plan.MaxPlayers
	}
	if r, ok := s.Reports.Get(i.Node()); ok {
		said := r.Instances[i.Intent.ID]
		if there = said.Players; said.MaxPlayers > 0 {
			most = said.MaxPlayers
		}
	}
	return there, most
}

func (o *Operations) transfer(ctx context.Context, by Actor, player fleet.PlayerID, choose func(*view.Snapshot) (*fleet.Instance, error)) (to *fleet.Instance, err error) {
	_, err = o.mutate(ctx, by, func(s *view.Snapshot) (change, error) {
		if to, err = choose(s); err != nil {
			return change{}, err
		}
		now := o.now()
		c := change{audit: entry{action: "player.transfer", resource: "player", id: string(player), details: to.Intent.Name}}
		var rev int64
		if old, ok := s.Transfers.Get(player); ok {
			rev = old.ModRev
		} else if s.Transfers.Len() >= fleet.MaxTransfers {
			if c.writes = overdue(s, now); len(c.writes) == 0 {
				return change{}, errs.New(errs.Exhausted, "%d transfers of players are pending, the most there may be: see that proxies carry them out", fleet.MaxTransfers)
			}
		}
		t := fleet.Transfer{Player: player, Target: to.Intent.ID, By: by.User, At: now}
		c.writes = append(c.writes, store.Replace(store.TransferKey(player), t, rev))
		return c, nil
	})
	return to, err
}

// overdue removes some of the transfers whose time is over.
func overdue(s *view.Snapshot, now time.Time) (out []store.Write) {
	for id, t := range s.Transfers.All() {
		if t.Over(now) && len(out) < makeRoom {
			out = append(out, store.Remove(store.TransferKey(id), t.ModRev))
		}
	}
	return out
}

// AckTransfer notes that a proxy has sent a player where it was to go. Nothing happens when
// nothing is pending.
func (o *Operations) AckTransfer(ctx context.Context, player fleet.PlayerID) error {
	return InTime(ctx, func(ctx context.Context) error {
		t, ok := o.Snapshot().Transfers.Get(player)
		if !ok {
			return nil
		}
		sent := *t
		sent.AckedAt = o.now()
		return o.conclude(ctx, store.Replace(store.TransferKey(player), sent, t.ModRev))
	})
}

// EndTransfer removes a transfer that has come to its end. Nothing happens when it was changed since.
func (o *Operations) EndTransfer(ctx context.Context, t *fleet.Transfer) error {
	return InTime(ctx, func(ctx context.Context) error {
		return o.conclude(ctx, store.Remove(store.TransferKey(t.Player), t.ModRev))
	})
}

// conclude writes what needs no audit; who was faster is right.
func (o *Operations) conclude(ctx context.Context, w store.Write) error {
	rev, err := o.commit(ctx, store.Txn{Writes: []store.Write{w}}, entry{})
	if errs.Is(err, errs.Conflict) {
		return nil
	}
	if err != nil {
		return errs.Wrap("operate.conclude", err)
	}
	_, err = o.cfg.View.WaitRev(ctx, rev)
	return err
}
