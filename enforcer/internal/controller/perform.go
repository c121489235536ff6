package controller

import (
	"context"

	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/spawn"
)

// perform commits the actions, starts first because users wait for them. Only the number of the group
// comes before, because the agents need it. It stops at the first failure and returns the last revision it
// got. A start that is too large for etcd does not prevent the other actions.
func (c *Controller) perform(ctx context.Context, t *task, actions []plan.Action) (rev int64, err error) {
	numbers, births, rest := split(actions)
	if rev, err = c.commit(ctx, t, numbers); err != nil {
		return rev, err
	}
	at, refused := c.spawn(ctx, t, births)
	if rev = max(rev, at); refused != nil && !errs.Is(refused, errs.TooLarge) {
		return rev, refused
	}
	if at, err = c.commit(ctx, t, rest); err != nil {
		return max(rev, at), err
	}
	return max(rev, at), refused
}

// commit commits the actions in as few transactions as possible.
func (c *Controller) commit(ctx context.Context, t *task, actions []plan.Action) (rev int64, err error) {
	for _, batch := range t.pack(actions, c.store.MaxOps()) {
		at, err := c.store.Commit(ctx, batch.txn)
		rev = max(rev, at)
		if err != nil {
			return rev, errs.Wrap("enforcer.perform", err)
		}
		c.did(t, batch.actions)
	}
	return rev, nil
}

func split(actions []plan.Action) (numbers, births, rest []plan.Action) {
	for _, a := range actions {
		switch a.Kind {
		case plan.Number:
			numbers = append(numbers, a)
		case plan.Create, plan.Restart, plan.Wake:
			births = append(births, a)
		default:
			rest = append(rest, a)
		}
	}
	return numbers, births, rest
}

// spawn commits the starts, provided that the group's record, the maintenance of all groups and the active
// overlays are unchanged.
func (c *Controller) spawn(ctx context.Context, t *task, actions []plan.Action) (rev int64, err error) {
	if len(actions) == 0 {
		return 0, nil
	}
	spawner := spawn.New(t.snap, t.now, random())
	births, planned := make([]spawn.Birth, 0, len(actions)), actions
	actions = make([]plan.Action, 0, len(planned))
	for _, a := range planned {
		if a.Kind == plan.Create {
			if err := spawner.Named(t.group()); err != nil { // another group's instance has the name
				c.log.Warn("instance not created", "group", t.name, "error", err)
				continue
			}
		}
		actions = append(actions, a)
		b, err := birth(spawner, t, a)
		if err != nil {
			return 0, errs.Wrap("enforcer.spawn", err)
		}
		births = append(births, b)
	}
	unchanged := []store.Guard{
		store.Unchanged(keys.Group(t.name), t.group().ModRev),
		store.Unchanged(keys.Maintenance(), t.snap.Maintenance().ModRev),
		store.Unchanged(keys.ActiveOverlays(), t.snap.ActiveOverlays().ModRev),
	}
	for _, a := range actions {
		if guards := t.deploymentUnchanged(a); len(guards) > 0 {
			unchanged = append(unchanged, guards...)
			break
		}
	}
	for _, txn := range spawner.Txns(births, []store.Fence{t.fence}, unchanged, c.store.MaxOps()) {
		at, err := c.store.Commit(ctx, txn)
		rev = max(rev, at)
		if err != nil {
			return rev, errs.Wrap("enforcer.spawn", err)
		}
	}
	c.did(t, actions)
	return rev, nil
}

func birth(s *spawn.Spawner, t *task, a plan.Action) (spawn.Birth, error) {
	cause := spawn.Cause{Origin: a.Origin, Reason: a.Reason, Message: a.Message, By: a.By, Standby: a.Standby, Warm: a.Warm}
	switch {
	case a.Kind == plan.Wake:
		return s.Woken(t.group(), a.Instance, cause)
	case a.Kind == plan.Restart && (a.Instance.Lost() || a.Instance.Stranded()):
		return s.Elsewhere(t.group(), a.Instance, cause), nil
	case a.Kind == plan.Restart && a.Instance.NeedsPlacement():
		return s.Renewed(t.group(), a.Instance, cause)
	case a.Kind == plan.Restart:
		return s.Again(t.group(), a.Instance, cause)
	case a.Replaces != nil:
		return s.Fresh(t.group(), cause, a.Replaces.Intent.ID, a.Replaces.Intent.Values), nil
	}
	return s.Fresh(t.group(), cause, "", nil), nil
}

// did counts and logs committed actions.
func (c *Controller) did(t *task, actions []plan.Action) {
	for _, a := range actions {
		c.metrics.actions.WithLabelValues(string(a.Kind)).Inc()
		log := c.log.With("group", t.name, "action", a.Kind, "reason", a.Reason, "message", a.Message)
		switch {
		case a.Kind == plan.SetCrashLoop:
			log.Warn("group paused", "level", a.Loop.Level, "until", a.Loop.PausedUntil)
		case a.Kind == plan.SetProgress && a.Progress.State.Final():
			c.metrics.deployments.WithLabelValues(string(a.Progress.State)).Inc()
			log.Info("deployment ended", "deployment", a.Progress.Number, "state", a.Progress.State)
		case a.Kind == plan.SetMove:
			if a.Move.Step.Final() {
				c.metrics.moves.WithLabelValues(string(a.Move.Step)).Inc()
			}
			log.Info("instance moves", "instance", a.Instance.Intent.ID, "step", a.Move.Step, "from", a.Move.Source, "to", a.Move.Target)
		case a.Kind == plan.SetScaling:
			direction := down
			if a.Scaling.Up() {
				direction = up
			}
			c.metrics.scalings.WithLabelValues(direction).Inc()
			log.Info("group scaled", "from", a.Scaling.From, "to", a.Scaling.To, "policy", a.Scaling.Policy)
		case a.Kind == plan.DeleteGroup:
			log.Info("group deleted")
		case a.Kind == plan.ReportLost:
			log.Warn("instance lost", "instance", a.Instance.Intent.ID, "node", a.Instance.Node())
		case a.Instance != nil:
			log.Debug("acted", "instance", a.Instance.Intent.ID)
		default:
			log.Debug("acted")
		}
	}
}
