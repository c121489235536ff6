package supervise

import (
	"context"
	"maps"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/internal/files"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
)

// Files is the instance's directory, also of one that has ended: as long as it is there. The
// values of its secrets, its token and the password of its remote console are hidden there,
// and from everybody alike the values of variables that not everybody is shown: the agent
// does not know who asks.
// Conflict when these are not known, Unavailable while nothing is done with the instance.
func (i *Instance) Files(ctx context.Context) (files.Place, error) {
	i.mu.Lock()
	l, p := i.live, i.built
	i.mu.Unlock()
	switch {
	case l.Held:
		return files.Place{}, errHeld
	case p.placement.Instance == "":
		return files.Place{}, errs.New(errs.Conflict, "the instance has no directory yet: ask again when it was prepared")
	}
	known, err := i.known()
	if err != nil {
		return files.Place{}, errs.New(errs.Conflict, "its secrets cannot be told from its files: %s", errs.MessageOf(err))
	}
	own := map[string]string{"token": p.token}
	if r := remoteOf(p.plan, p.placement, p.around); r != nil {
		if own["rcon"], err = i.passwordOf(ctx, r); err != nil {
			return files.Place{}, err
		}
	}
	values, _, _ := i.kit.values(p.plan, p.placement, p.around)
	hidden := make([]map[string]string, 0, len(known.All)+2)
	for _, values := range known.All {
		hidden = append(hidden, maps.Clone(values))
	}
	return files.Place{Dir: i.kit.Workspace.Dir(p.placement, p.plan), Mask: secrets.NewMask(append(hidden, own, p.withheld(values))...)}, nil
}

// withheld are those of the values of its variables that not everybody is shown, without
// those that stand in every file anyway: hidden everywhere, they would be told by that.
func (p present) withheld(values map[string]string) map[string]string {
	out := make(map[string]string, len(p.plan.Hidden))
	for variable := range p.plan.Hidden {
		if value := values[variable]; !secrets.Ordinary(value) {
			out[variable] = value
		}
	}
	return out
}
