package events

import (
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Types of events about moves of instances to other nodes.
const (
	InstanceMoveStarted Type = "INSTANCE_MOVE_STARTED"
	InstanceMoveStep    Type = "INSTANCE_MOVE_STEP"
	InstanceMoveEnded   Type = "INSTANCE_MOVE_ENDED"
)

// move creates the events of a move: its beginning, each step, and its end.
func (t *translator) move(c view.Change) {
	before, m := record[move.Move](c.Before), record[move.Move](c.After)
	if m == nil || before != nil && before.ID == m.ID && before.Step == m.Step {
		return
	}
	e := Event{Type: InstanceMoveStep, Group: m.Group, Fields: Fields{
		"instanceId": m.Name, "uid": m.Instance, "group": m.Group, "moveId": m.ID, "from": m.Source, "to": m.Target, "step": m.Step, "by": m.By,
	}}
	if m.Drain != "" {
		e.Fields["drainId"] = m.Drain
	}
	switch {
	case m.Step.Final():
		e.Type = InstanceMoveEnded
		e.Fields["bytes"], e.Fields["reason"], e.Fields["message"] = m.Bytes, m.Reason, m.Detail
	case before == nil || before.ID != m.ID:
		e.Type = InstanceMoveStarted
	}
	t.store(e)
}
