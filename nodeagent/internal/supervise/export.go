package supervise

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/journal"
	"github.com/orreryhq/orrery/nodeagent/internal/save"
	"github.com/orreryhq/orrery/nodeagent/internal/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/workspace"
)

// present is what the instance's directory was built of.
type present struct {
	plan      fleet.Plan
	placement fleet.Placement
	token     string
	around    *journal.Surroundings
}

func presentOf(e journal.Entry) present {
	return present{plan: e.Machine.Plan, placement: e.Machine.Placement, token: e.Token, around: e.Around}
}

// Export is a reading of the instance's configuration. Close it.
type Export struct {
	save.Request
	origin *workspace.Origin
}

// Close lets go of the templates it was built of.
func (e Export) Close() { e.origin.Close() }

// Export prepares a reading of what the instance's configuration is now, without its secrets
// and without the values of variables that not everybody is shown. Conflict when it does not
// run, or its secrets are not known.
func (i *Instance) Export(ctx context.Context) (Export, error) {
	i.mu.Lock()
	l, p := i.live, i.built
	i.mu.Unlock()
	switch {
	case l.Held:
		return Export{}, errHeld
	case !l.Status.State.Running():
		return Export{}, errs.New(errs.Conflict, "the instance %s: start it, and save it while it runs", l.Status.State.Text())
	}
	known, err := i.known()
	if err != nil {
		return Export{}, errs.New(errs.Conflict, "its secrets cannot be told from its configuration: %s", errs.MessageOf(err))
	}
	values, _, _ := i.kit.values(p.plan, p.placement, p.around)
	maps.Copy(values, known.Values)
	origin := i.kit.Workspace.Origin(i.kit.request(p.placement, p.plan, values))
	hidden := []save.Secret{{Value: p.token}}
	withheld := p.withheld(values)
	for _, variable := range slices.Sorted(maps.Keys(withheld)) {
		if value := withheld[variable]; len(value) >= secrets.Anywhere { // what is shorter, such as "true", is in every text
			hidden = append(hidden, save.Secret{Value: value, Placeholder: "%" + variable + "%", Withheld: true})
		}
	}
	for _, values := range slices.Backward(known.All) { // a directory that stays may have those of builds before
		for _, variable := range slices.Sorted(maps.Keys(values)) {
			hidden = append(hidden, save.Secret{Value: values[variable], Placeholder: "%" + variable + "%"})
		}
	}
	if r := remoteOf(p.plan, p.placement, p.around); r != nil {
		password, err := i.passwordOf(ctx, r)
		if err != nil {
			return Export{}, err
		}
		secret := save.Secret{Value: password}
		if strings.Contains(p.plan.RCON.Password, "%") {
			secret.Placeholder = p.plan.RCON.Password
		}
		hidden = append(hidden, secret)
	}
	return Export{origin: origin, Request: save.Request{
		Dir: i.kit.Workspace.Dir(p.placement, p.plan), Original: origin.Of, Values: values, Secrets: hidden,
		Standing: func() error { return i.stillRuns(l.Status.Generation) },
	}}, nil
}

// stillRuns is Conflict when a run has ended meanwhile.
func (i *Instance) stillRuns(generation int64) error {
	if l := i.Live(); !l.Status.State.Running() || l.Status.Generation != generation {
		return errs.New(errs.Conflict, "the instance ended while it was read: start it, and save it while it runs")
	}
	return nil
}
