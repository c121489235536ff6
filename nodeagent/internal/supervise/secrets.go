package supervise

import (
	"context"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
)

// revealed are the values of an instance's secrets as they were followed last.
type revealed struct {
	values map[string]string
	mask   secrets.Mask
	// unknown is true when it has secrets and an agent before this one followed them.
	unknown bool
}

// reveal follows the references of an instance's secrets, waiting for a store that is away
// and was never asked for them. Its errors name variables and references.
func (i *Instance) reveal(ctx context.Context, plan fleet.Plan, p fleet.Placement) (map[string]string, error) {
	refs := fleet.SecretRefs(plan, p)
	for {
		values, err := i.kit.Secrets.Values(ctx, i.id, p.Group, refs)
		if err == nil {
			i.know(revealed{values: values, mask: secrets.NewMask(values)})
			return values, nil
		}
		if !errs.Is(err, errs.Unavailable) || !pause.For(ctx, retryPause) {
			return nil, err
		}
	}
}

// recall has the values of a run that an agent before this one has started, so that they
// are told from what it prints.
func (i *Instance) recall(ctx context.Context, plan fleet.Plan, p fleet.Placement) {
	refs := fleet.SecretRefs(plan, p)
	values, err := i.kit.Secrets.Recall(ctx, i.id, p.Group, refs)
	if err != nil {
		i.log.Warn("the secrets it was started with are not known any more", "cause", errs.MessageOf(err))
	}
	i.know(revealed{values: values, mask: secrets.NewMask(values), unknown: err != nil})
}

// held are the values of its secrets, followed anew only when nobody has yet.
func (i *Instance) held(ctx context.Context, plan fleet.Plan, p fleet.Placement) (map[string]string, error) {
	refs := fleet.SecretRefs(plan, p)
	i.mu.Lock()
	known := i.revealed
	i.mu.Unlock()
	if len(refs) == 0 || !known.unknown && len(known.values) > 0 {
		return known.values, nil
	}
	return i.kit.Secrets.Values(ctx, i.id, p.Group, refs)
}

func (i *Instance) know(r revealed) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.revealed = r
}

// masked is a text without the values of secrets.
func (i *Instance) masked(text string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revealed.mask.Text(text)
}

// maskedLines are lines without the values of secrets; ok is false when these are not known.
func (i *Instance) maskedLines(lines []string) (masked []string, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.revealed.mask.Lines(lines), !i.revealed.unknown
}
