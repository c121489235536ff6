package groupops

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// DeployRequest asks for a deployment of a group.
type DeployRequest struct {
	Group   fleet.GroupName
	Trigger deployment.Trigger
	// Strategy is that of the group if it is empty.
	Strategy deployment.Strategy
	Options  deployment.Requested
	// After, unless it is nil, is the number of the latest deployment, without which Deploy refuses with
	// Conflict. 0 means that there was none.
	After  *int64
	DryRun bool
}

// Deploy requests the replacement of all instances of a group by new ones. A manual deployment ends
// the use of template versions that a rollback restored. NotFound for an unknown group, Conflict
// while another deployment of the group is active, Invalid for wrong options and if a BLUE_GREEN
// deployment has no room.
func (o *Groups) Deploy(ctx context.Context, by txn.Actor, r DeployRequest) (out deployment.Deployment, err error) {
	_, err = o.MutateGroup(ctx, by, r.Group, func(s *view.Snapshot) (txn.Change, error) {
		g, err := Find(s, r.Group)
		if err != nil {
			return txn.Change{}, err
		}
		next := *g
		if r.Trigger == deployment.TriggerManual && len(g.Pinned) > 0 {
			next.Pinned, next.Revision, next.UpdatedAt = nil, g.Revision+1, o.Now()
		}
		strategy := r.Strategy
		if strategy == "" && g.Spec.Scaling.Mode != fleet.ScalingManual && r.Trigger == deployment.TriggerManual {
			strategy = deployment.Strategy(g.Spec.UpdateStrategy)
		}
		strategy = cmp.Or(strategy, deployment.Rolling)
		options, problems := r.Options.Complete(&g.Spec, strategy)
		if err := txn.JoinProblems(problems); err != nil {
			return txn.Change{}, err
		}
		out = deployment.Deployment{Trigger: r.Trigger, Strategy: strategy, Options: options}
		c, err := o.begin(s, by, &next, &out)
		if err == nil && r.After != nil && out.Number != *r.After+1 {
			err = errs.New(errs.Conflict, "deployment %d of group %s began first", out.Number-1, g.Name)
		}
		if err == nil && strategy == deployment.BlueGreen {
			err = roomForAll(s, g, &out)
		}
		if err != nil || r.DryRun {
			return txn.Change{}, err
		}
		if next.Revision != g.Revision {
			c.Writes = append(c.Writes, store.Replace(keys.Group(g.Name), next, g.ModRev))
		} else {
			c.Guards = append(c.Guards, store.Unchanged(keys.Group(g.Name), g.ModRev))
		}
		c.Audit = entryOf("group.deploy", &out)
		if r.Trigger == deployment.TriggerRestart {
			c.Audit.Action = "group.restart"
		}
		return c, nil
	})
	return o.afterDeploy(out, r.DryRun), err
}

// afterDeploy returns the deployment as it was stored.
func (o *Groups) afterDeploy(d deployment.Deployment, dryRun bool) deployment.Deployment {
	if stored, ok := o.Snapshot().Deployment(d.Group, d.Number); ok && !dryRun {
		return *stored.Deployment
	}
	return d
}

// begin completes the next deployment of a group and returns the change that stores it.
func (o *Groups) begin(s *view.Snapshot, by txn.Actor, g *fleet.Group, d *deployment.Deployment) (txn.Change, error) {
	var c txn.Change
	d.Group, d.Number, d.GroupRevision, d.Spec = g.Name, 1, g.Revision, g.Spec
	d.CreatedAt, d.By = o.Now(), by.User
	d.Templates = compose.Used(*s.Whole(g), s.Heads())
	if latest, ok := s.LatestDeployment(g.Name); ok {
		if latest.Active() && latest.Number != d.RollbackOf {
			return c, errs.New(errs.Conflict, "deployment %d of group %s is %s: wait until it ends, or cancel it or roll it back", latest.Number, g.Name, latest.State())
		}
		d.Number = latest.Number + 1
		if latest.Number != d.RollbackOf { // a rollback writes it
			c.Guards = append(c.Guards, store.Unchanged(keys.Deployment(g.Name, latest.Number), latest.ModRev))
		}
	}
	c.Writes = append(c.Writes, store.Create(keys.Deployment(g.Name, d.Number), *d))
	return c, nil
}

// deploymentRecord is what the audit keeps of a deployment.
type deploymentRecord struct {
	Number     int64               `json:"number"`
	Trigger    deployment.Trigger  `json:"trigger"`
	Strategy   deployment.Strategy `json:"strategy"`
	Options    deployment.Options  `json:"options"`
	RollbackOf int64               `json:"rollbackOf,omitempty"`
	Restores   int64               `json:"restores,omitempty"`
}

func entryOf(action string, d *deployment.Deployment) txn.Entry {
	return txn.Entry{
		Action: action, Resource: "group", ID: string(d.Group), Details: fmt.Sprintf("deployment %d", d.Number),
		After: deploymentRecord{d.Number, d.Trigger, d.Strategy, d.Options, d.RollbackOf, d.Restores},
	}
}

// Control is what a user decides about a deployment.
type Control string

// The decisions.
const (
	Pause   Control = "pause"
	Resume  Control = "resume"
	Promote Control = "promote"
	Cancel  Control = "cancel"
)

// FindDeployment returns a deployment of a group that exists. NotFound otherwise.
func FindDeployment(s *view.Snapshot, group fleet.GroupName, number int64) (deployment.Joined, *fleet.Group, error) {
	g, err := Find(s, group)
	if err != nil {
		return deployment.Joined{}, nil, err
	}
	d, ok := s.Deployment(group, number)
	if !ok {
		return d, nil, errs.New(errs.NotFound, "the group %s has no deployment %d: list its deployments", group, number)
	}
	return d, g, nil
}

// DeploymentRevision is the revision of a deployment with its progress.
func DeploymentRevision(j deployment.Joined) int64 {
	if j.Progress == nil {
		return j.ModRev
	}
	return max(j.ModRev, j.Progress.ModRev)
}

// DeploymentWrite names a deployment to change.
type DeploymentWrite struct {
	Group  fleet.GroupName
	Number int64
	// IfMatch is the required DeploymentRevision; 0 accepts any.
	IfMatch int64
	DryRun  bool
}

// ControlDeployment records a decision about a deployment. It returns the deployment before and
// after. NotFound for an unknown one, Conflict when its state does not allow the decision,
// MovedError when IfMatch does not match.
func (o *Groups) ControlDeployment(ctx context.Context, by txn.Actor, w DeploymentWrite, do Control) (before, after deployment.Joined, err error) {
	_, err = o.MutateGroup(ctx, by, w.Group, func(s *view.Snapshot) (txn.Change, error) {
		if before, _, err = FindDeployment(s, w.Group, w.Number); err != nil {
			return txn.Change{}, err
		}
		if err := txn.CheckRevision(w.name(), w.IfMatch, DeploymentRevision(before)); err != nil {
			return txn.Change{}, err
		}
		if err := allows(before, do); err != nil {
			return txn.Change{}, err
		}
		next := *before.Deployment
		switch do {
		case Pause:
			next.Paused = true
		case Resume:
			next.Paused = false
		case Promote:
			next.Promoted = true
		case Cancel:
			next.Canceled = true
		}
		after = deployment.Joined{Deployment: &next, Progress: before.Progress}
		if w.DryRun {
			return txn.Change{}, nil
		}
		guards := []store.Guard{store.Missing(keys.DeploymentProgress(w.Group, w.Number))}
		if before.Progress != nil { // so that the answer is about the state that it names
			guards[0] = store.Unchanged(keys.DeploymentProgress(w.Group, w.Number), before.Progress.ModRev)
		}
		return txn.Change{
			Guards: guards,
			Writes: []store.Write{store.Replace(keys.Deployment(w.Group, w.Number), next, before.ModRev)},
			Audit:  entryOf("group.deployment."+string(do), &next),
		}, nil
	})
	if stored, ok := o.Snapshot().Deployment(w.Group, w.Number); ok && err == nil && !w.DryRun {
		after = stored
	}
	return before, after, err
}

func (w DeploymentWrite) name() string {
	return fmt.Sprintf("deployment %d of group %s", w.Number, w.Group)
}

// allows returns Conflict if the state of a deployment does not allow a decision.
func allows(j deployment.Joined, do Control) error {
	refuse := func(format string, args ...any) error {
		return errs.New(errs.Conflict, "deployment %d of group %s %s", j.Number, j.Group, fmt.Sprintf(format, args...))
	}
	switch {
	case !j.Active():
		return refuse("has ended as %s: start another one: orrery rollout start %s", j.State(), j.Group)
	case do == Pause && j.Paused:
		return refuse("is paused already")
	case do == Resume && !j.Paused && j.State() == deployment.Paused:
		return refuse("is paused by maintenance: it continues once the maintenance ends")
	case do == Resume && !j.Paused:
		return refuse("is not paused")
	case do == Promote && !j.Strategy.Gated():
		return refuse("has the strategy %s: only a CANARY or BLUE_GREEN deployment can be promoted", j.Strategy)
	case do == Promote && (j.Promoted || j.Progress != nil && j.Progress.Promoted):
		return refuse("is promoted already")
	}
	return nil
}

// RollbackDeployment restores the spec and the template versions of the latest deployment before
// the named one that completed, and deploys them. Scaling and maintenance stay as they are. An
// active deployment can only be rolled back itself, which ends it. Conflict if no earlier deployment
// completed, if the group is declared by a template source, or if a version was deleted.
func (o *Groups) RollbackDeployment(ctx context.Context, by txn.Actor, w DeploymentWrite) (before deployment.Joined, made deployment.Deployment, err error) {
	_, err = o.MutateGroup(ctx, by, w.Group, func(s *view.Snapshot) (txn.Change, error) {
		var g *fleet.Group
		if before, g, err = FindDeployment(s, w.Group, w.Number); err != nil {
			return txn.Change{}, err
		}
		if err := txn.CheckRevision(w.name(), w.IfMatch, DeploymentRevision(before)); err != nil {
			return txn.Change{}, err
		}
		prior, err := restorable(s, g, before)
		if err != nil {
			return txn.Change{}, err
		}
		next, problems := restored(s, g, prior, o.Now())
		if err := txn.JoinProblems(problems); err != nil {
			return txn.Change{}, err
		}
		versions, err := o.versionsExist(ctx, s, prior)
		if err != nil {
			return txn.Change{}, err
		}
		options, problems := deployment.Requested{BatchSize: &before.Options.BatchSize}.Complete(&next.Spec, deployment.Rolling)
		if err := txn.JoinProblems(problems); err != nil {
			return txn.Change{}, err
		}
		made = deployment.Deployment{
			Trigger: deployment.TriggerRollback, Strategy: deployment.Rolling, Options: options, RollbackOf: w.Number, Restores: prior.Number,
		}
		c, err := o.begin(s, by, &next, &made)
		if err != nil || w.DryRun {
			return txn.Change{}, err
		}
		ended := *before.Deployment
		ended.RolledBack = true
		change := groupChange(s, w.Group, g, next)
		change.Guards = slices.Concat(change.Guards, c.Guards, versions)
		change.Writes = slices.Concat(change.Writes, c.Writes, []store.Write{store.Replace(keys.Deployment(w.Group, w.Number), ended, before.ModRev)})
		change.Audit.Action, change.Audit.Details = "group.rollback", fmt.Sprintf("deployment %d restores %d", made.Number, prior.Number)
		return change, nil
	})
	return before, o.afterDeploy(made, w.DryRun), err
}

// restorable returns the deployment that a rollback restores.
func restorable(s *view.Snapshot, g *fleet.Group, d deployment.Joined) (*deployment.Deployment, error) {
	refuse := func(format string, args ...any) (*deployment.Deployment, error) {
		return nil, errs.New(errs.Conflict, "deployment %d of group %s cannot be rolled back: %s", d.Number, g.Name, fmt.Sprintf(format, args...))
	}
	all := s.Deployments(g.Name)
	latest := all[len(all)-1]
	switch {
	case d.RolledBack:
		return refuse("it was rolled back already")
	case latest.Active() && latest.Number != d.Number:
		return refuse("deployment %d is %s: wait until it ends, or cancel it or roll it back", latest.Number, latest.State())
	case g.ManagedBy != "":
		return refuse("the source %s declares the group: restore the earlier state there", g.ManagedBy)
	}
	for _, earlier := range slices.Backward(all) {
		if earlier.Number < d.Number && earlier.State() == deployment.Completed && !earlier.RolledBack {
			return earlier.Deployment, nil
		}
	}
	return refuse("no earlier deployment completed, so there is no state to restore; change the group and deploy it")
}

// restored returns the group with the spec and the templates of a deployment, and what is wrong with
// it now.
func restored(s *view.Snapshot, g *fleet.Group, prior *deployment.Deployment, now time.Time) (fleet.Group, []error) {
	next := *g
	next.Spec, next.Pinned = prior.Spec, prior.Templates
	next.Spec.Scaling, next.Spec.Maintenance = g.Spec.Scaling, g.Spec.Maintenance
	next.Revision, next.UpdatedAt = g.Revision+1, now
	return next, slices.Concat(wrong(&g.Spec, next.Spec), references(s, g.Name, &g.Spec, next.Spec))
}

// versionsExist returns guards that the template versions of a deployment exist. Conflict if one
// was deleted.
func (o *Groups) versionsExist(ctx context.Context, s *view.Snapshot, d *deployment.Deployment) ([]store.Guard, error) {
	var guards []store.Guard
	for _, h := range d.Templates {
		head, ok := s.TemplateHeads.Get(h.TemplateRef.String())
		if ok && head.Digest == h.Digest {
			continue
		}
		key := keys.TemplateVersion(h.TemplateRef, h.Digest)
		version, err := txn.GetOptional[content.TemplateVersion](ctx, o.Store, key)
		if err != nil {
			return nil, err
		}
		if version.ModRev == 0 {
			return nil, errs.New(errs.Conflict, "deployment %d cannot be restored: the version %s of template %s was deleted", d.Number, h.Digest, h.Short())
		}
		if len(guards) < maxVersionGuards {
			guards = append(guards, store.Exists(key))
		}
	}
	return guards, nil
}

// maxVersionGuards bounds the comparisons on template versions; see maxGuards.
const maxVersionGuards = 32
