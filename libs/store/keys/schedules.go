package keys

import "github.com/orreryhq/orrery/libs/fleet/schedule"

// The keys of schedules and overlays.

// Schedule is an action at the times of a cron expression. Written by the gateway.
func Schedule(name string) Key[schedule.Schedule] {
	return Key[schedule.Schedule]{Root + "schedules/" + name}
}

// ScheduleState is the run in progress and the last runs of a schedule. Written by the gateway, fenced
// by its session.
func ScheduleState(name string) Key[schedule.State] {
	return Key[schedule.State]{Root + "schedule-states/" + name}
}

// Overlay changes fields of groups during time windows. Written by the gateway.
func Overlay(name string) Key[schedule.Overlay] {
	return Key[schedule.Overlay]{Root + "overlays/" + name}
}

// ActiveOverlays are the overlays that are active now. Starts of instances compare it. Written by the
// gateway, fenced by its session.
func ActiveOverlays() Key[schedule.Active] {
	return Key[schedule.Active]{Root + "active-overlays/cluster"}
}
