package controller

import (
	"github.com/orreryhq/orrery/enforcer/internal/plan"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// deploymentUnchanged returns the guard that nothing which a deployment requires is committed after
// a user paused or ended it. It is empty for actions with other reasons.
func (t *task) deploymentUnchanged(a plan.Action) []store.Guard {
	if d, ok := t.snap.LatestDeployment(t.name); ok && a.Reason == fleet.ReasonDeployment {
		return []store.Guard{store.Unchanged(keys.Deployment(t.name, d.Number), d.ModRev)}
	}
	return nil
}

// setProgress writes the progress of a deployment that is unchanged.
func (t *task) setProgress(next deployment.Progress) ([]store.Guard, []store.Write) {
	d, ok := t.snap.Deployment(t.name, next.Number)
	if !ok {
		return nil, nil
	}
	var rev int64
	if d.Progress != nil {
		rev = d.Progress.ModRev
	}
	if next.ChangedAt.IsZero() || d.Progress == nil {
		next.ChangedAt = t.now
	} else {
		next.ChangedAt = d.Progress.ChangedAt // as written
	}
	if next.State.Final() {
		next.FinishedAt = t.now
	}
	return []store.Guard{store.Unchanged(keys.Deployment(t.name, next.Number), d.ModRev)},
		[]store.Write{store.Replace(keys.DeploymentProgress(t.name, next.Number), next, rev)}
}

// deleteDeployment deletes a deployment and its progress.
func (t *task) deleteDeployment(number int64) []store.Write {
	d, ok := t.snap.Deployment(t.name, number)
	if !ok {
		return nil
	}
	writes := []store.Write{store.Remove(keys.Deployment(t.name, number), d.ModRev)}
	if d.Progress != nil {
		writes = append(writes, store.Remove(keys.DeploymentProgress(t.name, number), d.Progress.ModRev))
	}
	return writes
}
