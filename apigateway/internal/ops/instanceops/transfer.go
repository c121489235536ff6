package instanceops

import (
	"context"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// makeRoom is how many expired transfers a new transfer removes when there are too many.
const makeRoom = 50

// Transfer records that a player shall move to the instance with a name or id, and returns the
// instance. A sleeping instance wakes, and the player moves once it is ready. NotFound when it does not exist, Conflict when it does not run, Exhausted when too many
// transfers are pending.
func (o *Instances) Transfer(ctx context.Context, by txn.Actor, player players.PlayerID, ref string) (*fleet.Instance, error) {
	return o.transfer(ctx, by, player, func(s *view.Snapshot) (*fleet.Instance, error) {
		i, err := find(s, ref)
		if err != nil {
			return nil, err
		}
		if i.State() != fleet.Online && i.State() != fleet.Sleeping {
			return nil, errs.New(errs.Conflict, "instance %s %s: players can be sent to one that runs and is ready", i.Intent.Name, i.State().Text())
		}
		if i.Retiring() {
			return nil, errs.New(errs.Conflict, "instance %s takes no more players, because it is about to stop: choose another one, or send the player to the group", i.Intent.Name)
		}
		if i.Intent.Standby {
			return nil, errs.New(errs.Conflict, "instance %s takes no players yet, because it waits for its deployment: choose another one, or send the player to the group", i.Intent.Name)
		}
		if i.Intent.Warm {
			return nil, errs.New(errs.Conflict, "instance %s takes no players yet, because it is prepared for later: choose another one, or send the player to the group", i.Intent.Name)
		}
		return i, nil
	})
}

// TransferToGroup is Transfer to the running instance of a group that has room and the fewest
// players. It prefers another instance than the player's present one. Without one it wakes a sleeping
// instance of the group. Conflict when there is no such instance either.
func (o *Instances) TransferToGroup(ctx context.Context, by txn.Actor, player players.Player, group fleet.GroupName) (*fleet.Instance, error) {
	return o.transfer(ctx, by, player.ID, func(s *view.Snapshot) (*fleet.Instance, error) {
		if _, err := groupops.Find(s, group); err != nil {
			return nil, err
		}
		best := o.leastLoaded(s, player, group)
		if best == nil {
			best = sleeper(s, group)
		}
		if best == nil {
			return nil, errs.New(errs.Conflict, "no instance of the group %s runs and has room for one more player", group)
		}
		return best, nil
	})
}

// drainingLoad is how many players an instance on a draining node counts as having more, so that it
// is the last choice.
const drainingLoad = 1 << 20

// leastLoaded returns the instance of a group that takes players, has room for one more and has the
// fewest. It prefers another instance than the player's present one. It returns nil if there is no
// such instance.
func (o *Instances) leastLoaded(s *view.Snapshot, player players.Player, group fleet.GroupName) *fleet.Instance {
	coming := map[fleet.InstanceID]int{}
	for id, t := range s.Transfers.All() {
		if id != player.ID && !t.Over(o.Now()) {
			coming[t.Target]++
		}
	}
	var best *fleet.Instance
	var least int
	for i := range s.GroupInstances(group) {
		if !i.TakesPlayers() {
			continue
		}
		if claims, _ := s.Claims.Get(i.Intent.ID); claims.Whole(i) {
			continue
		}
		there, most := s.Occupied(i), capacityOf(s, i)
		there += coming[i.Intent.ID]
		if most > 0 && there >= most && i.Intent.ID != player.Server {
			continue
		}
		if d, _ := s.NodesDesired.Get(i.Node()); d.Draining() != nil {
			there += drainingLoad
		}
		if best == nil || best.Intent.ID == player.Server || i.Intent.ID != player.Server && there < least {
			best, least = i, there
		}
	}
	return best
}

// Evacuate records that a player shall leave a retiring instance, for the least loaded other one of
// its group, or else of the group's fallback group. If none takes the player, it wakes a sleeping
// instance of these groups. It changes nothing if the player has a transfer to an instance that takes
// players. Conflict when no instance takes the player.
func (o *Instances) Evacuate(ctx context.Context, player players.Player, from *fleet.Instance) error {
	_, err := o.Mutate(ctx, txn.Actor{}, func(s *view.Snapshot) (txn.Change, error) {
		now, there := players.MergePresence(s.PresencesOf(player.ID), s.Tells)
		if i, ok := s.Instances.Get(from.Intent.ID); !ok || !i.Retiring() || !there || now.Server != from.Intent.ID {
			return txn.Change{}, nil // one of the two has changed
		}
		var rev int64
		if old, ok := s.Transfers.Get(player.ID); ok {
			to, there := s.Instances.Get(old.Target)
			if there && (to.TakesPlayers() || wakes(to)) && !old.Over(o.Now()) {
				return txn.Change{}, nil
			}
			rev = old.ModRev
		} else if s.Transfers.Len() >= players.MaxTransfers {
			return txn.Change{}, errs.New(errs.Exhausted, "%d transfers of players are pending, the most there may be", players.MaxTransfers)
		}
		groups := []fleet.GroupName{from.Intent.Group}
		if g, ok := s.Groups.Get(from.Intent.Group); ok && g.Spec.Players.FallbackGroup != "" {
			groups = append(groups, g.Spec.Players.FallbackGroup)
		}
		to := firstOf(groups, func(g fleet.GroupName) *fleet.Instance { return o.leastLoaded(s, player, g) })
		if to == nil {
			to = firstOf(groups, func(g fleet.GroupName) *fleet.Instance { return sleeper(s, g) })
		}
		if to != nil {
			t := players.Transfer{Player: player.ID, Target: to.Intent.ID, By: from.Intent.Retire.By, At: o.Now()}
			writes := []store.Write{store.Replace(keys.Transfer(player.ID), t, rev)}
			return txn.Change{Writes: append(writes, wakeFor(to, txn.Actor{}, player.ID)...)}, nil
		}
		return txn.Change{}, errs.New(errs.Conflict, "no instance of the groups %v takes players", groups)
	})
	return err
}

// firstOf returns the first instance that choose returns for a group, or nil.
func firstOf(groups []fleet.GroupName, choose func(fleet.GroupName) *fleet.Instance) *fleet.Instance {
	for _, g := range groups {
		if i := choose(g); i != nil {
			return i
		}
	}
	return nil
}

// capacityOf returns how many players an instance takes; 0 when unknown.
func capacityOf(s *view.Snapshot, i *fleet.Instance) int {
	if r, ok := s.Reports.Get(i.Node()); ok {
		if most := r.Instances[i.Intent.ID].MaxPlayers; most > 0 {
			return most
		}
	}
	if p, ok := s.Plans.Get(i.Intent.Plan); ok {
		return p.Plan.MaxPlayers
	}
	return 0
}

func (o *Instances) transfer(ctx context.Context, by txn.Actor, player players.PlayerID, choose func(*view.Snapshot) (*fleet.Instance, error)) (to *fleet.Instance, err error) {
	_, err = o.Mutate(ctx, by, func(s *view.Snapshot) (txn.Change, error) {
		if to, err = choose(s); err != nil {
			return txn.Change{}, err
		}
		now := o.Now()
		c := txn.Change{Audit: txn.Entry{Action: "player.transfer", Resource: "player", ID: string(player), Details: to.Intent.Name}}
		var rev int64
		if old, ok := s.Transfers.Get(player); ok {
			rev = old.ModRev
		} else if s.Transfers.Len() >= players.MaxTransfers {
			if c.Writes = overdue(s, now); len(c.Writes) == 0 {
				return txn.Change{}, errs.New(errs.Exhausted, "%d transfers of players are pending, the most there may be: see that proxies carry them out", players.MaxTransfers)
			}
		}
		t := players.Transfer{Player: player, Target: to.Intent.ID, By: by.User, At: now}
		c.Writes = append(c.Writes, store.Replace(keys.Transfer(player), t, rev))
		c.Writes = append(c.Writes, wakeFor(to, by, player)...)
		return c, nil
	})
	return to, err
}

// overdue returns the removal of some expired transfers.
func overdue(s *view.Snapshot, now time.Time) (out []store.Write) {
	for id, t := range s.Transfers.All() {
		if t.Over(now) && len(out) < makeRoom {
			out = append(out, store.Remove(keys.Transfer(id), t.ModRev))
		}
	}
	return out
}

// AckTransfer records that a proxy has moved a player. It does nothing without a pending transfer.
func (o *Instances) AckTransfer(ctx context.Context, player players.PlayerID) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		t, ok := o.Snapshot().Transfers.Get(player)
		if !ok {
			return nil
		}
		sent := *t
		sent.AckedAt = o.Now()
		return o.conclude(ctx, store.Replace(keys.Transfer(player), sent, t.ModRev))
	})
}

// EndTransfer removes a completed transfer, unless it changed meanwhile.
func (o *Instances) EndTransfer(ctx context.Context, t *players.Transfer) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		return o.conclude(ctx, store.Remove(keys.Transfer(t.Player), t.ModRev))
	})
}

// conclude commits a write without an audit entry. It ignores lost races.
func (o *Instances) conclude(ctx context.Context, w store.Write) error {
	rev, err := o.Commit(ctx, store.Txn{Writes: []store.Write{w}}, txn.Entry{})
	if errs.Is(err, errs.Conflict) {
		return nil
	}
	if err != nil {
		return errs.Wrap("operate.conclude", err)
	}
	_, err = o.View.WaitRev(ctx, rev)
	return err
}
