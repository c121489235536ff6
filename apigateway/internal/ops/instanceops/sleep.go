package instanceops

import (
	"context"

	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// SleepInstance puts an instance to sleep. It changes nothing if the instance sleeps already, and with
// dryRun. Conflict if it is not ONLINE, is about to stop, is frozen, or has players or claimed slots.
func (o *Instances) SleepInstance(ctx context.Context, by txn.Actor, ref string, dryRun bool) (Outcome, error) {
	return o.onInstance(ctx, by, ref, rehearsed(dryRun, func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		if i.Intent.Sleep != nil && !i.Terminal() {
			return nil, nil
		}
		if err := maySleep(s, i); err != nil {
			return nil, err
		}
		message := "asleep because " + by.User + " put it to sleep"
		if stored, ok := s.Plans.Get(i.Intent.Plan); ok {
			message += "; " + stored.Plan.Sleep.WokenBy()
		}
		next := i.Intent
		next.Sleep = &fleet.Nap{At: o.Now(), Reason: fleet.ReasonAsleep, Message: message, By: by.User}
		c := rewrite(i, next, "instance.sleep")
		c.Guards = append(c.Guards, s.FiguresUnchanged(i.Node(), i.Intent.ID), claimsUnchanged(s, i.Intent.ID))
		return c, nil
	}))
}

// WakeInstance wakes a sleeping instance. It changes nothing if the instance is awake or wakes already,
// and with dryRun. Conflict if it has stopped.
func (o *Instances) WakeInstance(ctx context.Context, by txn.Actor, ref string, dryRun bool) (Outcome, error) {
	return o.onInstance(ctx, by, ref, rehearsed(dryRun, func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		if i.Terminal() || i.Intent.Desired == fleet.DesiredStopped {
			return nil, errs.New(errs.Conflict, "instance %s %s: start it instead: orrery start instance %s", i.Intent.Name, i.State().Text(), i.Intent.Name)
		}
		if _, err := groupops.Find(s, i.Intent.Group); err != nil {
			return nil, err
		}
		if i.Intent.Sleep == nil {
			return nil, nil
		}
		return wake(i, by), nil
	}))
}

// rehearsed makes a decision whose change is not written with dryRun.
func rehearsed(dryRun bool, decide decision) decision {
	if !dryRun {
		return decide
	}
	return func(s *view.Snapshot, i *fleet.Instance) (*txn.Change, error) {
		c, err := decide(s, i)
		if c != nil {
			c = &txn.Change{}
		}
		return c, err
	}
}

// maySleep returns Conflict if an instance must stay awake.
func maySleep(s *view.Snapshot, i *fleet.Instance) error {
	switch {
	case i.State() != fleet.Online || i.Intent.Desired != fleet.DesiredRunning:
		return errs.New(errs.Conflict, "instance %s %s: only one that runs and is ready can be put to sleep", i.Intent.Name, i.State().Text())
	case i.Retiring():
		return errs.New(errs.Conflict, "instance %s is about to stop: it cannot be put to sleep", i.Intent.Name)
	case i.Intent.Warm:
		return errs.New(errs.Conflict, "instance %s is prepared for later: it cannot be put to sleep", i.Intent.Name)
	case i.Intent.Standby:
		return errs.New(errs.Conflict, "instance %s waits for its deployment: it cannot be put to sleep", i.Intent.Name)
	case i.Intent.Frozen:
		return errs.New(errs.Conflict, "instance %s is frozen: unfreeze it before you put it to sleep", i.Intent.Name)
	}
	if n := s.Occupied(i); n > 0 {
		return errs.New(errs.Conflict, "instance %s has %d players or claimed slots: transfer the players and release the allocations before you put it to sleep", i.Intent.Name, n)
	}
	return nil
}

// claimsUnchanged returns a guard that the claims on an instance, or their absence, are unchanged.
func claimsUnchanged(s *view.Snapshot, id fleet.InstanceID) store.Guard {
	if c, ok := s.Claims.Get(id); ok {
		return store.Unchanged(keys.Claims(id), c.ModRev)
	}
	return store.Missing(keys.Claims(id))
}

// wake returns the change that wakes a sleeping instance.
func wake(i *fleet.Instance, by txn.Actor) *txn.Change {
	return rewrite(i, i.Intent.Awake(by.User, "woken by "+by.User), "instance.wake")
}

// wakeFor returns the write that wakes an instance for a transferred player, or nil if it is awake.
func wakeFor(i *fleet.Instance, by txn.Actor, player players.PlayerID) []store.Write {
	if i.Intent.Sleep == nil {
		return nil
	}
	next := i.Intent.Awake(by.User, "woken because player "+string(player)+" is sent to it")
	return []store.Write{store.Replace(keys.Intent(next.ID), next, i.Intent.ModRev)}
}

// Sleeper returns the oldest sleeping instance of a group. NotFound without such a group, Conflict if
// none of its instances sleeps, or it is in maintenance.
func (o *Instances) Sleeper(group fleet.GroupName) (*fleet.Instance, error) {
	s := o.Snapshot()
	g, err := groupops.Find(s, group)
	if err != nil {
		return nil, err
	}
	if s.MaintenanceOf(g).On {
		return nil, maintained(g)
	}
	if i := sleeper(s, group); i != nil {
		return i, nil
	}
	return nil, errs.New(errs.Conflict, "no instance of group %s sleeps", group)
}

// WakeForProxy is WakeInstance for a proxy. Conflict too if the group of a sleeping instance is in
// maintenance.
func (o *Instances) WakeForProxy(ctx context.Context, by txn.Actor, ref string) (Outcome, error) {
	s := o.Snapshot()
	if i, ok := s.Find(ref); ok && i.Intent.Sleep != nil {
		if g, ok := s.Groups.Get(i.Intent.Group); ok && s.MaintenanceOf(g).On {
			return Outcome{}, maintained(g)
		}
	}
	return o.WakeInstance(ctx, by, ref, false)
}

func maintained(g *fleet.Group) error {
	return errs.New(errs.Conflict, "the group %s, or all groups, are in maintenance: only a user wakes an instance", g.Name)
}

// wakes reports whether an instance was woken and is about to be ready.
func wakes(i *fleet.Instance) bool {
	return i.Intent.Reason == fleet.ReasonWoken && i.Intent.Desired == fleet.DesiredRunning && i.Intent.Sleep == nil && !i.Retiring() && !i.Terminal()
}

// sleeper returns the oldest sleeping instance of a group, or nil. During maintenance it returns nil.
func sleeper(s *view.Snapshot, group fleet.GroupName) (oldest *fleet.Instance) {
	if g, ok := s.Groups.Get(group); !ok || s.MaintenanceOf(g).On {
		return nil
	}
	for i := range s.GroupInstances(group) {
		if i.State() == fleet.Sleeping && i.Intent.Sleep != nil && i.Intent.Desired == fleet.DesiredRunning && !i.Retiring() && !i.Intent.Warm &&
			(oldest == nil || i.Intent.CreateRev < oldest.Intent.CreateRev) {
			oldest = i
		}
	}
	return oldest
}
