package events

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/deployment"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The events of deployments. Progress reports that more instances were replaced, or that the
// deployment was paused or continues. Completed reports its end, whatever the outcome.
const (
	DeploymentCreated    Type = "DEPLOYMENT_CREATED"
	DeploymentProgress   Type = "DEPLOYMENT_PROGRESS"
	DeploymentCompleted  Type = "DEPLOYMENT_COMPLETED"
	DeploymentRolledBack Type = "DEPLOYMENT_ROLLED_BACK"
)

func (t *translator) deployment(c view.Change) {
	d := record[deployment.Deployment](c.After)
	if d == nil || c.Before != nil {
		return
	}
	t.store(Event{Type: DeploymentCreated, Group: d.Group, Fields: Fields{
		"groupName": d.Group, "revision": d.Number, "strategy": d.Strategy, "trigger": d.Trigger, "by": d.By,
	}})
}

func (t *translator) deploymentProgress(c view.Change) {
	before, after := record[deployment.Progress](c.Before), record[deployment.Progress](c.After)
	if after == nil {
		return
	}
	var was deployment.Progress
	if before != nil {
		was = *before
	}
	event := func(typ Type, more Fields) {
		e := Event{Type: typ, Group: fleet.GroupName(c.Key[0]), Fields: Fields{"groupName": after.Group, "revision": after.Number}}
		for name, value := range more {
			e.Fields[name] = value
		}
		t.store(e)
	}
	switch {
	case after.State == was.State && after.Updated == was.Updated && after.Total == was.Total:
	case !after.State.Final():
		event(DeploymentProgress, Fields{"state": after.State, "updatedInstances": after.Updated, "totalInstances": after.Total, "message": after.Message})
	case !was.State.Final():
		event(DeploymentCompleted, Fields{"outcome": after.State, "updatedInstances": after.Updated, "totalInstances": after.Total, "reason": after.Reason, "message": after.Message})
	}
	if after.State == deployment.RolledBack && was.State != after.State {
		event(DeploymentRolledBack, Fields{"message": after.Message})
	}
}
