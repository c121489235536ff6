package events

import (
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/scaling"
	"github.com/orreryhq/orrery/libs/store/view"
)

// GroupScaled reports that the enforcer changed a group's number of instances because of its load or a policy.
const GroupScaled Type = "GROUP_SCALED"

func (t *translator) scaling(c view.Change) {
	before, after := record[scaling.Decision](c.Before), record[scaling.Decision](c.After)
	if after == nil || before != nil && after.At.Equal(before.At) {
		return
	}
	t.store(Event{Type: GroupScaled, Group: fleet.GroupName(c.Key[0]), Fields: Fields{
		"group": c.Key[0], "from": after.From, "to": after.To, "reason": after.Reason, "message": after.Message, "policy": after.Policy, "timestamp": after.At,
	}})
}
