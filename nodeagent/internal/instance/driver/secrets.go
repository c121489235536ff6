package driver

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/instance/machine"
)

// revealed holds the values of an instance's secrets.
type revealed struct {
	secrets.Known
	mask secrets.Mask
	// unknown is set if the instance has secrets and the values in its directory are unknown.
	unknown bool
}

// resolveSecrets resolves the secrets of an instance. It waits for the store if no value is cached. Its
// errors name variables and references.
func (i *Instance) resolveSecrets(ctx context.Context, plan fleet.Plan, p fleet.Placement) (map[string]string, error) {
	refs := compose.SecretRefs(plan, p)
	for {
		values, err := i.deps.Secrets.Values(ctx, i.id, p.Group, refs)
		if err == nil {
			return values, nil
		}
		if !errs.Is(err, errs.Unavailable) || !pause.For(ctx, retryPause) {
			return nil, err
		}
	}
}

// keepSecrets stores, in memory and on the disk, the values that the directory is about to be built
// with. build is the hash of the token that belongs to this build.
func (i *Instance) keepSecrets(build string, values map[string]string) {
	i.mu.Lock()
	known := i.revealed.With(values)
	i.revealed = revealed{Known: known, mask: secrets.NewMask(known.All...)}
	i.mu.Unlock()
	if err := i.deps.Secrets.Keep(i.id, build, values); err != nil {
		i.log.Error("cannot store the values of its secrets: another agent cannot hide them in the output", "error", err)
	}
}

// loadSecrets loads the values that an earlier agent built the directory with.
func (i *Instance) loadSecrets(s machine.State) {
	known, err := i.deps.Secrets.Recall(i.id, s.TokenHash, compose.SecretRefs(s.Plan, s.Placement))
	if err != nil {
		i.log.Warn("the secrets that the instance was started with are unknown", "cause", errs.MessageOf(err))
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revealed = revealed{Known: known, mask: secrets.NewMask(known.All...), unknown: err != nil}
}

// builtSecrets returns the values that the directory was built with. Conflict if they are unknown.
func (i *Instance) builtSecrets() (secrets.Known, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.revealed.unknown {
		return secrets.Known{}, errs.New(errs.Conflict, "the values of the secrets that it was built with are unknown: restart it")
	}
	return i.revealed.Known, nil
}

// runSecrets returns the secrets for a run in the existing directory: those it was built with. Only
// if they are unknown, it resolves them again.
func (i *Instance) runSecrets(ctx context.Context, plan fleet.Plan, p fleet.Placement) (map[string]string, error) {
	if known, err := i.builtSecrets(); err == nil {
		return known.Values, nil
	}
	values, err := i.resolveSecrets(ctx, plan, p)
	if err == nil {
		i.mu.Lock()
		i.revealed.All = i.revealed.With(values).All
		i.revealed.mask = secrets.NewMask(i.revealed.All...)
		i.mu.Unlock()
	}
	return values, err
}

// masked hides the values of secrets in a text.
func (i *Instance) masked(text string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revealed.mask.Text(text)
}

// maskedTail hides the values of secrets in a text; ok is false if they are unknown.
func (i *Instance) maskedTail(text string) (masked string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revealed.mask.Text(text), !i.revealed.unknown
}
