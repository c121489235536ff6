package supervise

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/machine"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
)

// revealed are the values of an instance's secrets.
type revealed struct {
	secrets.Known
	mask secrets.Mask
	// unknown is true when it has secrets and nobody can tell with which values its
	// directory was built.
	unknown bool
}

// reveal follows the references of an instance's secrets, waiting for a store that is away
// and was never asked for them. Its errors name variables and references.
func (i *Instance) reveal(ctx context.Context, plan fleet.Plan, p fleet.Placement) (map[string]string, error) {
	refs := fleet.SecretRefs(plan, p)
	for {
		values, err := i.kit.Secrets.Values(ctx, i.id, p.Group, refs)
		if err == nil {
			return values, nil
		}
		if !errs.Is(err, errs.Unavailable) || !pause.For(ctx, retryPause) {
			return nil, err
		}
	}
}

// know notes, here and on the disk, the values that its directory is about to be built with.
// build is the hash of the token that goes with them.
func (i *Instance) know(build string, values map[string]string) {
	i.mu.Lock()
	known := i.revealed.With(values)
	i.revealed = revealed{Known: known, mask: secrets.NewMask(known.All...)}
	i.mu.Unlock()
	if err := i.kit.Secrets.Keep(i.id, build, values); err != nil {
		i.log.Error("the values of its secrets are not kept: another agent cannot tell them from what it prints", "error", err)
	}
}

// recall has the values that an agent before this one has built its directory with.
func (i *Instance) recall(s machine.State) {
	known, err := i.kit.Secrets.Recall(i.id, s.TokenHash, fleet.SecretRefs(s.Plan, s.Placement))
	if err != nil {
		i.log.Warn("the secrets it was started with are not known any more", "cause", errs.MessageOf(err))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revealed = revealed{Known: known, mask: secrets.NewMask(known.All...), unknown: err != nil}
}

// known are the values that its directory was built with. Conflict when nobody can tell.
func (i *Instance) known() (secrets.Known, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.revealed.unknown {
		return secrets.Known{}, errs.New(errs.Conflict, "the values that it was built with are not known any more: restart it")
	}
	return i.revealed.Known, nil
}

// held are the values of its secrets for a run of its directory as it is: those it was
// built with. Only where nobody can tell these, they are followed anew.
func (i *Instance) held(ctx context.Context, plan fleet.Plan, p fleet.Placement) (map[string]string, error) {
	if known, err := i.known(); err == nil {
		return known.Values, nil
	}
	values, err := i.reveal(ctx, plan, p)
	if err == nil {
		i.mu.Lock()
		i.revealed.All = i.revealed.With(values).All
		i.revealed.mask = secrets.NewMask(i.revealed.All...)
		i.mu.Unlock()
	}
	return values, err
}

// masked is a text without the values of secrets.
func (i *Instance) masked(text string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revealed.mask.Text(text)
}

// maskedTail is a text without the values of secrets; ok is false when these are not known.
func (i *Instance) maskedTail(text string) (masked string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revealed.mask.Text(text), !i.revealed.unknown
}
