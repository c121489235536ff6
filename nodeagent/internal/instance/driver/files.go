package driver

import (
	"context"
	"maps"
	"strconv"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/fileedit"
	"github.com/orreryhq/orrery/nodeagent/internal/content/files"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
)

// Files gives access to the instance's directory, as long as it exists. It hides the values
// of secrets, the token, the password of the remote console, and the values of variables with
// restricted visibility, since the agent does not know who asks. Conflict if these values
// are unknown, Unavailable while the instance is held.
func (i *Instance) Files(ctx context.Context) (files.Viewer, error) {
	i.mu.Lock()
	l, p := i.live, i.built
	i.mu.Unlock()
	switch {
	case l.Held:
		return files.Viewer{}, errHeld
	case p.placement.Instance == "":
		return files.Viewer{}, errs.New(errs.Conflict, "the instance has no directory yet: try again after it was prepared")
	}
	known, err := i.builtSecrets()
	if err != nil {
		return files.Viewer{}, errs.New(errs.Conflict, "cannot hide its secrets in the files: %s", errs.MessageOf(err))
	}
	own := map[string]string{"token": p.token}
	if p.rcon() {
		if own["rcon"], err = i.rconPassword(ctx, p); err != nil {
			return files.Viewer{}, err
		}
	}
	values, _, _ := i.deps.values(p.plan, p.placement, p.nodeValues)
	hidden := make([]map[string]string, 0, len(known.All)+2)
	for _, values := range known.All {
		hidden = append(hidden, maps.Clone(values))
	}
	return files.Viewer{Dir: i.deps.Workspace.Dir(p.placement, p.plan), Mask: secrets.NewMask(append(hidden, own, p.withheld(values))...)}, nil
}

// Editable gives access to change the files of a static instance, running or not. Errors are those of
// Files, and Conflict for a dynamic instance.
func (i *Instance) Editable(ctx context.Context) (fileedit.Place, error) {
	viewer, err := i.Files(ctx)
	if err != nil {
		return fileedit.Place{}, err
	}
	i.mu.Lock()
	p := i.built
	i.mu.Unlock()
	if p.plan.Group == "" {
		return fileedit.Place{}, errs.New(errs.Conflict, "the instance's directory is not prepared: try again after it was prepared")
	}
	if !p.plan.Static {
		return fileedit.Place{}, errs.New(errs.Conflict, "the instance is not static: its directory is built from the templates at each start and removed at its end. Change a template, or make the group static")
	}
	request := i.deps.request(p.placement, p.plan, nil, p.uid)
	plan, user := request.Plan, request.Plan.Confine.User
	if request.UID != 0 {
		user = strconv.Itoa(request.UID)
	}
	return fileedit.Place{
		Viewer: viewer, Group: string(p.placement.Group), Name: p.placement.Name, User: user, Plan: plan,
		Instance: p.placement.Instance, Generation: p.placement.Generation,
	}, nil
}

// withheld selects the variables with restricted visibility. It leaves out values that occur
// in every file: hiding them everywhere would reveal them.
func (p buildInfo) withheld(values map[string]string) map[string]string {
	out := make(map[string]string, len(p.plan.Hidden))
	for variable := range p.plan.Hidden {
		if value := values[variable]; !secrets.Ordinary(value) {
			out[variable] = value
		}
	}
	return out
}

// Static returns the placement of a static instance of this node, prepared or not. Conflict for a
// dynamic one and one without placement, Unavailable while the instance is held.
func (i *Instance) Static() (fleet.Placement, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.live.Held:
		return fleet.Placement{}, errHeld
	case i.built.placement.Instance == "":
		return fleet.Placement{}, errs.New(errs.Conflict, "the instance has no directory yet: try again after it was prepared")
	case i.built.plan.Group == "" && i.built.placement.DataUUID == "": // only the plan says whether it is static
		return fleet.Placement{}, errs.New(errs.Conflict, "the instance's directory is not prepared: try again after it was prepared")
	case i.built.plan.Group != "" && !i.built.plan.Static:
		return fleet.Placement{}, errs.New(errs.Conflict, "the instance is not static: its directory is built from the templates at each start and removed at its end. Make the group static to keep data")
	}
	return i.built.placement, nil
}
