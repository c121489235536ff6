package events

import (
	"slices"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/schedule"
	"github.com/orreryhq/orrery/libs/store/view"
)

// The types of events about schedules and overlays.
const (
	// ScheduleRunStarted reports that a run began, with its first warning or its action.
	ScheduleRunStarted Type = "SCHEDULE_RUN_STARTED"
	// ScheduleRunEnded reports that a run ended, or was left out.
	ScheduleRunEnded Type = "SCHEDULE_RUN_ENDED"
	// OverlayActivated and OverlayDeactivated report that an overlay changes a group, or no longer does.
	OverlayActivated   Type = "CHOREOGRAPHY_OVERLAY_ACTIVATED"
	OverlayDeactivated Type = "CHOREOGRAPHY_OVERLAY_DEACTIVATED"
)

// schedule creates the events of the runs that began and ended.
func (t *translator) schedule(c view.Change) {
	var before schedule.State
	if was := record[schedule.State](c.Before); was != nil {
		before = *was
	}
	after := record[schedule.State](c.After)
	if after == nil {
		return
	}
	for n := len(after.History) - 1; n >= 0; n-- {
		run := &after.History[n]
		known := func(r schedule.Run) bool { return r.Number == run.Number }
		if slices.ContainsFunc(before.History, known) {
			continue
		}
		e := runEvent(ScheduleRunEnded, c.Key[0], run)
		e.Fields["result"], e.Fields["message"] = run.Result, run.Message
		t.store(e)
	}
	if run := after.Current; run != nil && (before.Current == nil || before.Current.Number != run.Number) {
		t.store(runEvent(ScheduleRunStarted, c.Key[0], run))
	}
}

func runEvent(typ Type, name string, run *schedule.Run) Event {
	f := Fields{"schedule": name, "run": run.Number, "group": run.Group, "instance": run.Instance, "actionAt": run.At}
	if run.Node != "" {
		f["node"] = run.Node
	}
	return Event{Type: typ, Group: run.Group, Needs: auth.GroupsView, Fields: f}
}

// overlays creates one event for each overlay and group that it names. An overlay that selects groups by
// labels has one more, without a group.
func (t *translator) overlays(c view.Change) {
	var before, after schedule.Active
	if was := record[schedule.Active](c.Before); was != nil {
		before = *was
	}
	if is := record[schedule.Active](c.After); is != nil {
		after = *is
	}
	for n := range before.Overlays {
		was := &before.Overlays[n]
		is := find(after, was.Name)
		for _, group := range namedBy(was) {
			if !slices.Contains(namedBy(is), group) {
				t.store(Event{Type: OverlayDeactivated, Group: group, Fields: Fields{"eventName": was.Name, "group": group, "reason": whyOff(was, is)}})
			}
		}
	}
	for n := range after.Overlays {
		is := &after.Overlays[n]
		was := find(before, is.Name)
		for _, group := range namedBy(is) {
			if was == nil || !is.Begun.Equal(was.Begun) || !slices.Contains(namedBy(was), group) {
				t.store(Event{Type: OverlayActivated, Group: group, Fields: Fields{"eventName": is.Name, "group": group, "activeUntil": is.Until}})
			}
		}
	}
}

func find(a schedule.Active, name string) *schedule.ActiveOverlay {
	for n := range a.Overlays {
		if a.Overlays[n].Name == name {
			return &a.Overlays[n]
		}
	}
	return nil
}

// namedBy returns the groups of an active overlay, and "" for those that it selects by labels.
func namedBy(o *schedule.ActiveOverlay) (out []fleet.GroupName) {
	if o == nil || !o.On {
		return nil
	}
	out = slices.Clone(o.Groups)
	if len(o.Selector) > 0 {
		out = append(out, "")
	}
	return out
}

// whyOff returns why an overlay ended: "ended" at the end of its window, "changed" when it was written,
// "removed" when it was deleted or turned off.
func whyOff(was, is *schedule.ActiveOverlay) string {
	switch {
	case is == nil:
		return "removed"
	case is.Revision != was.Revision:
		return "changed"
	}
	return "ended"
}
