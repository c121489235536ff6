package driver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/internal/content/configexport"
	"github.com/orreryhq/orrery/nodeagent/internal/content/secrets"
	"github.com/orreryhq/orrery/nodeagent/internal/content/workspace"
	"github.com/orreryhq/orrery/nodeagent/internal/node/journal"
)

// buildInfo describes what the instance's directory was built from.
type buildInfo struct {
	plan       fleet.Plan
	placement  fleet.Placement
	token      string
	nodeValues *journal.NodeValues
	uid        int
}

func buildInfoOf(e journal.Entry) buildInfo {
	return buildInfo{plan: e.Machine.Plan, placement: e.Machine.Placement, token: e.Token, nodeValues: e.NodeValues, uid: e.UID}
}

// Export reads the instance's configuration. The caller closes it.
type Export struct {
	configexport.Request
	origin *workspace.Origin
}

// Close releases the templates that the directory was built from.
func (e Export) Close() { e.origin.Close() }

// Export prepares an export of the instance's current configuration. It hides secrets and the
// values of variables with restricted visibility. Conflict if the instance does not run or
// its secrets are unknown.
func (i *Instance) Export(ctx context.Context) (Export, error) {
	i.mu.Lock()
	l, p := i.live, i.built
	i.mu.Unlock()
	switch {
	case l.Held:
		return Export{}, errHeld
	case !l.Status.State.Running():
		return Export{}, errs.New(errs.Conflict, "the instance %s: start it, and export its configuration while it runs", l.Status.State.Text())
	}
	known, err := i.builtSecrets()
	if err != nil {
		return Export{}, errs.New(errs.Conflict, "cannot hide its secrets in the configuration: %s", errs.MessageOf(err))
	}
	values, _, _ := i.deps.values(p.plan, p.placement, p.nodeValues)
	maps.Copy(values, known.Values)
	origin := i.deps.Workspace.Origin(i.deps.request(p.placement, p.plan, values, p.uid))
	hidden := []configexport.Secret{{Value: p.token}}
	withheld := p.withheld(values)
	for _, variable := range slices.Sorted(maps.Keys(withheld)) {
		if value := withheld[variable]; len(value) >= secrets.Anywhere { // shorter values, such as "true", occur in every text
			hidden = append(hidden, configexport.Secret{Value: value, Placeholder: "%" + variable + "%", Withheld: true})
		}
	}
	for _, values := range slices.Backward(known.All) { // a static directory may contain those of earlier builds
		for _, variable := range slices.Sorted(maps.Keys(values)) {
			hidden = append(hidden, configexport.Secret{Value: values[variable], Placeholder: "%" + variable + "%"})
		}
	}
	if p.rcon() {
		password, err := i.rconPassword(ctx, p)
		if err != nil {
			return Export{}, err
		}
		secret := configexport.Secret{Value: password}
		if strings.Contains(p.plan.RCON.Password, "%") {
			secret.Placeholder = p.plan.RCON.Password
		}
		hidden = append(hidden, secret)
	}
	return Export{origin: origin, Request: configexport.Request{
		Dir: i.deps.Workspace.Dir(p.placement, p.plan), Original: origin.Of, Values: values, Secrets: hidden,
		CheckRunning: func() error { return i.stillRuns(l.Status.Generation) },
	}}, nil
}

// stillRuns returns Conflict if the run has ended meanwhile.
func (i *Instance) stillRuns(generation int64) error {
	if l := i.Live(); !l.Status.State.Running() || l.Status.Generation != generation {
		return errs.New(errs.Conflict, "the instance ended during the export: start it, and export its configuration while it runs")
	}
	return nil
}
