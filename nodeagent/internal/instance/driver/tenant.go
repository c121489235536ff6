package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/node/tenants"
)

// takeUID returns the user and group id that a run gets, or 0 if it runs as a named user or in a
// container. have is the id that the instance had. While all are in use, it waits, and the status says
// so. Errors are Failures, or that of ctx.
func (i *Instance) takeUID(ctx context.Context, run int, plan fleet.Plan, p fleet.Placement, have int) (uid int, err error) {
	if i.deps.Tenants == nil || plan.Runtime == fleet.RuntimeDocker || plan.Confine.User != "" {
		return 0, nil
	}
	waited := false
	waits := func(message string) {
		waited = true
		i.Send(machine.Queued{Run: run, Reason: fleet.ReasonNoInstanceUser, Message: message})
	}
	if plan.Static {
		uid, err = i.staticUID(ctx, p, have, waits)
	} else {
		span := i.deps.Tenants.Span()
		uid, err = i.deps.Tenants.Take(ctx, i.id, func() {
			waits(fmt.Sprintf("all ids of %s %s of %s are in use: it waits until another instance ends; widen the range", tenants.Setting, span, i.deps.Node().ID))
		})
	}
	if waited && err == nil {
		i.Send(machine.Queued{Run: run})
	}
	return uid, err
}

// staticUID returns the id of a static group. It does not need the store if the instance had one.
func (i *Instance) staticUID(ctx context.Context, p fleet.Placement, have int, waits func(string)) (int, error) {
	span := i.deps.Tenants.Span()
	if span.IsStatic(have) {
		return have, nil
	}
	for told := false; ; {
		number, err := i.deps.TenantNumber(ctx, p.Group)
		if err == nil {
			uid, ok := span.Static(number)
			if !ok {
				return 0, &workspace.Failure{Reason: fleet.ReasonNoInstanceUser, Message: fmt.Sprintf(
					"group %s is static group number %d, and %s %s of %s has too few ids, because half of them are for static groups: widen the range on all nodes", p.Group, number, tenants.Setting, span, i.deps.Node().ID)}
			}
			return uid, nil
		}
		if errs.Is(err, errs.NotFound) && !told {
			waits(fmt.Sprintf("group %s has no number yet, which decides the user of static groups: check that an enforcer of this version runs", p.Group))
			told = true
		}
		if !pause.For(ctx, retryPause) {
			return 0, ctx.Err()
		}
	}
}

// migrate gives an instance of an earlier agent its id and its directory, if it starts again without a
// preparation.
func (i *Instance) migrate(ctx context.Context, e *journal.Entry) error {
	m := e.Machine
	uid, err := i.takeUID(ctx, m.Run, m.Plan, m.Placement, e.UID)
	if err != nil || uid == e.UID {
		return err
	}
	e.UID = uid
	return i.give(ctx, i.deps.request(m.Placement, m.Plan, nil, uid))
}

// give gives an existing directory to the instance's user, as after an upgrade of the agent. A directory that
// belongs to it already costs one look.
func (i *Instance) give(ctx context.Context, r workspace.Request) error {
	if r.Plan.Static {
		lock, err := i.claim(r.Placement, r.Plan)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer lock.Release()
	}
	return i.deps.Workspace.Give(ctx, r)
}

// releaseUID frees the id of an instance whose directory is removed.
func (i *Instance) releaseUID() {
	m := i.entry.Machine
	if i.deps.Tenants != nil && !i.deps.Workspace.Exists(m.Placement, m.Plan) {
		i.deps.Tenants.Release(i.id)
	}
}

// failureOf returns the reason and message of a Failure, or else a given reason with its text.
func failureOf(err error, other fleet.Reason) (fleet.Reason, string) {
	var f *workspace.Failure
	if errors.As(err, &f) {
		return f.Reason, cmp.Or(f.Message, f.Reason.Text())
	}
	return other, other.Text()
}
